"""BatchSpider's store in MySQL, MariaDB, PostgreSQL or SQLite: the task table and its batch records.

What makes it safe, besides what `sql_tasks` does: every write of a master holds the fence row until it is committed and
is refused when that row shows a higher token; a mark holds the batch's record in share mode until it is committed, so
it can't slip in behind `finish_batch`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError
from netspy.policy.batch import FAILED, TODO, BatchRecord, TaskCounts
from netspy.settings import load
from netspy.sqlio.address import SqlAddress, mysql_address, read_url
from netspy.sqlio.errors import data_error
from netspy.tasks.batch_store import BatchStore, FencedError, TableHolder, applies, task_columns
from netspy.tasks.sql.schema import FENCE_SUFFIX, RECORD_SUFFIX, ensure_own_tables, index_ddl
from netspy.tasks.sql.steps import SqlSteps, quote_name
from netspy.tasks.sql.tasks import DEFAULT_CHUNK, SqlTasks, utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from netspy.settings import Settings

_JOB_CHARS = 255
_SHARE_LOCK = {"mysql": " LOCK IN SHARE MODE", "postgresql": " FOR SHARE", "sqlite": ""}


class SqlBatchStore(BatchStore):
    """One task table in an SQL database.

        SqlBatchStore("crawl_task", "mysql://user:password@host/database")

    `url`: mysql://, mariadb://, postgresql:// or sqlite:///path; None: what the MYSQL_* settings say. Columns that are not
    named: those that the BATCH_TASK_*_FIELD settings name. `patience`: seconds for which trouble that passes by itself (a
    lost connection, a deadlock) is waited out inside a call. Raises ConfigError for a wrong URL, MissingExtraError without
    SQLAlchemy or the driver; connects at the first use.
    """

    def __init__(
        self,
        task_table: str,
        url: str | SqlAddress | None = None,
        *,
        id_field: str | None = None,
        state_field: str | None = None,
        time_field: str | None = None,
        pool_size: int = 5,
        patience: float = 30.0,
        chunk: int = DEFAULT_CHUNK,
        db: Any = None,
    ) -> None:
        """`db`: a MysqlDB or PostgresDB, whose address is taken."""
        if url is None and db is not None:
            url = db.address
        if url is None:
            url = mysql_address(load().settings)
        self.task_table = task_table
        columns = task_columns(id_field, state_field, time_field)
        self.id_field, self.state_field, self.time_field = columns
        self._steps = SqlSteps(url, pool_size=pool_size, patience=patience, tell=self._tell)
        self._tasks = SqlTasks(self._steps, task_table, *columns, chunk=chunk)
        self._refused: list[tuple[Any, str]] = []

    @classmethod
    def from_settings(cls, settings: Settings, task_table: str) -> SqlBatchStore:
        """The store that BATCH_STORE_URL, else MYSQL_*, and the BATCH_TASK_*_FIELD settings describe."""
        url = settings.BATCH_STORE_URL
        return cls(
            task_table,
            read_url(url, origin="BATCH_STORE_URL") if url else mysql_address(settings),
            id_field=settings.BATCH_TASK_ID_FIELD,
            state_field=settings.BATCH_TASK_STATE_FIELD,
            time_field=settings.BATCH_TASK_TIME_FIELD,
        )

    @property
    def patience(self) -> float:
        """Seconds for which passing trouble is waited out inside a call."""
        return self._steps.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._steps.patience = seconds

    @property
    def shown(self) -> str:
        """The database for messages, without the password."""
        return self._steps.address.shown

    def ensure_schema(self) -> None:
        """Check the task table, create or complete the record table and the fence table."""
        _ = self._tasks.about
        ensure_own_tables(self._steps, self.task_table + RECORD_SUFFIX, self.task_table + FENCE_SUFFIX)

    def index_advice(self) -> list[str]:
        """A sentence with the CREATE INDEX that is missing; empty when there is such an index."""
        if self._tasks.about.indexed:
            return []
        _, _, state, time = self._tasks.plain
        create = index_ddl(self._tasks.names).replace("%%", "%")
        advice = (
            f"{self.shown}: no index of {self.task_table!r} begins with {state!r} and {time!r}, so every pass of the master "
            f"reads the whole table; create one: {create};"
        )
        return [advice]

    def now(self) -> datetime:
        """The server's clock in UTC."""
        return self._steps.run(self._tasks.clock)

    def close(self) -> None:
        """Close connections. Safe to call twice."""
        self._steps.close()

    # Batch records

    def latest_batch(self) -> BatchRecord | None:
        """The record with the highest id."""
        return self._steps.run(self._latest)

    def batch_age_seconds(self, batch_id: int) -> float:
        """Seconds since the batch was due, by the server's clock. Raises KeyError for an unknown id."""
        query = (
            f"SELECT {self._q('batch_date')}, {self._tasks.names.now} FROM {self._record} "  # noqa: S608 (quoted)
            f"WHERE {self._q('id')} = {self._mark}"
        )
        row = self._steps.run(lambda connection: connection.exec_driver_sql(query, (batch_id,)).first())
        if row is None:
            raise KeyError(f"there is no batch {batch_id} in {self.task_table}{RECORD_SUFFIX}")
        return (utc(row[1]) - utc(row[0])).total_seconds()

    def create_batch(self, batch_date: datetime, total: int, interval: float, unit: str) -> int:
        """A new open record, or the open one of the same date (the answer to an earlier call was lost)."""
        columns = (
            "batch_date",
            "total_count",
            "done_count",
            "fail_count",
            "interval",
            "interval_unit",
            "is_done",
            "create_time",
            "update_time",
        )
        insert = self._tasks.names.dialect.insert(self._record, columns)

        def step(connection: Connection) -> int:
            now = self._tasks.stored(self._hold_fence(connection))
            latest = self._latest(connection)
            if latest is not None and not latest.is_done and latest.batch_date == utc(batch_date):
                return latest.id
            date = self._tasks.stored(utc(batch_date))
            connection.exec_driver_sql(insert, (date, total, 0, 0, interval, unit, 0, now, now))
            made = self._latest(connection)
            if made is None or (latest is not None and made.id <= latest.id):
                raise ConfigError(
                    f"{self.shown}: the ids of {self.task_table}{RECORD_SUFFIX} don't rise by themselves; make its id "
                    "an auto-increment column"
                )
            return made.id

        return self._steps.run(step)

    def update_batch_counts(self, batch_id: int, *, done: int, failed: int, total: int) -> None:
        """Write the progress into the record. Raises KeyError for an unknown id."""
        self._change_record(batch_id, done_count=done, fail_count=failed, total_count=total)

    def finish_batch(self, batch_id: int) -> None:
        """Close the batch. Raises KeyError for an unknown id."""
        self._change_record(batch_id, is_done=1)

    # Tasks, for the master

    def use_fence(self, token: int) -> None:
        """Write as the master that holds `token`, from now on; older masters are refused from now on."""

        def step(connection: Connection) -> None:
            seen, _ = self._fence(connection)
            if seen >= token:
                raise FencedError(token, seen)
            fence, id_ = self._q(self.task_table + FENCE_SUFFIX), self._q("id")
            update = f"UPDATE {fence} SET {self._q('token')} = {self._mark} WHERE {id_} = 1"  # noqa: S608 (quoted)
            connection.exec_driver_sql(update, (token,))

        self._steps.run(step)
        self.fence_token = token

    def hold_table(self, job: str, for_s: float) -> TableHolder | None:
        """In the fence row, by the server's clock."""
        fence, q = self._q(self.task_table + FENCE_SUFFIX), self._q
        name = job[-_JOB_CHARS:]

        def step(connection: Connection) -> TableHolder | None:
            names = self._tasks.names
            columns = ", ".join(map(q, ("job", "busy_until")))
            query = f"SELECT {columns}, {names.now} FROM {fence} WHERE {q('id')} = 1{self._for_update}"  # noqa: S608 (quoted)
            row = connection.exec_driver_sql(query, ()).first()
            if row is None:
                raise ConfigError(self._no_fence)
            now = utc(row[2])
            left_s = (utc(row[1]) - now).total_seconds() if row[1] is not None else 0.0
            if row[0] not in {None, name} and left_s > 0:
                return TableHolder(row[0], left_s)
            until = self._tasks.stored(now + timedelta(seconds=for_s)) if for_s > 0 else None
            change = (
                f"UPDATE {fence} SET {q('job')} = {self._mark}, {q('busy_until')} = {self._mark} "  # noqa: S608 (quoted)
                f"WHERE {q('id')} = 1"
            )
            connection.exec_driver_sql(change, (name, until))
            return None

        return self._steps.run(step)

    def count_tasks(self) -> TaskCounts:
        """How many tasks are in which state."""
        return self._tasks.count()

    def reset_all_tasks(self) -> int:
        """Every task back to TODO, in pieces along the primary key."""
        return self._tasks.reset_all(self._hold_fence)

    def reset_lost_tasks(self, stale: float) -> int:
        """DOING rows without a sign of life for `stale` seconds back to TODO."""
        return self._tasks.reset_lost(stale, self._hold_fence)

    def claim_tasks(self, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` TODO rows, oldest time first, now DOING."""
        good, bad = self._tasks.read(self._tasks.claim(limit, self._hold_fence))
        if bad:
            self.mark_tasks([(id_, FAILED) for id_, _ in bad])
            self._refused += bad
        return good

    def touch_tasks(self, ids: Sequence[Any]) -> int:
        """Set the time of those that are DOING to now."""
        return self._tasks.touch(ids, self._hold_fence)

    def refused_tasks(self) -> list[tuple[Any, str]]:
        """(task id, reason) of claimed rows that could not travel, since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def failed_tasks(self, limit: int = 20) -> list[Any]:
        """Ids of up to `limit` FAILED tasks."""
        return self._tasks.ids_in_state(FAILED, limit)

    # Tasks, for workers

    def mark_task(self, task_id: Any, state: int) -> bool:
        """Set the state of one task."""
        return self.mark_tasks([(task_id, state)])[0]

    def mark_tasks(self, marks: Sequence[tuple[Any, int]], *, batch_id: int | None = None) -> list[bool]:
        """Set the states of these tasks in one transaction, while that batch is the open one."""
        for _, state in marks:
            applies(TODO, state)  # raises for a state that can't be marked
        wanted = [(self._tasks.as_id(id_), state) for id_, state in marks]
        missing = self._mark_known([pair for pair in wanted if pair[0] is not None], batch_id)
        return [id_ is not None and id_ not in missing for id_, _ in wanted]

    def _mark_known(self, marks: Sequence[tuple[Any, int]], batch_id: int | None) -> set[Any]:
        """Set the states; returns the ids that no row has."""

        def step(connection: Connection) -> set[Any]:
            apply = batch_id is None or self._is_open(connection, batch_id)
            return self._tasks.mark(connection, marks, apply=apply)

        try:
            return self._steps.run(step)
        except ConfigError as error:
            # An id that can't be one (no UUID, say) spoils a statement, but not the marks beside it.
            if error.__cause__ is None or not data_error(error.__cause__):
                raise
        if len(marks) == 1:
            return {marks[0][0]}
        half = len(marks) // 2
        return self._mark_known(marks[:half], batch_id) | self._mark_known(marks[half:], batch_id)

    # Inside

    @property
    def _mark(self) -> str:
        return self._tasks.names.dialect.mark

    def _tell(self, text: str) -> None:
        from loguru import logger

        logger.bind(name=self.task_table).warning("{}", text)

    @property
    def _for_update(self) -> str:
        return "" if self._tasks.names.dialect.kind == "sqlite" else " FOR UPDATE"

    @property
    def _no_fence(self) -> str:
        return (
            f"{self.shown}: the row of the table {self.task_table + FENCE_SUFFIX!r} is gone; start the master again, "
            "it makes a new one"
        )

    @property
    def _record(self) -> str:
        return self._q(self.task_table + RECORD_SUFFIX)

    def _q(self, name: str) -> str:
        return quote_name(self._tasks.names.dialect, name)

    def _latest(self, connection: Connection) -> BatchRecord | None:
        columns = ", ".join(map(self._q, BatchRecord.__dataclass_fields__))
        query = f"SELECT {columns} FROM {self._record} ORDER BY {self._q('id')} DESC LIMIT 1"  # noqa: S608 (quoted)
        row = connection.exec_driver_sql(query, ()).first()
        return None if row is None else _record_of(row)

    def _hold_fence(self, connection: Connection) -> datetime:
        """Lock the fence row until the transaction ends; the server's clock. Raises FencedError.

        Without a token nothing is checked: scripts of one's own need no master's lock.
        """
        if not self.fence_token:
            return self._tasks.clock(connection)
        seen, now = self._fence(connection)
        if seen > self.fence_token:
            raise FencedError(self.fence_token, seen)
        return now

    def _fence(self, connection: Connection) -> tuple[int, datetime]:
        """The highest token seen, and the server's clock; locked until the transaction ends."""
        token, id_ = self._q("token"), self._q("id")
        query = (
            f"SELECT {token}, {self._tasks.names.now} FROM {self._q(self.task_table + FENCE_SUFFIX)} "  # noqa: S608 (quoted)
            f"WHERE {id_} = 1{self._for_update}"
        )
        row = connection.exec_driver_sql(query, ()).first()
        if row is None:
            raise ConfigError(self._no_fence)
        return int(row[0]), utc(row[1])

    def _change_record(self, batch_id: int, **values: Any) -> None:
        changes = ", ".join(f"{self._q(name)} = {self._mark}" for name in values)
        update = (
            f"UPDATE {self._record} SET {changes}, {self._q('update_time')} = {self._tasks.names.now} "  # noqa: S608 (quoted)
            f"WHERE {self._q('id')} = {self._mark}"
        )

        def step(connection: Connection) -> int:
            self._hold_fence(connection)
            return int(connection.exec_driver_sql(update, (*values.values(), batch_id)).rowcount)

        if not self._steps.run(step):
            raise KeyError(f"there is no batch {batch_id} in {self.task_table}{RECORD_SUFFIX}")

    def _is_open(self, connection: Connection, batch_id: int) -> bool:
        """Whether that batch is the latest and open; it stays so until this transaction ends."""
        id_ = self._q("id")
        query = (
            f"SELECT {id_}, {self._q('is_done')} FROM {self._record} ORDER BY {id_} DESC LIMIT 1"  # noqa: S608 (quoted)
            f"{_SHARE_LOCK[self._tasks.names.dialect.kind]}"
        )
        row = connection.exec_driver_sql(query, ()).first()
        return row is not None and row[0] == batch_id and not row[1]


MysqlBatchStore = SqlBatchStore
"""The name that the specification and older code know; it takes any of the databases."""


def _record_of(row: Sequence[Any]) -> BatchRecord:
    id_, date, total, done, failed, interval, unit, is_done, created, updated = row
    return BatchRecord(
        id=int(id_),
        batch_date=utc(date),
        total_count=int(total or 0),
        done_count=int(done or 0),
        fail_count=int(failed or 0),
        interval=float(interval or 0),
        interval_unit=str(unit or ""),
        is_done=bool(is_done),
        create_time=None if created is None else utc(created),
        update_time=None if updated is None else utc(updated),
    )
