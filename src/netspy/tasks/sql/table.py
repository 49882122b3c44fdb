"""Tasks in an SQL table: `mysql://user:password@host/database?table=crawl_task`, postgresql:// and sqlite:/// alike.

A task is a row, `task_requests` gets it as a dict; the columns are those of a BatchSpider's task table: id, state (0 to
do, 2 in process, 1 done, -1 failed) and time. Other names: BATCH_TASK_ID_FIELD, BATCH_TASK_STATE_FIELD,
BATCH_TASK_TIME_FIELD, or `id=`, `state=`, `time=` in the URL. Whoever wants a row crawled again sets its state to 0.

A row in process belongs to its node for HEARTBEAT_STALE seconds of the database's clock, and `keep` writes the time
anew. The row doesn't say whose it is, so a node that slept past that time doesn't give it back: see `_ours`.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from netspy.errors import ConfigError, SerializationError, StoreUnavailableError
from netspy.messages import codec
from netspy.policy.batch import DONE, FAILED, TODO
from netspy.settings import Settings, hide_password, without_passwords
from netspy.sqlio.address import SqlAddress, read_url
from netspy.tasks.contract import Backlog, Task
from netspy.tasks.sql.steps import SqlSteps, chunks, quote_name
from netspy.tasks.sql.tasks import SqlTasks
from netspy.tasks.wire import token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

T = TypeVar("T")

_THREADS = 3
_PATIENCE_S = 2.0  # of one call in its thread; the waiting through an outage is done on the loop
_PAUSE_S = 1.0
_READ_TIMEOUT_S = 30.0
_INSERTS = 200  # rows of one INSERT


class TableAddress(NamedTuple):
    """Which table, in which database."""

    database: SqlAddress
    table: str
    id_field: str
    state_field: str
    time_field: str


def read_table_url(url: str, settings: Settings, *, name: str = "TASK_SOURCE") -> TableAddress:
    """What the URL says. Raises ConfigError that names `name`, without the password."""
    base, _, query = url.rpartition("?")
    own: dict[str, str] = {}
    if base and "@" not in query:
        pairs = parse_qsl(query, keep_blank_values=True)
        own = {key: value for key, value in pairs if key in {"table", "id", "state", "time"}}
        rest = urlencode([(key, value) for key, value in pairs if key not in own])
        url = f"{base}?{rest}" if rest else base
    database = read_url(url, origin=name)
    if not own.get("table"):
        raise ConfigError(
            f"{name}={hide_password(url)!r} names no table; add it, e.g. {database.shown}?table=crawl_task"
        )
    return TableAddress(
        database,
        own["table"],
        own.get("id") or settings.BATCH_TASK_ID_FIELD,
        own.get("state") or settings.BATCH_TASK_STATE_FIELD,
        own.get("time") or settings.BATCH_TASK_TIME_FIELD,
    )


class SqlTaskSource:
    """See the module's text. One node's view of the table."""

    holds = True
    reusable = True

    def __init__(
        self,
        settings: Settings,
        list_name: str = "",
        *,
        url: str | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`url` instead of TASK_SOURCE; `list_name` has no use here. Nothing is connected yet. Raises ConfigError."""
        del list_name  # the table is named by the URL
        address = read_table_url(url or settings.TASK_SOURCE, settings)
        self.shown = f"{address.database.shown}?table={address.table}"
        self._start_timeout = settings.REDIS_START_TIMEOUT
        self._outage_timeout = settings.REDIS_OUTAGE_TIMEOUT
        self._lease_s = settings.HEARTBEAT_STALE
        self._lost_every_s = settings.HEARTBEAT_INTERVAL
        self._on_outage = on_outage
        self._steps = SqlSteps(
            address.database, pool_size=_THREADS, patience=_PATIENCE_S, read_timeout=_READ_TIMEOUT_S
        )
        self._tasks = SqlTasks(self._steps, *address[1:])
        self._threads = ThreadPoolExecutor(_THREADS, "netspy-task-table")
        self._stop = asyncio.Event()
        self._looked_for_lost = float("-inf")
        self._held: dict[str, float] = {}
        """Token → when this node last wrote the row's time, on its own steady clock."""

    async def open(self) -> None:
        """Connect and check the table."""
        self._steps.patience = max(0.05, self._start_timeout)
        try:
            await self._in_thread(lambda: self._tasks.about)
        finally:
            self._steps.patience = _PATIENCE_S

    # Tasks

    async def take(self, limit: int) -> list[Task]:
        """Rows of nodes that are gone, then those to do, oldest time first."""
        began = time.monotonic()
        look = began - self._looked_for_lost >= self._lost_every_s

        def claim() -> tuple[list[dict[str, Any]], list[tuple[Any, str]], bool]:
            tasks, ids = self._tasks, []
            if look:
                ids = tasks.claim_lost(limit, self._lease_s, tasks.clock)
            more = bool(ids) and len(ids) == limit
            if len(ids) < limit:
                ids += tasks.claim(limit - len(ids), tasks.clock)
            good, bad = tasks.read(ids)
            if bad:
                self._steps.run(lambda connection: tasks.mark(connection, [(id_, FAILED) for id_, _ in bad]))
            return good, bad, more

        rows, bad, more = await self._call(claim)
        if look and not more:
            self._looked_for_lost = began
        for id_, why in bad:
            self._say_failed(id_, why)
        id_field = self._tasks.plain[1]
        found = [Task(token_of(str(row[id_field])), row, row[id_field]) for row in rows]
        # After an outage longer than the lease, rows that this node still works on may come: they are its own again.
        new = [task for task in found if task.token not in self._held]
        self._held.update((task.token, began) for task in found)
        return new

    async def keep(self, tasks: Sequence[Task]) -> None:
        """Write their rows' times anew."""
        began = time.monotonic()
        ours = self._ours(tasks)  # the others are touched too: we do work on them, and it harms nobody
        if tasks:
            ids = [task.receipt for task in tasks]
            await self._call(lambda: self._tasks.touch(ids, self._tasks.clock))
            self._held.update((task.token, began) for task in ours if task.token in self._held)

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Their rows are DONE, also when they are another node's by now: their requests and items are done."""
        await self._mark(tasks, DONE)

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """Their rows are FAILED; the error goes to the log."""
        await self._mark([task for task, _ in failures], FAILED)
        for task, error in failures:
            self._say_failed(task.receipt, error)

    async def release(self, tasks: Sequence[Task]) -> None:
        """Their rows are to do again, unless they may be another node's."""
        await self._mark(self._ours(tasks), TODO)
        for task in tasks:
            self._held.pop(task.token, None)

    async def add(self, values: Sequence[Any]) -> None:
        """New rows: each value is a dict of column values. Raises SerializationError for another, with none added.

        After a connection lost at the very end of the call they may be there twice, unless they carry their id.
        """
        rows = [_row(value, number) for number, value in enumerate(values)]

        def insert(connection: Connection) -> None:
            names = self._tasks.names
            columns: tuple[str, ...]
            for columns, alike in groupby(rows, key=_columns):
                named = [quote_name(names.dialect, column) for column in columns]
                for piece in chunks(list(alike), _INSERTS):
                    marks = ", ".join([f"({', '.join([names.dialect.mark] * len(columns))})"] * len(piece))
                    statement = f"INSERT INTO {names.table} ({', '.join(named)}) VALUES {marks}"  # noqa: S608 (quoted)
                    values = tuple(value for row in piece for value in row.values())
                    connection.exec_driver_sql(statement, values)

        await self._call(lambda: self._steps.run(insert))

    async def backlog(self) -> Backlog:
        """By states: to do, in process, failed."""
        counts = await self._call(lambda: self._tasks.count(without_done=True))
        return Backlog(counts.todo, counts.doing, None, counts.failed)

    def give_up_waiting(self) -> None:
        """Calls that wait for an absent database end soon."""
        self._stop.set()
        self._steps.give_up_waiting()

    async def close(self) -> None:
        """Disconnect; rows in hand come back when their time is stale."""
        self._stop.set()
        self._steps.give_up_waiting()
        await asyncio.get_running_loop().run_in_executor(None, self._steps.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Inside

    def _ours(self, tasks: Sequence[Task]) -> list[Task]:
        """Those whose lease can't be over yet: the others may be in another node's hands."""
        limit = time.monotonic() - self._lease_s
        return [task for task in tasks if self._held.get(task.token, limit) > limit]

    async def _mark(self, tasks: Sequence[Task], state: int) -> None:
        if not tasks:
            return
        marks = [(task.receipt, state) for task in tasks]
        await self._call(lambda: self._steps.run(lambda connection: self._tasks.mark(connection, marks)))
        for task in tasks:
            self._held.pop(task.token, None)

    def _say_failed(self, task_id: Any, why: str) -> None:
        from loguru import logger

        logger.error("task {!r} of {} failed: {}", task_id, self.shown, without_passwords(why))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _call(self, work: Callable[[], T]) -> T:
        """Do it in a thread, again until the database answers. Raises StoreUnavailableError when that is given up."""
        away_since: float | None = None
        while True:
            try:
                answer = await self._in_thread(work)
            except StoreUnavailableError as error:
                if away_since is None:
                    away_since = time.monotonic()
                    self._say_outage(error)
                waited = time.monotonic() - away_since
                if self._stop.is_set() or 0 < self._outage_timeout < waited:
                    raise
                try:
                    await asyncio.wait_for(self._stop.wait(), _PAUSE_S)
                except TimeoutError:
                    continue
                raise
            if away_since is not None:
                self._say_back(time.monotonic() - away_since)
            return answer

    def _say_outage(self, error: StoreUnavailableError) -> None:
        from loguru import logger

        logger.warning("task table: {}; waiting for it", error)
        if self._on_outage is not None:
            self._on_outage(True, 0.0)

    def _say_back(self, seconds: float) -> None:
        from loguru import logger

        logger.warning("task table: {} is back after {:.1f} s", self.shown, seconds)
        if self._on_outage is not None:
            self._on_outage(False, seconds)


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row)


def _row(value: Any, number: int) -> dict[str, Any]:
    """A task as the columns of its row; lists and dicts in it become JSON text."""
    codec.encode(value, f"task {number}")
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        raise SerializationError(
            f"task {number} is {value!r:.100}; a task for an SQL table is a dict of its columns, e.g. {{'url': '…'}}"
        )
    try:
        return {
            key: msgspec.json.encode(inner).decode() if isinstance(inner, dict | list | tuple) else inner
            for key, inner in value.items()
        }
    except (TypeError, ValueError) as error:
        raise SerializationError(f"task {number}: {error}") from error
