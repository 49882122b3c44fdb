"""Being the one master of a job: the lock in Redis, its fencing number, the task table that belongs to the job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from netspy import crash
from netspy.blocking import in_thread
from netspy.engine.batch.store_calls import MasterExit, StoreCalls
from netspy.engine.contract import BatchQueueLike
from netspy.engine.env import Env
from netspy.errors import ConfigError, NetspyError
from netspy.observe.faults import describe_error
from netspy.tasks.batch_store import BatchStore, FencedError
from netspy.tasks.master_lock import NotMasterError, read_holder

_LET_GO_S = 1.0
_FENCE_TRIES = 5
STOP_S = 3.0
"""For the step under way, and for giving the lock back: a silent server holds up no stop."""


class MasterLock:
    """`acquire` it, `keep_renewed` in a task beside the work, `release` at the end."""

    def __init__(
        self, env: Env, store: BatchStore, queue: BatchQueueLike, calls: StoreCalls, *, job: str, once: bool
    ) -> None:
        """`job`: its namespace, which the task table belongs to. `once`: another master that lives is not stood by for."""
        self._env = env
        self._settings = env.settings
        self._log = env.log
        self._store = store
        self._queue = queue
        self._calls = calls
        self._job = job
        self._once = once
        self._holder: str | None = None  # who has the lock, once it was lost
        self._may_have_lock = False
        self._has_table = False

    def check(self) -> None:
        """Raises NotMasterError when the lock was lost."""
        if self._holder is not None:
            raise NotMasterError(self._holder, 0.0)

    async def acquire(self) -> None:
        """Become the master, or stand by until the one there is has gone. Raises ConfigError, MasterExit."""
        said = False
        over_at = float("inf")  # when the lock of the master there is will be over, unless it is renewed
        self._may_have_lock = True  # also when the answer is lost
        while True:
            self._calls.check_stop()
            try:
                fence = await self._queue.acquire()
            except NotMasterError as error:
                holder = read_holder(error.holder, error.left_s)
                now = self._env.clock()
                # A lock that lasts clearly longer than it did has been renewed: its master lives.
                if self._once and now + error.left_s > over_at + self._settings.HEARTBEAT_INTERVAL / 2:
                    raise MasterExit(
                        "not_master", f"another master runs for {self._env.name}: {holder}"
                    ) from None
                over_at = min(over_at, now + error.left_s)
                if not said:
                    said = True
                    self._log.info(
                        "another master holds the lock of {}: {}; {}", self._env.name, holder,
                        f"it is dead if it doesn't renew it within {holder.left_s:.1f} s" if self._once else "standing by",
                    )  # fmt: skip
                await self._calls.pause(min(self._settings.HEARTBEAT_INTERVAL, max(error.left_s, 0.2)))
                continue
            self._holder = None
            await self.take_table()
            fence = await self._fenced(fence)
            if crash.armed:
                crash.reached("master_elected")
            self._log.info("master of {} (fencing token {})", self._env.name, fence)
            return

    async def take_table(self) -> None:
        """A table belongs to one job: two would claim each other's tasks and count them as theirs. Raises ConfigError."""
        for_s = max(self._settings.HEARTBEAT_STALE, 3 * self._settings.BATCH_MONITOR_INTERVAL)
        other = await self._calls.call(lambda: self._store.hold_table(self._job, for_s))
        if other is not None:
            raise ConfigError(
                f"the task table of {self._env.name} is in the hands of another job, {other.job}, whose master works on it; "
                f"give each job a table of its own. (If that master has died: it is forgotten in {other.left_s:.0f} s.)"
            )
        self._has_table = True

    async def _fenced(self, fence: int) -> int:
        """Make the task table refuse older masters: the token it took. Raises FencedError when others raise theirs meanwhile."""
        for _ in range(_FENCE_TRIES):
            try:
                await self._use_fence(fence)
            except FencedError as error:
                # The queue has lost its count (a server that was set up anew); the task table hasn't. Or the table took this
                # very token, and its answer was lost.
                fence = await self._queue.acquire(at_least=error.seen + 1)
            else:
                return fence
        await self._use_fence(fence)
        return fence

    async def _use_fence(self, fence: int) -> None:
        await self._calls.call(lambda: self._store.use_fence(fence))

    async def keep_renewed(self) -> None:
        """Renew the lock until cancelled, or until it is another's, which `check` then says."""
        while True:
            await asyncio.sleep(self._settings.HEARTBEAT_INTERVAL)
            try:
                await self._queue.renew()
            except NotMasterError as error:
                self._holder = error.holder
                return
            except NetspyError as error:
                self._log.warning("the master lock could not be renewed: {}", describe_error(error))

    async def on_lost(self, error: NotMasterError | FencedError) -> None:
        """The lock is gone: this master froze, or Redis was away, for longer than the lock lasts.

        Raises MasterExit where another master is not stood by for, ConfigError where there are two locks.
        """
        if isinstance(error, FencedError) and await self._still_has_lock():
            raise ConfigError(
                f"another master works on the task table of {self._env.name} with a lock of its own: one of the same name on "
                "another Redis. Use one Redis for all of a job"
            )
        self._has_table = False  # the other one's, if it is of this job
        whose = str(error) if isinstance(error, FencedError) else read_holder(error.holder).who or "nobody"
        text = f"the master lock of {self._env.name} was lost (now: {whose})"
        if self._once and whose != "nobody":
            raise MasterExit("not_master", text) from None
        self._log.warning("{}; standing by to take it again", text)

    async def _still_has_lock(self) -> bool:
        try:
            await self._queue.renew()
        except NotMasterError:
            return False
        return True

    async def release(self) -> None:
        """The lock and the task table are anybody's, without having to run out."""
        parting: list[tuple[str, Callable[[], Awaitable[Any]], float]] = []
        if self._may_have_lock:
            parting.append(("the master lock", self._queue.release, STOP_S))
        if self._has_table:
            parting.append(("the task table", self._let_go, _LET_GO_S))
        for of_what, release, within_s in parting:
            try:
                async with asyncio.timeout(within_s):
                    await release()
            except (TimeoutError, NetspyError) as error:
                self._log.warning(
                    "{} could not be given back ({}); that runs out by itself", of_what, describe_error(error)
                )

    async def _let_go(self) -> None:
        await in_thread(lambda: self._store.hold_table(self._job, 0.0))
