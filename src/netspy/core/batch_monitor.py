"""Doorway: `from netspy.core.batch_monitor import BatchMonitor`."""

from netspy.spiders.batch_monitor import BatchMonitor

__all__ = ["BatchMonitor"]
