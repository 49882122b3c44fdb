"""When a database may take two values of a key for equal, so that the order of their rows matters. No I/O here.

Only where values are certainly told apart may rows be moved: what a collation, a rounding or a type's own notion of
equality makes of others is for the server to know.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from netspy.sqlio.reflection import Column

UNSURE: Final = object()
"""A value that may be equal to any other."""

_PRINTABLE = re.compile(r"[ -~]*")
# MySQL's collations in which letters of ASCII are equal only to their other case. In others v may be w, or y be i.
_PLAIN = re.compile(r".*_(general|unicode|unicode_520|0900|uca1400)(_nopad)?(_ai|_as)?_(ci|cs)")


def alike(value: Any, column: Column) -> Any:
    """Something that is equal for values which the column takes for equal; UNSURE when that can't be told."""
    if value is None:
        return None
    match column.holds:
        case "integer" | "decimal" if isinstance(value, int):
            return int(value)
        case "text" if isinstance(value, str):
            if not column.folds:
                return value.rstrip(" ")
            plain = _PLAIN.fullmatch(column.collation) and _PRINTABLE.fullmatch(value)
            return value.casefold().rstrip(" ") if plain else UNSURE
        case "binary" if isinstance(value, bytes):
            return value.rstrip(b"\0")
        case "date" if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        case "datetime" | "datetimetz" if isinstance(value, datetime) and not value.microsecond:
            moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            return moment.isoformat()
        case "uuid" if isinstance(value, str | UUID):
            return str(value).replace("-", "").strip("{}").lower()
    return UNSURE
