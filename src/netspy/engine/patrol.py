"""The batch master at work: opens batches, hands tasks to the workers, takes back lost ones, closes batches.

One master at a time, by a lock in Redis with a fencing number that the database checks too: a master that froze past its
lock and wakes can change nothing. Every step may be interrupted and done again by the next master.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from netspy import crash
from netspy.aside import in_thread
from netspy.engine.contract import Alert, LoggerLike
from netspy.engine.table_calls import MasterOutcome, PatrolEnded, TableCalls
from netspy.errors import ConfigError, NetspyError, StoreLostError
from netspy.observe.faults import what
from netspy.policy.batch import (
    BatchRecord,
    Pace,
    Schedule,
    TaskCounts,
    next_step,
    overdue_seconds,
    progress_text,
)
from netspy.settings import Settings
from netspy.tasks.batch_store import BatchStore, FencedError
from netspy.tasks.mastership import NotMasterError, read_holder

_NAMED = 20  # tasks in one log line
_LET_GO_S = 1.0
_STOP_S = 3.0  # for the step under way, and for giving the lock back: a silent server holds up no stop


class QueueLike(Protocol):
    """What the patrol asks of the shared queue; see `tasks.batch_queue.BatchQueue`."""

    async def open(self) -> None: ...
    async def acquire(self, at_least: int = 1) -> int: ...
    async def renew(self) -> None: ...
    async def release(self) -> None: ...
    async def begin(self) -> None: ...
    async def again(self) -> None: ...
    async def push(self, batch: int, pairs: Sequence[tuple[Any, dict[str, Any]]]) -> int: ...
    async def finished(self, batch: int) -> None: ...
    async def tell(self, progress: dict[str, Any]) -> None: ...
    async def waiting(self) -> int: ...
    def live_ids(self, batch: int) -> AsyncIterator[list[Any]]: ...


class PatrolEnd(NamedTuple):
    """How a master's work ended; `counts` are those of its last batch."""

    outcome: MasterOutcome
    reason: str
    batch: int | None = None
    counts: TaskCounts | None = None
    signal: int | None = None


class Patrol:
    """`run` returns when it was stopped, or, with `once`, when one batch has come to its end."""

    def __init__(
        self,
        store: BatchStore,
        queue: QueueLike,
        *,
        name: str,
        job: str,
        settings: Settings,
        schedule: Schedule,
        once: bool,
        logger: LoggerLike,
        alert: Alert,
        id_field: str,
        on_progress: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`name` is the spider's, for messages; `job` its namespace, which the task table belongs to meanwhile."""
        self._store = store
        self._queue = queue
        self._name = name
        self._job = job
        self._settings = settings
        self._schedule = schedule
        self._once = once
        self._log = logger
        self._alert = alert
        self._id_field = id_field
        self._on_progress = on_progress
        self._table = TableCalls(logger, alert)
        self._lost: str | None = None
        self._pace = Pace()
        self._since: datetime | None = None
        self._told_overdue: set[int] = set()
        self._brought_to_end = False
        self._batch: int | None = None
        self._counts: TaskCounts | None = None
        self._said = ""
        self._may_have_lock = False
        self._has_table = False

    def stop(self, reason: str, signal: int | None = None) -> None:
        """Leave after the step under way (on the loop)."""
        self._table.stop(reason, signal)

    async def run(self) -> PatrolEnd:
        """Be the master, or stand by until the one there is has gone. Raises ConfigError for a wrong set-up,
        StoreUnavailableError for a start without Redis or database.
        """
        work = asyncio.create_task(self._work_on(), name="netspy-patrol")
        stop = asyncio.create_task(self._table.stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=_STOP_S)
            return work.result() if work.done() else self._stopped_end()
        except StoreLostError as error:
            if self._table.stopped is None:
                raise
            # Told to stop while it waited for a store that is away: that is how it ended.
            self._log.warning("{}", error)
            return self._stopped_end()
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
            await self._give_up()

    async def _work_on(self) -> PatrolEnd:
        try:
            await self._queue.open()
            await self._table.call(self._store.ensure_schema, insist=False)
            for advice in await self._table.call(self._store.index_advice):
                self._log.warning("{}", advice)
            while True:
                try:
                    await self._become_master()
                    await self._be_master()
                except (NotMasterError, FencedError) as error:
                    await self._another_master(error)
        except PatrolEnded as ended:
            if self._table.stopped is not None and ended.outcome == "stopped":
                return self._stopped_end()
            return PatrolEnd(ended.outcome, ended.reason, self._batch, self._counts)

    async def _be_master(self) -> None:
        keeper = asyncio.create_task(self._keep_lock(), name="netspy-master-lock")
        try:
            await self._rounds()
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    def _stopped_end(self) -> PatrolEnd:
        assert self._table.stopped is not None  # noqa: S101 - who asks has seen it
        reason, number = self._table.stopped
        return PatrolEnd("stopped", reason, self._batch, self._counts, number)

    async def _give_up(self) -> None:
        """The lock and the task table are anybody's, without having to run out."""
        parting: list[tuple[str, Callable[[], Awaitable[Any]], float]] = []
        if self._may_have_lock:
            parting.append(("the master lock", self._queue.release, _STOP_S))
        if self._has_table:
            parting.append(("the task table", self._let_go, _LET_GO_S))
        for of_what, release, within_s in parting:
            try:
                async with asyncio.timeout(within_s):
                    await release()
            except (TimeoutError, NetspyError) as error:
                self._log.warning(
                    "{} could not be given back ({}); that runs out by itself", of_what, what(error)
                )

    async def _let_go(self) -> None:
        await in_thread(lambda: self._store.hold_table(self._job, 0.0))

    # -- the lock --------------------------------------------------------------------------------------------

    async def _become_master(self) -> None:
        said = False
        over_at = float("inf")  # when the lock of the master there is will be over, unless it is renewed
        self._may_have_lock = True  # also when the answer is lost
        while True:
            self._table.check_stop()
            try:
                fence = await self._queue.acquire()
            except NotMasterError as error:
                holder = read_holder(error.holder, error.left_s)
                now = time.monotonic()
                # A lock that lasts clearly longer than it did has been renewed: its master lives.
                if self._once and now + error.left_s > over_at + self._settings.HEARTBEAT_INTERVAL / 2:
                    raise PatrolEnded(
                        "not_master", f"another master runs for {self._name}: {holder}"
                    ) from None
                over_at = min(over_at, now + error.left_s)
                if not said:
                    said = True
                    self._log.info(
                        "another master holds the lock of {}: {}; {}", self._name, holder,
                        f"it is dead if it doesn't renew it within {holder.left_s:.1f} s" if self._once else "standing by",
                    )  # fmt: skip
                await self._table.pause(min(self._settings.HEARTBEAT_INTERVAL, max(error.left_s, 0.2)))
                continue
            self._lost = None
            await self._take_table()
            try:
                await self._use_fence(fence)
            except FencedError as error:
                # The queue has lost its count (a server that was set up anew); the task table hasn't.
                fence = await self._queue.acquire(at_least=error.seen + 1)
                await self._use_fence(fence)
            if crash.armed:
                crash.reached("master_elected")
            self._log.info("master of {} (fencing token {})", self._name, fence)
            return

    async def _take_table(self) -> None:
        """A table belongs to one job: two would claim each other's tasks and count them as theirs."""
        for_s = max(self._settings.HEARTBEAT_STALE, 3 * self._settings.BATCH_MONITOR_INTERVAL)
        other = await self._table.call(lambda: self._store.hold_table(self._job, for_s))
        if other is not None:
            raise ConfigError(
                f"the task table of {self._name} is in the hands of another job, {other.job}, whose master works on it; "
                f"give each job a table of its own. (If that master has died: it is forgotten in {other.left_s:.0f} s.)"
            )
        self._has_table = True

    async def _use_fence(self, fence: int) -> None:
        await self._table.call(lambda: self._store.use_fence(fence))

    async def _keep_lock(self) -> None:
        while True:
            await asyncio.sleep(self._settings.HEARTBEAT_INTERVAL)
            try:
                await self._queue.renew()
            except NotMasterError as error:
                self._lost = error.holder
                return
            except NetspyError as error:
                self._log.warning("the master lock could not be renewed: {}", what(error))

    async def _another_master(self, error: NotMasterError | FencedError) -> None:
        """The lock is gone: this master froze, or Redis was away, for longer than the lock lasts."""
        if isinstance(error, FencedError) and await self._still_has_lock():
            raise ConfigError(
                f"another master works on the task table of {self._name} with a lock of its own: one of the same name on "
                "another Redis. Use one Redis for all of a job"
            )
        self._has_table = False  # the other one's, if it is of this job
        whose = str(error) if isinstance(error, FencedError) else read_holder(error.holder).who or "nobody"
        text = f"the master lock of {self._name} was lost (now: {whose})"
        if self._once and whose != "nobody":
            raise PatrolEnded("not_master", text) from None
        self._log.warning("{}; standing by to take it again", text)

    async def _still_has_lock(self) -> bool:
        try:
            await self._queue.renew()
        except NotMasterError:
            return False
        return True

    # -- rounds ----------------------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        if self._since is None:
            self._since = await self._table.call(self._store.now)
        latest: BatchRecord | None = await self._table.call(self._store.latest_batch)
        if latest is not None and latest.is_done:
            await self._queue.finished(latest.id)  # the master that closed it may have died before it said so
        while True:
            self._table.check_stop()
            if self._lost is not None:
                raise NotMasterError(self._lost, 0.0)
            wait_s = await self._round()
            if wait_s > 0:
                await self._table.pause(wait_s)

    async def _round(self) -> float:
        """One step; returns how long to wait before the next one, in seconds."""
        await self._take_table()
        store = self._store
        latest: BatchRecord | None = await self._table.call(store.latest_batch)
        now: datetime = await self._table.call(store.now)
        counts: TaskCounts | None = None
        if latest is not None and not latest.is_done:
            counts = await self._table.call(store.count_tasks)
        step = next_step(
            latest, counts, now, self._schedule,
            since=self._since, once=self._once, brought_to_end=self._brought_to_end,
        )  # fmt: skip
        if step.action == "leave":
            done = self._brought_to_end
            raise PatrolEnded("finished" if done else "nothing_to_do", "" if done else step.why)
        if step.action == "wait":
            if step.why != self._said:
                self._said = step.why
                self._log.info("{}", step.why)
            left_s = (
                (step.at - now).total_seconds()
                if step.at is not None
                else self._settings.BATCH_MONITOR_INTERVAL
            )
            return min(max(left_s, 0.2), self._settings.BATCH_MONITOR_INTERVAL)
        if step.action == "open":
            assert step.at is not None  # noqa: S101 - an open step carries its date
            await self._open(step.at)
            return 0.0
        assert latest is not None  # noqa: S101 - work and finish are about an open batch
        assert counts is not None  # noqa: S101 - as above
        self._batch = latest.id
        if step.action == "finish":
            await self._finish(latest, counts, now)
            return 0.0
        await self._work(latest, now)
        return self._settings.BATCH_MONITOR_INTERVAL

    async def _open(self, date: datetime) -> None:
        """A new batch. Whoever dies in here leaves no open batch, so the next master does it again."""
        self._log.info("opening a batch of {}", f"{date:%Y-%m-%d %H:%M:%S} UTC")
        await self._table.call(self._store.reset_all_tasks)
        if crash.armed:
            crash.reached("batch_reset")
        await self._queue.begin()
        total = (await self._table.call(self._store.count_tasks)).total
        settings = self._settings
        batch: int = await self._table.call(
            lambda: self._store.create_batch(
                date, total, settings.BATCH_INTERVAL, settings.BATCH_INTERVAL_UNIT
            )
        )
        if crash.armed:
            crash.reached("batch_created")
        self._batch = batch
        self._pace = Pace()
        self._log.info("batch {} is open: {} task(s)", batch, total)

    async def _work(self, batch: BatchRecord, now: datetime) -> None:
        store, settings = self._store, self._settings
        async for ids in self._queue.live_ids(batch.id):
            # Who is being worked on is not lost, however long it takes.
            if ids:
                await self._table.call(lambda: store.touch_tasks(ids))  # noqa: B023 - awaited before the next page
        lost: int = await self._table.call(lambda: store.reset_lost_tasks(settings.BATCH_LOST_TASK_STALE))
        if lost:
            await self._queue.again()
            self._log.warning(
                "{} task(s) were in process without a sign of life for {:g} s; they are claimed again. When they come up "
                "again and again, no callback calls update_task for them", lost, settings.BATCH_LOST_TASK_STALE,
            )  # fmt: skip
        await self._claim(batch.id)
        refused: list[tuple[Any, str]] = await self._table.call(store.refused_tasks)
        for task_id, why in refused[:_NAMED]:
            self._log.error("task {!r} can't be handed to a worker and is marked failed: {}", task_id, why)
        if len(refused) > _NAMED:
            self._log.error("… and {} more such tasks", len(refused) - _NAMED)
        await self._show(batch, await self._table.call(store.count_tasks), now)

    async def _claim(self, batch: int) -> None:
        """Claim and push until the workers have BATCH_PUSH_LIMIT tasks before them."""
        room = self._settings.BATCH_PUSH_LIMIT - await self._queue.waiting()
        while room > 0:
            rows: list[dict[str, Any]] = await self._table.call(lambda: self._store.claim_tasks(room))  # noqa: B023
            if not rows:
                return
            if crash.armed:
                crash.reached("batch_claimed")
            await self._queue.push(batch, [(row[self._id_field], row) for row in rows])
            if crash.armed:
                crash.reached("batch_pushed")
            room -= len(rows)

    async def _show(self, batch: BatchRecord, counts: TaskCounts, now: datetime) -> None:
        self._counts = counts
        await self._table.call(
            lambda: self._store.update_batch_counts(
                batch.id, done=counts.done, failed=counts.failed, total=counts.total
            )
        )
        self._pace.note(time.monotonic(), counts.settled)
        left_s = self._pace.seconds_left(counts.total - counts.settled)
        late_s = overdue_seconds(batch, now, self._schedule)
        text = progress_text(batch.id, counts, left_s, late_s)
        if text != self._said:
            self._said = text
            self._log.info("{}", text)
        self._on_progress(text)
        await self._queue.tell({
            "batch": batch.id, "done": counts.done, "failed": counts.failed, "total": counts.total,
            "left_s": left_s, "overdue_s": late_s, "is_done": counts.finished, "time": time.time(),
        })  # fmt: skip
        if late_s > 0 and batch.id not in self._told_overdue:
            self._told_overdue.add(batch.id)
            self._alert("batch_overdue", f"{self._name}: the next batch is due and {text}")

    async def _finish(self, batch: BatchRecord, counts: TaskCounts, now: datetime) -> None:
        await self._show(batch, counts, now)
        if crash.armed:
            crash.reached("batch_counted")
        await self._table.call(lambda: self._store.finish_batch(batch.id))
        if crash.armed:
            crash.reached("batch_finished")
        await self._queue.finished(batch.id)
        self._brought_to_end = True
        self._counts = counts
        if counts.failed:
            ids = await self._table.call(lambda: self._store.failed_tasks(_NAMED))
            more = f" and {counts.failed - len(ids)} more" if counts.failed > len(ids) else ""
            self._log.warning(
                "batch {} is done with {} failed of {}: {}{}", batch.id, counts.failed, counts.total,
                ", ".join(repr(task_id) for task_id in ids), more,
            )  # fmt: skip
        else:
            self._log.info("batch {} is done: {} task(s)", batch.id, counts.total)
