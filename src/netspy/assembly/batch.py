"""A BatchSpider's parts: the store that the settings name, a worker's task side, a master."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.assembly import Built
from netspy.assembly.contract import TableSpider
from netspy.blocking import SLOW_S, in_thread
from netspy.engine.batch.master import BatchMaster
from netspy.engine.batch.store_calls import asked
from netspy.engine.env import Env
from netspy.engine.parts import TaskParts
from netspy.errors import NetspyError, SpiderError, StoreLostError
from netspy.observe.alerts import Alerts
from netspy.observe.throttle import ThrottledLog
from netspy.policy.batch import DONE, FAILED
from netspy.tasks.batch_queue import (
    BatchKeys,
    BatchQueue,
    check_lock,
    identify,
    master_holder,
    read_token,
    salt_of,
)
from netspy.tasks.batch_store import BatchStore
from netspy.tasks.cron import batch_schedule
from netspy.tasks.memory_batch import MemoryBatchStore
from netspy.tasks.redis.list import RedisTaskList

if TYPE_CHECKING:
    from netspy.settings import Settings


def make_store(settings: Settings, task_table: str) -> BatchStore:
    """The SQL store that BATCH_STORE_URL, else MYSQL_*, describes. Raises ConfigError, MissingExtraError."""
    from netspy.tasks.sql.batch import SqlBatchStore

    return SqlBatchStore.from_settings(settings, task_table)


def in_process(spider: TableSpider) -> bool:
    """Whether the task table lives in this process, so that master and worker must, too."""
    return spider.crawls_itself and isinstance(spider.store, MemoryBatchStore)


def id_field_of(spider: TableSpider) -> str:
    """The column of a task row that names the task, as the store has it."""
    name: str = spider.store.id_field or spider.load_settings().settings.BATCH_TASK_ID_FIELD
    return name


def mark_now(spider: TableSpider, task_id: Any, *, ok: bool) -> None:
    """`update_task` outside of a page. Raises SpiderError for an unknown id."""
    if spider.store.mark_tasks([(task_id, DONE if ok else FAILED)]) == [False]:
        raise SpiderError(unknown(spider, [task_id]))


def unknown(spider: TableSpider, ids: Sequence[Any]) -> str:
    """What to say of ids that the task table doesn't have."""
    named = ", ".join(repr(task_id) for task_id in list(ids)[:5]) + (" …" if len(ids) > 5 else "")
    id_field = id_field_of(spider)
    return (
        f"{spider.name}.update_task({named}): {spider.task_table!r} has no such row; give the value of the row's "
        f"{id_field!r}, as in update_task(task[{id_field!r}])"
    )


_COUNTED_KEPT = 20_000


class Marks:
    """Writes what callbacks report into the task table, many at a time, while their batch is the open one."""

    def __init__(self, spider: TableSpider) -> None:
        self._spider = spider
        self._counted: OrderedDict[tuple[int | None, str, int], None] = OrderedDict()

    def _count(self, batch: int | None, marks: Sequence[tuple[Any, int]]) -> None:
        """An end of a task counts once, though several of its requests may report it."""
        for task_id, state in marks:
            key = batch, repr(task_id), state
            if key in self._counted:
                continue
            self._counted[key] = None
            if len(self._counted) > _COUNTED_KEPT:
                self._counted.popitem(last=False)
            self._spider.counters.inc("tasks_done" if state == DONE else "tasks_failed")

    def _wait_for_answer(self) -> None:
        self._spider.logger.warning(
            "the task table has been asked for {:.0f} s and has not answered; pages wait for it unacked",
            SLOW_S,
        )

    async def __call__(self, values: Sequence[tuple[str, Any, bool]]) -> None:
        """`values`: (the page's task token or '', task id, ok)."""
        store, counters = self._spider.store, self._spider.counters
        by_batch: dict[int | None, list[tuple[Any, int]]] = {}
        for token, task_id, ok in values:
            batch = read_token(token)[0] if token else None
            by_batch.setdefault(batch, []).append((task_id, DONE if ok else FAILED))
        missing: list[Any] = []
        for batch, marks in by_batch.items():
            found: list[bool] = await in_thread(
                lambda: store.mark_tasks(marks, batch_id=batch),  # noqa: B023 - awaited before the next one
                slow=self._wait_for_answer,
            )
            missing += [task_id for (task_id, _), there in zip(marks, found, strict=True) if not there]
            self._count(batch, [mark for mark, there in zip(marks, found, strict=True) if there])
        if missing:
            counters.inc("callback_error", len(missing))
            raise SpiderError(unknown(self._spider, missing))


class _Waiting:
    """Why a worker with nothing to do should stay: a master lives, or tasks are not settled."""

    def __init__(self, spider: TableSpider, source: RedisTaskList, keys: BatchKeys, every_s: float) -> None:
        self._spider = spider
        self._source = source
        self._keys = keys
        self._every_s = every_s
        self._asked = -every_s
        self._why: str | None = "the batch master has not been looked for yet"
        self._warned = False

    async def __call__(self) -> str | None:
        """The answer, at most as old as the poll interval."""
        now = time.monotonic()
        if now - self._asked >= self._every_s:
            self._why = await self._ask()
            self._asked = now
        return self._why

    async def _ask(self) -> str | None:
        holder = await master_holder(self._source.link, self._keys)
        if holder is not None:
            return f"the batch master lives ({holder.who})"
        store = self._spider.store
        try:
            latest = await in_thread(lambda: asked(store.latest_batch))
            if latest is None or latest.is_done:
                return None
            counts = await in_thread(lambda: asked(store.count_tasks))
        except StoreLostError as error:
            return str(error)
        left = counts.total - counts.settled
        if not left:
            return None
        text = f"{left} task(s) of batch {latest.id} are not settled and no master lives"
        if not self._warned:
            self._warned = True
            self._spider.logger.warning(
                "{}; start one: {}().start_monitor(), or `netspy run FILE --monitor`", text, self._spider.name
            )
        return text


class _PushedTasks(RedisTaskList):
    """What the master has pushed, once the task table is known to be fit."""

    def __init__(self, settings: Settings, keys: BatchKeys, spider: TableSpider, **options: Any) -> None:
        super().__init__(settings, keys.pending, identify=identify, **options)
        self._store: BatchStore = spider.store
        self._log = spider.logger
        self._batch_keys = keys

    def _wait_for_answer(self) -> None:
        self._log.warning("the task table has been asked for {:.0f} s and has not answered", SLOW_S)

    async def open(self) -> None:
        """Raises ConfigError for a task table that can't be used, StoreUnavailableError, besides what the list's raises."""
        await in_thread(lambda: asked(self._store.ensure_schema), slow=self._wait_for_answer)
        await super().open()
        await self.link.ask(lambda: check_lock(self.link, self._batch_keys))


def close_store(spider: TableSpider) -> None:
    """Close it. What it raises changes nothing about the run."""
    try:
        asked(spider.store.close)
    except NetspyError as error:
        spider.logger.warning("{}, when it was closed", error)


def build_batch(built: Built, spider: TableSpider, settings: Settings) -> TaskParts:
    """The task side of a worker. Raises ConfigError for a wrong database URL."""
    keys = BatchKeys(built.namespace)
    source = _PushedTasks(settings, keys, spider, on_outage=built.outage)
    built.waiters.append(source.give_up_waiting)
    built.closers.append(lambda: close_store(spider))
    return TaskParts(
        spider=spider,
        source=source,
        adopt=None,
        fetch=None,
        closing=spider.closing_of,
        ended=spider.task_ended,
        salt=salt_of,
        doers={"mark": Marks(spider)},
        reported=True,
        open_because=_Waiting(spider, source, keys, settings.TASK_POLL_INTERVAL),
    )


class BuiltMaster(NamedTuple):
    """A master's parts."""

    master: BatchMaster
    queue: BatchQueue
    namespace: str
    redis_key: str


def build_master(
    spider: TableSpider, settings: Settings, *, once: bool, on_outage: Callable[[bool, float], None]
) -> BuiltMaster:
    """Everything a master needs. Raises ConfigError for a wrong schedule or Redis URL, MissingExtraError."""
    from netspy.assembly import _need_redis
    from netspy.assembly.shared import scope_of

    _need_redis()
    alerts = Alerts(
        spider.on_alert if settings.WARNING_ENABLE else None,
        settings.WARNING_INTERVAL,
        count=lambda: spider.counters.inc("alerts"),
    )

    def alert(kind: str, message: str) -> None:
        alerts.raise_alert(kind, message)

    def full() -> None:
        alert("redis_full", "Redis has no memory left (maxmemory); the batch master waits for room")

    env = Env(
        name=spider.name,
        settings=settings,
        log=spider.logger,
        throttled=ThrottledLog(spider.logger),
        counters=spider.counters,
        alert=alert,
        shared=True,
    )
    scope = scope_of(spider, settings)
    queue = BatchQueue(settings, scope, on_outage=on_outage, on_full=full)
    master = BatchMaster(
        env,
        spider.store,
        queue,
        job=scope.ns,
        schedule=batch_schedule(settings),
        once=once,
        id_field=id_field_of(spider),
    )
    return BuiltMaster(master, queue, scope.ns, scope.redis_key)
