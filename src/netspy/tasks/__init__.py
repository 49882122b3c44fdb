"""Where tasks come from, and the tables that batches run on."""
