"""SQL databases: addresses, engines, dialects, and which of their errors pass by themselves."""
