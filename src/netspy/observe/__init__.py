"""Observation: the log, counters, terminal progress, the run summary and alerts."""
