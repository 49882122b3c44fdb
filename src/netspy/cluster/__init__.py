"""Looking at and tending what nodes share: nodes, runs, failed requests, reset, status."""
