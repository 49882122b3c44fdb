"""Which statements a batch becomes: rows of one shape together, in an order that changes nothing. No I/O here."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.pipelines.relational.equality import UNSURE, alike

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netspy.sqlio.reflection import Table

_TO_ESCAPE = re.compile(r"[\0\n\r\x1a'\"\\]")  # doubled by PyMySQL in a text


class Line(NamedTuple):
    """One row: its place in the batch and its parameters in the order of its shape's columns."""

    place: int
    values: tuple[Any, ...]


class Shape(NamedTuple):
    """Rows that give the same columns."""

    columns: tuple[str, ...]
    lines: list[Line]


def repeats(shapes: Sequence[Shape], table: Table, keys: Sequence[Sequence[str]]) -> bool:
    """Whether the database may take some row of the batch for the same as an earlier one, so that their order matters."""
    return any(_repeats(shapes, table, key) for key in keys)


def _repeats(shapes: Sequence[Shape], table: Table, key: Sequence[str]) -> bool:
    found: list[tuple[Any, ...]] = []
    for shape in shapes:
        parts: list[list[Any]] = []
        for name in key:
            column = table.column(name)
            if name in shape.columns and column is not None:
                at = shape.columns.index(name)
                parts.append([alike(line.values[at], column) for line in shape.lines])
            elif column is not None and column.filled and not column.counter:
                parts.append([UNSURE] * len(shape.lines))  # the default may be what another row has
            else:
                parts.append([None] * len(shape.lines))
        found += zip(*parts, strict=True)
    if tuple(key) not in table.null_keys:  # there a NULL equals nothing
        found = [parts for parts in found if None not in parts]
    # A part of which some value may be equal to any other tells no rows apart.
    telling = [at for at in range(len(key)) if all(parts[at] is not UNSURE for parts in found)]
    return len({tuple(parts[at] for at in telling) for parts in found}) < len(found)


def by_key(shape: Shape, table: Table, key: Sequence[str]) -> Shape:
    """The rows in the order of their key: processes that write the same rows then wait for each other in turn, where
    each would otherwise hold what the other wants.
    """
    columns = [table.column(name) for name in key]
    if not set(key) <= set(shape.columns) or None in columns:
        return shape
    at = [shape.columns.index(name) for name in key]
    found = [
        tuple(
            alike(line.values[i], column) for i, column in zip(at, columns, strict=True) if column is not None
        )
        for line in shape.lines
    ]
    try:
        order = sorted(
            range(len(found)), key=lambda number: [(one is not None, one) for one in found[number]]
        )
    except TypeError:  # values that have no order
        return shape
    return Shape(shape.columns, [shape.lines[number] for number in order])


def in_order(shapes: Sequence[Shape]) -> list[Shape]:
    """The rows as they came, in as many shapes as that takes."""
    rows = sorted(
        ((line, shape.columns) for shape in shapes for line in shape.lines), key=lambda row: row[0].place
    )
    return [
        Shape(columns, [line for line, _ in same]) for columns, same in groupby(rows, key=lambda row: row[1])
    ]


def chunks(shape: Shape, *, max_rows: int, max_chars: int) -> Iterator[list[tuple[Any, ...]]]:
    """Parameters of one statement at a time: at most `max_rows` rows and about `max_chars` of text and bytes."""
    rows = [line.values for line in shape.lines]
    if _widest(rows) * len(rows) <= max_chars:
        for start in range(0, len(rows), max_rows):
            yield rows[start : start + max_rows]
        return
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        width = chars(row)
        if chunk and (len(chunk) >= max_rows or size + width > max_chars):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += width
    if chunk:
        yield chunk


def _widest(rows: Sequence[tuple[Any, ...]]) -> int:
    """No row has more characters than this."""
    longest = 0
    for column in zip(*rows, strict=True):
        try:
            longest += max(map(len, column))
        except TypeError:  # NULLs and numbers have no length
            longest += max((len(v) for v in column if type(v) is str or type(v) is bytes), default=0)
        longest += 8
    return longest


def chars(row: Sequence[Any]) -> int:
    """About how long a row's parameters are."""
    return sum(len(value) if type(value) is str or type(value) is bytes else 8 for value in row)


def packet_bytes(row: Sequence[Any]) -> int:
    """The most bytes that a row takes in a text that PyMySQL makes of it."""
    total = 0
    for value in row:
        if type(value) is str:
            total += len(value.encode()) + len(_TO_ESCAPE.findall(value)) + 4
        elif type(value) is bytes:
            total += 2 * len(value) + 12  # as hexadecimal digits
        else:
            total += len(str(value)) + 4
    return total
