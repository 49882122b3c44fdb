"""JSON that brings Python values back as they went in.

What JSON can't say is written as an object with one key that starts with "!", for example `{"!tuple": [1,
2]}`. A user's own dict of that shape is written as `{"!dict": [["!tuple", [1, 2]]]}`, so it can't be mistaken
for one. Nothing here evaluates or imports what the text names: reading a payload is safe whoever wrote it.

Travelling types: None bool int float str bytes list tuple dict set frozenset datetime date time timedelta Decimal
UUID, nested in each other, dict keys included. Subclasses would come back as their base, so they are refused.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

import msgspec

from netspy.errors import SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 4 * 1024 * 1024
"""The largest payload that is written or read. A queue holds requests, not documents."""

MAX_DEPTH = 100
"""Containers within containers; a value that holds itself ends here too."""

_write = msgspec.json.Encoder().encode
_write_sorted = msgspec.json.Encoder(order="deterministic").encode
_read = msgspec.json.Decoder().decode
_ALWAYS_PLAIN = frozenset({str, bool, type(None)})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what the JSON reader gives back as an int


def encode(value: Any, where: str = "") -> bytes:
    """`value` as JSON. `where` names the value in errors, e.g. `cb_kwargs`.

    Raises SerializationError for a value of another type (naming the keys that lead to it), for nesting
    deeper than MAX_DEPTH, and for more than MAX_BYTES.
    """
    try:
        data = _write(value if is_plain(value) else tag(value, where))
    except UnicodeEncodeError:
        data = _write(tag(value, where))
    return check_size(data, where)


def decode(data: bytes | str) -> Any:
    """The value that `encode` was given. Raises SerializationError for anything `encode` didn't write."""
    if len(data) > MAX_BYTES:
        raise SerializationError(f"a payload of {len(data):,} bytes is over the limit of {MAX_BYTES:,}")
    try:
        value = _read(data)
        marked = '"!' in data if isinstance(data, str) else b'"!' in data
        return untag(value) if marked else value
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SerializationError(f"not a payload of netspy: {error}: {data[:80]!r}") from error


def is_plain(value: Any, room: int = MAX_DEPTH) -> bool:
    """True when JSON brings `value` back by itself (strings are not searched for lone surrogates)."""
    kind = type(value)
    if kind in _ALWAYS_PLAIN:
        return True
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    if kind is float:
        return isfinite(value)
    if room <= 0:
        return False
    if kind is dict:
        key: Any = ""
        for key, inner in value.items():
            if type(key) is not str or (type(inner) not in _ALWAYS_PLAIN and not is_plain(inner, room - 1)):
                return False
        return len(value) != 1 or not key.startswith("!")
    if kind is list:
        for inner in value:  # a loop, not all(): half the time  # noqa: SIM110 - half the time of all()
            if type(inner) not in _ALWAYS_PLAIN and not is_plain(inner, room - 1):
                return False
        return True
    return False


def tag(value: Any, where: str = "") -> Any:
    """`value` with tagged objects where JSON alone would change it. Raises SerializationError."""
    try:
        return _Lifter().lift(value, MAX_DEPTH)
    except _RefusedError as refused:
        raise SerializationError(refused.message(where)) from None


def untag(value: Any) -> Any:
    """The inverse of `lift`; changes containers in place. Raises SerializationError for an unknown tag."""
    kind = type(value)
    if kind is list:
        for index, inner in enumerate(value):
            if type(inner) is dict or type(inner) is list:
                value[index] = untag(inner)
    elif kind is dict:
        if len(value) == 1:
            [(tag, content)] = value.items()
            if tag.startswith("!"):
                return _revive(tag, content)
        for key, inner in value.items():
            if type(inner) is dict or type(inner) is list:
                value[key] = untag(inner)
    return value


def stable(value: Any) -> bytes:
    """Bytes that are equal for equal values of equal types, whatever the order of keys; for fingerprints only.

    Objects of other types count by type and `repr`. Raises SerializationError for nesting deeper than MAX_DEPTH.
    """
    try:
        if is_plain(value):
            return _write_sorted(value)
    except UnicodeEncodeError:
        pass
    try:
        return _write_sorted(_StableLifter().lift(value, MAX_DEPTH))
    except _RefusedError as refused:
        raise SerializationError(refused.message("")) from None


def check_size(data: bytes, where: str = "") -> bytes:
    """`data` itself. Raises SerializationError when it is over MAX_BYTES."""
    if len(data) > MAX_BYTES:
        raise SerializationError(
            f"{where or 'the value'} takes {len(data):,} bytes, over the limit of {MAX_BYTES:,}; "
            "keep large data in a store or a file and pass its key"
        )
    return data


class _RefusedError(Exception):
    """A value that can't travel; each container it leaves adds its step to the path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []

    def message(self, where: str) -> str:
        return f"{where or 'value'}{''.join(reversed(self.path))}: {self}"


def _refuse(value: Any) -> NoReturn:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Enum):
        advice = "pass its .value"
    elif isinstance(value, tzinfo):
        advice = "use zoneinfo.ZoneInfo or a fixed datetime.timezone"
    else:
        base = next((base for base in _BASES if isinstance(value, base)), None)
        advice = f"pass {base.__name__}(value)" if base else "pass plain data"
    raise _RefusedError(f"{name} can't travel between processes; {advice}")


_BASES: tuple[type, ...] = (str, dict, list, tuple, int, float, bytes, bytearray, set, frozenset)


class _Lifter:
    """Writes tags. One object per value, so that `_StableLifter` can answer two questions differently."""

    def lift(self, value: Any, room: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return value if value.isascii() else _text(value)
        if kind is int:
            return value if _INT_MIN <= value <= _INT_MAX else {"!int": hex(value)}
        if kind is float:
            return value if isfinite(value) else {"!float": repr(value)}
        atom = _ATOMS.get(kind)
        if atom is not None:
            return atom(value)
        if kind not in _CONTAINERS:
            return self.other(value)
        if room <= 0:
            raise _RefusedError(
                f"it refers to itself or is nested more than {MAX_DEPTH} deep; pass flat data"
            )
        if kind is dict:
            return self.mapping(value, room - 1)
        inner = [self.step(f"[{index}]", item, room - 1) for index, item in enumerate(value)]
        if kind is list:
            return inner
        if kind is set or kind is frozenset:
            inner.sort(key=_write_sorted)  # sets of strings have another order in each process
        return {_CONTAINERS[kind]: inner}

    def mapping(self, value: dict[Any, Any], room: int) -> dict[str, Any]:
        plain_keys = all(type(key) is str and type(_text(key)) is str for key in value)
        if plain_keys and not (len(value) == 1 and next(iter(value)).startswith("!")):
            return {key: self.step(f"[{key!r}]", inner, room) for key, inner in value.items()}
        return {
            "!dict": self.pairs(
                [
                    [self.step(f" key {key!r:.80}", key, room), self.step(f"[{key!r:.80}]", inner, room)]
                    for key, inner in value.items()
                ]
            )
        }

    def step(self, step: str, value: Any, room: int) -> Any:
        try:
            return self.lift(value, room)
        except _RefusedError as refused:
            refused.path.append(step)
            raise

    def pairs(self, pairs: list[Any]) -> list[Any]:
        return pairs

    def other(self, value: Any) -> Any:
        _refuse(value)


class _StableLifter(_Lifter):
    def pairs(self, pairs: list[Any]) -> list[Any]:
        return sorted(pairs, key=_write_sorted)

    def other(self, value: Any) -> Any:
        kind = type(value)
        return {"!repr": [f"{kind.__module__}.{kind.__qualname__}", _text(repr(value))]}


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which some pages' JSON contains; UTF-8 and so JSON can't hold one.
        return {"!str": _base64(value.encode("utf-8", "surrogatepass"))}
    return value


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _span(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _zone(zone: tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        return [_span(offset)] if name == timezone(offset).tzname(None) else [_span(offset), name]
    key = getattr(zone, "key", None)
    if type(zone).__module__ == "zoneinfo" and isinstance(key, str):
        return key
    return _refuse(zone)


def _moment(tag: str) -> Callable[[Any], Any]:
    def write(value: datetime | time) -> Any:
        zone = _zone(value.tzinfo)
        text = value.replace(tzinfo=None).isoformat()
        return {tag: text if zone is None and not value.fold else [text, value.fold, zone]}

    return write


_CONTAINERS: dict[type, str] = {
    dict: "",
    list: "",
    tuple: "!tuple",
    set: "!set",
    frozenset: "!frozenset",
}
_ATOMS: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"!bytes": _base64(value)},
    datetime: _moment("!datetime"),
    date: lambda value: {"!date": value.isoformat()},
    time: _moment("!time"),
    timedelta: lambda value: {"!timedelta": _span(value)},
    Decimal: lambda value: {"!decimal": str(value)},
    UUID: lambda value: {"!uuid": value.hex},
}


def _read_zone(zone: Any) -> tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        from zoneinfo import ZoneInfo

        return ZoneInfo(zone)
    span, *name = zone
    return timezone(timedelta(*span), *name)


def _read_moment(kind: type[datetime | time]) -> Callable[[Any], Any]:
    def read(content: Any) -> datetime | time:
        if isinstance(content, str):
            return kind.fromisoformat(content)
        text, fold, zone = content
        return kind.fromisoformat(text).replace(fold=fold, tzinfo=_read_zone(zone))

    return read


def _read_int(content: str) -> int:
    # int() refuses more than 4,300 digits by default; hexadecimal has no such limit, and no square cost.
    return int(content, 16)


def _read_items(content: Any) -> list[Any]:
    if type(content) is not list:
        raise TypeError("a list is wanted")
    items: list[Any] = untag(content)
    return items


_REVIVE: dict[str, Callable[[Any], Any]] = {
    "!int": _read_int,
    "!float": float,
    "!str": lambda content: a2b_base64(content).decode("utf-8", "surrogatepass"),
    "!bytes": a2b_base64,
    "!datetime": _read_moment(datetime),
    "!date": date.fromisoformat,
    "!time": _read_moment(time),
    "!timedelta": lambda content: timedelta(*content),
    "!decimal": Decimal,
    "!uuid": UUID,
    "!tuple": lambda content: tuple(_read_items(content)),
    "!set": lambda content: set(_read_items(content)),
    "!frozenset": lambda content: frozenset(_read_items(content)),
    "!dict": lambda content: dict(_read_items(content)),
}


def _revive(tag: str, content: Any) -> Any:
    revive = _REVIVE.get(tag)
    if revive is None:
        raise SerializationError(
            f"{{{tag!r}: …}} has a tag this version of netspy doesn't know; update this node"
        )
    try:
        return revive(content)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise SerializationError(f"{{{tag!r}: {content!r:.80}}} can't be read: {error}") from error
