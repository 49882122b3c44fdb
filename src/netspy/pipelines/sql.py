"""SQL databases: rows in bulk, keyed rows stored once, nothing altered silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from netspy.errors import ConfigError, ItemError, PipelineError, RowsFailedError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnavailableError, UnusableError
from netspy.pipelines.relational.lossy import lossy_column
from netspy.pipelines.relational.plan import Shape, by_key, chars, chunks, in_order, packet_bytes, repeats
from netspy.pipelines.relational.rows import bound_rows
from netspy.pipelines.relational.tables import Tables
from netspy.pipelines.values import as_sheet
from netspy.sqlio import errors as sql_errors
from netspy.sqlio.address import read_url
from netspy.sqlio.dialects import dialect_of
from netspy.sqlio.engine import make_engine, need_driver
from netspy.sqlio.sqlite_file import why_unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Engine

    from netspy.settings import Settings
    from netspy.sqlio.address import SqlAddress
    from netspy.sqlio.dialects import OnConflict
    from netspy.sqlio.reflection import Table

_MAX_ROWS = 1000  # of one statement
_MAX_CHARS = 500_000
_MARGIN = 4096  # bytes of a packet that are not the row: the statement itself


class SqlTroubleError(PipelineError):
    """The database refused, for a reason that isn't in the rows. `away`: it may take them later."""

    def __init__(self, message: str, *, away: bool) -> None:
        super().__init__(message)
        self.away = away


class _Into(NamedTuple):
    """Where rows go, and what happens when one is there under `key`, or under some key of the table."""

    table: Table
    action: OnConflict
    key: tuple[str, ...] | None


class SqlPipeline(BasePipeline):
    """Stores rows in the database SQL_URL: MySQL, MariaDB, PostgreSQL or SQLite.

    - One batch is one transaction. Rows that can't be stored as they are (a value that doesn't fit its column, a NUL
      in PostgreSQL's text) are reported one by one, the others are stored.
    - A row whose unique key is there updates it (SQL_ON_CONFLICT); fields that it doesn't have stay as they are.
    - A field without a column is reported once and handled by ITEM_UNKNOWN_COLUMNS.
    - An UpdateItem changes the rows that its keys find; none is a failure of this row, or an insert with
      ITEM_UPDATE_UPSERT.
    """

    url: str = ""
    _engine: Engine | None = None

    def __init__(self, url: str = "") -> None:
        """`url`: a database to use in the place of SQL_URL."""
        self.url = url or self.url

    @property
    def settings(self) -> Settings:
        """The spider's settings."""
        return self._settings

    @settings.setter
    def settings(self, value: Settings) -> None:
        # A wrong address or a missing driver stops the start; a server that is down doesn't.
        self._settings = value
        need_driver(self.address())

    # what MySQL's and PostgreSQL's own pipelines define anew

    def address(self) -> SqlAddress:
        """The database. Raises ConfigError."""
        url = self.url or self.settings.SQL_URL
        if not url:
            raise ConfigError("SQL_URL is empty; set it, e.g. to mysql://user:password@host/database")
        return read_url(url, origin="SQL_URL")

    def connections(self) -> int:
        """The most connections to it."""
        return self.settings.SQL_POOL_SIZE

    def on_conflict(self) -> OnConflict:
        """What becomes of a row whose key is there."""
        return self.settings.SQL_ON_CONFLICT

    def conflict_target(self) -> tuple[str, ...]:
        """The key to go by whatever the item says; empty: the item's, else the table's."""
        return ()

    # BasePipeline

    def where(self) -> str:
        """The database, for the run's summary: no password."""
        return self.address().shown

    def open(self) -> None:
        """Connect. Raises ConfigError for a wrong address, UnusableError for a wrong password, a database that isn't there or
        a file that is none, SqlTroubleError when the server can't be reached.
        """
        self.close()
        address = self.address()
        engine = make_engine(address, pool_size=self.connections())
        try:
            with engine.connect() as connection:
                self._dialect = dialect_of(connection)
                self._packet = 0
                if self._dialect.kind == "mysql":
                    self._packet = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
        except Exception as error:
            engine.dispose()
            if sql_errors.login_error(error):
                raise UnusableError(f"{address.shown}: {sql_errors.one_line(error)}") from None
            self._raise(error, f"{address.shown}: ")
        self._engine = engine
        self._tables = Tables(engine, self._dialect, self.settings)
        self._keys: dict[str, tuple[str, ...]] = {}
        self._left_alone: dict[str, int] = {}
        self._told: set[tuple[str, str]] = (
            set()
        )  # columns that drop a part of a value, and of which that was said

    def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """Remember the unique key."""
        if unique_key:
            self._keys[table] = unique_key

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Insert or upsert the batch in one transaction.

        Raises RowsFailedError for rows at fault (the others are stored), ItemError when the database doesn't say
        which, SqlTroubleError when it takes nothing now, UnavailableError when somebody has locked the table.
        """
        columns, rows = as_sheet(table, items)
        key = self.conflict_target() or self._keys.get(table, ())
        target, shapes, failed = self._prepare(table, columns, rows, key)
        into = _Into(target, self.on_conflict(), self._check_key(target, key, shapes))
        shapes = _arrange(shapes, target, into.key or next(iter(target.keys), ()), target.keys)
        for shape in shapes:
            self._too_big(shape, failed)

        left: list[int] = []

        def store(connection: Connection) -> None:
            left[:] = [self._insert(connection, into, shape) for shape in shapes]

        self._transaction(store)
        self._note_left_alone(target, sum(left))
        if failed:
            raise RowsFailedError(failed)
        return True

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> bool:
        """Update the rows found by `update_keys`, in one transaction. Raises as `save_items`."""
        if not update_keys:
            raise ItemError(
                f"an UpdateItem of table {table!r} names no __update_key__; its row can't be found"
            )
        columns, rows = as_sheet(table, items)
        target, shapes, failed = self._prepare(table, columns, rows, (), required=update_keys)
        keys = tuple(found.name for name in update_keys if (found := target.column(name)) is not None)
        shapes = _arrange(shapes, target, keys, [keys])
        anew = _Into(target, "update", keys if target.has_key(keys) else None)
        absent: dict[int, Exception] = {}

        def change(connection: Connection) -> None:
            absent.clear()
            for shape in shapes:
                changed = [name for name in shape.columns if name not in keys] or list(keys)
                order = [shape.columns.index(name) for name in (*changed, *keys)]
                sql = self._dialect.update(self._dialect.quote(target.name), changed, keys)
                for line in shape.lines:
                    done = connection.exec_driver_sql(sql, tuple(line.values[at] for at in order))
                    if done.rowcount:
                        continue
                    if self.settings.ITEM_UPDATE_UPSERT:
                        self._insert(connection, anew, Shape(shape.columns, [line]))
                    else:
                        shown = ", ".join(f"{k}={rows[line.place].get(k)!r:.80}" for k in update_keys)
                        absent[line.place] = ItemError(f"no row of table {table!r} has {shown}")

        self._transaction(change)
        if failed or absent:
            raise RowsFailedError({**failed, **absent})
        return True

    def is_away(self, error: Exception) -> bool | None:
        """Whether the server can't be reached, refuses everybody or has locked the table: waiting for it helps."""
        cause = error if isinstance(error, SqlTroubleError) else error.__cause__
        return cause.away if isinstance(cause, SqlTroubleError) else None

    def close(self) -> None:
        """Close the connections."""
        for table, number in getattr(self, "_left_alone", {}).items():
            self.logger.info(
                "table {!r}: {} row(s) were there already and stayed as they were", table, number
            )
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    # the table

    def _prepare(
        self,
        name: str,
        columns: Sequence[str],
        rows: list[dict[str, Any]],
        key: Sequence[str],
        *,
        required: Sequence[str] = (),
    ) -> tuple[Table, list[Shape], dict[int, Exception]]:
        """The table and the rows as its parameters. Rows are refused only by what the table is now."""
        target = self._table(name, columns, rows, key)
        shapes, failed = bound_rows(target, rows, self.settings, required=required)
        if failed and self._tables.doubt():
            target = self._table(name, columns, rows, key)
            shapes, failed = bound_rows(target, rows, self.settings, required=required)
        self._say_what_is_dropped(target, shapes)
        return target, shapes, failed

    def _say_what_is_dropped(self, table: Table, shapes: Sequence[Shape]) -> None:
        for shape in shapes:
            for at, name in enumerate(shape.columns):
                found = table.column(name)
                lossy = lossy_column(table.kind, found) if found is not None else None
                if found is None or lossy is None or (table.name, name) in self._told:
                    continue
                lost = next((v for line in shape.lines if lossy.drops(v := line.values[at])), None)
                if lost is not None:
                    self._told.add((table.name, name))
                    self._tables.say_once(
                        ("drops", table.name, name),
                        f"table {table.name!r}: column {name!r} ({found.declared}) {lossy.text} (here {lost!s:.60})",
                    )

    def _table(
        self, name: str, columns: Sequence[str], rows: list[dict[str, Any]], key: Sequence[str]
    ) -> Table:
        """The table as it is, after it was made or widened if the settings say so."""
        try:
            return self._tables.fitting(name, columns, rows, key)
        except ItemError:
            raise
        except Exception as error:
            self._raise(error)

    def _say_nulls(self, target: Table, key: tuple[str, ...], shapes: Sequence[Shape]) -> None:
        """Tell once that rows with a NULL in their key are not kept unique."""
        if any(set(key) == set(one) for one in target.null_keys):
            return
        for name in key:
            column = target.column(name)
            if column is None or not column.nullable:
                continue
            for shape in shapes:
                at = shape.columns.index(name) if name in shape.columns else None
                lacks = (
                    not column.filled if at is None else any(line.values[at] is None for line in shape.lines)
                )
                if lacks and shape.lines:
                    self._tables.say_once(
                        (target.name, "nulls", *key),
                        f"table {target.name!r}: a row has no {name!r}, a part of its key {list(key)}. A NULL equals nothing, so "
                        "such a row is always new, and one that is delivered twice is there twice",
                    )
                    return

    def _check_key(
        self, target: Table, key: tuple[str, ...], shapes: Sequence[Shape]
    ) -> tuple[str, ...] | None:
        """The columns of `key` when the table keeps them unique, else None, which is told once."""
        if not key:
            return None
        found = [target.column(name) for name in key]
        names = tuple(column.name for column in found if column is not None)
        if len(names) == len(key) and target.has_key(names):
            if any(column is not None and column.folds for column in found):
                self._tables.say_once(
                    (target.name, "folds", *key),
                    f"table {target.name!r} takes keys {list(key)} for equal that differ only in case, accents or the like "
                    "(by the collation of its columns): of such rows one is kept; give the columns a binary collation if they "
                    "are different",
                )
            self._say_nulls(target, names, shapes)
            return names
        if self.conflict_target():
            raise ItemError(
                f"table {target.name!r} has no unique index over {list(key)}, which POSTGRES_CONFLICT_TARGET names"
            )
        self._tables.say_once(
            (target.name, *key),
            f"table {target.name!r} has no unique index over {list(key)} (__unique_key__), so it can't keep them "
            "unique: a row that is delivered twice may be there twice; create the index",
        )
        return None

    # statements

    def _too_big(self, shape: Shape, failed: dict[int, Exception]) -> None:
        """Take out rows that the server would end the connection for, which looks as if it had died."""
        if not self._packet:
            return
        for line in [line for line in shape.lines if chars(line.values) * 5 > self._packet - _MARGIN]:
            size = packet_bytes(line.values) + _MARGIN
            if size > self._packet:
                shape.lines.remove(line)
                failed[line.place] = ItemError(
                    f"the row takes {size:,} bytes, over the server's max_allowed_packet of {self._packet:,}"
                )

    def _insert(self, connection: Connection, into: _Into, shape: Shape) -> int:
        """Write the rows; how many were left out because the table has them, where nothing is done about these."""
        dialect, columns = self._dialect, shape.columns
        if not shape.lines:
            return 0
        by = self._conflict(into, columns)
        tail = "" if by is None else dialect.on_conflict(columns, by, into.action)
        name = dialect.quote(into.table.name)
        if dialect.kind != "mysql":
            # One prepared statement; psycopg sends its rows without waiting for each answer.
            sql = dialect.insert(name, columns) + tail
            done = connection.exec_driver_sql(sql, [line.values for line in shape.lines])
            counts = into.action == "nothing" and done.rowcount >= 0
            return max(0, len(shape.lines) - done.rowcount) if counts else 0
        known = 0
        limit = min(_MAX_CHARS, self._packet // 5)
        for rows in chunks(shape, max_rows=_MAX_ROWS, max_chars=limit):
            if into.action == "nothing":
                known += self._known(connection, into, columns, rows)
            sql = dialect.insert(name, columns, len(rows)) + tail
            connection.exec_driver_sql(sql, tuple(value for row in rows for value in row))
        return known

    def _known(
        self, connection: Connection, into: _Into, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> int:
        """How many of the rows the table has by their key. MySQL itself doesn't tell it of an INSERT that changes nothing."""
        key = into.key or next((key for key in into.table.keys if set(key) <= set(columns)), None)
        if not key:
            return 0
        dialect = self._dialect
        at = [columns.index(name) for name in key]
        one = f"({', '.join([dialect.mark] * len(key))})"
        names = ", ".join(map(dialect.quote, key))
        many = ", ".join([one] * len(rows))
        sql = f"SELECT COUNT(*) FROM {dialect.quote(into.table.name)} WHERE ({names}) IN ({many})"  # noqa: S608 (quoted)
        return int(connection.exec_driver_sql(sql, tuple(row[n] for row in rows for n in at)).scalar_one())

    def _note_left_alone(self, table: Table, number: int) -> None:
        if not number:
            return
        self._left_alone[table.name] = self._left_alone.get(table.name, 0) + number
        if self._left_alone[table.name] == number:
            self.logger.warning(
                "table {!r}: {} row(s) are there already and stay as they are (conflicts do nothing, by the settings); "
                "further ones are counted and told at the end",
                table.name, number,
            )  # fmt: skip

    def _conflict(self, into: _Into, columns: Sequence[str]) -> tuple[str, ...] | None:
        """The key that says that a row of these columns is there; empty: any key of the table; None: there is none."""
        if into.action == "error" or not into.table.keys:
            return None
        if into.key:
            return into.key
        any_key = into.action == "nothing" and not into.table.deferred
        if self._dialect.kind == "mysql" or any_key:
            return ()
        return next((key for key in into.table.keys if set(key) <= set(columns)), None)

    def _transaction(self, work: Callable[[Connection], None]) -> None:
        if self._engine is None:
            raise PipelineError("the pipeline is not open")
        try:
            with self._engine.begin() as connection:
                work(connection)
        except Exception as error:
            self._raise(error)

    def _raise(self, error: Exception, where: str = "") -> NoReturn:
        """The error in one line, without rows, SQL and passwords, as what the writer goes by."""
        if isinstance(error, ConfigError | PipelineError | ItemError):
            raise error
        line = sql_errors.one_line(error)
        address = self.address()
        if address.kind == "sqlite" and (
            why := why_unusable(address.database, sql_errors.driver_error(error))
        ):
            raise UnusableError(why) from None
        if sql_errors.locked(error):
            raise UnavailableError(f"{where}{line}") from None  # fewer rows would wait as long
        away = sql_errors.login_error(error) or (
            sql_errors.transient(error) and not sql_errors.lost_race(error)
        )
        if self._engine is not None:
            if away:
                self._engine.dispose()  # after a fail-over the old connections still lead to the old server
            if sql_errors.schema_error(error):
                self._tables.forget()
        if sql_errors.data_error(error):
            if self._engine is not None:
                self._tables.doubt()
            raise ItemError(line) from None
        raise SqlTroubleError(f"{where}{line}", away=away) from None


def _arrange(
    shapes: list[Shape], table: Table, key: Sequence[str], unique: Sequence[Sequence[str]]
) -> list[Shape]:
    """The rows as they came where a later one may be an earlier one to the database, else by their key.

    A table that counts its rows counts them as they came. SQLite locks no rows, and converts values as it likes.
    """
    if table.kind == "sqlite" or repeats(shapes, table, unique):
        return in_order(shapes)
    if not key or any(column.counter for column in table.columns.values()):
        return shapes
    return [by_key(shape, table, key) for shape in shapes]
