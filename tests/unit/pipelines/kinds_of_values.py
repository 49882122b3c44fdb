"""Storage case STO-06: one field of every Python kind."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

ITEM = {
    "id": 1,
    "j": {"a": [1, {"b": "中"}]},
    "l": ["x"],
    "s": {"x"},
    "none": None,
    "t": True,
    "nan": float("nan"),
    "dec": Decimal("19.995"),
    "dt": datetime(2026, 1, 1, 8, 0, tzinfo=timezone(timedelta(hours=8))),
    "iso": "2026-01-01T08:00:00Z",
    "by": b"\xff\xfe",
    "sur": "a\ud83d",
    "big": 2**70,
}


class XPathText(str):
    """Like the strings that lxml's XPath returns."""

    __slots__ = ()


class Unstorable:
    def __repr__(self) -> str:
        return "<a socket>"
