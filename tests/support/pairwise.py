"""Few rows in which every two values of any two parameters meet: the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
_CANDIDATES = 3


def pairwise(
    values: Mapping[str, Sequence[Any]], *, allowed: Callable[[Row], bool] = lambda _row: True, seed: int = 1
) -> list[Row]:
    """`allowed` is asked of parts of rows too: it says False as soon as two values can't go together."""
    lot = random.Random(seed)
    missing = {
        ((a, x), (b, y))
        for a, b in combinations(values, 2)
        for x in values[a]
        for y in values[b]
        if allowed({a: x, b: y})
    }
    order = {name: at for at, name in enumerate(values)}
    rows: list[Row] = []
    while missing:
        first = min(missing, key=lambda pair: [(order[name], str(value)) for name, value in pair])
        made = [_row(values, order, missing, allowed, lot, first) for _ in range(_CANDIDATES)]
        best = max(made, key=lambda row: len(missing & pairs_of(row, order)))
        missing -= pairs_of(best, order)
        rows.append(best)
    return rows


def pairs_of(row: Row, order: Mapping[str, int]) -> set[Any]:
    """The pairs that a row covers."""
    return set(combinations(sorted(row.items(), key=lambda one: order[one[0]]), 2))


def _row(
    values: Mapping[str, Sequence[Any]],
    order: Mapping[str, int],
    missing: set[Any],
    allowed: Callable[[Row], bool],
    lot: random.Random,
    first: Any,
) -> Row:
    row: Row = dict(first)
    names = [name for name in values if name not in row]
    lot.shuffle(names)
    for name in names:
        possible = [value for value in values[name] if allowed({**row, name: value})]
        lot.shuffle(possible)
        at = order[name]

        def gain(value: Any, name: str = name, at: int = at) -> int:
            mine = (name, value)
            return sum(
                ((mine, other) if at < order[other[0]] else (other, mine)) in missing for other in row.items()
            )

        row[name] = max(possible, key=gain)
    return row
