"""What people give as headers, cookies, form fields, files and parameters, read in one way: names with values.

A thing that only looks like pairs (a dict of two keys, a string of two characters in a list) is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, time
from decimal import Decimal
from operator import index
from typing import Any
from uuid import UUID

from netspy.errors import RequestError

_NO_PAIRS = (
    str,
    bytes,
    bytearray,
    memoryview,
    set,
    frozenset,
    Iterator,
)  # an iterator is empty at the second try
_WRITTEN = (Decimal, UUID, date, time)


def pairs_of(given: Any, keyword: str) -> list[tuple[str, Any]]:
    """The (name, value) pairs of a mapping, or of a list of pairs: in order, repeated names included.

    `keyword` names the argument in errors, which show no value. Raises RequestError for anything else.
    """
    several = getattr(given, "multi_items", None)  # headers that hold several fields of one name
    if callable(several):
        items = several()
    elif hasattr(given, "items"):
        items = given.items()
    elif isinstance(given, _NO_PAIRS) or not isinstance(given, Iterable):
        raise _no_pairs(given, keyword)
    else:
        items = given
    pairs: list[tuple[str, Any]] = []
    for pair in items:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise RequestError(
                f"{keyword}= has a {type(pair).__name__} where a pair (name, value) is wanted; give a dict or a list of pairs"
            )
        pairs.append((_name(pair[0], keyword), pair[1]))
    return pairs


def text_of(value: Any, what: str) -> str | bytes:
    """`value` as it is sent: text and bytes as they are, numbers and dates as Python writes them, True as `true`.

    Raises RequestError for a value of another type, which `what` names.
    """
    if isinstance(value, str):
        return str.__str__(value)  # of an enum's member: its value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, _WRITTEN):
        return str(value)
    try:
        return str(index(value))
    except TypeError:
        raise RequestError(
            f"{what} is of type {type(value).__name__}, which has no one form to be sent in; give text, bytes or a number"
        ) from None


def _name(name: Any, keyword: str) -> str:
    if isinstance(name, str):
        return str.__str__(name)
    if isinstance(name, bytes) and name.isascii():
        return name.decode("ascii")
    if isinstance(name, int) and not isinstance(name, bool):
        return str(index(name))
    raise RequestError(f"{keyword}= has a name of type {type(name).__name__}; a name is text")


def _no_pairs(given: Any, keyword: str) -> RequestError:
    return RequestError(f"{keyword}= takes a dict or a list of pairs, not {type(given).__name__}")
