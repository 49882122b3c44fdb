"""Rows that no store took: where they are kept, with the reason, and how they are stored again."""
