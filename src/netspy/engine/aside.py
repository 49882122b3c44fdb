"""See `netspy.aside`."""

from netspy.aside import in_thread

__all__ = ["in_thread"]
