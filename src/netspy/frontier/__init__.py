"""All requests of a run and their states: the contract, in memory and on Redis."""
