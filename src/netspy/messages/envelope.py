"""How a row travels through a queue: a JSON object with the row and what belongs to it.

    {"netspy": 1, "table": "books", "data": {"isbn": "978…", …}, "unique_key": ["isbn"], "update_keys": null}

Values come back with their types (`codec`). Any other JSON object is a row too, of a producer that isn't netspy: its
keys are the columns.
"""

from __future__ import annotations

from typing import Any

from netspy.errors import ItemError, SerializationError
from netspy.messages import codec
from netspy.messages.row import Row

VERSION = 1
_MARK = "netspy"


def pack_row(row: Row) -> bytes:
    """The envelope. Raises ItemError for a value that can't travel."""
    envelope = {
        _MARK: VERSION,
        "table": row.table,
        "data": row.data,
        "unique_key": list(row.unique_key),
        "update_keys": None if row.update_keys is None else list(row.update_keys),
    }
    try:
        return codec.encode(envelope, f"a row of {row.table!r}")
    except SerializationError as error:
        raise ItemError(str(error)) from None


def row_of(value: Any, table: str) -> Row:
    """The row in a message that was read as JSON; `table` is that of rows which name none. Raises ItemError."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ItemError(
            f"the message is no row: a JSON object is wanted, not {type(value).__name__} {value!r:.80}"
        )
    if _MARK not in value or not {"table", "data"} <= value.keys():
        return Row(table, value)
    if value[_MARK] != VERSION:
        raise ItemError(
            f"the message has version {value[_MARK]!r:.20} of netspy's envelope, and this netspy reads {VERSION}; update it"
        )
    data = value["data"]
    if not isinstance(data, dict) or not isinstance(value["table"], str) or not value["table"]:
        raise ItemError("the envelope is broken: `table` must be a name and `data` an object")
    return Row(
        value["table"],
        data,
        None,
        _names(value, "update_keys"),
        _names(value, "unique_key") or (),
    )


def _names(envelope: dict[str, Any], field: str) -> tuple[str, ...] | None:
    names = envelope.get(field)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ItemError(f"the envelope is broken: `{field}` must be a list of names")
    return tuple(names)
