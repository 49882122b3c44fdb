"""Tasks from their source into the frontier, as requests."""
