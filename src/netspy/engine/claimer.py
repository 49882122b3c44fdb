"""Requests from the frontier into this node's hands, as many as it can start; and the workers that take them on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from netspy import crash
from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.finish import FinishWatch
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.outbox import Outbox
from netspy.engine.leases.site_slots import SiteSlots
from netspy.engine.page.handler import PageHandler
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.outcome import PageOutcome
from netspy.errors import SpiderError, StoreLostError
from netspy.frontier.contract import Frontier
from netspy.messages.entry import Claimed, Lease
from netspy.policy.claiming import LAST_CHANCE, byte_budget, claim_limit, last_chances_may_come, suspect_room
from netspy.policy.retry import Backoff
from netspy.raised import failure

_IDLE_FIRST_S = 0.02
_COOLING_S = 5.0  # requests of a site that cools down for longer wait in the store
_SITE_BACKLOG = 64
_OFFER_EVERY = 4.0  # times HEARTBEAT_STALE


class Claimer:
    """`run` is its task. What was claimed is in the book of leases until its last step is in the store."""

    def __init__(
        self,
        env: Env,
        control: Control,
        held: HeldLeases,
        gauge: NodeGauge,
        frontier: Frontier,
        slots: SiteSlots,
        items: ItemBuffer,
        outbox: Outbox,
        finish: FinishWatch,
    ) -> None:
        self._settings = settings = env.settings
        self._counters = env.counters
        self._shared = env.shared
        self._clock = env.clock
        self._control = control
        self._held = held
        self._gauge = gauge
        self._frontier = frontier
        self._slots = slots
        self._items = items
        self._outbox = outbox
        self._finish = finish
        self._suspects = Suspects(held, settings.HEARTBEAT_STALE, clock=env.clock, lot=env.jitter)
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
        settings, control, finish = self._settings, self._control, self._finish
        idle = Backoff(_IDLE_FIRST_S, settings.DONE_CHECK_INTERVAL)
        while not control.stopping:
            control.seen()
            await self._free.wait()
            claimed, asked = await self._claim()
            if claimed is not None and claimed.leases:
                idle.reset()
                continue
            if asked and finish.is_idle and await finish.over():
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
        slots, control, finish = self._slots, self._control, self._finish
        known = self._counters.get("queued")
        waiting = slots.waiting
        until = self._clock() + seconds
        while await control.changed(until - self._clock()):
            if not emptied or control.stopping or self._counters.get("queued") != known or finish.is_idle:
                return True
            if slots.waiting <= waiting // 2 < waiting:
                return True
            control.seen()
        return False

    # -- one claim -------------------------------------------------------------------------------------------

    def _may_claim(self) -> bool:
        items = self._items
        return not items.stuck and items.waiting is None and not items.full

    def _limit(self) -> int:
        settings, gauge = self._settings, self._gauge
        limit = claim_limit(
            slots=settings.SPIDER_THREAD_COUNT,
            free_slots=settings.SPIDER_THREAD_COUNT - gauge.active,
            held=self._slots.startable(),
            ceiling=settings.COLLECTOR_TASK_COUNT,
            queued=gauge.queued,
            live_nodes=gauge.live_nodes,
        )
        return min(limit, settings.SPIDER_MAX_UNACKED - len(self._held))

    async def _claim(self) -> tuple[Claimed | None, bool]:
        """One claim; the second value tells whether the store was asked."""
        if not self._may_claim() or self._control.stopping:
            return None, False
        limit, budget = self._limit(), byte_budget(self._slots.waiting_bytes)
        if limit <= 0 or budget <= 0:
            return None, False
        async with self._claiming:
            claimed = await self._frontier.claim(
                limit,
                pass_over=self._slots.full_sites(self._site_backlog),
                suspect_room=self._suspects.room(),
                max_bytes=budget,
            )
            self._gauge.on_count(claimed.queued)
            self._held.took(claimed.leases)
            self._suspects.took(claimed)
        if claimed.leases:
            if crash.armed:
                crash.reached("after_claim")
            self._counters.inc("delivered", len(claimed.leases))
            self._gauge.had_work = True
            self._finish.on_work()
            self._slots.add(claimed.leases)
            self.set_aside_cooling()
        return claimed, True

    # -- what others ask -------------------------------------------------------------------------------------

    def set_aside_cooling(self) -> None:
        """Requests of a site that cools down wait in the store's delayed set, not in this node's hands."""
        for lease, left_s in self._slots.take_cooling(_COOLING_S):
            payload = lease.payload.pack() if self._shared else lease.payload
            self._outbox.delay(lease, left_s, payload)

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


class Suspects:
    """Says before each claim how many suspects may come (`room`), and is told what came (`took`). Suspects are requests
    that were lost with a process, and may have ended it.

    `stale_s` is HEARTBEAT_STALE: what a dead node held comes back so long after it died, all nodes being of one mind. So
    how long this node has to live before it takes last chances is drawn by lot: a series of kills in that rhythm must not
    meet the same request each time.
    """

    def __init__(
        self,
        held: HeldLeases,
        stale_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        lot: Callable[[], float] = random.random,
    ) -> None:
        self._held = held
        self._clock = clock
        self._began = self._offered = clock()
        self._calm_s = stale_s * (1.0 + lot())
        self._offer_every_s = stale_s * _OFFER_EVERY
        self._mine: list[Lease] = []  # of those held, perhaps some more
        self._nothing_else = False

    def room(self) -> tuple[int, int, int]:
        """Room for suspects beside those that this node holds: all of them would go down with the process."""
        if self._mine:
            self._mine = [lease for lease in self._mine if lease in self._held]
        now = self._clock()
        may_come = last_chances_may_come(
            alive_s=now - self._began,
            calm_s=self._calm_s,
            nothing_else=self._nothing_else,
            since_offer_s=now - self._offered,
            offer_every_s=self._offer_every_s,
        )
        room = suspect_room([lease.suspicion for lease in self._mine], last_chances=may_come)
        if room[2]:
            self._offered = now
        return room

    def took(self, claimed: Claimed) -> None:
        """What the claim brought."""
        others = any(lease.suspicion < LAST_CHANCE for lease in claimed.leases)
        if others or not claimed.leases:
            self._nothing_else = not others and claimed.queued > 0
        self._mine += [lease for lease in claimed.leases if lease.suspicion]


class Workers:
    """SPIDER_THREAD_COUNT tasks: each takes a request that may start, and works on it to its last step.

    A task that somebody else cancels (user code that cancels the task it runs in) is replaced, its request given up.
    """

    def __init__(
        self,
        env: Env,
        control: Control,
        gauge: NodeGauge,
        slots: SiteSlots,
        handler: PageHandler,
        outcome: PageOutcome,
    ) -> None:
        self._number = env.settings.SPIDER_THREAD_COUNT
        self._low_water = self._number // 2
        self._control = control
        self._gauge = gauge
        self._slots = slots
        self._handler = handler
        self._outcome = outcome
        self._leaving = False
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks. They end when the slots are closed."""
        for number in range(self._number):
            self._add(f"netspy-worker-{number}")

    def cancel(self) -> None:
        """End the tasks in the middle of their work: the node leaves, and what they hold goes back."""
        self._leaving = True
        for task in self.tasks:
            task.cancel()

    def _add(self, name: str) -> None:
        task = asyncio.create_task(self._work(), name=name)
        task.add_done_callback(self._ended)
        self.tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self._leaving:
            self.tasks.remove(task)
            self._add(task.get_name())

    async def _work(self) -> None:
        slots, handler, gauge, control = self._slots, self._handler, self._gauge, self._control
        while True:
            lease = await slots.take()
            if lease is None:
                return
            gauge.active += 1
            if slots.waiting <= self._low_water:
                control.wake()
            try:
                await handler.handle(lease)
            except StoreLostError as error:
                control.stop(str(error), "store_lost")
            except BaseException as caught:
                self._broke(lease, caught)
            finally:
                gauge.active -= 1
                control.wake()

    def _broke(self, lease: Lease, caught: BaseException) -> None:
        """Not the user's code (that is caught where it is called), unless it cancelled this task.

        Given back it would come again at once and for ever; in the failed list it is seen, and can be tried again.
        """
        try:
            error = failure(caught)
        except asyncio.CancelledError:
            if not self._leaving:
                told = SpiderError("the task that worked on it was cancelled, and not by netspy")
                self._outcome.broke(lease, told)
            raise
        self._outcome.broke(lease, error)
