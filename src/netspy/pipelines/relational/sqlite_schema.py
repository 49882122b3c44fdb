"""What the SQLite pipeline knows of a table, and the SQL text it makes. No I/O here."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ItemError
from netspy.pipelines.values import clean_text, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OWN_MARK = "/* netspy */"  # inside the CREATE TABLE text that SQLite keeps: tells our tables from the user's

_NUMBER_TEXT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_NUMERIC = frozenset({"INTEGER", "REAL", "NUMERIC"})
_INT64 = 1 << 63
_EXACT_IN_FLOAT = 1 << 53


class Column(NamedTuple):
    """A column as the table declares it."""

    name: str
    declared: str

    @property
    def affinity(self) -> str:
        """INTEGER, TEXT, BLOB (values stay as they are), REAL or NUMERIC (SQLite, "Datatypes", 3.1)."""
        kind = self.declared.upper()
        if "INT" in kind:
            return "INTEGER"
        if any(word in kind for word in ("CHAR", "CLOB", "TEXT")):
            return "TEXT"
        if not kind or "BLOB" in kind:
            return "BLOB"
        return "REAL" if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


class Table(NamedTuple):
    """A table in the database. `columns` is keyed by the folded name; `own` means that we made it and may
    remake it.
    """

    name: str
    columns: dict[str, Column]
    own: bool


def fold(name: str) -> str:
    """SQLite compares names without regard to the case of A-Z."""
    return name.translate(_ASCII_LOWER)


def quote_name(name: str) -> str:
    """An identifier, safe whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def bound(value: Any, affinity: str) -> str | int | float | bytes | None:
    """`value` as SQLite can keep it without loss in a column of that affinity.

    An integer over 64 bits becomes its digits, Decimal and dates their text, nested values JSON. NaN is NULL.
    Raises ItemError for what has no such form.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value if type(value) is str and value.isascii() else clean_text(str.__str__(value))
    if isinstance(value, int):
        number = int(value)
        if -_INT64 <= number < _INT64:
            return number
        if affinity in _NUMERIC:
            raise ItemError(
                f"{number} has more than 64 bits, which a SQLite column of type {affinity} can't keep exactly"
            )
        return str(number)
    if isinstance(value, float):
        # A TEXT column would round it to 15 digits.
        return str(float(value)) if affinity == "TEXT" and value == value else float(value)  # noqa: PLR0124 (NaN)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return text_of(value)


def kept(value: Any, affinity: str) -> Any:
    """A bound value. Raises ItemError when a column of that affinity would keep another number in its place."""
    if affinity not in _NUMERIC:
        return value
    if type(value) is str and _NUMBER_TEXT.fullmatch(value):
        if not _same_number(value.strip(), affinity):
            raise ItemError(
                f"a SQLite column of type {affinity} would keep {value!r:.60} as {float(value)!r}"
            )
    elif affinity == "REAL" and type(value) is int and int(float(value)) != value:
        raise ItemError(f"a SQLite column of type REAL would keep {value} as {float(value)!r}")
    return value


def _same_number(text: str, affinity: str) -> bool:
    try:
        number = Decimal(text)
    except ArithmeticError:  # an exponent beyond all bounds
        return False
    whole = affinity != "REAL" and abs(number) < _INT64 and number == number.to_integral_value()
    return whole or Decimal(repr(float(number))) == number


def declared_type(values: Iterable[Any]) -> str:
    """The type for a new column: what all values share, else none, so that each keeps its own."""
    kinds = set()
    for value in values:
        if value is None:
            continue
        if isinstance(value, int):
            kinds.add("INTEGER" if -_INT64 <= value < _INT64 else "TEXT")
        elif isinstance(value, float):
            kinds.add("REAL")
        else:
            kinds.add("BLOB" if isinstance(value, bytes | bytearray | memoryview) else "TEXT")
    return kinds.pop() if len(kinds) == 1 else ""


def would_change(value: Any, affinity: str) -> bool:
    """Whether a column of that affinity would alter a bound value: '007' to 7, or a long integer to a
    float.
    """
    if affinity not in _NUMERIC:
        return False
    if type(value) is str:
        if not _NUMBER_TEXT.fullmatch(value):
            return False
        return affinity == "REAL" or not value.isdigit() or len(value) > 18 or str(int(value)) != value
    return affinity == "REAL" and type(value) is int and abs(value) > _EXACT_IN_FLOAT


def create_sql(table: str, columns: Iterable[Column]) -> str:
    """The CREATE TABLE statement of a table of ours."""
    return f"CREATE TABLE {quote_name(table)} ({OWN_MARK} {', '.join(map(_definition, columns))})"


def add_column_sql(table: str, column: Column) -> str:
    """The ALTER TABLE statement that adds a column."""
    return f"ALTER TABLE {quote_name(table)} ADD COLUMN {_definition(column)}"


def _definition(column: Column) -> str:
    return f"{quote_name(column.name)} {column.declared}".rstrip()


def insert_sql(table: str, columns: Sequence[str], unique: Sequence[str]) -> str:
    """INSERT; with a unique key, a row that is there gets the new values of the columns given."""
    names = ", ".join(map(quote_name, columns))
    sql = f"INSERT INTO {quote_name(table)} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 (quoted)
    if not unique:
        return sql
    rest = [quote_name(c) for c in columns if c not in unique]
    action = f"UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in rest)}" if rest else "NOTHING"
    return f"{sql} ON CONFLICT ({', '.join(map(quote_name, unique))}) DO {action}"


def update_sql(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """UPDATE of the rows whose keys equal the values given (NULL equals NULL)."""
    changes = ", ".join(f"{quote_name(c)} = ?" for c in columns)
    found = " AND ".join(f"{quote_name(k)} IS ?" for k in keys)
    return f"UPDATE {quote_name(table)} SET {changes} WHERE {found}"  # noqa: S608 (quoted)
