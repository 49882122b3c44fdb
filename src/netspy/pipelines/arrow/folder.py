"""The finished files of a folder as one table: what each column of a file holds, and the types that all can be read as.

Arrow makes numbers of narrower numbers and text of numbers, but no text of lists or bytes. A file that could not be
read with the others any more, because a later one made text of such a column, is written again with that text.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.pipelines.arrow.batch import Plan, conformed
from netspy.pipelines.arrow.types import TEXT, Kind, arrow_type, digits_of, kind_from_arrow, merge
from netspy.pipelines.local.shared_file import locked, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_CAST_DIGITS = 19  # Arrow makes a decimal of an int64 only where any int64 has room
_CAST_TO_TEXT = frozenset({"null", "bool", "int", "float", "decimal", "date", "time", "moment", "text"})


class Part(NamedTuple):
    """One finished file: its types, and what its columns hold by the statistics in the file."""

    path: Path
    schema: Any
    kinds: dict[str, Kind]


def parts_of(folder: Path) -> list[Part]:
    """The finished files, the oldest first. What can't be read as Parquet is left out."""
    import pyarrow as pa

    found = []
    for path in sorted(folder.glob("part-*.parquet")):
        with suppress(OSError, pa.ArrowException):
            found.append(_part(path, path.stat().st_mtime_ns))
    return found


def types_of(parts: Iterable[Part]) -> dict[str, tuple[Any, Kind]]:
    """The type of each column as which those of all files can be read, and its kind."""
    columns: dict[str, list[tuple[Any, Kind]]] = {}
    for part in parts:
        for field in part.schema:
            columns.setdefault(field.name, []).append((field.type, part.kinds[field.name]))
    return {name: _common(found) for name, found in columns.items()}


def make_alike(folder: Path, say: Callable[[str], None]) -> None:
    """Write those files again that Arrow can't read together with the others. Raises OSError, ArrowException."""
    if not _unlike(folder):
        return
    with locked(folder / "_lock") as lock:
        for part, names in _unlike(folder):
            say(
                f"{part.path} is written again with text in {', '.join(map(repr, names))}: values of another type have come, "
                "and the folder would not be readable as one table"
            )
            _write_again(part, names)
        lock.remove()


def _unlike(folder: Path) -> list[tuple[Part, list[str]]]:
    """The files that can't be cast to the common types, each with the columns for which that holds."""
    parts = parts_of(folder)
    types = types_of(parts)
    found = []
    for part in parts:
        names = [
            field.name
            for field in part.schema
            if not _castable(field.type, part.kinds[field.name], *types[field.name])
        ]
        if names:
            found.append((part, names))
    return found


def _common(found: list[tuple[Any, Kind]]) -> tuple[Any, Kind]:
    kind = reduce(merge, [kind for _, kind in found])
    types = {one for one, of in found if of.name != "null"} or {found[0][0]}
    if len(types) == 1:
        return types.pop(), kind
    if kind.name == "decimal" and any(one.name == "int" for _, one in found):
        kind = merge(kind, Kind("decimal", _CAST_DIGITS))
    return arrow_type(kind), kind


def _castable(found: Any, kind: Kind, wanted: Any, into: Kind) -> bool:
    return found == wanted or into.name != "text" or kind.name in _CAST_TO_TEXT


@lru_cache(maxsize=10_000)
def _part(path: Path, changed: int) -> Part:
    del changed  # a part of the key: the file may be written again
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema, about = file.schema_arrow, file.metadata
    kinds = {}
    leaf = 0
    for field in schema:
        kind = kind_from_arrow(field.type)
        if kind.name in {"int", "list"}:
            kind = _by_statistics(kind, field.type, about, leaf)
        kinds[field.name] = kind
        leaf += _leaves(field.type)
    return Part(path, schema, kinds)


def _by_statistics(kind: Kind, found: Any, about: Any, leaf: int) -> Kind:
    """The kind with the digits that the numbers have; a list without elements asks for no type."""
    highest, values, known = 0, 0, True
    for group in range(about.num_row_groups):
        numbers = about.row_group(group).column(leaf).statistics
        if numbers is None:
            return kind
        values += numbers.num_values
        if numbers.has_min_max and "int" in {kind.name, kind.inner}:
            highest = max(highest, abs(numbers.min), abs(numbers.max))
        elif numbers.num_values:
            known = False
    if not values:
        return kind._replace(inner="null", whole=0) if kind.name == "list" else kind._replace(whole=1)
    if not known or "int" not in {kind.name, kind.inner}:
        return kind
    if highest >= 1 << 63 and "uint64" in str(found):
        return Kind("decimal", 20) if kind.name == "int" else Kind("other", inner=str(found))
    return kind._replace(whole=digits_of(highest))


def _leaves(found: Any) -> int:
    """How many columns a type has in the file."""
    if not found.num_fields:
        return 1
    return sum(_leaves(found.field(number).type) for number in range(found.num_fields))


def _write_again(part: Part, names: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(field.name, pa.string()) if field.name in names else field for field in part.schema]
    )
    plan = Plan(schema, dict.fromkeys(names, TEXT))
    temporary = part.path.with_name(f"_{part.path.name}.tmp")
    try:
        with temporary.open("wb") as out:
            with (
                pq.ParquetFile(part.path) as file,
                pq.ParquetWriter(out, schema, compression="zstd") as writer,
            ):
                for table in _groups(file):
                    writer.write_table(conformed(table, plan))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(part.path)
        sync_folder(part.path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _groups(file: Any) -> Iterator[Any]:
    for number in range(file.num_row_groups):
        yield file.read_row_group(number)
