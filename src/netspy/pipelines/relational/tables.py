"""The tables of a database as the SQL pipeline sees them: remembered, read again when they change, made on demand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from netspy.errors import ItemError
from netspy.pipelines.relational import ddl as sql_ddl
from netspy.sqlio import errors as sql_errors
from netspy.sqlio.reflection import fold, reflect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from netspy.settings import Settings
    from netspy.sqlio.dialects import Dialect
    from netspy.sqlio.reflection import Table

_MOST_SAID = 200  # warnings of one process: a page may name a field as it likes, again and again
_MOST_KNOWN = 1000
_FRESH_S = 10.0  # an answer this old is good enough to say that a column isn't there
_FRESH_ABSENT_S = 1.0  # or a whole table, for want of which rows fail
_STALE_S = 60.0  # any answer is asked for anew then: a column may have got another type


class Tables:
    """Tables by name. One that lacks a column is looked at again after 10 s, a missing one after 1 s, any after 60 s."""

    def __init__(self, engine: Engine, dialect: Dialect, settings: Settings) -> None:
        self._engine = engine
        self._dialect = dialect
        self._settings = settings
        self._known: dict[str, tuple[Table | None, float]] = {}
        self._said: set[tuple[str, ...]] = set()

    def forget(self) -> None:
        """Look at every table again."""
        self._known.clear()

    def doubt(self) -> bool:
        """Look again at tables that were not looked at just now, as a column may have been changed; any at all?"""
        now = time.monotonic()
        known = len(self._known)
        self._known = {name: one for name, one in self._known.items() if now - one[1] < _FRESH_S}
        return len(self._known) < known

    def say_once(self, about: tuple[str, ...], message: str) -> None:
        """A warning, unless the same was said before."""
        if about in self._said or len(self._said) > _MOST_SAID:
            return
        self._said.add(about)
        from loguru import logger

        if len(self._said) > _MOST_SAID:
            message = f"{_MOST_SAID} warnings about tables and columns were given; further ones are not"
        logger.warning("{}", message)

    def fitting(
        self, name: str, columns: Sequence[str], rows: Sequence[dict[str, Any]], key: Sequence[str]
    ) -> Table:
        """The table, made or widened for `columns` as the settings say.

        Raises ItemError when it isn't there and isn't to be made; what the database raises otherwise.
        """
        self._dialect.quote(name)
        table = self._table(name, columns)
        if table is None:
            if not self._settings.ITEM_AUTO_CREATE_TABLE:
                raise ItemError(
                    f"there is no table {name!r} in the database; create it, or set ITEM_AUTO_CREATE_TABLE=True"
                )
            table = self._create(name, columns, rows, key)
        unknown = [column for column in columns if table.column(column) is None]
        if not unknown:
            return table
        if self._settings.ITEM_UNKNOWN_COLUMNS == "add":
            return self._widen(table, unknown, rows)
        if self._settings.ITEM_UNKNOWN_COLUMNS == "json":
            extra = self._settings.ITEM_EXTRA_COLUMN
            if table.column(extra) is None:
                table = self._alter(table, {extra: sql_ddl.json_type(self._dialect)})
            what = f"kept in its column {extra!r}"
        else:
            what = "not stored"
        for column in unknown:
            self.say_once(
                (table.name, "", column),
                f"table {table.name!r} has no column {column!r}: the field is {what} (ITEM_UNKNOWN_COLUMNS)",
            )
        return table

    def _table(self, name: str, columns: Sequence[str]) -> Table | None:
        if name in self._known:
            table, since = self._known[name]
            lacking = table is None or any(table.column(column) is None for column in columns)
            fresh_s = _FRESH_ABSENT_S if table is None else _FRESH_S if lacking else _STALE_S
            if time.monotonic() - since < fresh_s:
                return table
        return self._read(name)

    def _read(self, name: str) -> Table | None:
        with self._engine.connect() as connection:
            table = reflect(connection, self._dialect, name)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[name] = (table, time.monotonic())
        return table

    def _create(
        self, name: str, columns: Sequence[str], rows: Sequence[dict[str, Any]], key: Sequence[str]
    ) -> Table:
        fields = self._distinct([*columns, *key])
        types = {
            field: sql_ddl.column_type(
                self._dialect, self._values(rows, field), key_parts=len(key) if field in key else 0
            )
            for field in fields
        }
        self._run(name, sql_ddl.create_table(self._dialect, name, types, key), ())
        return self._there(name)

    def _widen(self, table: Table, unknown: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
        types = {
            field: sql_ddl.column_type(self._dialect, self._values(rows, field))
            for field in self._distinct(unknown)
        }
        return self._alter(table, types)

    def _alter(self, table: Table, types: dict[str, str]) -> Table:
        for column, kind in types.items():
            self._run(table.name, [sql_ddl.add_column(self._dialect, table.name, column, kind)], [column])
        from loguru import logger

        logger.info("table {!r}: new column(s) {}", table.name, ", ".join(map(repr, types)))
        return self._there(table.name)

    def _distinct(self, fields: Sequence[str]) -> list[str]:
        found: dict[str, str] = {}
        for field in fields:
            found.setdefault(fold(field, self._dialect.kind), field)
        return list(found.values())

    def _values(self, rows: Sequence[dict[str, Any]], field: str) -> list[Any]:
        same = fold(field, self._dialect.kind)
        return [
            value for row in rows for name, value in row.items() if fold(name, self._dialect.kind) == same
        ]

    def _run(self, name: str, statements: Sequence[str], columns: Sequence[str]) -> None:
        """Run the statements that make `columns`. When another process was faster, what it made is taken."""
        try:
            with self._engine.begin() as connection:
                for statement in statements:
                    connection.exec_driver_sql(statement, ())
        except Exception as error:
            if sql_errors.transient(error) or sql_errors.setup_error(error):
                raise
            there = self._read(name)
            if there is None or any(there.column(column) is None for column in columns):
                raise ItemError(
                    f"table {name!r} can't be made as wanted: {sql_errors.one_line(error)}"
                ) from None

    def _there(self, name: str) -> Table:
        table = self._read(name)
        if table is None:
            raise ItemError(f"table {name!r} was removed right after it was made")
        return table
