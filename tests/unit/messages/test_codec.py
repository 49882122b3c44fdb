"""Values that cross processes come back equal and of the same type, or are refused by the name of their key."""

import collections
import enum
import math
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspy.errors import SerializationError
from netspy.messages import codec
from netspy.messages.codec import decode, encode, stable


def same(one: object, other: object) -> bool:
    """Equal, and of the same types all the way down; nan is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (
            one != one and other != other
        )
    if isinstance(one, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(k1, k2) and same(v1, v2)
            for (k1, v1), (k2, v2) in zip(one.items(), other.items(), strict=True)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (set, frozenset)):
        return one == other and sorted(map(repr, map(type, one))) == sorted(map(repr, map(type, other)))
    if isinstance(one, datetime | time):
        return (
            one.replace(tzinfo=None) == other.replace(tzinfo=None)
            and one.fold == other.fold
            and type(one.tzinfo) is type(other.tzinfo)
            and one.utcoffset() == other.utcoffset()
            and one.tzname() == other.tzname()
        )
    return one == other


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


class Text(str):
    __slots__ = ()


class LocalZone(tzinfo):
    def utcoffset(self, dt):
        return timedelta(hours=1)


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**53 + 1, -(2**63), 2**64 - 1, 2**64, 2**70, -(2**70), 10**5000,
        1.0, -0.0, 0.1, 1e16, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan,
        "", "a\u0000b", "中文\U0001f600", "\ud83d", "a\udfff中", "!tuple", '"!x"',
        b"", b"\x00\xff", (), (1, (2, [3])), [], [(), {}], {1, 2}, frozenset(), {frozenset({(1, "a")})},
        {}, {1: "a", 2: "b"}, {"a": [{"b": (1,)}]}, {None: 1, True: 2, (1, 2): 3, b"k": 4, 1.5: 5},
        {"__type__": "datetime", "__value__": "x"},
        {"!tuple": [1]}, {"!": 1}, {"!dict": [["a", 1]]}, {"!tuple": [1], "b": (2,)}, [{"!x": {"!y": ()}}],
        {"\ud83d": 1}, {"a": 1, "\ud83d": 2},
        date(2026, 2, 28), time(12, 0, 0, 5), time(1, tzinfo=UTC), time(1, fold=1),
        datetime(2026, 2, 28, 12, 0), datetime(1, 1, 1), datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 2, 28, 12, 0, tzinfo=timezone(timedelta(hours=8))),
        datetime(2026, 2, 28, 12, 0, tzinfo=timezone(timedelta(hours=8, microseconds=1), "CST")),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 10, 25, 2, 30, fold=1),
        timedelta(days=-1, microseconds=1), timedelta.max,
        Decimal("10.50"), Decimal("-0"), Decimal("1E+5"), Decimal("NaN"), Decimal("-Infinity"),
        UUID("12345678123456781234567812345678"),
    ],
    ids=lambda value: f"{value!r:.40}" if not isinstance(value, int) else str(hex(value))[:40],
)  # fmt: skip
def test_a_value_comes_back_as_it_went_in(value: object) -> None:
    assert same(decode(encode(value)), value)
    assert same(decode(encode({"in": [value]})), {"in": [value]})


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs", "Lu"]))
    | st.binary()
    | st.datetimes(timezones=st.none() | st.timezones() | st.just(UTC))
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
)
KEYS = st.sampled_from(["!tuple", "!", "a", "!dict"]) | st.integers() | st.text()
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(st.integers() | st.text() | st.tuples(st.integers()), max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_nesting_comes_back_as_it_went_in(value: object) -> None:
    data = encode(value)
    assert same(decode(data), value)
    assert same(decode(data.decode()), value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"page": {"lock": [1, threading.Lock()]}}, "cb_kwargs['page']['lock'][1]: _thread.lock can't travel"),
        ({"f": lambda: 1}, "cb_kwargs['f']: function can't travel between processes; pass plain data"),
        ({"c": Colour.RED}, "pass its .value"),
        ({"p": Point(1, 2)}, "cb_kwargs['p']: test_codec.Point can't travel between processes; pass tuple(value)"),
        ({"t": Text("x")}, "pass str(value)"),
        ({"o": collections.OrderedDict(a=1)}, "collections.OrderedDict can't travel between processes; pass dict(value)"),
        ({"b": bytearray(b"x")}, "cb_kwargs['b']: bytearray can't travel"),
        ({"z": datetime(2026, 1, 1, tzinfo=LocalZone())}, "use zoneinfo.ZoneInfo"),
        ({Colour.RED: 1}, "cb_kwargs key <Colour.RED: 1>"),
        ({"s": {object}}, "cb_kwargs['s'][0]: type can't travel"),
    ],
)  # fmt: skip
def test_what_cannot_travel_is_refused_by_its_key(value: object, told: str) -> None:
    with pytest.raises(SerializationError) as caught:
        encode(value, "cb_kwargs")
    assert told in str(caught.value)


def test_the_class_is_named_with_its_module() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(SerializationError) as caught:
            encode({"conn": connection}, "cb_kwargs")
    assert str(caught.value) == (
        "cb_kwargs['conn']: sqlite3.Connection can't travel between processes; pass plain data"
    )


def test_a_value_that_holds_itself_is_refused_not_a_crash() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(SerializationError, match="refers to itself"):
        encode(loop)
    with pytest.raises(SerializationError, match="refers to itself"):
        stable(loop)


def test_the_deepest_nesting_that_is_written_can_be_read() -> None:
    value: object = 1
    for _ in range(codec.MAX_DEPTH):
        value = (value,)
    assert decode(encode(value)) == value
    with pytest.raises(SerializationError, match="100 deep"):
        encode((value,))


def test_a_payload_over_the_limit_is_refused_on_both_sides() -> None:
    with pytest.raises(SerializationError, match=r"cb_kwargs takes 4,194,\d+ bytes"):
        encode("x" * codec.MAX_BYTES, "cb_kwargs")
    with pytest.raises(SerializationError, match="over the limit"):
        decode(b'"' + b"x" * codec.MAX_BYTES + b'"')


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff", b'"\xff"', b"nan", b'{"!new": 1}', b'{"!tuple": "abc"}', b'{"!set": [[]]}', b'{"!int": 5}',
        b'{"!decimal": "x"}', b'{"!date": 5}', b'{"!bytes": "a"}', b'{"!datetime": ["2026-01-01", 0, "No/Where"]}',
        b'{"!datetime": []}', b'{"!uuid": "x"}', b'{"!dict": [1]}', b'{"!timedelta": [1e400]}', b"[" * 100_000,
        b'{"!tuple":[' * 50_000,
    ],
    ids=lambda data: repr(data[:30]),
)  # fmt: skip
def test_a_malformed_payload_is_one_clear_error(data: bytes) -> None:
    with pytest.raises(SerializationError):
        decode(data)


def test_stable_bytes_ignore_order_and_keep_types_apart() -> None:
    assert stable({"b": 1, "a": (2,)}) == stable({"a": (2,), "b": 1})
    assert stable({2: 1, 1: 2}) == stable({1: 2, 2: 1})
    kinds = [1, "1", 1.0, True, [1], (1,), {1}, b"1", None, Decimal(1), {"1": 1}, {1: 1}]
    assert len({stable(kind) for kind in kinds}) == len(kinds)


def test_stable_bytes_exist_for_objects_that_cannot_travel() -> None:
    assert stable({"c": Colour.RED}) == stable({"c": Colour.RED})
    assert stable({"c": Text("x")}) != stable({"c": "x"})
    assert len(stable("x" * (codec.MAX_BYTES + 1))) > codec.MAX_BYTES
    assert stable("\ud83d") == stable("\ud83d") != stable("\ud83e")
