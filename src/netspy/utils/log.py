"""Doorway: `from netspy.utils.log import get_logger`."""

from netspy.observe.log import get_logger

__all__ = ["get_logger"]
