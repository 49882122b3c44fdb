"""The one writer of the frontier: gathers what pages are done with and hands it over in few calls.

Children go to the store before, or in the same step as, their parent's ack. While one call is under way the next
batch gathers, so the busier a node is, the larger its batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from netspy import crash
from netspy.engine.control import Control, Waiters
from netspy.engine.env import Env
from netspy.engine.leases.held import HeldLeases
from netspy.errors import SpiderError
from netspy.frontier.contract import Frontier, SeedLockLostError, SeedsLostError
from netspy.messages.entry import FinalFailure, Lease, NewEntry, Settlement, TaskMark, weight

_LINGER_S = 0.004
_MAX_PARENTS = 500
_MAX_CHILDREN = 2000


class _Put(NamedTuple):
    entries: Sequence[NewEntry]
    seed_token: str | None
    future: asyncio.Future[str | None]
    tasks: Sequence[TaskMark] = ()


class Outbox:
    """All methods but `run` return at once; `room` is where back-pressure is felt."""

    def __init__(self, env: Env, control: Control, frontier: Frontier, held: HeldLeases) -> None:
        self._frontier = frontier
        self._counters = env.counters
        self._control = control
        self._held = held
        self._bound = env.settings.REQUEST_BUFFER_MAX_CACHED
        self._linger_s = _LINGER_S if env.shared else 0.0
        self._settle: list[Settlement] = []
        self._delay: list[tuple[Lease, float, Any]] = []
        self._give_up: list[FinalFailure] = []
        self._release: list[Lease] = []
        self._puts: list[_Put] = []
        self._putting: list[_Put] = []
        self._children = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._busy = False
        self._urgent = False
        self._idle = Waiters()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the writing task."""
        self._task = self._control.spawn(self._run(), "netspy-outbox")

    @property
    def empty(self) -> bool:
        """Nothing gathered and no call under way."""
        return not (self._busy or self._settle or self._delay or self._give_up or self._release or self._puts)

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The writing task; its exception is the frontier's."""
        return self._task

    def settle(self, lease: Lease, children: Sequence[NewEntry] = (), history: str | None = None) -> None:
        """The page is done: children in, parent out."""
        self._settle.append(Settlement(lease, children, history))
        if children:
            self._grow(weight(children))
        self._wake.set()

    def delay(self, lease: Lease, seconds: float, payload: Any) -> None:
        """Another try later."""
        self._delay.append((lease, seconds, payload))
        self._wake.set()

    def give_up(self, lease: Lease, record: bytes, history: str | None = None) -> None:
        """Failed for good. `history`: that under which it had put requests."""
        self._give_up.append(FinalFailure(lease, record, history))
        self._wake.set()

    def release(self, leases: Sequence[Lease]) -> None:
        """Back to the queue, as if it had not been claimed."""
        self._release.extend(leases)
        self._wake.set()

    async def put(
        self,
        entries: Sequence[NewEntry],
        *,
        seed_token: str | None = None,
        tasks: Sequence[TaskMark] = (),
    ) -> str | None:
        """Enqueue now; returns when the store has them: with the history they were put under, for the parent's ack.

        The history is read before the put, so that a store that went back in the middle of it is noticed at the ack.
        Raises SeedLockLostError, SeedsLostError.
        """
        if not entries and not tasks:
            return self._frontier.history
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._puts.append(_Put(entries, seed_token, future, tasks))
        self._grow(weight(entries))
        self._wake.set()
        return await future

    def _grow(self, n: int) -> None:
        self._children += n
        if self._children >= self._bound:
            self._room.clear()

    def _shrink(self, n: int) -> None:
        self._children -= n
        if self._children < self._bound:
            self._room.set()

    @property
    def full(self) -> bool:
        """Whether `room` would wait."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until discovered requests are below REQUEST_BUFFER_MAX_CACHED again."""
        await self._room.wait()

    async def drained(self) -> None:
        """Wait until everything gathered so far is in the store; not when the writing task has broken."""
        self._urgent = True
        if self.empty or self._task is None or self._task.done():
            return
        await self._idle.wait()

    async def _run(self) -> None:
        try:
            await self._write()
        except BaseException as error:
            # Nobody will write any more: don't leave them waiting. A cancellation must not look like their own.
            told = error if isinstance(error, Exception) else SpiderError("the node's writing task has ended")
            for put in (*self._putting, *self._puts):
                if not put.future.done():
                    put.future.set_exception(told)
            self._no_longer_busy()
            raise

    async def _write(self) -> None:
        while True:
            if not (self._settle or self._delay or self._give_up or self._release or self._puts):
                self._no_longer_busy()
                self._wake.clear()
                await self._wake.wait()
            self._busy = True
            if self._linger_s and not self._urgent and not self._puts and len(self._settle) < 64:
                # On a shared store a call has a fixed price; a few milliseconds gather a batch worth it.
                await asyncio.sleep(self._linger_s)
            if self._puts:
                await self._do_puts()
            if self._settle:
                await self._do_settle()
            if self._delay:
                delays, self._delay = self._delay, []
                for (lease, _, _), ours in zip(delays, await self._frontier.delay(delays), strict=True):
                    self._held.done(lease, ours=ours)
            if self._give_up:
                await self._do_give_up()
            if self._release:
                back, self._release = self._release, []
                for lease, ours in zip(back, await self._frontier.release(back), strict=True):
                    self._held.done(lease, ours=ours)
            self._control.progressed()

    def _no_longer_busy(self) -> None:
        self._busy = False
        self._idle.wake()

    async def _do_puts(self) -> None:
        self._putting = puts = self._puts
        self._puts = []
        plain = [p for p in puts if p.seed_token is None]
        if plain:
            entries: list[NewEntry] = []
            tasks: list[TaskMark] = []
            for put in plain:
                entries.extend(put.entries)
                tasks.extend(put.tasks)
            history = self._frontier.history
            flags = await self._frontier.put(entries, tasks=tasks)
            for put in plain:
                if not put.future.done():
                    put.future.set_result(history)
            self._count_new(flags)
            self._shrink(weight(entries))
        for some, token, future, _ in puts:
            if token is None:
                continue
            history = self._frontier.history
            try:
                flags = await self._frontier.put(some, seed_token=token)
            except (SeedLockLostError, SeedsLostError) as error:
                if not future.done():
                    future.set_exception(error)
            else:
                self._count_new(flags)
                if not future.done():
                    future.set_result(history)
            self._shrink(weight(some))

    async def _do_settle(self) -> None:
        batch: list[Settlement] = []
        children = 0
        for settlement in self._settle:
            if batch and (
                len(batch) >= _MAX_PARENTS or children + weight(settlement.children) > _MAX_CHILDREN
            ):
                break
            batch.append(settlement)
            children += weight(settlement.children)
        del self._settle[: len(batch)]
        settled = await self._frontier.settle(batch)
        if crash.armed:
            crash.reached("after_settle")
        for settlement, acked, new, stale in zip(
            batch, settled.acked, settled.new, settled.stale, strict=True
        ):
            if stale:
                self._again(settlement.lease)
                continue
            self._held.done(settlement.lease, ours=acked)
            if acked and settlement.children:
                self._count_new(new)
        self._shrink(children)

    async def _do_give_up(self) -> None:
        failures, self._give_up = self._give_up, []
        given_up = await self._frontier.give_up(failures)
        for failure, ours, stale in zip(failures, given_up.failed, given_up.stale, strict=True):
            if stale:
                self._again(failure.lease)
            else:
                self._held.done(failure.lease, ours=ours)

    def _again(self, lease: Lease) -> None:
        """The store went back behind the put of this page's children: crawl it again."""
        self._release.append(lease)
        self._counters.inc("released")

    def _count_new(self, flags: Sequence[bool]) -> None:
        new = sum(flags)
        self._counters.inc("queued", new)
        if new != len(flags):
            self._counters.inc("dedup_dropped", len(flags) - new)

    async def stop(self) -> None:
        """End the writing task; what is still gathered stays leased and comes back by its deadline."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
