"""Rows as Arrow batches, for Parquet."""
