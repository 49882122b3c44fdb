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
from netspy.errors import NetspyError
from netspy.messages.entry import Lease


async def leave(
    parts: Parts,
    machine: Machine,
    held: dict[int, Lease],
    *,
    workers: Sequence[asyncio.Task[None]],
    helpers: Sequence[asyncio.Task[Any]],
    keeper: LeaseKeeper | None,
    seeder: Seeder | None,
    feeder: Feeder | None,
    last_look: Callable[[], Awaitable[None]] | None,
    aborted: bool,
) -> None:
    """Stop claiming; let running pages end; flush items; ack; give the rest back; deregister.

    In this order: a page that ends still yields items, items own acks, and acks need the lease that the keeper renews.
    `aborted`: the store is lost or the node broke; then nothing is waited for that needs it.
    """
    deadline = time.monotonic() + parts.settings.SPIDER_STOP_TIMEOUT
    log, outbox, items = parts.logger, machine.outbox, machine.items

    async def bounded(work: Awaitable[Any], until: float, otherwise: str) -> bool:
        """Await, but not past `until` (at least half a second): a stop is always bounded. True when it came to its end."""
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.5)):
                await work
            return True
        except TimeoutError:
            if otherwise:
                log.warning("{}", otherwise)
        except NetspyError as error:
            log.warning("{}", error)
        return False

    if seeder is not None:
        seeder.stop()
    if feeder is not None:
        feeder.stop()
    if keeper is not None:
        keeper.watch_no_more()
    for task in helpers:
        if task.get_name() not in {"netspy-seed", "netspy-feed"}:
            task.cancel()
    outbox.release(machine.shelf.drain())
    if workers and not aborted:
        _, running = await asyncio.wait(workers, timeout=max(deadline - time.monotonic() - 1.0, 0.1))
        if running:
            log.warning("{} page(s) did not end in time; they go back to the queue", len(running))
    for page in list(machine.crawl.running.values()):
        page.timed_out = False
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    parts.writer.hurry(deadline)
    if not aborted:
        late = "items were not stored in time; their pages will be crawled again"
        await bounded(items.flush_all(), deadline, late)
    if not aborted:
        late = "task states and new tasks were not written in time; their pages will be crawled again"
        await bounded(machine.after_store.drained(), deadline, late)
    await machine.after_store.stop()
    for task in helpers:
        task.cancel()
    await asyncio.gather(*helpers, return_exceptions=True)
    if feeder is not None and not aborted:
        late = "tasks in hand were not given back in time; they come back by themselves"
        await bounded(feeder.give_back(), deadline, late)
    answers = False
    if not aborted:
        answers = await bounded(outbox.drained(), deadline, "the store did not take all acks in time")
        if answers:
            # Whatever is still held now has not been settled: it goes back, its items will come again.
            outbox.release(list(held.values()))
            late = "the store did not take all releases in time; leases run out by themselves"
            answers = await bounded(outbox.drained(), deadline + 0.5, late)
    await items.stop()
    await outbox.stop()
    machine.crawl.complaints.flush(everything=True)
    machine.sorter.complaints.flush(everything=True)
    if keeper is not None:
        keeper.stop()
    await bounded(machine.call_hook("end_callback"), deadline + 0.5, "end_callback did not end in time")
    await bounded(machine.fetcher.close(), deadline + 1.0, "middlewares did not close in time")
    await bounded(parts.writer.close(), deadline + 1.0, "pipelines did not close in time")
    await bounded(machine.downloader.close(), deadline + 1.0, "the downloader did not close in time")
    if last_look is not None and answers:
        await bounded(last_look(), deadline + 1.0, "")
    if keeper is not None:
        await asyncio.to_thread(keeper.join, min(max(deadline + 1.0 - time.monotonic(), 0.1), 1.0))
    if parts.tasks is not None:
        late = "the task source did not answer the goodbye"
        await bounded(parts.tasks.source.close(), deadline + 1.0, late)
        for closer in parts.tasks.closers:
            await bounded(closer(), deadline + 1.0, "")
    await bounded(parts.frontier.close(), deadline + 1.0, "the store did not answer the goodbye")
    machine.pool.close()
