"""A batch of rows as an Arrow table, and the tables of many batches as one with types that fit all."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from netspy.errors import ItemError
from netspy.pipelines.arrow.types import NULL, TEXT, Kind, arrow_type, cell, fit, is_mixed, kind_of, merge
from netspy.pipelines.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_KINDS = b"netspy.kinds"  # in a batch's schema: the kinds of the columns that are not declared
_kinds_decoder = msgspec.json.Decoder(dict[str, Kind])


class Columns(NamedTuple):
    """What is known of a table's columns: types that were declared, and kinds found so far."""

    declared: Mapping[str, Any]
    kinds: dict[str, Kind]


def as_table(name: str, rows: Sequence[Mapping[str, Any]], known: Columns, say: Callable[[str], None]) -> Any:
    """The rows as an Arrow table; `known.kinds` grows by what they bring. `name` is the table's, for messages.

    Raises ItemError for a value that has no form, or isn't of the type that was declared.
    """
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    found: dict[str, Kind] = {}
    for column in dict.fromkeys(column for row in rows for column in row):
        values = [row.get(column) for row in rows]
        declared = known.declared.get(column)
        if declared is not None:
            try:
                arrays[column] = pa.array(values, type=declared)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise ItemError(
                    f"column {column!r} of table {name!r} is declared as {declared}: {error}"
                ) from error
            continue
        cells = [cell(value) for value in values]
        before = known.kinds.get(column, NULL)
        kinds = {before, *map(kind_of, cells)}
        kind = reduce(merge, kinds)
        if is_mixed(kind, *kinds):
            say(
                f"table {name!r}: column {column!r} has values of different types, so it is text from now on; declare "
                "its type in `schemas` to refuse the others"
            )
        found[column] = kind
        arrays[column] = pa.array([fit(value, kind) for value in cells], type=arrow_type(kind))
    known.kinds.update(found)
    return pa.table(arrays).replace_schema_metadata({_KINDS: msgspec.json.encode(found)})


class Plan(NamedTuple):
    """The columns of a file: their types, and the kinds by which values of another type are converted."""

    schema: Any
    kinds: dict[str, Kind]


def plan_of(schemas: Iterable[Any], declared: Mapping[str, Any]) -> Plan | None:
    """The columns that hold those of all batches; None when there is no batch."""
    import pyarrow as pa

    types: dict[str, Any] = dict(declared)
    kinds: dict[str, Kind] = {}
    whole = False
    for schema in schemas:
        whole = True
        here = _kinds_decoder.decode((schema.metadata or {}).get(_KINDS, b"{}"))
        for field in schema:
            name, kind = field.name, here.get(field.name)
            if name not in types:
                types[name] = field.type
                if kind is not None:
                    kinds[name] = kind
            elif types[name] != field.type:
                # A type that was declared at one time and not, or otherwise, at another: text takes all.
                same = kind is not None and name in kinds
                kinds[name] = merge(kinds[name], kind) if same and kind is not None else TEXT
                types[name] = arrow_type(kinds[name])
            elif name in kinds and kind is not None:
                kinds[name] = merge(kinds[name], kind)
    return Plan(pa.schema(list(types.items())), kinds) if whole else None


def conformed(table: Any, plan: Plan) -> Any:
    """The table with the columns and types of the plan."""
    import pyarrow as pa

    arrays = []
    for field in plan.schema:
        if field.name not in table.column_names:
            arrays.append(pa.nulls(table.num_rows, type=field.type))
            continue
        column = table.column(field.name)
        if column.type == field.type:
            arrays.append(column)
        elif pa.types.is_decimal(column.type) and pa.types.is_decimal(field.type):
            arrays.append(column.cast(field.type))
        else:
            kind = plan.kinds.get(field.name, TEXT)
            try:
                values = [_again(value, kind) for value in column.to_pylist()]
            except ValueError:  # Python has no nanoseconds
                arrays.append(column.cast(field.type))
            else:
                arrays.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(arrays, schema=plan.schema)


def _again(value: Any, kind: Kind) -> Any:
    if value is None or kind.name != "text":
        return fit(value, kind)
    return value if type(value) is str else text_of(value)
