"""Documented import paths of what other rooms hold."""
