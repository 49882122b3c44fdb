"""The batch master at work: wins the mastership, makes the rounds while it lasts, and leaves when it is told to.

One master at a time, by a lock in Redis with a fencing number that the database checks too: a master that froze past its
lock and wakes can change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from netspy.engine.batch.lock import STOP_S, Mastership
from netspy.engine.batch.steps import Rounds
from netspy.engine.batch.store_calls import MasterOutcome, PatrolEnded, TableCalls
from netspy.engine.contract import Alert, BatchQueueLike
from netspy.errors import StoreLostError
from netspy.observe.throttle import LoggerLike
from netspy.policy.batch import Schedule, TaskCounts
from netspy.settings import Settings
from netspy.tasks.batch_store import BatchStore, FencedError
from netspy.tasks.master_lock import NotMasterError


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
        queue: BatchQueueLike,
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
        self._log = logger
        self._table = TableCalls(logger, alert)
        self._mastership = Mastership(
            store, queue, self._table, name=name, job=job, settings=settings, once=once, logger=logger
        )
        self._rounds = Rounds(
            store,
            queue,
            self._table,
            name=name,
            settings=settings,
            schedule=schedule,
            once=once,
            logger=logger,
            alert=alert,
            id_field=id_field,
            take_table=self._mastership.take_table,
            on_progress=on_progress,
        )

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
                await asyncio.wait({work}, timeout=STOP_S)
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
            await self._mastership.give_up()

    async def _work_on(self) -> PatrolEnd:
        try:
            await self._queue.open()
            await self._table.call(self._store.ensure_schema, insist=False)
            for advice in await self._table.call(self._store.index_advice):
                self._log.warning("{}", advice)
            while True:
                try:
                    await self._mastership.win()
                    await self._be_master()
                except (NotMasterError, FencedError) as error:
                    await self._mastership.lost(error)
        except PatrolEnded as ended:
            if self._table.stopped is not None and ended.outcome == "stopped":
                return self._stopped_end()
            return PatrolEnd(ended.outcome, ended.reason, self._rounds.batch, self._rounds.counts)

    async def _be_master(self) -> None:
        keeper = asyncio.create_task(self._mastership.keep(), name="netspy-master-lock")
        try:
            await self._rounds.begin()
            while True:
                self._table.check_stop()
                self._mastership.check()
                wait_s = await self._rounds.step()
                if wait_s > 0:
                    await self._table.pause(wait_s)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    def _stopped_end(self) -> PatrolEnd:
        assert self._table.stopped is not None  # noqa: S101 - who asks has seen it
        reason, number = self._table.stopped
        return PatrolEnd("stopped", reason, self._rounds.batch, self._rounds.counts, number)
