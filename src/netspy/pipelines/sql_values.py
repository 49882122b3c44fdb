"""Python values as the parameters of one SQL column: they arrive as they are, or ItemError says why not.

Nothing is altered silently, with two exceptions that a column's own declaration asks for: digits behind its scale are
rounded, and a time finer than its precision loses the rest.
"""

from __future__ import annotations

import operator
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from netspy.errors import ItemError
from netspy.pipelines import sqlite_schema
from netspy.pipelines.values import json_bytes, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netspy.sqlio.address import Kind
    from netspy.sqlio.reflection import Column, Holds

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*", re.ASCII)
_PLAIN_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}", re.ASCII)
_PLAIN_MOMENT = re.compile(r"\d{4}-\d{1,2}-\d{1,2}[ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,6})?)?", re.ASCII)
_MYSQL_DIGITS = 65
_MAX_DEPTH = 100


class Binder(NamedTuple):
    """What makes parameters for one column. `untouched`: types that need no conversion when the test given for them
    (None: no test) holds for a column's values; NULLs are no matter. `longest`: the most characters of a text, and
    the column's type.
    """

    convert: Callable[[Any], Any]
    untouched: Mapping[type, Callable[[Sequence[Any]], bool] | None]
    longest: tuple[int, str] | None = None


class Bound(NamedTuple):
    """A column of parameters, and the places whose value can't be stored, each with the reason."""

    values: list[Any]
    failed: dict[int, ItemError]


def binder(kind: Kind, column: Column) -> Binder:
    """The binder of a column on a server of that kind."""
    if kind == "sqlite":
        affinity = sqlite_schema.Column(column.name, column.declared).affinity
        untouched = {"TEXT": _SQLITE_TEXT, "BLOB": _SQLITE_BLOB}.get(affinity, {})
        return Binder(lambda value: _sqlite(value, affinity), untouched)
    convert = _CONVERT[column.holds]
    plain = _PG_TEXT if column.holds == "text" and kind == "postgresql" else _UNTOUCHED.get(column.holds, {})
    longest = (column.length, column.declared) if column.length is not None else None
    return Binder(lambda value: convert(_scalar(value), kind), plain, longest)


def bind(made: Binder, kind: Kind, name: str, values: Sequence[Any]) -> Bound:
    """The parameters for a column, from the values of the field `name`."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return Bound(list(values), {})
    if len(kinds) == 1 and (one := kinds.pop()) in made.untouched:
        test = made.untouched[one]
        short = made.longest is None or all(len(v) <= made.longest[0] for v in values if v is not None)
        if short and (test is None or test(values)):
            return Bound(list(values), {})
    bound: list[Any] = []
    failed: dict[int, ItemError] = {}
    for place, value in enumerate(values):
        try:
            bound.append(None if value is None else made.convert(value))
            if kind == "postgresql" and type(bound[-1]) is str and "\0" in bound[-1]:
                raise ItemError("PostgreSQL's text can't hold the character U+0000")
            if made.longest is not None and value is not None and len(bound[-1]) > made.longest[0]:
                # Servers cut blanks beyond a column's length without a word.
                raise ItemError(f"{len(bound[-1]):,} characters are too long for {made.longest[1]}")
        except (ItemError, ValueError, ArithmeticError, RecursionError) as error:
            bound[place:] = [None]
            failed[place] = ItemError(f"field {name!r}: {error}")
    return Bound(bound, failed)


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
    """`value` as JSON text. Raises ItemError for what JSON can't say: NaN, half a surrogate pair, unknown types."""
    _check_json(value, _MAX_DEPTH)
    return json_bytes(value).decode("utf-8")


def _check_json(value: Any, room: int) -> None:
    if value is None or isinstance(value, bool | int | bytes):
        return
    if isinstance(value, str):
        exact_text(value)
    elif isinstance(value, float | Decimal):
        if not isfinite(value):
            raise ItemError(f"JSON has no {value}")
    elif room <= 0:
        raise ItemError(f"the value holds itself or is nested more than {_MAX_DEPTH} deep")
    elif isinstance(value, dict):
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


def _scalar(value: Any) -> Any:
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


def _refuse(value: Any, column: str) -> ItemError:
    return ItemError(f"{type(value).__name__} {value!r:.60} doesn't fit a column of {column}")


def _text(value: Any, _kind: Kind) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | Decimal | date | time | bytes):
        return text_of(value)
    text = exact_json(value)
    # UUID, Enum and other values whose JSON form is a string are that string.
    return str(msgspec.json.decode(text)) if text.startswith('"') else text


def _binary(value: Any, _kind: Kind) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise _refuse(value, "bytes")


def _integer(value: Any, _kind: Kind) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value.strip())
    if isinstance(value, float | Decimal):
        if isfinite(value) and value == int(value):
            return int(value)
        raise _refuse(value, "whole numbers")
    try:
        return operator.index(value)
    except TypeError:
        raise _refuse(value, "whole numbers") from None


def _float(value: Any, kind: Kind) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, int):
        if abs(value) > 1 << 53 and int(float(value)) != value:
            raise ItemError(f"{value} has more digits than a floating-point column keeps")
        return float(value)
    if isinstance(value, float | Decimal):
        if kind == "mysql" and not isfinite(value):
            raise ItemError(f"MySQL has no {value}")
        return float(value)
    raise _refuse(value, "numbers")


def _decimal(value: Any, kind: Kind) -> Decimal:
    if isinstance(value, bool | int):
        number = Decimal(int(value))
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, Decimal):
        number = value
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            number = Decimal(value.strip())
        except InvalidOperation:
            raise _refuse(value, "numbers") from None
    else:
        raise _refuse(value, "numbers")
    if kind != "mysql":
        return number
    if not number.is_finite():
        raise ItemError(f"MySQL has no {number}")
    if number and not -_MYSQL_DIGITS * 2 < number.adjusted() < _MYSQL_DIGITS:
        raise ItemError(f"{number:.10E} doesn't fit a DECIMAL, which has {_MYSQL_DIGITS} digits")
    return Decimal(f"{number:f}")  # the server reads 1E+5 as a floating-point number


def _boolean(value: Any, _kind: Kind) -> Any:
    if isinstance(value, bool | str):
        return value
    if value in {0, 1} and isinstance(value, int):
        return bool(value)
    raise _refuse(value, "true and false")


def _json(value: Any, _kind: Kind) -> str:
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            msgspec.json.decode(value)
        except msgspec.DecodeError:
            pass
        else:
            return value  # JSON already
    return exact_json(value)


def _uuid(value: Any, _kind: Kind) -> str:
    if isinstance(value, str | UUID):
        return str(value)
    raise _refuse(value, "UUIDs")


def _array(value: Any, _kind: Kind) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        _check_json(value, _MAX_DEPTH)
        return list(value)
    if isinstance(value, str):
        return value
    raise _refuse(value, "arrays")


def _moment(value: Any, kind: Kind, *, zone: bool) -> Any:
    """A moment for a column without a zone (which holds UTC) or with one; a naive value is taken as UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            # What the server reads without throwing part of it away; PostgreSQL drops a zone it isn't asked for.
            if kind == "mysql" or zone or _PLAIN_MOMENT.fullmatch(value) or _PLAIN_DATE.fullmatch(value):
                return value
            raise _refuse(value, "dates and times") from None
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC)
            return value if zone else value.replace(tzinfo=None)
        return value.replace(tzinfo=UTC) if zone else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if zone else None)
    raise _refuse(value, "dates and times")


def _date(value: Any, _kind: Kind) -> Any:
    if isinstance(value, str):
        text = value.strip()
        try:
            value = date.fromisoformat(text)
        except ValueError:
            try:
                value = datetime.fromisoformat(text)
            except ValueError:
                if _PLAIN_DATE.fullmatch(text):
                    return text
                raise _refuse(value, "dates") from None
    if isinstance(value, datetime):
        if value.time() != time():
            raise _refuse(value, "dates, which would lose the time")
        return value.date()
    if isinstance(value, date):
        return value
    raise _refuse(value, "dates")


def _time(value: Any, kind: Kind) -> Any:
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise _refuse(value, "times without a zone")
        return value
    if isinstance(value, str) or (isinstance(value, timedelta) and kind == "mysql"):
        return value
    raise _refuse(value, "times")


def _timetz(value: Any, _kind: Kind) -> Any:
    if isinstance(value, time):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, str):
        return value
    raise _refuse(value, "times")


def _interval(value: Any, _kind: Kind) -> Any:
    if isinstance(value, timedelta | str):
        return value
    raise _refuse(value, "intervals")


def _other(value: Any, kind: Kind) -> Any:
    if isinstance(value, float) and kind == "mysql":
        return _float(value, kind)
    if isinstance(value, str | bool | int | float | bytes | Decimal | date | time | timedelta):
        return value
    if isinstance(value, UUID):
        return str(value)
    return exact_json(value)


def _sqlite(value: Any, affinity: str) -> Any:
    """SQLite keeps any value in any column, unless the column's affinity makes another one of it."""
    value = _scalar(value)
    if isinstance(value, float) and value != value:  # noqa: PLR0124 (NaN)
        raise ItemError("SQLite has no NaN")
    plain = isinstance(value, str | int | float | bytes | Decimal | date | time)
    if not plain or (isinstance(value, bool) and affinity == "TEXT"):
        value = _text(value, "sqlite")
    bound = sqlite_schema.bound(value, affinity)
    if isinstance(value, str | Decimal):
        if affinity == "INTEGER" and _NUMBER.fullmatch(str(value)) and isfinite(Decimal(value)):
            return sqlite_schema.bound(_integer(value, "sqlite"), affinity)
        numeric = affinity in {"REAL", "NUMERIC"} and _NUMBER.fullmatch(str(value))
        if numeric and Decimal(repr(float(value))) != Decimal(value):
            raise ItemError(f"{value} has more digits than SQLite keeps in a column of type {affinity}")
    elif sqlite_schema.would_change(bound, affinity):
        raise ItemError(f"a SQLite column of type {affinity} would alter {value!r:.60}")
    return bound


_CONVERT: dict[Holds, Callable[[Any, Kind], Any]] = {
    "text": _text,
    "binary": _binary,
    "integer": _integer,
    "float": _float,
    "decimal": _decimal,
    "boolean": _boolean,
    "datetime": lambda value, kind: _moment(value, kind, zone=False),
    "datetimetz": lambda value, kind: _moment(value, kind, zone=True),
    "date": _date,
    "time": _time,
    "timetz": _timetz,
    "interval": _interval,
    "json": _json,
    "uuid": _uuid,
    "array": _array,
    "other": _other,
}


def _utf8(values: Sequence[Any]) -> bool:
    try:
        for value in values:
            if value is not None and not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        return False
    return True


_Tests = dict[type, "Callable[[Sequence[Any]], bool] | None"]
_PG_TEXT: _Tests = {str: lambda values: _utf8(values) and not any(v and "\0" in v for v in values)}
_SQLITE_TEXT: _Tests = {str: _utf8}
_SQLITE_BLOB: _Tests = {str: _utf8, bytes: None}
_UNTOUCHED: dict[Holds, _Tests] = {
    "text": {str: _utf8},
    "binary": {bytes: None},
    "integer": {int: None},
    "float": {float: lambda values: all(isfinite(v) for v in values if v is not None)},
    "boolean": {bool: None},
    "datetime": {datetime: lambda values: all(v.tzinfo is None for v in values if v is not None)},
    "date": {date: None},
}
