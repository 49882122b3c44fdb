"""A batch on its way to every pipeline it belongs to: rounds, retries, deadlines."""
