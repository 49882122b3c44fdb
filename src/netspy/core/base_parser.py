"""Doorway: `from netspy.core.base_parser import BaseParser`."""

from netspy.spiders.base import BaseParser

__all__ = ["BaseParser"]
