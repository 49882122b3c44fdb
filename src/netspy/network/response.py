"""Doorway: `from netspy.network.response import Response`."""

from netspy.messages.response import Response

__all__ = ["Response"]
