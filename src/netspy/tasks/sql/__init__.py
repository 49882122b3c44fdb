"""Tasks in SQL tables: as a source of tasks, and as the table of a batch job."""
