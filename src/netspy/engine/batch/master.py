"""The batch master at work: takes the lock, works step by step while it lasts, and leaves when it is told to.

One master at a time, by a lock in Redis with a fencing number that the database checks too: a master that froze past its
lock and wakes can change nothing.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from netspy.engine.batch.lock import STOP_S, MasterLock
from netspy.engine.batch.steps import MasterSteps
from netspy.engine.batch.store_calls import MasterExit, MasterOutcome, StoreCalls
from netspy.engine.contract import BatchQueueLike
from netspy.engine.control import Control
from netspy.engine.env import Env
from netspy.errors import StoreLostError
from netspy.policy.batch import Schedule, TaskCounts
from netspy.tasks.batch_store import BatchStore, FencedError
from netspy.tasks.master_lock import NotMasterError


class MasterEnd(NamedTuple):
    """How a master's work ended; `counts` are those of its last batch."""

    outcome: MasterOutcome
    reason: str
    batch: int | None = None
    counts: TaskCounts | None = None
    signal: int | None = None


class BatchMaster:
    """`run` returns when it was stopped, or, with `once`, when one batch has come to its end."""

    def __init__(
        self,
        env: Env,
        store: BatchStore,
        queue: BatchQueueLike,
        *,
        job: str,
        schedule: Schedule,
        once: bool,
        id_field: str,
    ) -> None:
        """`job`: its namespace, which the task table belongs to meanwhile. `id_field`: see MasterSteps."""
        self._log = env.log
        self._store = store
        self._queue = queue
        self._control = Control(env.log)
        self._calls = StoreCalls(env, self._control)
        self._lock = MasterLock(env, store, queue, self._calls, job=job, once=once)
        self._steps = MasterSteps(
            env, store, queue, self._calls, self._lock, schedule=schedule, once=once, id_field=id_field
        )

    def stop(self, reason: str, signal: int | None = None) -> None:
        """Leave after the step under way (on the loop)."""
        self._control.stop(reason, signal=signal)

    async def run(self) -> MasterEnd:
        """Be the master, or stand by until the one there is has gone. Raises ConfigError for a wrong set-up,
        StoreUnavailableError for a start without Redis or database.
        """
        work = asyncio.create_task(self._work_on(), name="netspy-master")
        stop = asyncio.create_task(self._control.stopped())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=STOP_S)
            return work.result() if work.done() else self._stopped_end()
        except StoreLostError as error:
            if not self._control.stopping:
                raise
            # Told to stop while it waited for a store that is away: that is how it ended.
            self._log.warning("{}", error)
            return self._stopped_end()
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
            await self._lock.release()

    async def _work_on(self) -> MasterEnd:
        try:
            await self._queue.open()
            await self._calls.call(self._store.ensure_schema, retry_forever=False)
            for advice in await self._calls.call(self._store.index_advice):
                self._log.warning("{}", advice)
            while True:
                try:
                    await self._lock.acquire()
                    await self._be_master()
                except (NotMasterError, FencedError) as error:
                    await self._lock.on_lost(error)
        except MasterExit as ended:
            if self._control.stopping and ended.outcome == "stopped":
                return self._stopped_end()
            return MasterEnd(ended.outcome, ended.reason, self._steps.batch, self._steps.counts)

    async def _be_master(self) -> None:
        keeper = asyncio.create_task(self._lock.keep_renewed(), name="netspy-master-lock")
        try:
            await self._steps.begin()
            while True:
                self._calls.check_stop()
                self._lock.check()
                wait_s = await self._steps.step()
                if wait_s > 0:
                    await self._calls.pause(wait_s)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    def _stopped_end(self) -> MasterEnd:
        assert self._control.ended is not None  # noqa: S101 - who asks has seen it
        _, reason, signal = self._control.ended
        return MasterEnd("stopped", reason, self._steps.batch, self._steps.counts, signal)
