"""Task rows as Python values that travel.

MySQL's and PostgreSQL's drivers give Python values by themselves: int of any size, Decimal, datetime, date, timedelta
(TIME), bytes, str, None. JSON is text on MySQL, MariaDB and SQLite, and a value on PostgreSQL. What has no Python type
that travels (network addresses, ranges) becomes text as the server would print it. SQLite keeps no types, so the
declared ones say what its texts and numbers mean; a value that doesn't read as its declared type stays as it is.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from netspy.errors import SerializationError
from netspy.messages import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def sqlite_readers(declared: Mapping[str, str]) -> dict[str, Callable[[Any], Any]]:
    """Column name → what makes a Python value of a stored one, for the columns whose declared type asks for it."""
    found = {}
    for name, type_text in declared.items():
        word = re.split(r"[\s(]", type_text.strip().upper(), maxsplit=1)[0]
        if word in _READERS:
            found[name] = _READERS[word]
    return found


def read_row(
    names: Iterable[str], values: Iterable[Any], readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """One row as a dict of Python values."""
    row = dict(zip(names, values, strict=True))
    for name, read in readers.items():
        if row.get(name) is not None:
            row[name] = read(row[name])
    for name, value in row.items():
        if type(value) not in _TRAVELS:
            row[name] = _plain(value)
    return row


_TRAVELS = frozenset({type(None), bool, int, float, str, bytes, datetime, date, Decimal})


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    try:
        codec.encode(value)
    except SerializationError:
        if type(value).__module__.partition(".")[0] in {"ipaddress", "psycopg"}:
            return str(value)
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return value


def _day(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return date.fromisoformat(value)
    except ValueError:
        return value


def _clock_time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return time.fromisoformat(value)
    except ValueError:
        return value


def _decimal(value: Any) -> Any:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return value


def _truth(value: Any) -> Any:
    return bool(value) if value in (0, 1) else value


_READERS: dict[str, Callable[[Any], Any]] = {
    "DATETIME": _moment,
    "TIMESTAMP": _moment,
    "DATE": _day,
    "TIME": _clock_time,
    "DECIMAL": _decimal,
    "NUMERIC": _decimal,
    "BOOLEAN": _truth,
    "BOOL": _truth,
}
