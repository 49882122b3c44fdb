"""What every column asks of a value: text that UTF-8 can say, values that JSON can say, plain types. No I/O here."""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from netspy.errors import ItemError
from netspy.pipelines.values import json_bytes

_MAX_DEPTH = 100


def exact_text(text: str) -> str:
    """The text itself. Raises ItemError for half a surrogate pair, which UTF-8 has no form for."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise ItemError(
                f"the text holds half a surrogate pair ({half!r} at {error.start}), which no database can keep"
            ) from None
    return text


def exact_json(value: Any) -> str:
    """`value` as JSON text. Raises ItemError for what JSON can't say: NaN, half a surrogate pair, unknown types,
    keys that are one text.
    """
    _check_json(value, _MAX_DEPTH)
    return json_bytes(value).decode("utf-8")


def _check_json(value: Any, room: int) -> None:
    if value is None or isinstance(value, bool | int | bytes):
        return
    if isinstance(value, str):
        exact_text(value)
    elif isinstance(value, float | Decimal):
        if not (value.is_finite() if isinstance(value, Decimal) else isfinite(value)):
            raise ItemError(f"JSON has no {value}")
    elif room <= 0:
        raise ItemError(f"the value holds itself or is nested more than {_MAX_DEPTH} deep")
    elif isinstance(value, dict):
        if not all(isinstance(key, str) for key in value) and len(set(map(str, value))) < len(value):
            raise ItemError(f"two keys of a dict are the same text in JSON: {list(value)!r:.80}")
        for key, inner in value.items():
            _check_json(key, room - 1)
            _check_json(inner, room - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _check_json(inner, room - 1)
    elif not isinstance(value, date | time | timedelta | UUID | bytearray | memoryview):
        try:
            _check_json(msgspec.to_builtins(value), room - 1)
        except TypeError as error:
            raise ItemError(str(error)) from None


def scalar(value: Any) -> Any:
    """Subclasses (the strings of lxml, IntEnum, numpy's float64) as the plain type."""
    if isinstance(value, str):
        return exact_text(value if type(value) is str else str.__str__(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def unfit(value: Any, column: str) -> ItemError:
    """Why a value can't go to such a column."""
    return ItemError(f"{type(value).__name__} {value!r:.60} doesn't fit a column of {column}")
