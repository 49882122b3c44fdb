"""Python values as the parameters of one SQL column: they arrive as they are, or ItemError says why not.

Nothing is altered, with the exceptions that a column's own declaration asks for, which are said (`sql_blunt`): digits behind
its scale, or beyond the precision of its floating-point numbers, are rounded, and a time finer than its precision loses the rest.
"""

from __future__ import annotations

import operator
import re
import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from netspy.errors import ItemError
from netspy.pipelines.relational import datetimes as sql_moments
from netspy.pipelines.relational import sqlite_schema
from netspy.pipelines.relational.mysql_types import Strict, at_most, strict
from netspy.pipelines.relational.strict import exact_json, scalar, unfit
from netspy.pipelines.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netspy.sqlio.address import Kind
    from netspy.sqlio.reflection import Column, Holds

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*", re.ASCII)
_MYSQL_DIGITS = 65


class Binder(NamedTuple):
    """What makes parameters for one column.

    `untouched`: types that need no conversion when the test given for them (None: no test) holds for a column's
    values; NULLs are no matter. `strict`: a check of each parameter. `null`: why a NULL can't be stored, when the
    server would not say so.
    """

    convert: Callable[[Any], Any]
    untouched: Mapping[type, Callable[[Sequence[Any]], bool] | None]
    strict: Strict | None = None
    null: str = ""


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
    convert = _converter(kind, column)
    plain = _PG_TEXT if column.holds == "text" and kind == "postgresql" else _UNTOUCHED.get(column.holds, {})
    null = ""
    if kind == "mysql" and not column.nullable and column.declared.lower().startswith("timestamp"):
        null = f"the server would store the time of now for NULL in {column.declared} NOT NULL"
    return Binder(lambda value: convert(scalar(value), kind), plain, _checks(kind, column), null)


def _checks(kind: Kind, column: Column) -> Strict | None:
    if kind == "mysql":
        return strict(column)
    return Strict(at_most(column), column.length) if column.length is not None else None


def _converter(kind: Kind, column: Column) -> Callable[[Any, Kind], Any]:
    declared = column.declared.lower()
    if kind == "mysql" and declared.startswith("bit"):
        return _bits
    if column.holds == "float" and declared.startswith(("float", "real")):
        return partial(_float, single=True)
    if column.holds == "array" and column.element is not None and column.element.holds in _IN_ARRAYS:
        return partial(_array_of, binder(kind, column.element))
    return _CONVERT[column.holds]


def bind(made: Binder, kind: Kind, name: str, values: Sequence[Any]) -> Bound:
    """The parameters for a column, from the values of the field `name`."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not made.null:
        if not kinds:
            return Bound(list(values), {})
        if len(kinds) == 1 and (one := kinds.pop()) in made.untouched and _fits(made.strict, values):
            test = made.untouched[one]
            if test is None or test(values):
                return Bound(list(values), {})
    bound: list[Any] = []
    failed: dict[int, ItemError] = {}
    for place, value in enumerate(values):
        try:
            if value is None and made.null:
                raise ItemError(made.null)
            bound.append(None if value is None else _parameter(made, kind, value))
        except (ItemError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            bound.append(None)
            failed[place] = ItemError(f"field {name!r}: {error}")
    return Bound(bound, failed)


def _fits(checks: Strict | None, values: Sequence[Any]) -> bool:
    """Whether the values pass the check by their length alone."""
    if checks is None:
        return True
    fits = checks.fits
    return fits is not None and all(len(value) <= fits for value in values if value is not None)


def _parameter(made: Binder, kind: Kind, value: Any) -> Any:
    found = made.convert(value)
    if kind == "postgresql" and type(found) is str and "\0" in found:
        raise ItemError("PostgreSQL's text can't hold the character U+0000")
    if made.strict is not None:
        made.strict.check(found)
    return found


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
    raise unfit(value, "bytes")


def _integer(value: Any, _kind: Kind) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value.strip())
    if isinstance(value, float | Decimal):
        if isfinite(value) and value == int(value):
            return int(value)
        raise unfit(value, "whole numbers")
    try:
        return operator.index(value)
    except TypeError:
        raise unfit(value, "whole numbers") from None


def _bits(value: Any, kind: Kind) -> int | bytes:
    """MySQL's BIT: a text would be taken for the bits of its characters."""
    if isinstance(value, bytes):
        return value
    number = _integer(value, kind)
    if number < 0:
        raise unfit(value, "bits")
    return number


def _float(value: Any, kind: Kind, *, single: bool = False) -> float:
    """`single`: a column of 32 bits."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value.strip())
    if isinstance(value, float):
        if kind == "mysql" and not isfinite(value):
            raise ItemError(f"MySQL has no {value}")
        return value
    if not isinstance(value, int | Decimal):
        raise unfit(value, "numbers")
    if isinstance(value, Decimal) and not value.is_finite():
        return _float(float(value), kind)
    number = float(value)
    kept = number
    if single and isinstance(value, int) and abs(value) > (10**6 if kind == "mysql" else 1 << 24):
        # MySQL gives six digits of a FLOAT back.
        kept = float(f"{value:.6g}") if kind == "mysql" else struct.unpack("f", struct.pack("f", number))[0]
    if not isfinite(kept) or Decimal(repr(kept)) != value:
        raise ItemError(f"{value} has more digits than a floating-point column keeps")
    return number


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
            raise unfit(value, "numbers") from None
    else:
        raise unfit(value, "numbers")
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
    if isinstance(value, int) and value in {0, 1}:
        return bool(value)
    raise unfit(value, "true and false")


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
    raise unfit(value, "UUIDs")


def _array(value: Any, _kind: Kind) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        exact_json(value)
        return list(value)
    if isinstance(value, str):
        return value
    raise unfit(value, "arrays")


def _array_of(made: Binder, value: Any, kind: Kind) -> Any:
    """The server would round and cut what is in an array without a word, as it casts it."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple | set | frozenset):
        raise unfit(value, "arrays")
    return [
        _array_of(made, inner, kind)
        if isinstance(inner, list | tuple)
        else None
        if inner is None
        else _parameter(made, kind, inner)
        for inner in value
    ]


def _other(value: Any, kind: Kind) -> Any:
    if isinstance(value, float | Decimal) and kind == "mysql" and not isfinite(value):
        raise ItemError(f"MySQL has no {value}")
    if isinstance(value, str | bool | int | float | bytes | Decimal | date | time | timedelta):
        return value
    if isinstance(value, UUID):
        return str(value)
    return exact_json(value)


def _sqlite(value: Any, affinity: str) -> Any:
    """SQLite keeps any value in any column, unless the column's affinity makes another one of it."""
    value = scalar(value)
    if isinstance(value, float) and value != value:  # noqa: PLR0124 (NaN)
        raise ItemError("SQLite has no NaN")
    plain = isinstance(value, str | int | float | bytes | Decimal | date | time)
    if not plain or (isinstance(value, bool) and affinity == "TEXT"):
        value = _text(value, "sqlite")
    bound = sqlite_schema.bound(value, affinity)
    if isinstance(value, str | Decimal):
        if affinity == "INTEGER" and _NUMBER.fullmatch(str(value)):
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
    "datetime": partial(sql_moments.moment, zone=False),
    "datetimetz": partial(sql_moments.moment, zone=True),
    "date": sql_moments.day,
    "time": sql_moments.time_of_day,
    "timetz": sql_moments.time_with_zone,
    "interval": sql_moments.span,
    "json": _json,
    "uuid": _uuid,
    "array": _array,
    "other": _other,
}
_IN_ARRAYS: frozenset[Holds] = frozenset(
    {"text", "integer", "float", "decimal", "boolean", "datetime", "datetimetz", "date", "time"}
)


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
