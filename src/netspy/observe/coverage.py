"""How often each field of each table was filled: what tells that a page changed its looks and a field stays empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from netspy.messages.row import Row

MAX_TABLES = 50
MAX_FIELDS = 200
"""Of a table; what comes beyond these isn't counted: memory and the summary line stay bounded."""


class TableCoverage(Struct, frozen=True):
    """Rows stored, and for each field in how many of them it was filled: not None, no empty text or container."""

    rows: int = 0
    filled: dict[str, int] = {}


class Coverage:
    """Counts rows that were stored. One thread at a time."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._filled: dict[str, Counter[str]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Count the fields of these rows."""
        tables: dict[str, tuple[list[str], set[str]]] = {}
        for row in rows:
            found = tables.get(row.table)
            if found is None:
                if row.table not in self._rows and len(self._rows) >= MAX_TABLES:
                    continue
                self._rows.setdefault(row.table, 0)
                found = tables[row.table] = [], set()
            names, known = found
            self._rows[row.table] += 1
            known.update(row.data)
            try:
                # 0 and False are values; None, "", [] and {} are not.
                names += [name for name, value in row.data.items() if value or value == 0]
            except Exception:  # a value that is neither true nor false (an array)
                names += [name for name, value in row.data.items() if value is not None]
        for table, (names, known) in tables.items():
            self._count(table, names, known)

    def _count(self, table: str, names: list[str], known: set[str]) -> None:
        filled = self._filled.setdefault(table, Counter())
        filled.update(names)
        if not known <= filled.keys():
            for name in known:
                filled.setdefault(name, 0)  # a field that is never filled is what one looks for
        if len(filled) > MAX_FIELDS:
            for name in list(filled)[MAX_FIELDS:]:
                del filled[name]

    def tables(self) -> dict[str, TableCoverage]:
        """What was counted."""
        return {
            table: TableCoverage(rows, {str(name): n for name, n in self._filled[table].items()})
            for table, rows in self._rows.items()
        }


def merge_coverage(parts: Iterable[Mapping[str, TableCoverage]]) -> dict[str, TableCoverage]:
    """The coverage of several processes as one."""
    total: dict[str, TableCoverage] = {}
    for part in parts:
        for table, one in part.items():
            known = total.get(table, TableCoverage())
            filled = Counter(known.filled)
            filled.update(one.filled)
            total[table] = TableCoverage(known.rows + one.rows, dict(filled))
    return total


def lines(coverage: Mapping[str, TableCoverage], *, most_fields: int = 8, most_tables: int = 8) -> list[str]:
    """For people: a line for each table, the emptiest fields first, e.g. `books: 120 rows, price 83%, isbn 100%`."""
    shown = []
    ordered = sorted(coverage.items(), key=lambda pair: -pair[1].rows)
    for table, one in ordered[:most_tables]:
        if not one.rows or not one.filled:
            continue
        head = f"{table}: {one.rows:,} {'row' if one.rows == 1 else 'rows'}"
        gaps = {name: n for name, n in one.filled.items() if n < one.rows}
        if not gaps:
            all_of_them = (
                f"all {len(one.filled)} fields filled"
                if len(one.filled) > 1
                else f"{next(iter(one.filled))} 100%"
            )
            shown.append(f"{head}, {all_of_them}")
            continue
        fields = sorted(one.filled.items(), key=lambda pair: pair[1])
        text = ", ".join(f"{name} {_percent(n, one.rows)}" for name, n in fields[:most_fields])
        more = len(fields) - most_fields
        shown.append(f"{head}, {text}{f', … {more} more fields' if more > 0 else ''}")
    if len(ordered) > most_tables:
        shown.append(f"… {len(ordered) - most_tables} more tables")
    return shown


def _percent(n: int, rows: int) -> str:
    """Rounded, but never to 0% or 100% when it is neither."""
    share = 100 * n / rows
    if 0 < share < 1:
        return "<1%"
    if 99 < share < 100:
        return ">99%"
    return f"{share:.0f}%"
