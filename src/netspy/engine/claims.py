"""Requests from the frontier into this node's hands: as many as it can start, and none while it must not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from netspy import crash
from netspy.engine.machine import Machine
from netspy.engine.parts import Parts
from netspy.engine.standing import Standing
from netspy.engine.suspects import Suspects
from netspy.engine.waiting import happens
from netspy.engine.workers import Workers
from netspy.messages.entry import Claimed, Lease
from netspy.policy.backoff import Backoff
from netspy.policy.claiming import claim_limit

_IDLE_FIRST_S = 0.02
_COOLING_SHELF_S = 5.0
_SITE_BACKLOG = 64


class Claims:
    """`run` is its task. What was claimed is in `held`, by id(lease), until its last step is in the store."""

    def __init__(
        self,
        parts: Parts,
        machine: Machine,
        held: dict[int, Lease],
        standing: Standing,
        workers: Workers,
        *,
        wake: asyncio.Event,
        stopping: Callable[[], bool],
        idle: Callable[[], bool],
        over: Callable[[], Awaitable[bool]],
    ) -> None:
        """`wake`: set whenever something happened that may make a claim worth while. `idle`: this node has nothing left
        to do; then `over` is asked whether that holds for the whole run.
        """
        self._settings = settings = parts.settings
        self._frontier = parts.frontier
        self._counters = parts.counters
        self._shared = parts.shared
        self._machine = machine
        self._held = held
        self._standing = standing
        self._workers = workers
        self._wake = wake
        self._stopping = stopping
        self._idle = idle
        self._over = over
        self._suspects = Suspects(held, settings.HEARTBEAT_STALE)
        self._free = asyncio.Event()
        self._free.set()
        self._claiming = asyncio.Lock()
        # Requests of a site that is at its limit only wait here: one round of them, the rest is for other nodes.
        self._site_backlog = min(
            _SITE_BACKLOG,
            settings.COLLECTOR_TASK_COUNT,
            settings.CONCURRENT_REQUESTS_PER_DOMAIN or settings.SPIDER_THREAD_COUNT,
        )

    async def run(self) -> None:
        """Claim whenever there is room, until the run is over or a stop begins."""
        settings = self._settings
        idle = Backoff(_IDLE_FIRST_S, settings.DONE_CHECK_INTERVAL)
        while not self._stopping():
            self._wake.clear()
            await self._free.wait()
            claimed, asked = await self._claim()
            if claimed is not None and claimed.leases:
                idle.reset()
                continue
            if asked and self._idle() and await self._over():
                return
            wait_s = idle.next_s() if asked else settings.DONE_CHECK_INTERVAL
            if asked and claimed is not None and claimed.next_due_s is not None:
                wait_s = min(wait_s, max(claimed.next_due_s, 0.001))
            if await self._wait_for_work(wait_s, emptied=asked) and not self._shared:
                idle.reset()

    async def _wait_for_work(self, seconds: float, *, emptied: bool) -> bool:
        """Wait until a claim may bring something; True when something happened before the time was over.

        After a claim that brought nothing (`emptied`) a free worker is no reason to ask the store again. New requests
        of this node are, and half of what waits here for its site being started (the claim had passed that site over),
        and having nothing left to do, which is when the run may be over.
        """
        shelf = self._machine.shelf
        known = self._counters.get("queued")
        waiting = shelf.waiting
        until = time.monotonic() + seconds
        while await happens(self._wake, until - time.monotonic()):
            if not emptied or self._stopping() or self._counters.get("queued") != known or self._idle():
                return True
            if shelf.waiting <= waiting // 2 < waiting:
                return True
            self._wake.clear()
        return False

    # -- one claim -------------------------------------------------------------------------------------------

    def _may_claim(self) -> bool:
        items = self._machine.items
        return (
            not items.stuck
            and items.waiting is None
            and len(self._held) < self._settings.SPIDER_MAX_UNACKED
            and not items.full
        )

    def _limit(self) -> int:
        settings, standing = self._settings, self._standing
        limit = claim_limit(
            slots=settings.SPIDER_THREAD_COUNT,
            free_slots=settings.SPIDER_THREAD_COUNT - self._workers.active,
            held=self._machine.shelf.startable(),
            ceiling=settings.COLLECTOR_TASK_COUNT,
            queued=standing.queued,
            live_nodes=standing.live_nodes,
        )
        return min(limit, settings.SPIDER_MAX_UNACKED - len(self._held))

    async def _claim(self) -> tuple[Claimed | None, bool]:
        """One claim; the second value tells whether the store was asked."""
        if not self._may_claim() or self._stopping():
            return None, False
        limit = self._limit()
        if limit <= 0:
            return None, False
        shelf = self._machine.shelf
        async with self._claiming:
            claimed = await self._frontier.claim(
                limit,
                pass_over=shelf.full_sites(self._site_backlog),
                suspect_room=self._suspects.room(),
            )
            self._standing.counted(claimed.queued)
            for lease in claimed.leases:
                self._held[id(lease)] = lease
            self._suspects.took(claimed)
        if claimed.leases:
            if crash.armed:
                crash.reached("after_claim")
            self._counters.inc("delivered", len(claimed.leases))
            self._standing.had_work = True
            if not self._standing.seeding:
                self._standing.state = "crawling"
            shelf.add(claimed.leases)
            self.set_aside_cooling()
        return claimed, True

    # -- what others ask -------------------------------------------------------------------------------------

    def set_aside_cooling(self) -> None:
        """Requests of a site that cools down wait in the store's delayed set, not in this node's hands."""
        for lease, left_s in self._machine.shelf.take_cooling(_COOLING_SHELF_S):
            payload = lease.payload.pack() if self._shared else lease.payload
            self._machine.outbox.delay(lease, left_s, payload)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No claim is under way inside."""
        self._free.clear()
        try:
            async with self._claiming:
                pass
            yield
        finally:
            self._free.set()
