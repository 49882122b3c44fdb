"""The master of a batch job."""
