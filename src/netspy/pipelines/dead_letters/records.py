"""A dead letter as a line of JSON, the same in a file and in a shared store.

`table`, `data`, `pipelines` (the ones that lack the row; null = all), `update_keys`, `unique_key`, `error`, `time`
(ISO 8601), and `item` for an item that was refused before it came to a pipeline: the path of its class. Values come
back with their types (`netspy.messages.codec`).
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec

from netspy.errors import SerializationError
from netspy.messages.codec import is_plain, tag, untag
from netspy.messages.row import DeadRow, Row

_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder().decode


def line_of(dead: DeadRow) -> bytes:
    """The letter as a line with its end. What can't travel is kept as text, which the error then says."""
    row = dead.row
    record: dict[str, Any] = {
        "table": row.table,
        "data": row.data,
        "pipelines": None if row.pipelines is None else list(row.pipelines),
        "update_keys": None if row.update_keys is None else list(row.update_keys),
        "unique_key": list(row.unique_key),
        "error": dead.error,
        "time": datetime.fromtimestamp(dead.time, UTC).isoformat(timespec="milliseconds"),
    }
    if dead.item:
        record["item"] = dead.item
    try:
        return _encode(record)
    except SerializationError as error:
        lost: list[str] = []
        record["data"] = _tame(row.data, (), lost)
        if lost:
            record["error"] = f"{dead.error} (kept with some values as text: {error})"
        return _encode(record)


def _encode(record: dict[str, Any]) -> bytes:
    if is_plain(record):
        with suppress(UnicodeEncodeError):
            return _write(record) + b"\n"
    return _write(tag(record)) + b"\n"


def _tame(value: Any, path: tuple[int, ...], lost: list[str]) -> Any:
    """`value` as what travels: subclasses as the type they derive from, members of an enumeration as their value, a
    buffer as bytes. All else is its text, of which `lost` is told.
    """
    if isinstance(value, Enum):
        return _tame(value.value, (*path, id(value)), lost)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | int):
        return value if isinstance(value, bool) else int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if id(value) in path or len(path) > 50:
        lost.append(repr(value))
        return "<contains itself>" if id(value) in path else lost[-1]
    inside = (*path, id(value))
    if isinstance(value, Mapping):
        return {
            key if type(key) is str else _key(key, lost): _tame(inner, inside, lost)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_tame(inner, inside, lost) for inner in value]
    if isinstance(value, set | frozenset):
        return {_key(inner, lost) for inner in value}
    try:
        tag(value)
    except SerializationError:
        lost.append(repr(value))
        return lost[-1]
    return value


def _key(key: Any, lost: list[str]) -> Any:
    """The same for the key of a dict or a member of a set, which has to stay one."""
    if isinstance(key, Enum):
        return _key(key.value, lost)
    try:
        tag({key: 0})
    except SerializationError:
        if not isinstance(key, str):
            lost.append(repr(key))
        return str.__str__(key) if isinstance(key, str) else str(key)
    return key


def parse_record(line: bytes) -> DeadRow:
    """Raises ValueError (DecodeError, UnicodeDecodeError) or SerializationError, whatever stands there."""
    try:
        return _parsed(line)
    except (ArithmeticError, LookupError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise ValueError(f"no dead letter: {error}") from error


def _parsed(line: bytes) -> DeadRow:
    record = untag(_read(line))
    if not (
        isinstance(record, dict)
        and isinstance(record.get("table"), str)
        and isinstance(record.get("data"), dict)
    ):
        raise ValueError("no dead letter: it needs 'table' and 'data'")  # noqa: TRY004 (the line is wrong)
    row = Row(
        record["table"],
        record["data"],
        _names(record, "pipelines"),
        _names(record, "update_keys"),
        _names(record, "unique_key") or (),
    )
    at = record.get("time")
    when = datetime.fromisoformat(at).timestamp() if isinstance(at, str) else clock.time()
    return DeadRow(row, str(record.get("error", "")), when, str(record.get("item", "")))


def _names(record: dict[str, Any], field: str) -> tuple[str, ...] | None:
    names = record.get(field)
    if names is None:
        return None
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"no dead letter: {field!r} must be a list of names")
    return tuple(names)
