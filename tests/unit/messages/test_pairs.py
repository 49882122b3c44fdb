"""Headers, cookies, forms, files and parameters are read in one way; what only looks like pairs is refused."""

from __future__ import annotations

import enum
from collections import deque
from decimal import Decimal
from http.cookies import SimpleCookie

import pytest

from netspy.errors import RequestError
from netspy.messages.headers import Headers
from netspy.messages.pairs import pairs_of, text_of


class Color(str, enum.Enum):  # noqa: UP042 - str() of a StrEnum is its value, of this it is not
    RED = "red"


class Size(int, enum.Enum):
    TWO = 2


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        ({"a": 1, 2: "b", b"c": None}, [("a", 1), ("2", "b"), ("c", None)]),
        ([("a", "1"), ["a", "2"]], [("a", "1"), ("a", "2")]),
        ((("a", "1"),), [("a", "1")]),
        ({"a": "1"}.items(), [("a", "1")]),
        (deque([("a", "1")]), [("a", "1")]),
        ([], []),
        ({Color.RED: 1}, [("red", 1)]),
        (Headers([("X-A", "1"), ("x-a", "2")]), [("x-a", "1"), ("x-a", "2")]),
    ],
)
def test_mappings_and_lists_of_pairs(given: object, pairs: list) -> None:
    assert pairs_of(given, "headers") == pairs


@pytest.mark.parametrize(
    "given",
    [
        "ab",
        b"ab",
        bytearray(b"ab"),
        5,
        ["ab", "cd"],
        [b"ab"],
        [{"name": "sid", "value": "abc"}],
        [{"a", "b"}],
        {("a", "1")},
        frozenset({("a", "1")}),
        iter([("a", "1")]),
        (pair for pair in [("a", "1")]),
        zip(["a"], ["1"], strict=True),
        [("a", "b", "c")],
        [("a",)],
        [None],
        {None: "1"},
        {True: "1"},
        {1.5: "1"},
        {b"\xff": "1"},
        {("a", "b"): "1"},
        [(["a"], "1")],
    ],
)
def test_what_only_looks_like_pairs_is_refused_hp_08(given: object) -> None:
    """case HP-08: a dict of two keys, a string of two characters; and what is empty at the second try."""
    with pytest.raises(RequestError, match="headers="):
        pairs_of(given, "headers")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (b"\xff", b"\xff"),
        (memoryview(b"x"), b"x"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        (Color.RED, "red"),
        (Size.TWO, "2"),
    ],
)
def test_values_as_they_are_sent(value: object, text: str | bytes) -> None:
    assert text_of(value, "it") == text


@pytest.mark.parametrize(
    "value", [None, [], {"a": 1}, {1}, object(), ("a",), SimpleCookie("a=b")["a"], Exception("x"), 1j]
)
def test_values_that_have_no_one_form_are_refused_without_being_shown(value: object) -> None:
    with pytest.raises(RequestError) as caught:
        text_of(value, "the value of 'x'")
    assert str(caught.value).startswith(f"the value of 'x' is of type {type(value).__name__},")
