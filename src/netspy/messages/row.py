"""One item on its way to the pipelines, or to the dead letters."""

from __future__ import annotations

from typing import Any, NamedTuple


class Row(NamedTuple):
    """Where a record goes and what it holds.

    `pipelines` are the class paths from the item (None = all of ITEM_PIPELINES); `update_keys` is set for an
    UpdateItem; `unique_key` names the columns that make a row unique.
    """

    table: str
    data: dict[str, Any]
    pipelines: tuple[str, ...] | None = None
    update_keys: tuple[str, ...] | None = None
    unique_key: tuple[str, ...] = ()


class DeadRow(NamedTuple):
    """A row that isn't stored, why, and when (seconds since 1970).

    `item` is the class path of an item that was refused before it came to a pipeline: written again, it is to be
    made and checked anew.
    """

    row: Row
    error: str
    time: float
    item: str = ""
