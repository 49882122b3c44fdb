"""Python values as JSON and as cell text, the same way in every file pipeline.

`Decimal` keeps its digits (as text), dates and times are ISO 8601, bytes are base64, sets and tuples are
lists. NaN and infinities become null, since JSON has none. Half a surrogate pair is no text in UTF-8; it
becomes U+FFFD.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from netspy.errors import ItemError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LEAVES = (Decimal, datetime, date, time, bytes, bytearray, memoryview, int, float)


def clean_text(text: str) -> str:
    """`text` without lone surrogates: each becomes U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def _base_of(value: Any) -> Any:
    """A subclass of str, int or float (e.g. the strings of lxml's XPath) as the plain type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(
        f"a {type(value).__name__} can't be stored as JSON; convert it to text, a number, a list or a dict"
    )


_ENCODER = msgspec.json.Encoder(enc_hook=_base_of)


def _plain(value: Any) -> Any:
    """`value` rebuilt from what JSON has: keys as text, lone surrogates replaced."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, _LEAVES):
        return value
    if isinstance(value, Mapping):
        return {clean_text(key if isinstance(key, str) else str(key)): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [_plain(v) for v in value]
    return _plain(msgspec.to_builtins(value, enc_hook=_base_of))


def json_bytes(value: Any) -> bytes:
    """`value` as one line of UTF-8 JSON. Raises ItemError for what has no JSON form."""
    try:
        try:
            return _ENCODER.encode(value)
        except (UnicodeEncodeError, TypeError):
            return _ENCODER.encode(_plain(value))
    except RecursionError:
        raise ItemError("a value contains itself or is nested too deeply to be stored as JSON") from None
    except (TypeError, ValueError) as error:
        raise ItemError(str(error)) from error


def json_lines(items: Sequence[dict[str, Any]]) -> bytes:
    """One line per item, each ended by a newline. Raises ItemError like `json_bytes`."""
    try:
        return _ENCODER.encode_lines(items)
    except (TypeError, ValueError, RecursionError):
        return b"".join(json_bytes(item) + b"\n" for item in items)


def text_of(value: Any) -> str:
    """`value` as the text of one cell: None is empty, nested values are JSON. Raises ItemError."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(_base_of(value)) if isinstance(value, int | float) else str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    text = json_bytes(value).decode("utf-8")
    if text.startswith('"'):  # UUID, Enum and other values whose JSON form is a string
        return str(msgspec.json.decode(text))
    return text


class Sheet(NamedTuple):
    """Items as rows of a table: keys are text, `columns` their union in the order of first appearance."""

    columns: list[str]
    rows: list[dict[str, Any]]


def as_sheet(table: str, items: Sequence[dict[str, Any]]) -> Sheet:
    """The items with text keys. Raises ItemError for an item without fields, or with two keys of one text."""
    seen: dict[Any, None] = {}
    for item in items:
        if not item:
            raise ItemError(f"an item of table {table!r} has no fields; a row needs at least one")
        seen.update(dict.fromkeys(item))
    names = {key: clean_text(key if isinstance(key, str) else str(key)) for key in seen}
    if all(key is name or key == name for key, name in names.items()):
        return Sheet(list(seen), list(items))
    rows = [{names[key]: value for key, value in item.items()} for item in items]
    for row, item in zip(rows, items, strict=True):
        if len(row) != len(item):
            raise ItemError(f"two keys of an item of table {table!r} are the same text: {list(item)}")
    return Sheet(list(dict.fromkeys(names.values())), rows)
