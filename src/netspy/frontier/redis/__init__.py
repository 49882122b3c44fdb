"""The frontier on one Redis, shared by any number of nodes. Every transition is one script in `lua/`."""
