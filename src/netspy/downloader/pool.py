"""Easy handles of one kind (one impersonation target) on one multi handle: borrow, run, give back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from netspy.downloader.decoding import BodyError
from netspy.downloader.multi import ABORTED_BY_CALLBACK, Multi
from netspy.downloader.transfer import Transfer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from netspy.downloader.transfer import Option

REDIRECT_GRACE = 1.0  # seconds that a redirect's body may take before its connection is given up
LOOKS_PER_IDLE = 5  # an idle transfer is noticed at most a fifth of IDLE_TIMEOUT late


class Pool:
    """Runs transfers; keeps their handles and connections for the next ones."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        base: list[Option],
        impersonate: str,
        max_connects: int,
        idle_s: float,
        open_socket: Any = None,
        watcher: Callable[..., Any] | None = None,
    ) -> None:
        """`idle_s` seconds without a byte end a transfer; 0 = never. See Transfer and Multi for the rest."""
        self._loop = loop
        self._base = base
        self._impersonate = impersonate
        self._open_socket = open_socket
        self._idle_s = idle_s
        self._multi = Multi(loop, max_connects=max_connects, watcher=watcher)
        self._free: list[Transfer] = []
        self._busy: dict[Transfer, Activity] = {}
        self._patrol: asyncio.TimerHandle | None = None
        self._closed = False

    def borrow(self) -> Transfer:
        """A handle without traces of its last use. Raises ValueError for an unknown impersonation target."""
        if self._free:
            return self._free.pop()
        transfer = Transfer(self._base, self._impersonate, self._open_socket)
        transfer.got.on_redirect = partial(self._hurry, transfer)
        return transfer

    async def run(self, transfer: Transfer) -> int:
        """Perform an armed transfer; its CURLcode. Cancelling ends it at once and closes its connection."""
        done = self._multi.start(transfer.easy)
        self._busy[transfer] = Activity(self._loop.time())
        if self._idle_s and self._patrol is None:
            self._schedule_patrol()
        try:
            return await done
        finally:
            del self._busy[transfer]
            if not done.done() or done.cancelled():
                self._multi.stop(transfer.easy)

    def give_back(self, transfer: Transfer) -> None:
        """Take a handle back; what it received is forgotten."""
        if transfer.grace is not None:
            transfer.grace.cancel()
            transfer.grace = None
        if self._closed:
            transfer.close()
        else:
            transfer.forget()
            self._free.append(transfer)

    def close(self) -> None:
        """End all transfers and close all connections. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._patrol is not None:
            self._patrol.cancel()
        self._multi.close()
        for transfer in self._free:
            transfer.close()
        self._free.clear()

    def _hurry(self, transfer: Transfer) -> None:
        transfer.grace = self._loop.call_later(
            REDIRECT_GRACE, self._multi.stop, transfer.easy, ABORTED_BY_CALLBACK
        )

    def _schedule_patrol(self) -> None:
        self._patrol = self._loop.call_later(self._idle_s / LOOKS_PER_IDLE, self._look)

    def _look(self) -> None:
        """End the transfers that have been idle for too long."""
        self._patrol = None
        now = self._loop.time()
        for transfer, activity in list(self._busy.items()):
            if activity.idle(transfer.progress(), now) >= self._idle_s:
                transfer.got.error = BodyError("timeout", f"not a byte for {self._idle_s:g} s (IDLE_TIMEOUT)")
                self._multi.stop(transfer.easy)
        if self._busy:
            self._schedule_patrol()


class Activity:
    """When a transfer last moved a byte."""

    __slots__ = ("counters", "since")

    def __init__(self, now: float) -> None:
        self.counters: tuple[int, ...] | None = None
        self.since = now

    def idle(self, counters: tuple[int, ...] | None, now: float) -> float:
        """Seconds since the counters last changed; connecting (None) is not idling."""
        if counters is None or counters != self.counters:
            self.counters = counters
            self.since = now
        return now - self.since
