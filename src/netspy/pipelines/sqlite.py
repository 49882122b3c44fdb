"""SQLite: tables made on demand, keyed rows stored once."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspy.errors import ItemError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnusableError
from netspy.pipelines.relational.sqlite_schema import (
    OWN_MARK,
    Column,
    Table,
    add_column_sql,
    bound,
    create_sql,
    declared_type,
    fold,
    insert_sql,
    kept,
    quote_name,
    update_sql,
    would_change,
)
from netspy.pipelines.values import as_sheet
from netspy.sqlio.sqlite_file import connect, has_other_collation, why_unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BUSY_S = 10.0  # how long a statement waits for another process' transaction before "database is locked"
# Another try can help with these (https://www.sqlite.org/rescode.html); the others are the fault of the rows.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)


class SqlitePipeline(BasePipeline):
    """Stores rows in the database SQLITE_PATH, one table per item table. Several processes may share the
    file.

    - A missing table is made, a new field becomes a new column (also of a table that you made; it is
      logged). A new column gets the type that its first values share, else none. In a table of ours a
      column whose type would alter a value ('007' in an INTEGER column) loses its type, so that what went
      in comes out. In a table that you made, a number that its column would round fails its row.
    - Items with `__unique_key__` get a UNIQUE index and are upserted: a row delivered twice is stored once,
      and the fields of the later one win. SQLite takes NULLs for different, so a row whose key is None is
      always new.
    - An UpdateItem changes the rows that its keys find; when it finds none, that is a failure of this row.
    - One batch is one transaction, synced to the disk before it counts as stored (WAL, synchronous=FULL).
      WAL needs a local disk: several machines can't share the file over a network file system.
    - Integers over 64 bits, Decimal, dates and nested values (JSON) are text, bytes are blobs, NaN is NULL.
    """

    path: Path | None = None
    _db: sqlite3.Connection | None = None

    def __init__(self, path: str | Path | None = None) -> None:
        """`path`: a database file to use in the place of SQLITE_PATH."""
        if path is not None:
            self.path = Path(path).expanduser()

    def where(self) -> str:
        """The database, for the run's summary."""
        return str(self._file_path)

    @property
    def _file_path(self) -> Path:
        return self.path or Path(self.settings.SQLITE_PATH)

    def open(self) -> None:
        """Connect, making the folder and the file. Raises OSError, sqlite3.Error, UnusableError (no database, a folder)."""
        self._keys: dict[str, tuple[str, ...]] = {}
        self._told_null: set[str] = set()
        self._forget()
        self._connect()

    def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """Remember the unique key; its index is made with the next batch."""
        if unique_key:
            self._keys[fold(table)] = unique_key
            self._indexed.discard(fold(table))

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Insert or upsert the batch in one transaction.

        Raises ItemError when a row is at fault, sqlite3.OperationalError when another try may help (locked,
        full).
        """
        columns, rows = as_sheet(table, items)
        unique = self._keys.get(fold(table), ())
        with self._transaction() as db:
            target = self._fit(db, table, [*columns, *(k for k in unique if k not in columns)], rows)
            keys = [target.columns[fold(k)].name for k in unique]
            if keys and fold(table) not in self._indexed:
                self._index(db, target, keys)
            self._say_null(target, unique, rows)
            for shape, same in groupby(rows, key=tuple):
                found = _columns(target, shape)
                values = [_parameters(target, found, row.values()) for row in same]
                db.executemany(insert_sql(target.name, [c.name for c in found], keys), values)
        self._indexed.add(fold(table))
        return True

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> bool:
        """Update rows found by `update_keys`, in one transaction. Raises as `save_items`, ItemError when
        none is found.
        """
        if not update_keys:
            raise ItemError(
                f"an UpdateItem of table {table!r} names no __update_key__; its row can't be found"
            )
        columns, rows = as_sheet(table, items)
        if missing := [k for k in update_keys if not all(k in row for row in rows)]:
            raise ItemError(f"an UpdateItem of table {table!r} has no value for its key {missing}")
        keys = list(update_keys)
        with self._transaction() as db:
            present = self._table(db, table)
            if present is None or any(fold(k) not in present.columns for k in keys):
                raise ItemError(
                    f"no row of table {table!r} has {keys}: the table or the column doesn't exist yet"
                )
            target = self._fit(db, table, columns, rows)
            for row in rows:
                changed = [name for name in row if name not in keys] or keys
                into, where = _columns(target, changed), _columns(target, keys)
                sql = update_sql(target.name, [c.name for c in into], [c.name for c in where])
                values = [row[name] for name in changed] + [row[name] for name in keys]
                done = db.execute(sql, _parameters(target, [*into, *where], values))
                if done.rowcount == 0:
                    raise ItemError(
                        f"no row of table {table!r} has {', '.join(f'{k}={row[k]!r}' for k in keys)}"
                    )
        return True

    def close(self) -> None:
        """Close the connection; the last one to leave folds the WAL back into the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _say_null(self, target: Table, key: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
        """Tell once for each table that rows with a NULL in their key are not kept unique."""
        if fold(target.name) in self._told_null:
            return
        lacking = next((name for name in key for row in rows if row.get(name) is None), None)
        if lacking is not None:
            self._told_null.add(fold(target.name))
            from loguru import logger

            logger.warning(
                "SQLite table {}: a row has no {!r}, a part of its key {}. A NULL equals nothing, so such a row is always new, "
                "and one that is delivered twice is there twice",
                target.name,
                lacking,
                list(key),
            )

    # connection

    def _forget(self) -> None:
        self._tables: dict[str, Table | None] = {}
        self._version: int | None = None
        self._indexed: set[str] = set()

    def _connect(self) -> sqlite3.Connection:
        self.close()
        self._forget()
        path = self._file_path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            db = connect(path, _BUSY_S)
        except sqlite3.Error as error:
            self._check_file(error)
            raise
        try:
            # Remaking a table must not stumble over the views that the user has on it.
            db.execute("PRAGMA legacy_alter_table=ON")
            self._file = path.stat()
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _check_file(self, error: BaseException) -> None:
        """Raises UnusableError when the error says that no waiting for the file helps."""
        if isinstance(error, sqlite3.Error) and (why := why_unusable(self._file_path, error)):
            raise UnusableError(why) from error

    def _connection(self) -> sqlite3.Connection:
        """The connection; a new one when the file was moved or deleted, since rows would go to the lost
        file.
        """
        with suppress(OSError):
            if self._db is not None and os.path.samestat(self._file_path.stat(), self._file):
                return self._db
        return self._connect()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._connection()
        try:
            db.execute("BEGIN IMMEDIATE")
            version = db.execute("PRAGMA schema_version").fetchone()[0]
            if version != self._version:  # a table was changed, perhaps by another process
                self._tables.clear()
                self._indexed.clear()
                self._version = version
            yield db
            db.execute("COMMIT")
        except BaseException as error:
            self._forget()
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            self._check_file(error)
            if (
                isinstance(error, sqlite3.Error)
                and getattr(error, "sqlite_errorcode", 1) & 0xFF not in _PASSING
            ):
                raise ItemError(f"SQLite: {error}") from error
            raise

    # tables

    def _table(self, db: sqlite3.Connection, name: str) -> Table | None:
        key = fold(name)
        if key not in self._tables:
            found = db.execute(
                "SELECT name, sql FROM sqlite_master "
                "WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE",
                (name,),
            ).fetchone()
            if found is None:
                self._tables[key] = None
            else:
                info = db.execute(
                    'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (name,)
                ).fetchall()
                plain = all(not notnull and default is None and not pk for _, _, notnull, default, pk in info)
                self._tables[key] = Table(
                    found[0],
                    {fold(n): Column(n, kind) for n, kind, *_ in info},
                    plain and OWN_MARK in (found[1] or ""),
                )
        return self._tables[key]

    def _fit(
        self, db: sqlite3.Connection, name: str, columns: Sequence[str], rows: list[dict[str, Any]]
    ) -> Table:
        """The table, with all `columns` and, if it is ours, types that leave the rows' values alone."""
        table = self._table(db, name)
        known = table.columns if table else {}
        new: dict[str, Column] = {}
        for column in columns:
            if fold(column) not in known and fold(column) not in new:
                same = [c for c in columns if fold(c) == fold(column)]
                new[fold(column)] = Column(
                    column, declared_type(row[c] for c in same for row in rows if c in row)
                )
        if table is None:
            table = Table(name, new, own=True)
            db.execute(create_sql(name, new.values()))
        elif new:
            for added in new.values():
                db.execute(add_column_sql(table.name, added))
            table = table._replace(columns=known | new)
            from loguru import logger

            logger.info(
                "SQLite table {}: new column(s) {}", table.name, ", ".join(repr(c.name) for c in new.values())
            )
        if table.own:
            table = self._loosen(db, table, columns, rows)
        self._tables[fold(name)] = table
        return table

    def _loosen(
        self, db: sqlite3.Connection, table: Table, columns: Sequence[str], rows: list[dict[str, Any]]
    ) -> Table:
        """Take the type off columns that would alter one of the values. SQLite needs the table copied for
        that.
        """
        loose = {}
        for name in columns:
            column = table.columns[fold(name)]
            affinity = column.affinity
            if affinity in {"INTEGER", "REAL"} and any(
                would_change(bound(row[name], ""), affinity) for row in rows if name in row
            ):
                loose[fold(name)] = column._replace(declared="")
        if not loose:
            return table
        remade = table._replace(columns=table.columns | loose)
        copy = f"{table.name} netspy copy"
        old, temp = quote_name(table.name), quote_name(copy)
        extras = db.execute(
            "SELECT sql FROM sqlite_master "
            "WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL",
            (table.name,),
        ).fetchall()
        names = ", ".join(quote_name(c.name) for c in remade.columns.values())
        db.execute(create_sql(copy, remade.columns.values()))
        db.execute(f"INSERT INTO {temp} ({names}) SELECT {names} FROM {old} ORDER BY rowid")  # noqa: S608 (quoted)
        db.execute(f"DROP TABLE {old}")
        db.execute(f"ALTER TABLE {temp} RENAME TO {old}")
        for (sql,) in extras:
            db.execute(sql)
        return remade

    def _index(self, db: sqlite3.Connection, table: Table, keys: list[str]) -> None:
        """A unique index over `keys`, unless the table has such a key already. Raises ItemError for old
        duplicates.
        """
        wanted = {fold(k) for k in keys}
        primary = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (table.name,)).fetchall()
        if {fold(n) for (n,) in primary} == wanted:
            return
        uniques = db.execute(
            "SELECT l.name, i.sql, t.sql FROM pragma_index_list(?) l JOIN sqlite_master i ON i.name = l.name "
            'JOIN sqlite_master t ON t.name = i.tbl_name WHERE l."unique" AND NOT l.partial',
            (table.name,),
        ).fetchall()
        for index, index_sql, table_sql in uniques:
            parts = db.execute("SELECT name FROM pragma_index_info(?)", (index,)).fetchall()
            if {fold(n or "") for (n,) in parts} == wanted and not has_other_collation(index_sql, table_sql):
                return
        digest = hashlib.blake2b("\0".join([table.name, *keys]).encode("utf-8"), digest_size=6).hexdigest()
        try:
            db.execute(
                f"CREATE UNIQUE INDEX {quote_name(f'netspy_unique_{digest}')} ON {quote_name(table.name)} "
                f"({', '.join(map(quote_name, keys))})"
            )
        except sqlite3.IntegrityError as error:
            raise ItemError(
                f"table {table.name!r} holds rows with equal {keys}, so it can't keep them unique; "
                "delete the duplicates, or store into another table"
            ) from error


def _parameters(table: Table, columns: Sequence[Column], values: Iterable[Any]) -> list[Any]:
    """The values as SQLite can keep them. Raises ItemError for one that a column of the user's table would alter."""
    made = [bound(value, column.affinity) for value, column in zip(values, columns, strict=True)]
    if not table.own:
        for value, column in zip(made, columns, strict=True):
            kept(value, column.affinity)
    return made


def _columns(table: Table, names: Sequence[str]) -> list[Column]:
    """The columns of one row's fields. Raises ItemError when two fields are one column."""
    found = [table.columns[fold(name)] for name in names]
    if len({column.name for column in found}) < len(found):
        raise ItemError(f"two fields of an item are one column in SQLite, which ignores case: {list(names)}")
    return found
