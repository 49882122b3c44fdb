"""Items as MongoDB documents: names that can't be operators or paths, values that BSON keeps. No I/O here."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any
from uuid import UUID

from netspy.errors import ItemError
from netspy.pipelines.values import clean_text, text_of

_INT64 = 1 << 63
_DECIMAL_DIGITS = 34  # IEEE 754 decimal128
_DECIMAL_TOP, _DECIMAL_BOTTOM = 6144, -6176
_MAX_DEPTH = 95  # the server stops at 100 levels
_UNSAFE = re.compile(r"[\x00-\x1f$/\\ \"*<>:|?]+")
_LONGEST_NAME = 100  # bytes: a name with its database's may have 255, and index names come on top
_DOLLAR, _DOT = "\uff04", "\uff0e"


def collection_name(table: str) -> str:
    """`table` where MongoDB takes it for a collection's name, else its harmless characters and a digest."""
    name = _UNSAFE.sub("_", clean_text(table)).strip(".")
    if name == table and name and not name.startswith("system.") and len(name.encode()) <= _LONGEST_NAME:
        return name
    digest = hashlib.blake2b(table.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    stem = name.encode()[:_LONGEST_NAME].decode("utf-8", "ignore").replace("system.", "system_")
    return f"{stem or 'table'}-{digest}"


def field_name(name: Any) -> str:
    """A field's name that the server takes for a name only.

    A leading `$` (an operator) and every `.` (a path) become their full-width forms. Raises ItemError for an empty
    name, and for one with a NUL, which BSON ends names with.
    """
    text = clean_text(name if isinstance(name, str) else text_of(name))
    if not text or "\0" in text:
        raise ItemError(f"{text!r:.80} can't be a field's name in MongoDB; name the field otherwise")
    if text[0] == "$":
        text = _DOLLAR + text[1:]
    return text.replace(".", _DOT) if "." in text else text


def document(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """An item as a document. Raises ItemError for what BSON can't keep exactly."""
    return _document(fields, 0)


def _document(fields: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    made = {field_name(name): bson_value(value, depth) for name, value in fields.items()}
    if len(made) < len(fields):
        raise ItemError(f"two fields have one name in MongoDB: {list(fields)!r:.200}")
    return made


def bson_value(value: Any, depth: int = 0) -> Any:
    """`value` as BSON has it.

    Decimal is Decimal128, a moment is a date (with a zone: in UTC; without: taken for UTC), whose microseconds the
    server cuts to milliseconds. date, time and timedelta are ISO 8601 text, sets and tuples lists.
    """
    if value is None or isinstance(value, bool | float | bytes):
        return value
    if isinstance(value, str):
        return value if type(value) is str and value.isascii() else clean_text(str.__str__(value))
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return int(value)
        raise ItemError(
            f"{int(value)} has more than 64 bits, which MongoDB can't keep as a number; store it as text"
        )
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, dt.datetime):
        try:
            return value.astimezone(dt.UTC) if value.tzinfo is not None else value
        except OverflowError as error:
            raise ItemError(f"{value!r} has no form in UTC: {error}") from error
    if isinstance(value, UUID):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if depth > _MAX_DEPTH:
        raise ItemError("a value contains itself or is nested too deeply for MongoDB (100 levels)")
    if isinstance(value, Mapping):
        return _document(value, depth + 1)
    if isinstance(value, list | tuple | AbstractSet):
        return [bson_value(inner, depth + 1) for inner in value]
    return text_of(value)


def _decimal(value: Decimal) -> Any:
    from bson.decimal128 import Decimal128

    _, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and (
        len(digits) > _DECIMAL_DIGITS
        or exponent < _DECIMAL_BOTTOM
        or exponent + len(digits) - 1 > _DECIMAL_TOP
        or exponent > _DECIMAL_TOP - _DECIMAL_DIGITS + 1
    ):
        raise ItemError(
            f"{value} has more than {_DECIMAL_DIGITS} digits, which MongoDB can't keep; store it as text"
        )
    return Decimal128(value)


def cut_moments(fields: Mapping[str, Any]) -> list[str]:
    """The fields whose moment has microseconds that the server will cut."""
    return [
        name for name, value in fields.items() if isinstance(value, dt.datetime) and value.microsecond % 1000
    ]


def finding(keys: tuple[str, ...], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The filter that finds documents with the same key values. `$eq` takes any value for a value.

    Raises ItemError for a list or a dict: MongoDB finds and indexes a list by each of its elements, and a dict by the
    order of its fields.
    """
    for key in keys:
        if isinstance(fields[key], list | dict):
            raise ItemError(
                f"{fields[key]!r:.80} can't be the value of the key {key!r} in MongoDB; give text or a number"
            )
    return {key: {"$eq": fields[key]} for key in keys}
