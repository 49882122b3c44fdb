"""Types for columns that netspy makes, from the values at hand, and the statements that make them. No I/O here."""

from __future__ import annotations

import hashlib
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from netspy.pipelines.relational.sqlite_schema import OWN_MARK, declared_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from netspy.sqlio.dialects import Dialect

Guess = Literal[
    "text",
    "bool",
    "int",
    "bigint",
    "float",
    "decimal",
    "bytes",
    "moment",
    "zoned",
    "date",
    "time",
    "json",
    "none",
]

_INT64 = 1 << 63
_MYSQL_KEY_BYTES = 3072  # InnoDB's limit of an index, with its default row format
_UTF8MB4 = 4
_MYSQL: dict[Guess, str] = {
    "text": "LONGTEXT",
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "bigint": "DECIMAL(65, 0)",
    "float": "DOUBLE",
    "decimal": "DECIMAL(65, 30)",
    "bytes": "LONGBLOB",
    "moment": "DATETIME(6)",
    "zoned": "DATETIME(6)",
    "date": "DATE",
    "time": "TIME(6)",
    "json": "JSON",
    "none": "LONGTEXT",
}
_POSTGRES: dict[Guess, str] = {
    "text": "TEXT",
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "bigint": "NUMERIC",
    "float": "DOUBLE PRECISION",
    "decimal": "NUMERIC",
    "bytes": "BYTEA",
    "moment": "TIMESTAMP",
    "zoned": "TIMESTAMPTZ",
    "date": "DATE",
    "time": "TIME",
    "json": "JSONB",
    "none": "TEXT",
}


def guess(values: Iterable[Any]) -> Guess:
    """What all values have in common: numbers of several kinds are the widest one, anything mixed is text."""
    kinds = {_one(value) for value in values if value is not None}
    if not kinds:
        return "none"
    if len(kinds) == 1:
        return kinds.pop()
    if kinds <= {"int", "bigint"}:
        return "bigint"
    if kinds <= {"int", "float"}:
        return "float"
    if kinds <= {"int", "bigint", "decimal"}:
        return "decimal"
    if kinds <= {"moment", "zoned", "date"}:
        return "zoned" if "zoned" in kinds else "moment"
    return "text"


def _one(value: Any) -> Guess:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return "int"
        return "bigint" if abs(value) < 10**65 else "text"
    simple: tuple[tuple[type | tuple[type, ...], Guess], ...] = (
        ((str, UUID, timedelta), "text"),
        (float, "float"),
        (Decimal, "decimal"),
        ((bytes, bytearray, memoryview), "bytes"),
    )
    for kind, found in simple:
        if isinstance(value, kind):
            return found
    if isinstance(value, datetime):
        return "zoned" if value.tzinfo is not None else "moment"
    if isinstance(value, date):
        return "date"
    if isinstance(value, time):
        return "time" if value.tzinfo is None else "text"
    return "json"


def column_type(dialect: Dialect, values: Sequence[Any], *, key_parts: int = 0) -> str:
    """The declared type of a new column. `key_parts`: of how many columns the key is that it belongs to, 0 if none."""
    if dialect.kind == "sqlite":
        return declared_type(values)
    found = guess(values)
    if dialect.kind == "postgresql":
        return _POSTGRES[found]
    if key_parts and found in {"text", "none", "json"}:
        # An index needs a bound. Case and blanks count, else two keys could be taken for one.
        return f"VARCHAR({_MYSQL_KEY_BYTES // _UTF8MB4 // key_parts}) CHARACTER SET utf8mb4 COLLATE {_exact(dialect)}"
    if key_parts and found == "bytes":
        return f"VARBINARY({_MYSQL_KEY_BYTES // key_parts})"
    sort = _MYSQL[found]
    return f"{sort} CHARACTER SET utf8mb4" if sort == "LONGTEXT" else sort


def _exact(dialect: Dialect) -> str:
    if dialect.mariadb:
        return "utf8mb4_nopad_bin"
    return "utf8mb4_0900_bin" if dialect.version >= (8, 0, 17) else "utf8mb4_bin"


def create_table(dialect: Dialect, table: str, columns: Mapping[str, str], key: Sequence[str]) -> list[str]:
    """The statements that make a table with `columns` (name to type) and a unique index over `key`, if any."""
    mark = f"{OWN_MARK} " if dialect.kind == "sqlite" else ""
    body = ", ".join(f"{dialect.quote(name)} {kind}".rstrip() for name, kind in columns.items())
    if dialect.kind == "mysql":
        unique = f", UNIQUE KEY ({', '.join(map(dialect.quote, key))})" if key else ""
        return [f"CREATE TABLE IF NOT EXISTS {dialect.quote(table)} ({body}{unique})"]
    made = [f"CREATE TABLE IF NOT EXISTS {dialect.quote(table)} ({mark}{body})"]
    if key:
        digest = hashlib.blake2b(
            "\0".join([table, *key]).encode("utf-8", "replace"), digest_size=6
        ).hexdigest()
        made.append(
            f"CREATE UNIQUE INDEX IF NOT EXISTS {dialect.quote(f'netspy_unique_{digest}')} "
            f"ON {dialect.quote(table)} ({', '.join(map(dialect.quote, key))})"
        )
    return made


def add_column(dialect: Dialect, table: str, column: str, kind: str) -> str:
    """The statement that adds a column."""
    return f"ALTER TABLE {dialect.quote(table)} ADD COLUMN {dialect.quote(column)} {kind}".rstrip()


def json_type(dialect: Dialect) -> str:
    """The type of a column for JSON objects."""
    return {"mysql": "JSON", "postgresql": "JSONB", "sqlite": "TEXT"}[dialect.kind]
