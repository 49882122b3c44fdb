"""What travels: requests, responses, items. Each name is loaded at its first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspy.messages.item import Item, UpdateItem
    from netspy.messages.request import Request
    from netspy.messages.response import Response

__all__ = ["Item", "Request", "Response", "UpdateItem"]

_HOME = {"Item": "item", "Request": "request", "Response": "response", "UpdateItem": "item"}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
