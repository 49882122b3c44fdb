"""The lease keeper: beats, renews, reclaims. A thread of its own, so that a blocked loop doesn't stop it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from netspy.engine.contract import LoggerLike
from netspy.errors import NetspyError
from netspy.frontier.contract import Keeper
from netspy.messages.entry import BeatReport, Lease
from netspy.observe.faults import is_user_file, what
from netspy.settings import Settings

_RENEW_CHUNK = 500
_RECLAIM_CHUNK = 500
_RECLAIMS_PER_BEAT = 20
_SWEEPS_PER_BEAT = 50
_RECONCILE_EVERY_S = 300.0
_LOOP_BLOCKED_S = 5.0


class LeaseKeeper(threading.Thread):
    """Holds no lease itself: it reads the node's one table of held leases.

    `paused` is an async context manager of the node under which no claim is under way, for `reconcile`. `on_broken` is
    called on the loop when the thread ends before it was told to: nothing renews the leases then.
    """

    def __init__(
        self,
        keeper: Keeper,
        *,
        settings: Settings,
        held: dict[int, Lease],
        report: Callable[[], BeatReport],
        loop: asyncio.AbstractEventLoop,
        logger: LoggerLike,
        history: Callable[[], str | None],
        on_rejoined: Callable[[], None],
        on_store_lost: Callable[[str], None],
        on_broken: Callable[[str], None],
        on_nodes: Callable[[int], None],
        on_poison: Callable[[int], None],
        on_taken_over: Callable[[int], None],
        paused: Callable[[], Any],
    ) -> None:
        super().__init__(name="netspy-lease-keeper", daemon=True)
        self._keeper = keeper
        self._settings = settings
        self._held = held
        self._report = report
        self._loop = loop
        self._log = logger
        self._history = history
        self._on_rejoined = on_rejoined
        self._on_store_lost = on_store_lost
        self._on_broken = on_broken
        self._on_nodes = on_nodes
        self._on_poison = on_poison
        self._on_taken_over = on_taken_over
        self._paused = paused
        self._loop_thread = threading.get_ident()  # made on the loop
        self._ending = threading.Event()
        self._last_history: str | None = None
        self._last_reconcile = time.monotonic()
        self._pausing: Future[None] | None = None
        self._away = False
        self._loop_seen = time.monotonic()
        self._loop_warned = False
        self._watching = False  # from the loop's first sign of life to the node's leaving

    def stop(self) -> None:
        """End after the beat under way."""
        self._ending.set()

    def run(self) -> None:
        """Beat until stopped."""
        try:
            self._beat_on()
        except BaseException as error:
            self._tell(self._on_broken, what(error))
        finally:
            self._keeper.close()

    def _beat_on(self) -> None:
        interval = self._settings.HEARTBEAT_INTERVAL
        next_beat = time.monotonic()
        while not self._ending.is_set():
            self._watch_loop()
            try:
                self._beat()
                self._away = False
                next_beat = max(next_beat + interval, time.monotonic() + interval / 2)
            except NetspyError as error:
                self._report_away(error)
                next_beat = time.monotonic() + min(interval, 1.0)
            except Exception as error:
                self._report_away(error)
                next_beat = time.monotonic() + interval
            self._ending.wait(max(next_beat - time.monotonic(), 0.01))
        if not self._away:
            # The record that the run keeps of this node holds what it had counted when it left.
            with suppress(Exception):
                self._keeper.beat(self._report())

    def _report_away(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            self._log.warning("heartbeat failed, trying again: {}", error)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed, the node has ended
            self._ending.set()

    # -- one beat --------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        reply = self._keeper.beat(self._report())
        if not reply.intact:
            self._tell(
                self._on_store_lost,
                "the keys of this run are gone from Redis (flushed, restarted without persistence, or another database)",
            )
            return
        if not reply.known:
            self._log.warning("the store had forgotten this node; joining again")
            self._keeper.rejoin()
            self._tell(self._on_rejoined)
            return
        self._tell(self._on_nodes, reply.live_nodes)
        self._renew()
        dead = [*reply.gone_nodes, *(reply.stale_nodes if reply.sweeping else ())]
        if dead or reply.sweeping:
            self._reclaim(dead)
        self._reconcile_if_due()

    def _renew(self) -> None:
        lease_s = self._settings.SPIDER_TASK_LEASE
        now = time.monotonic()
        if not lease_s or now - self._loop_seen > self._settings.SPIDER_TASK_MAX_SECONDS:
            return  # a loop that hangs for good must not hold its requests for ever
        threshold = max(lease_s / 2, 3 * self._settings.HEARTBEAT_INTERVAL)
        due = [lease for lease in list(self._held.values()) if lease.valid_until - now < threshold]
        for at in range(0, len(due), _RENEW_CHUNK):
            chunk = due[at : at + _RENEW_CHUNK]
            for lease, ours in zip(chunk, self._keeper.renew(chunk), strict=True):
                if not ours and id(lease) in self._held:
                    # Settled in this moment, or taken over; the settle's own answer tells which.
                    lease.valid_until = 0.0

    def _reclaim(self, dead_nodes: list[str]) -> None:
        before = self._keeper.taken_over
        try:
            self._take_over(dead_nodes)
        finally:
            if self._keeper.taken_over != before:
                self._tell(self._on_taken_over, self._keeper.taken_over - before)

    def _take_over(self, dead_nodes: list[str]) -> None:
        poisoned = 0
        for _ in range(_RECLAIMS_PER_BEAT):
            moved = self._keeper.reclaim(_RECLAIM_CHUNK)
            poisoned += moved.poisoned
            if moved.returned:
                self._log.info("{} expired lease(s) went back to the queue", moved.returned)
            if not moved.more or self._ending.is_set():
                break
        if poisoned:
            self._tell(self._on_poison, poisoned)
        for node in dead_nodes:
            for _ in range(_SWEEPS_PER_BEAT):
                if self._keeper.sweep(node):
                    self._log.warning("node {} is dead; its requests went back to the queue", node)
                    break
                if self._ending.is_set():
                    return

    def _reconcile_if_due(self) -> None:
        history = self._history()
        now = time.monotonic()
        changed = self._last_history is not None and history != self._last_history
        if not changed and now - self._last_reconcile < _RECONCILE_EVERY_S:
            self._last_history = history
            return
        if self._pausing is not None and not self._pausing.done():
            return  # the loop has not come to the last one yet
        pause = self._paused()
        first: dict[str, bool] = {}  # whether the pause began before this thread gave up waiting for it

        async def enter() -> None:
            await pause.__aenter__()
            if not first.setdefault("begun", True):
                await pause.__aexit__(None, None, None)

        try:
            # No longer than a beat: while the loop is blocked, or a claim waits for the store, leases need renewing.
            self._pausing = asyncio.run_coroutine_threadsafe(enter(), self._loop)
            self._pausing.result(self._settings.HEARTBEAT_INTERVAL)
        except TimeoutError:
            if not first.setdefault("begun", False):
                return
        try:
            returned = self._keeper.reconcile(list(self._held.values()))
        finally:
            asyncio.run_coroutine_threadsafe(pause.__aexit__(None, None, None), self._loop)
        if returned:
            self._log.warning("{} lease(s) that no node holds went back to the queue", returned)
        self._last_history = history
        self._last_reconcile = now

    # -- the loop --------------------------------------------------------------------------------------------

    def loop_alive(self) -> None:
        """Called on the loop now and then."""
        self._loop_seen = time.monotonic()
        self._loop_warned = False
        self._watching = True

    def watch_no_more(self) -> None:
        """The node is leaving: no more signs of life come from the loop, and leases are renewed until `stop`."""
        self._watching = False

    def _watch_loop(self) -> None:
        silent = time.monotonic() - self._loop_seen
        if silent < _LOOP_BLOCKED_S or self._loop_warned or not self._watching:
            return
        self._loop_warned = True
        self._log.warning(
            "the event loop has been blocked for {:.0f} s by {}; use a plain `def` callback for blocking code "
            "(leases are renewed meanwhile)", silent, self._culprit(),
        )  # fmt: skip

    def _culprit(self) -> str:
        """The user's function that the loop's thread is in."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - documented for debuggers
        while frame is not None:
            name = frame.f_code.co_filename
            if is_user_file(name):
                return f"{frame.f_code.co_qualname} ({Path(name).name}:{frame.f_lineno})"
            frame = frame.f_back
        return "code running on it"
