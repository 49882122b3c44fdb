"""A node's way in and out: its stores connected, unless it is told to stop first; then leaving, in an order that loses
nothing, and never later than its deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from netspy.engine.components import Components
from netspy.engine.control import Control
from netspy.engine.env import Env
from netspy.engine.parts import Parts
from netspy.errors import NetspyError, StoreLostError


async def unless_stopped(opening: Awaitable[Any], control: Control, *, grace_s: float = 1.0) -> bool:
    """Await `opening`; True when it came to its end. False when a stop has begun before: it is cut off soon after.

    `grace_s`: for what is just being said; nothing is half done when it is cut off. Raises what `opening` raises, unless a
    stop has begun and the error says that a store is away.
    """
    task = asyncio.ensure_future(opening)
    stopping = asyncio.ensure_future(control.stopped())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=grace_s)
        if not task.done():
            task.cancel()
            # For closing connections; then whoever waits is left behind.
            await asyncio.wait({task}, timeout=grace_s)
            return False
        try:
            task.result()
        except StoreLostError:
            if not control.stopping:
                raise
            return False
        return True
    finally:
        task.cancel()
        stopping.cancel()


async def open_stores(parts: Parts) -> None:
    """The frontier, then the task source. Nothing is left open when it raises or is cancelled."""
    try:
        await parts.frontier.open()
        if parts.tasks is not None:
            await parts.tasks.source.open()
    except BaseException:
        await parts.frontier.close()
        raise


class Shutdown:
    """One node's way out. While the store is lost, or the node broke, nothing is waited for that needs it."""

    def __init__(
        self,
        parts: Parts,
        env: Env,
        control: Control,
        components: Components,
        loops: Sequence[asyncio.Task[Any]],
        *,
        grace_s: float = 0.5,
    ) -> None:
        """`loops`: the node's own tasks, which end at once. `grace_s`: what a step gets at least."""
        self._parts = parts
        self._log = env.log
        self._throttled = env.throttled
        self._control = control
        self._components = components
        self._loops = loops
        self._grace_s = grace_s
        self._aborted = control.ended is None or control.ended.outcome == "store_lost"
        self._deadline = time.monotonic() + env.settings.SPIDER_STOP_TIMEOUT

    async def run(self) -> None:
        """Stop claiming; let running pages end; flush items; ack; give the rest back; deregister.

        In this order: a page that ends still yields items, items own acks, and acks need the lease that the keeper
        renews.
        """
        self._control.leaving = True
        self._take_no_more()
        await self._end_pages()
        await self._store_items()
        await self._stop_loops()
        answers = not self._aborted and await self._settle_leases()
        components = self._components
        await components.items.stop()
        await components.outbox.stop()
        self._throttled.flush(everything=True)
        if components.keeper is not None:
            components.keeper.stop()
        await self._close(answers=answers)

    async def _bounded(
        self, work: Awaitable[Any], until: float, otherwise: str, *, at_least_s: float | None = None
    ) -> bool:
        """Await, but not past `until`: a stop is always bounded. True when it came to its end."""
        try:
            least_s = self._grace_s if at_least_s is None else at_least_s
            async with asyncio.timeout(max(until - time.monotonic(), least_s)):
                await work
            return True
        except TimeoutError:
            if otherwise:
                self._log.warning("{}", otherwise)
        except NetspyError as error:
            self._log.warning("{}", error)
        return False

    def _take_no_more(self) -> None:
        components = self._components
        if components.seeding.seeder is not None:
            components.seeding.seeder.stop()
        if components.feeder is not None:
            components.feeder.stop()
        if components.keeper is not None:
            components.keeper.watch_no_more()
        for task in self._loops:
            task.cancel()
        components.outbox.release(components.slots.drain())

    async def _end_pages(self) -> None:
        workers = self._components.workers
        if workers.tasks and not self._aborted:
            left_s = max(self._deadline - time.monotonic() - 1.0, 0.1)
            _, running = await asyncio.wait(workers.tasks, timeout=left_s)
            if running:
                self._log.warning("{} page(s) did not end in time; they go back to the queue", len(running))
        for page in list(self._components.handler.running.values()):
            page.timed_out = False
        workers.cancel()
        await asyncio.gather(*workers.tasks, return_exceptions=True)

    async def _store_items(self) -> None:
        components = self._components
        self._parts.writer.shorten_deadline(self._deadline)
        if not self._aborted:
            seeding = components.seeding
            await self._bounded(seeding.handed_over(), (time.monotonic() + self._deadline) / 2, "")
            late = "items were not stored in time; their pages will be crawled again"
            await self._bounded(components.items.flush_all(), self._deadline, late)
            await self._bounded(seeding.written_down(), self._deadline, "")
            late = "task states and new tasks were not written in time; their pages will be crawled again"
            await self._bounded(components.effects.drained(), self._deadline, late)
        await components.effects.stop()

    async def _stop_loops(self) -> None:
        seeding, feeder = self._components.seeding, self._components.feeder
        tasks = [*self._loops, *([] if seeding.task is None else [seeding.task])]
        if feeder is not None:
            tasks += feeder.tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if feeder is not None and not self._aborted:
            # Tasks whose items have just been stored: given back, they would yield them again.
            await self._bounded(feeder.put_ready(), (time.monotonic() + self._deadline) / 2, "")
            late = "tasks in hand were not given back in time; they come back by themselves"
            await self._bounded(feeder.give_back(), self._deadline, late)

    async def _settle_leases(self) -> bool:
        """True when the store has taken everything."""
        outbox = self._components.outbox
        if not await self._bounded(
            outbox.drained(), self._deadline, "the store did not take all acks in time"
        ):
            return False
        # Whatever is still held now has not been settled: it goes back, its items will come again.
        outbox.release(self._components.held.snapshot())
        late = "the store did not take all releases in time; leases run out by themselves"
        return await self._bounded(outbox.drained(), self._deadline + self._grace_s, late)

    async def _close(self, *, answers: bool) -> None:
        """`answers`: the store does, so that it may be asked once more. One that doesn't gets a short goodbye."""
        parts, components, end = self._parts, self._components, self._deadline + 2 * self._grace_s
        store_end = end if answers or self._aborted else time.monotonic()
        late = "end_callback did not end in time"
        await self._bounded(components.call_hook("end_callback"), self._deadline + self._grace_s, late)
        await self._bounded(components.fetcher.close(), end, "middlewares did not close in time")
        await self._bounded(parts.writer.close(), end, "pipelines did not close in time")
        await self._bounded(components.downloader.close(), end, "the downloader did not close in time")
        if parts.observe is not None and answers:
            await self._bounded(components.finish.look(), end, "")
        if components.keeper is not None:
            await asyncio.to_thread(components.keeper.join, min(max(store_end - time.monotonic(), 0.1), 1.0))
        if parts.tasks is not None:
            await self._bounded(parts.tasks.source.close(), end, "the task source did not answer the goodbye")
        late = "the store did not answer the goodbye"
        await self._bounded(parts.frontier.close(), store_end, late, at_least_s=0.1)
        components.pool.close()
