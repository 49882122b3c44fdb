"""What some types of MySQL make of a value without a word, strict mode or not. No I/O here.

The rules are of the manual's chapters on ENUM ("a number in quotes is an index unless it is a member"), SET, YEAR
("values in the range 1 to 99 are converted"), CHAR (blanks at the end are dropped), BINARY (filled up with zero bytes)
and TEXT (blanks beyond the end are cut without an error).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ItemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.sqlio.reflection import Column

_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_TEXT_BYTES = {"tinytext": 255, "text": 65_535, "mediumtext": 16_777_215}
_WIDEST = 4  # bytes of a character


class Strict(NamedTuple):
    """`check` raises ItemError for a parameter that the column would alter. Text of at most `fits` characters passes it
    anyway; None: each is to be checked.
    """

    check: Callable[[Any], None]
    fits: int | None = None


def strict(column: Column) -> Strict | None:
    """The check of a column's type; None when the server says itself what it can't keep."""
    kind, _, rest = column.declared.lower().partition("(")
    kind = kind.partition(" ")[0]
    if kind in {"enum", "set"}:
        members = [member.replace("''", "'") for member in _MEMBER.findall(column.declared)]
        return Strict(_member_of(members, column.declared, several=kind == "set"))
    if kind == "year":
        return Strict(_year)
    if kind == "binary":
        return Strict(_as_long_as(int(rest.partition(")")[0] or 1), column.declared))
    if kind == "char":
        return Strict(_no_blank_at_the_end(column))
    if kind == "varchar" and column.length is not None:
        return Strict(at_most(column), column.length)
    if kind in _TEXT_BYTES:
        return Strict(
            _no_blank_beyond(_TEXT_BYTES[kind], column.declared), (_TEXT_BYTES[kind] - 1) // _WIDEST
        )
    return None


def at_most(column: Column) -> Callable[[Any], None]:
    """For a column with a length: servers cut blanks beyond it without a word."""
    longest = column.length or 0

    def check(value: Any) -> None:
        if len(value) > longest:
            raise ItemError(f"{len(value):,} characters are too long for {column.declared}")

    return check


def _member_of(members: list[str], declared: str, *, several: bool) -> Callable[[Any], None]:
    """Case is the column's, as it is declared there."""
    known = {member.casefold() for member in members}

    def check(value: Any) -> None:
        parts = (value.split(",") if value else []) if several else [value]
        for part in parts:
            if part.casefold() not in known:
                raise ItemError(f"{part!r:.60} is no member of {declared:.200}")

    return check


def _year(value: Any) -> None:
    if value != 0 and not 1901 <= value <= 2155:
        raise ItemError(f"{value} doesn't fit a YEAR, which holds 0 and 1901 to 2155")


def _as_long_as(length: int, declared: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if len(value) < length:
            raise ItemError(f"{declared} would fill {len(value)} byte(s) up with zero bytes; use VARBINARY")

    return check


def _no_blank_at_the_end(column: Column) -> Callable[[Any], None]:
    too_long = at_most(column) if column.length is not None else None

    def check(value: Any) -> None:
        if too_long is not None:
            too_long(value)
        if value.endswith(" "):
            raise ItemError(f"{column.declared} would drop the blank at the end; strip it, or use VARCHAR")

    return check


def _no_blank_beyond(most: int, declared: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value.endswith(" ") and len(value.encode()) > most:
            raise ItemError(f"{len(value):,} characters are too long for {declared}")

    return check
