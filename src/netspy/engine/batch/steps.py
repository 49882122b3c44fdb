"""What a batch master does, step by step: opens batches, hands tasks to the workers, takes back lost ones, closes batches.

What comes next is decided in `policy.batch`. Every step may be interrupted and done again by the next master.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from netspy import crash
from netspy.engine.batch.lock import MasterLock
from netspy.engine.batch.store_calls import MasterExit, StoreCalls
from netspy.engine.contract import BatchQueueLike
from netspy.engine.env import Env
from netspy.policy.batch import (
    BatchRecord,
    Pace,
    Schedule,
    TaskCounts,
    next_step,
    overdue_seconds,
    progress_text,
)
from netspy.tasks.batch_store import BatchStore

_NAMED = 20  # tasks in one log line


class MasterSteps:
    """`batch` and `counts` are those of the batch that was worked on last."""

    def __init__(
        self,
        env: Env,
        store: BatchStore,
        queue: BatchQueueLike,
        calls: StoreCalls,
        lock: MasterLock,
        *,
        schedule: Schedule,
        once: bool,
        id_field: str,
    ) -> None:
        """`once`: bring one batch to its end. `id_field`: the column of a task row that names the task."""
        self._env = env
        self._settings = env.settings
        self._log = env.log
        self._store = store
        self._queue = queue
        self._calls = calls
        self._lock = lock
        self._schedule = schedule
        self._once = once
        self._id_field = id_field
        self._pace = Pace()
        self._since: datetime | None = None
        self._told_overdue: set[int] = set()
        self._brought_to_end = False
        self._said = ""
        self.batch: int | None = None
        self.counts: TaskCounts | None = None

    async def begin(self) -> None:
        """To be called when this process has become the master."""
        if self._since is None:
            self._since = await self._calls.call(self._store.now)
        latest: BatchRecord | None = await self._calls.call(self._store.latest_batch)
        if latest is not None and latest.is_done:
            await self._queue.finished(latest.id)  # the master that closed it may have died before it said so

    async def step(self) -> float:
        """One step; how long to wait before the next one, in seconds. Raises MasterExit when there is no next one."""
        await self._lock.take_table()
        store = self._store
        latest: BatchRecord | None = await self._calls.call(store.latest_batch)
        now: datetime = await self._calls.call(store.now)
        counts: TaskCounts | None = None
        if latest is not None and not latest.is_done:
            counts = await self._calls.call(store.count_tasks)
        step = next_step(
            latest, counts, now, self._schedule,
            since=self._since, once=self._once, brought_to_end=self._brought_to_end,
        )  # fmt: skip
        if step.action == "leave":
            done = self._brought_to_end
            raise MasterExit("finished" if done else "nothing_to_do", "" if done else step.why)
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
        self.batch = latest.id
        if step.action == "finish":
            await self._finish(latest, counts, now)
            return 0.0
        await self._work(latest, now)
        return self._settings.BATCH_MONITOR_INTERVAL

    async def _open(self, date: datetime) -> None:
        """A new batch. Whoever dies in here leaves no open batch, so the next master does it again."""
        self._log.info("opening a batch of {}", f"{date:%Y-%m-%d %H:%M:%S} UTC")
        await self._calls.call(self._store.reset_all_tasks)
        if crash.armed:
            crash.reached("batch_reset")
        await self._queue.begin()
        total = (await self._calls.call(self._store.count_tasks)).total
        settings = self._settings
        batch: int = await self._calls.call(
            lambda: self._store.create_batch(
                date, total, settings.BATCH_INTERVAL, settings.BATCH_INTERVAL_UNIT
            )
        )
        if crash.armed:
            crash.reached("batch_created")
        self.batch = batch
        self._pace = Pace()
        self._log.info("batch {} is open: {} task(s)", batch, total)

    async def _work(self, batch: BatchRecord, now: datetime) -> None:
        store, settings = self._store, self._settings
        looked = self._env.clock()
        async for ids in self._queue.live_ids(batch.id):
            # Who is being worked on is not lost, however long it takes.
            if ids:
                await self._calls.call(lambda: store.touch_tasks(ids))  # noqa: B023 - awaited before the next page
        # Judged as of that look: the database may have been away between the two for longer than tasks may be stale.
        lost: int = await self._calls.call(
            lambda: store.reset_lost_tasks(settings.BATCH_LOST_TASK_STALE + self._env.clock() - looked)
        )
        if lost:
            await self._queue.again()
            self._log.warning(
                "{} task(s) were in process without a sign of life for {:g} s; they are claimed again. When they come up "
                "again and again, no callback calls update_task for them", lost, settings.BATCH_LOST_TASK_STALE,
            )  # fmt: skip
        await self._claim(batch.id)
        refused: list[tuple[Any, str]] = await self._calls.call(store.refused_tasks)
        for task_id, why in refused[:_NAMED]:
            self._log.error("task {!r} can't be handed to a worker and is marked failed: {}", task_id, why)
        if len(refused) > _NAMED:
            self._log.error("… and {} more such tasks", len(refused) - _NAMED)
        await self._show(batch, await self._calls.call(store.count_tasks), now)

    async def _claim(self, batch: int) -> None:
        """Claim and push until the workers have BATCH_PUSH_LIMIT tasks before them."""
        room = self._settings.BATCH_PUSH_LIMIT - await self._queue.waiting()
        while room > 0:
            rows: list[dict[str, Any]] = await self._calls.call(lambda: self._store.claim_tasks(room))  # noqa: B023
            if not rows:
                return
            if crash.armed:
                crash.reached("batch_claimed")
            await self._queue.push(batch, [(row[self._id_field], row) for row in rows])
            if crash.armed:
                crash.reached("batch_pushed")
            room -= len(rows)

    async def _show(self, batch: BatchRecord, counts: TaskCounts, now: datetime) -> None:
        self.counts = counts
        await self._calls.call(
            lambda: self._store.update_batch_counts(
                batch.id, done=counts.done, failed=counts.failed, total=counts.total
            )
        )
        self._pace.note(self._env.clock(), counts.settled)
        left_s = self._pace.seconds_left(counts.total - counts.settled)
        late_s = overdue_seconds(batch, now, self._schedule)
        text = progress_text(batch.id, counts, left_s, late_s)
        if text != self._said:
            self._said = text
            self._log.info("{}", text)
        await self._queue.tell({
            "batch": batch.id, "done": counts.done, "failed": counts.failed, "total": counts.total,
            "left_s": left_s, "overdue_s": late_s, "is_done": counts.finished, "time": time.time(),
        })  # fmt: skip
        if late_s > 0 and batch.id not in self._told_overdue:
            self._told_overdue.add(batch.id)
            self._env.alert("batch_overdue", f"{self._env.name}: the next batch is due and {text}")

    async def _finish(self, batch: BatchRecord, counts: TaskCounts, now: datetime) -> None:
        await self._show(batch, counts, now)
        if crash.armed:
            crash.reached("batch_counted")
        await self._calls.call(lambda: self._store.finish_batch(batch.id))
        if crash.armed:
            crash.reached("batch_finished")
        await self._queue.finished(batch.id)
        self._brought_to_end = True
        self.counts = counts
        if counts.failed:
            ids = await self._calls.call(lambda: self._store.failed_tasks(_NAMED))
            more = f" and {counts.failed - len(ids)} more" if counts.failed > len(ids) else ""
            self._log.warning(
                "batch {} is done with {} failed of {}: {}{}", batch.id, counts.failed, counts.total,
                ", ".join(repr(task_id) for task_id in ids), more,
            )  # fmt: skip
        else:
            self._log.info("batch {} is done: {} task(s)", batch.id, counts.total)
