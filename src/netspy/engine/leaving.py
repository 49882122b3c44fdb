"""How a node leaves: in an order that loses nothing, and never later than its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from netspy.engine.feeding import Feeder
from netspy.engine.lease_keeper import LeaseKeeper
from netspy.engine.machine import Machine
from netspy.engine.parts import Parts
from netspy.engine.seeding import Seeder
from netspy.engine.workers import Workers
from netspy.errors import NetspyError
from netspy.messages.entry import Lease


class Leaving:
    """One node's way out. `aborted`: the store is lost or the node broke; then nothing is waited for that needs it."""

    def __init__(
        self,
        parts: Parts,
        machine: Machine,
        held: dict[int, Lease],
        *,
        workers: Workers,
        helpers: Sequence[asyncio.Task[Any]],
        keeper: LeaseKeeper | None,
        seeder: Seeder | None,
        feeder: Feeder | None,
        last_look: Callable[[], Awaitable[None]] | None,
        aborted: bool,
    ) -> None:
        self._parts = parts
        self._machine = machine
        self._held = held
        self._workers = workers
        self._helpers = helpers
        self._keeper = keeper
        self._seeder = seeder
        self._feeder = feeder
        self._last_look = last_look
        self._aborted = aborted
        self._deadline = time.monotonic() + parts.settings.SPIDER_STOP_TIMEOUT
        self._log = parts.logger

    async def leave(self) -> None:
        """Stop claiming; let running pages end; flush items; ack; give the rest back; deregister.

        In this order: a page that ends still yields items, items own acks, and acks need the lease that the keeper
        renews.
        """
        self._take_no_more()
        await self._end_pages()
        await self._store_items()
        await self._stop_helpers()
        answers = not self._aborted and await self._settle_leases()
        await self._machine.items.stop()
        await self._machine.outbox.stop()
        self._machine.flush_complaints(everything=True)
        if self._keeper is not None:
            self._keeper.stop()
        await self._close(answers=answers)

    async def _bounded(
        self, work: Awaitable[Any], until: float, otherwise: str, *, at_least_s: float = 0.5
    ) -> bool:
        """Await, but not past `until`: a stop is always bounded. True when it came to its end."""
        try:
            async with asyncio.timeout(max(until - time.monotonic(), at_least_s)):
                await work
            return True
        except TimeoutError:
            if otherwise:
                self._log.warning("{}", otherwise)
        except NetspyError as error:
            self._log.warning("{}", error)
        return False

    def _take_no_more(self) -> None:
        if self._seeder is not None:
            self._seeder.stop()
        if self._feeder is not None:
            self._feeder.stop()
        if self._keeper is not None:
            self._keeper.watch_no_more()
        for task in self._helpers:
            if task.get_name() not in {"netspy-seed", "netspy-feed"}:
                task.cancel()
        self._machine.outbox.release(self._machine.shelf.drain())

    async def _end_pages(self) -> None:
        workers = self._workers
        if workers.tasks and not self._aborted:
            left_s = max(self._deadline - time.monotonic() - 1.0, 0.1)
            _, running = await asyncio.wait(workers.tasks, timeout=left_s)
            if running:
                self._log.warning("{} page(s) did not end in time; they go back to the queue", len(running))
        for page in list(self._machine.crawl.running.values()):
            page.timed_out = False
        workers.cancel()
        await asyncio.gather(*workers.tasks, return_exceptions=True)

    async def _store_items(self) -> None:
        machine = self._machine
        self._parts.writer.hurry(self._deadline)
        if not self._aborted:
            late = "items were not stored in time; their pages will be crawled again"
            await self._bounded(machine.items.flush_all(), self._deadline, late)
            late = "task states and new tasks were not written in time; their pages will be crawled again"
            await self._bounded(machine.after_store.drained(), self._deadline, late)
        await machine.after_store.stop()

    async def _stop_helpers(self) -> None:
        for task in self._helpers:
            task.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        if self._feeder is not None and not self._aborted:
            late = "tasks in hand were not given back in time; they come back by themselves"
            await self._bounded(self._feeder.give_back(), self._deadline, late)

    async def _settle_leases(self) -> bool:
        """True when the store has taken everything."""
        outbox = self._machine.outbox
        if not await self._bounded(
            outbox.drained(), self._deadline, "the store did not take all acks in time"
        ):
            return False
        # Whatever is still held now has not been settled: it goes back, its items will come again.
        outbox.release(list(self._held.values()))
        late = "the store did not take all releases in time; leases run out by themselves"
        return await self._bounded(outbox.drained(), self._deadline + 0.5, late)

    async def _close(self, *, answers: bool) -> None:
        """`answers`: the store does, so that it may be asked once more. One that doesn't gets a short goodbye."""
        parts, machine, end = self._parts, self._machine, self._deadline + 1.0
        store_end = end if answers or self._aborted else time.monotonic()
        late = "end_callback did not end in time"
        await self._bounded(machine.call_hook("end_callback"), self._deadline + 0.5, late)
        await self._bounded(machine.fetcher.close(), end, "middlewares did not close in time")
        await self._bounded(parts.writer.close(), end, "pipelines did not close in time")
        await self._bounded(machine.downloader.close(), end, "the downloader did not close in time")
        if self._last_look is not None and answers:
            await self._bounded(self._last_look(), end, "")
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.join, min(max(store_end - time.monotonic(), 0.1), 1.0))
        if parts.tasks is not None:
            await self._bounded(parts.tasks.source.close(), end, "the task source did not answer the goodbye")
            for closer in parts.tasks.closers:
                await self._bounded(closer(), end, "")
        late = "the store did not answer the goodbye"
        await self._bounded(parts.frontier.close(), store_end, late, at_least_s=0.1)
        machine.pool.close()
