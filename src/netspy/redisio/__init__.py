"""Redis clients, script loading and the page of keys."""
