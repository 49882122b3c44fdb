"""The lease keeper: beats, renews, reclaims. A thread of its own, so that a blocked loop doesn't stop it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.leases.held import HeldLeases
from netspy.errors import NetspyError
from netspy.frontier.contract import Keeper
from netspy.messages.entry import BeatReport
from netspy.observe.faults import describe_error, is_user_file
from netspy.policy.lease import LeaseTimes

_RENEW_CHUNK = 500
_RECLAIM_CHUNK = 500
_RECLAIMS_PER_BEAT = 20
_SWEEPS_PER_BEAT = 50
_RECONCILE_EVERY_S = 300.0
_LOOP_BLOCKED_S = 5.0


class LeaseKeeper(threading.Thread):
    """Holds no lease itself: it renews what the node's book of leases says, and tells the node what a beat brought.

    Made on the event loop. A keeper that ends before it was told to ends the node: nothing renews the leases then.
    """

    def __init__(
        self,
        env: Env,
        control: Control,
        held: HeldLeases,
        gauge: NodeGauge,
        keeper: Keeper,
        *,
        buffered: Callable[[], int],
        history: Callable[[], str | None],
        paused: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`buffered`: items that wait, for the node's record. `history`: the store's, as last heard. `paused`: entered on
        the loop, no claim is under way inside.
        """
        super().__init__(name="netspy-lease-keeper", daemon=True)
        self._env = env
        self._control = control
        self._settings = env.settings
        self._log = env.log
        self._clock = env.clock
        self._renew_below_s = LeaseTimes.of(env.settings).renew_below_s
        self._held = held
        self._gauge = gauge
        self._keeper = keeper
        self._buffered = buffered
        self._history = history
        self._paused = paused
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ending = threading.Event()
        self._last_history: str | None = None
        self._last_reconcile = env.clock()
        self._pausing: Future[None] | None = None
        self._away = False
        self._loop_seen = env.clock()
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
            self._tell(self._control.broke, self.name, describe_error(error))
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
                self._keeper.beat(self._record())

    def _report_away(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            self._log.warning("heartbeat failed, trying again: {}", error)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed, the node has ended
            self._ending.set()

    def _record(self) -> BeatReport:
        return BeatReport(len(self._held), self._buffered(), self._env.counters.own())

    def _on_rejoined(self) -> None:
        """On the loop: the store gave this node a new id, and what it held is void."""
        self._held.void()
        self._control.wake()

    def _on_poison(self, n: int) -> None:
        """On the loop: so many requests went to the failed list."""
        counters = self._env.counters
        counters.inc("poisoned", n)
        for _ in range(n):
            counters.fail("poison")
        self._env.alert(
            "poison", f"{n} request(s) ended their process again and again and went to the failed list"
        )

    # -- one beat --------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        reply = self._keeper.beat(self._record())
        if not reply.intact:
            self._tell(
                self._control.stop,
                "the keys of this run are gone from Redis (flushed, restarted without persistence, or another database)",
                "store_lost",
            )
            return
        if not reply.known:
            self._log.warning("the store had forgotten this node; joining again")
            self._keeper.rejoin()
            self._tell(self._on_rejoined)
            return
        self._gauge.live_nodes = max(reply.live_nodes, 1)
        self._renew()
        dead = [*reply.gone_nodes, *(reply.stale_nodes if reply.sweeping else ())]
        if dead or reply.sweeping:
            self._reclaim(dead)
        self._reconcile_if_due()

    def _renew(self) -> None:
        now = self._clock()
        if now - self._loop_seen > self._settings.SPIDER_TASK_MAX_SECONDS:
            return  # a loop that hangs for good must not hold its requests for ever
        due = self._held.due(now + self._renew_below_s)
        for at in range(0, len(due), _RENEW_CHUNK):
            chunk = due[at : at + _RENEW_CHUNK]
            for lease, ours in zip(chunk, self._keeper.renew(chunk), strict=True):
                if not ours:
                    self._held.not_ours(lease)

    def _reclaim(self, dead_nodes: list[str]) -> None:
        before = self._keeper.taken_over
        try:
            self._take_over(dead_nodes)
        finally:
            if self._keeper.taken_over != before:
                self._env.counters.inc("reclaimed", self._keeper.taken_over - before)

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
        now = self._clock()
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
            returned = self._keeper.reconcile(self._held.snapshot())
        finally:
            asyncio.run_coroutine_threadsafe(pause.__aexit__(None, None, None), self._loop)
        if returned:
            self._log.warning("{} lease(s) that no node holds went back to the queue", returned)
        self._last_history = history
        self._last_reconcile = now

    # -- the loop --------------------------------------------------------------------------------------------

    def loop_alive(self) -> None:
        """Called on the loop now and then."""
        self._loop_seen = self._clock()
        self._loop_warned = False
        self._watching = True

    def watch_no_more(self) -> None:
        """The node is leaving: no more signs of life come from the loop, and leases are renewed until `stop`."""
        self._watching = False

    def _watch_loop(self) -> None:
        silent = self._clock() - self._loop_seen
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
