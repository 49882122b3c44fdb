"""Doorway: `from netspy.network.item import Item`."""

from netspy.messages.item import Item, UpdateItem

__all__ = ["Item", "UpdateItem"]
