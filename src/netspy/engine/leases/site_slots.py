"""Claimed requests that have not started: handed out when their site is ready, so that waiting holds no slot."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Collection

from netspy.messages.entry import Lease
from netspy.policy.politeness import Politeness, SiteState

_IDLE_SITES = 4096


class SiteSlots:
    """Leases by site. All methods are called on the event loop.

    Sites that are ready wait in `_ready`, those that become ready at a known time in a heap; those at their
    concurrency limit come back when one of their requests ends.
    """

    def __init__(
        self, limits: Politeness, *, clock: Callable[[], float], jitter: Callable[[], float] = random.random
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._jitter = jitter
        self._sites: dict[str, SiteState] = {}
        self._ready: deque[SiteState] = deque()
        self._later: list[tuple[float, int, SiteState]] = []
        self._tie = 0
        self._takers: deque[asyncio.Future[Lease | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self.waiting = 0
        self.waiting_bytes = 0

    @property
    def empty(self) -> bool:
        """No lease waits."""
        return not self.waiting

    def _site(self, site: str) -> SiteState:
        state = self._sites.get(site)
        if state is None:
            if len(self._sites) > _IDLE_SITES:
                self._forget_idle()
            state = self._sites[site] = SiteState(site)
        return state

    def _forget_idle(self) -> None:
        now = self._clock()
        for key in [
            k
            for k, s in self._sites.items()
            if not s.active and not s.waiting and not s.queued_as_ready and s.ready_at(self._limits) <= now
        ]:
            del self._sites[key]

    def _offer(self, state: SiteState, now: float) -> None:
        """Put a site that has waiting leases where it will be found."""
        if state.queued_as_ready or not state.waiting:
            return
        at = state.ready_at(self._limits)
        if at <= now:
            state.queued_as_ready = True
            self._ready.append(state)
        elif at != float("inf"):
            state.queued_as_ready = True
            self._tie += 1
            heapq.heappush(self._later, (at, self._tie, state))
            self._arm()

    def _arm(self) -> None:
        if not self._later or self._closed:
            return
        at = self._later[0][0]
        if self._timer is not None:
            if self._timer_at <= at + 0.001:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at = at  # uvloop's handle of a call that is due at once doesn't know its time
        self._timer = loop.call_later(max(at - self._clock(), 0.0), self._due)

    def _due(self) -> None:
        self._timer = None
        self._promote(self._clock())
        self._serve()
        self._arm()

    def _promote(self, now: float) -> None:
        while self._later and self._later[0][0] <= now + 0.0005:
            state = heapq.heappop(self._later)[2]
            state.queued_as_ready = False
            self._offer(state, now + 0.0005)

    def add(self, leases: Collection[Lease]) -> None:
        """Claimed leases, in order."""
        now = self._clock()
        for lease in leases:
            state = self._site(lease.site)
            state.waiting.append(lease)
            self.waiting += 1
            self.waiting_bytes += lease.size
            if not state.queued_as_ready:
                self._offer(state, now)
        self._serve()

    def _take(self, now: float) -> Lease | None:
        while self._ready:
            state = self._ready.popleft()
            state.queued_as_ready = False
            if not state.waiting:
                continue
            if state.ready_at(self._limits) > now:
                self._offer(state, now)
                continue
            lease: Lease = state.waiting.popleft()
            self.waiting -= 1
            self.waiting_bytes -= lease.size
            state.started(self._limits, now, self._jitter() if self._limits.delay_s else 0.0)
            self._offer(state, now)
            return lease
        return None

    def _serve(self) -> None:
        """Hand ready leases to the workers that wait."""
        if not self._takers or not self._ready:
            return
        now = self._clock()
        while self._takers:
            taker = self._takers[0]
            if taker.done():
                self._takers.popleft()
                continue
            lease = self._take(now)
            if lease is None:
                return
            self._takers.popleft()
            taker.set_result(lease)

    async def take(self) -> Lease | None:
        """The next lease whose site is ready; None when the slots are closed."""
        if self._closed:
            return None
        lease = self._take(self._clock())
        if lease is not None:
            return lease
        future: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()
        self._takers.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and (lease := future.result()) is not None:
                self.add([lease])  # handed over in the moment of the cancellation
                self.on_ended(lease.site)
            raise

    async def enter(self, site: str) -> None:
        """Wait until a request outside the queue (a sub-download) may start on `site`, and count it."""
        state = self._site(site)
        while True:
            now = self._clock()
            at = state.ready_at(self._limits)
            if at <= now:
                state.started(self._limits, now, self._jitter() if self._limits.delay_s else 0.0)
                return
            await asyncio.sleep(min(max(at - now, 0.005), 0.05))

    def on_ended(self, site: str, *, asked_s: float | None = None) -> None:
        """A download of `site` ended; the slot of the site is free."""
        state = self._site(site)
        now = self._clock()
        state.ended(now, asked_s=asked_s)
        if state.waiting and not state.queued_as_ready:
            self._offer(state, now)
        if self._takers:
            self._serve()

    def on_too_fast(self, site: str) -> None:
        """The site said that requests come too fast."""
        self._site(site).too_fast(self._limits, self._clock())

    def on_verdict(self, site: str, *, failed: bool) -> bool:
        """The verdict on a request of `site`; True when its circuit opened now."""
        state = self._sites.get(site)
        if state is None:
            if not failed:
                return False
            state = self._site(site)
        if not failed and not state.failures and not state.slow_s:
            return False
        return state.judged(self._limits, self._clock(), failed=failed)

    def take_cooling(self, at_least_s: float) -> list[tuple[Lease, float]]:
        """Waiting leases of sites that cool down for longer than `at_least_s`, with the seconds left; removed."""
        now = self._clock()
        out: list[tuple[Lease, float]] = []
        for state in self._sites.values():
            left = state.cooling_until - now
            if left > at_least_s and state.waiting:
                out.extend((lease, left) for lease in state.waiting)
                self.waiting -= len(state.waiting)
                self.waiting_bytes -= sum(lease.size for lease in state.waiting)
                state.waiting.clear()
        return out

    def startable(self) -> int:
        """How many waiting leases could start now if there were slots."""
        cap = self._limits.concurrency
        if not cap and not self._later:
            return self.waiting
        now = self._clock()
        total = 0
        for state in self._sites.values():
            if not state.waiting or state.ready_at(self._limits) > now:
                continue
            size = len(state.waiting)
            total += min(size, cap - state.active) if cap else size
        return total

    def full_sites(self, bound: int) -> list[str]:
        """Sites whose claims would only wait here: at least `bound` leases are waiting, or the site cools down."""
        now = self._clock()
        return [s.site for s in self._sites.values() if len(s.waiting) >= bound or s.cooling_until > now]

    def drain(self) -> list[Lease]:
        """Close: waiting workers get None, and every lease that has not started is returned."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
        out: list[Lease] = []
        for state in self._sites.values():
            out.extend(state.waiting)
            state.waiting.clear()
        self.waiting = self.waiting_bytes = 0
        return out
