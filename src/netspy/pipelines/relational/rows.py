"""Rows of a batch as parameters for a table's columns, and why some of them can't be stored. No I/O here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ItemError
from netspy.pipelines.relational.plan import Line, Shape
from netspy.pipelines.relational.strict import exact_json
from netspy.pipelines.relational.values import bind, binder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspy.settings import Settings
    from netspy.sqlio.reflection import Column, Table


class _Fields(NamedTuple):
    """What becomes of the fields of some rows: columns, or kept together in the column `extra`, or nothing."""

    known: list[tuple[str, Column]]
    unknown: list[str]
    extra: Column | None

    @property
    def columns(self) -> list[str]:
        """The names of the columns, that for the unknown fields last."""
        return [column.name for _, column in self.known] + (
            [self.extra.name] if self.extra is not None else []
        )


def bound_rows(
    table: Table, rows: list[dict[str, Any]], settings: Settings, *, required: Sequence[str] = ()
) -> tuple[list[Shape], dict[int, Exception]]:
    """The rows as parameters, those with the same fields together; and by its place, why a row can't be stored.

    ITEM_UNKNOWN_COLUMNS says what becomes of fields without a column. `required` fields need a column and a value.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(tuple(row), []).append(place)
    shapes: list[Shape] = []
    failed: dict[int, Exception] = {}
    for names, places in groups.items():
        fields = _fields(table, names, settings)
        problem = _problem(table, names, fields, settings, required)
        if problem is not None:
            failed.update(dict.fromkeys(places, problem))
            continue
        columns, bad = _parameters(table, fields, [rows[place] for place in places])
        for at, (field, _) in enumerate(fields.known):
            if field in required:
                for number, value in enumerate(columns[at]):
                    if value is None:
                        bad.setdefault(number, ItemError(f"an UpdateItem has no value for its key {field!r}"))
        failed.update({places[number]: error for number, error in bad.items()})
        lines = [
            Line(places[number], values)
            for number, values in enumerate(zip(*columns, strict=True))
            if number not in bad
        ]
        if lines:
            shapes.append(Shape(tuple(fields.columns), lines))
    return shapes, failed


def _fields(table: Table, names: Sequence[str], settings: Settings) -> _Fields:
    known = [(name, found) for name in names if (found := table.column(name)) is not None]
    unknown = [name for name in names if table.column(name) is None]
    gather = bool(unknown) and settings.ITEM_UNKNOWN_COLUMNS == "json"
    return _Fields(known, unknown, table.column(settings.ITEM_EXTRA_COLUMN) if gather else None)


def _problem(
    table: Table, names: Sequence[str], fields: _Fields, settings: Settings, required: Sequence[str]
) -> ItemError | None:
    """Why no row with these fields can be stored."""
    for name in required:
        if table.column(name) is None:
            return ItemError(
                f"table {table.name!r} has no column {name!r}, by which an UpdateItem finds its row"
            )
        if name not in names:
            return ItemError(f"an UpdateItem has no value for its key {name!r}")
    if len(set(fields.columns)) < len(fields.columns):
        return ItemError(f"two fields are one column of table {table.name!r}: {list(names)}")
    if fields.unknown and settings.ITEM_UNKNOWN_COLUMNS == "error":
        return ItemError(
            f"table {table.name!r} has no column {fields.unknown[0]!r} (ITEM_UNKNOWN_COLUMNS=error)"
        )
    if not fields.columns:
        return ItemError(f"no field of the item is a column of table {table.name!r}: {list(names)}")
    return None


def _parameters(
    table: Table, fields: _Fields, rows: list[dict[str, Any]]
) -> tuple[list[list[Any]], dict[int, Exception]]:
    """The values of each column, and by its number in `rows`, why a row's can't be had."""
    columns: list[list[Any]] = []
    bad: dict[int, Exception] = {}
    for field, column in fields.known:
        values, wrong = bind(binder(table.kind, column), table.kind, field, [row[field] for row in rows])
        columns.append(values)
        bad |= wrong
    if fields.extra is not None:
        texts: list[Any] = []
        for number, row in enumerate(rows):
            try:
                texts.append(exact_json({field: row[field] for field in fields.unknown}))
            except ItemError as error:
                texts.append(None)
                bad[number] = error
        columns.append(texts)
    return columns, bad
