"""netspy."""
