"""From Python values to typed columns: what kind a value is, and the kind that all values of a column share.

A column keeps the narrowest type that holds every value of the file exactly. Values that share none (numbers and
text, for instance) make a column of text. No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from netspy.pipelines.values import clean_text, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

_INT64 = 1 << 63
_INT64_DIGITS = 19
_EXACT_IN_FLOAT = 15  # digits of a whole number that a 64-bit float keeps
_MOST_DIGITS = 76  # decimal256


class Kind(NamedTuple):
    """What a column holds. `whole` and `scale` count a number's digits before and after the point; `zone` is a
    moment's, "" without one; `inner` is the name of what a list holds.
    """

    name: str
    whole: int = 0
    scale: int = 0
    zone: str = ""
    inner: str = ""


NULL, BOOL, FLOAT, TEXT = Kind("null"), Kind("bool"), Kind("float"), Kind("text")
BYTES, DATE, TIME = Kind("bytes"), Kind("date"), Kind("time")
_SIMPLE: dict[type, Kind] = {
    type(None): NULL,
    bool: BOOL,
    float: FLOAT,
    str: TEXT,
    bytes: BYTES,
    date: DATE,
    time: TIME,
    dict: TEXT,
}
_SEVERAL = (list, tuple, AbstractSet)
_NESTED = (*_SEVERAL, Mapping)
_LISTED = frozenset({"null", "bool", "int", "float", "text"})


def cell(value: Any) -> Any:
    """`value` as one of the few plain types that a column is made of. Raises ItemError for what has no such form.

    Dicts, and lists of anything but text, numbers or truth values of one kind, become JSON text.
    """
    if value is None or type(value) in {bool, float, bytes, date}:
        return value
    if isinstance(value, str):
        return value if type(value) is str and value.isascii() else clean_text(str.__str__(value))
    if isinstance(value, int):
        return bool(value) if isinstance(value, bool) else int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal):
        return Decimal(value) if value.is_finite() else str(value)
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, time):
        return time.fromisoformat(value.isoformat()) if value.tzinfo is None else value.isoformat()
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, _SEVERAL) and not any(isinstance(inner, _NESTED) for inner in value):
        cells = [cell(inner) for inner in value]
        if _list_kind(cells) is not None:
            return cells
    return text_of(value)


def _moment(value: datetime) -> datetime:
    zone = value.tzinfo
    plain = datetime(  # noqa: DTZ001 - the zone comes below
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        fold=value.fold,
    )
    if zone is None:
        return plain.replace(fold=0)
    if type(zone) is timezone or (type(zone) is ZoneInfo and zone.key):
        return plain.replace(tzinfo=zone)
    return plain.replace(tzinfo=timezone(value.utcoffset() or timedelta()), fold=0)


def _zone_name(value: datetime) -> str:
    """The zone as Arrow names it; UTC when it has no such name."""
    zone = value.tzinfo
    if zone is None:
        return ""
    if isinstance(zone, ZoneInfo):
        return zone.key
    offset = value.utcoffset() or timedelta()
    minutes, rest = divmod(offset, timedelta(minutes=1))
    if rest or not minutes:
        return "UTC"
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def kind_of(value: Any) -> Kind:
    """The kind of one cell."""
    kind = _SIMPLE.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, int):
        digits = digits_of(value)
        return _number(digits, 0) if not -_INT64 <= value < _INT64 else Kind("int", digits)
    if isinstance(value, Decimal):
        parts = value.as_tuple()
        places = int(parts.exponent)
        return _number(max(len(parts.digits) + places, 1), max(-places, 0))
    if isinstance(value, datetime):
        return Kind("moment", zone=_zone_name(value))
    if isinstance(value, list):
        return _list_kind(value) or TEXT
    return TEXT


def digits_of(number: int) -> int:
    """How many decimal digits it has, up to one more than a decimal can have."""
    return len(str(abs(number))) if abs(number) < 10**_MOST_DIGITS else _MOST_DIGITS + 1


def _number(whole: int, scale: int) -> Kind:
    return Kind("decimal", whole, scale) if whole + scale <= _MOST_DIGITS else TEXT


def _list_kind(cells: list[Any]) -> Kind | None:
    """The kind of a list whose elements share one; None for others."""
    inner = NULL
    for value in cells:
        found = kind_of(value)
        merged = merge(inner, found)
        if merged.name not in _LISTED or is_mixed(merged, inner, found):
            return None
        inner = merged
    return Kind("list", inner.whole, inner=inner.name)


def merge(one: Kind, two: Kind) -> Kind:
    """The kind that holds the values of both exactly; text when there is none."""
    if one == two or two.name == "null":
        return one
    if one.name == "null":
        return two
    names = {one.name, two.name}
    whole, scale = max(one.whole, two.whole), max(one.scale, two.scale)
    if names == {"int"}:
        return Kind("int", whole)
    if names <= {"int", "decimal"}:
        return _number(whole, scale)
    if names == {"int", "float"}:
        return FLOAT if whole <= _EXACT_IN_FLOAT else TEXT
    if names == {"moment"} and one.zone and two.zone:
        return Kind("moment", zone="UTC")
    if names == {"list"}:
        inner = {one.inner, two.inner} - {"null"}
        if len(inner) == 1:
            return Kind("list", whole, inner=inner.pop())
        if inner == {"int", "float"} and whole <= _EXACT_IN_FLOAT:
            return Kind("list", whole, inner="float")
    return TEXT


def is_mixed(merged: Kind, *parts: Kind) -> bool:
    """Whether values of other kinds became text, for want of a type that holds all."""
    return merged.name == "text" and any(part.name not in {"text", "null"} for part in parts)


def fit(value: Any, kind: Kind) -> Any:
    """A cell as a value of a column of that kind."""
    if value is None or kind.name not in {"text", "float", "decimal", "list"}:
        return value
    if kind.name == "text":
        return value if type(value) is str else text_of(value)
    if kind.name == "float":
        return float(value)
    if kind.name == "decimal":
        return Decimal(value)
    return [None if inner is None else float(inner) for inner in value] if kind.inner == "float" else value


def arrow_type(kind: Kind) -> Any:
    """The Arrow type of a column of that kind."""
    import pyarrow as pa

    if kind.name == "decimal":
        digits = kind.whole + kind.scale
        return (
            pa.decimal128(max(digits, 1), kind.scale) if digits <= 38 else pa.decimal256(digits, kind.scale)
        )
    if kind.name == "moment":
        return pa.timestamp("us", tz=kind.zone or None)
    if kind.name == "list":
        return pa.list_(arrow_type(Kind("text" if kind.inner == "null" else kind.inner)))
    simple = {
        "null": pa.null(),
        "bool": pa.bool_(),
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bytes": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("us"),
    }
    return simple[kind.name]


def kind_from_arrow(found: Any) -> Kind:
    """The kind of a column of a file, with as many digits as the type allows; `other` for what we never write, with the
    type's name.
    """
    import pyarrow as pa

    is_ = pa.types
    if is_.is_dictionary(found):
        return kind_from_arrow(found.value_type)
    if is_.is_decimal(found):
        return Kind("decimal", found.precision - found.scale, found.scale)
    if is_.is_timestamp(found) and found.unit != "ns":
        return Kind("moment", zone=found.tz or "")
    if is_.is_integer(found):
        return Kind("int", _INT64_DIGITS)
    if is_.is_list(found) or is_.is_large_list(found) or is_.is_fixed_size_list(found):
        inner = kind_from_arrow(found.value_type)
        if inner.name in _LISTED:
            return Kind("list", inner.whole, inner=inner.name)
    kinds: tuple[tuple[Callable[[Any], bool], Kind], ...] = (
        (is_.is_null, NULL),
        (is_.is_boolean, BOOL),
        (is_.is_floating, FLOAT),
        (lambda one: is_.is_string(one) or is_.is_large_string(one) or is_.is_string_view(one), TEXT),
        (lambda one: is_.is_binary(one) or is_.is_large_binary(one) or is_.is_fixed_size_binary(one), BYTES),
        (is_.is_date, DATE),
        (lambda one: is_.is_time(one) and one.unit != "ns", TIME),
    )
    return next((kind for check, kind in kinds if check(found)), Kind("other", inner=str(found)))
