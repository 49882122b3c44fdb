"""Decisions without doing: plain values in, one answer out, with its reason."""
