"""Columns that keep less of a value than it has because they are declared so: what they drop is said, not kept silent.

Digits behind a DECIMAL's scale, fractions of a second, the last digits of a 32-bit number. No I/O here.
"""

from __future__ import annotations

import re
import struct
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.sqlio.address import Kind
    from netspy.sqlio.reflection import Column

_PRECISION = re.compile(r"\((\d)\)")
_FINEST = 6
_MOMENTS = frozenset({"datetime", "datetimetz", "time", "timetz", "interval"})


class LossyColumn(NamedTuple):
    """`drops` tells whether the column drops or rounds a part of a parameter; `text` is what to say of it."""

    drops: Callable[[Any], bool]
    text: str


def lossy_column(kind: Kind, column: Column) -> LossyColumn | None:
    """What a column of a server of that kind drops; None when it keeps all or refuses what it can't keep."""
    declared = column.declared.lower()
    if kind == "sqlite":
        return None
    if column.holds in _MOMENTS:
        found = _PRECISION.search(declared)
        digits = int(found[1]) if found else 0 if kind == "mysql" else _FINEST
        if digits >= _FINEST:
            return None
        step = 10 ** (_FINEST - digits)
        kept = f"{digits} digit(s) of a second's fraction" if digits else "whole seconds"
        return LossyColumn(
            lambda value: bool(_microseconds(value) % step), f"keeps {kept}; the rest is dropped"
        )
    if column.holds == "decimal" and column.scale is not None:
        scale = column.scale
        return LossyColumn(
            lambda value: _beyond(value, scale), f"keeps {scale} digit(s) behind the point; the server rounds"
        )
    if column.holds == "float" and declared.startswith(("float", "real")):
        keeps = _mysql_single if kind == "mysql" else _single
        return LossyColumn(
            lambda value: isinstance(value, float) and value == value and keeps(value) != value,  # noqa: PLR0124 (NaN)
            "keeps six or seven digits of a number; use a double",
        )
    return None


def _beyond(value: Any, scale: int) -> bool:
    """Whether a number has digits other than 0 behind `scale` places."""
    if not isinstance(value, Decimal):
        return False
    _, digits, exponent = value.as_tuple()
    beyond = -exponent - scale if isinstance(exponent, int) else 0
    return beyond > 0 and any(digits[-beyond:])


def _microseconds(value: Any) -> int:
    if isinstance(value, datetime | time):
        return value.microsecond
    return value.microseconds if isinstance(value, timedelta) else 0


def _mysql_single(value: float) -> float:
    """MySQL gives six digits of a FLOAT back."""
    return float(f"{value:.6g}")


def _single(value: float) -> float:
    """The shortest decimal number that is this one in 32 bits, which is what PostgreSQL gives back of a REAL."""
    try:
        packed = struct.pack("f", value)
    except OverflowError:
        return value  # the server refuses it
    single: float = struct.unpack("f", packed)[0]
    for digits in range(6, 9):
        short = float(f"{single:.{digits}g}")
        if struct.pack("f", short) == packed:
            return short
    return float(f"{single:.9g}")
