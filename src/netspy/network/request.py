"""Doorway: `from netspy.network.request import Request`."""

from netspy.messages.request import Request

__all__ = ["Request"]
