"""Documented import path of small helpers."""
