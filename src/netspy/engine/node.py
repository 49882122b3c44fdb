"""A node at work: starts the parts, ends when the run is over or it is told to, and leaves in good order."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from netspy import forked
from netspy.engine.components import Components, control_of, env_of
from netspy.engine.control import Ended, Outcome
from netspy.engine.parts import NodeState, Parts
from netspy.engine.shutdown import Shutdown, open_stores, unless_stopped
from netspy.policy.limits import runtime_over


class Node:
    """One process crawling. `run` returns when the run is over or was stopped; it raises only configuration errors."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._env = env_of(parts)
        self._control = control_of(parts)
        self._parts: Components | None = None
        self._loops: list[asyncio.Task[Any]] = []
        self._outage_since: float | None = None

    # -- what others call ------------------------------------------------------------------------------------

    def stop(self, reason: str, *, outcome: Outcome = "stopped", signal: int | None = None) -> None:
        """Begin a graceful stop (on the loop). The first reason counts."""
        self._control.stop(reason, outcome, signal=signal)

    @property
    def stopping(self) -> bool:
        """A stop has begun."""
        return self._control.stopping

    @property
    def seeding_unfinished(self) -> bool:
        """start_requests has not been drawn to its end."""
        return self._parts is None or not self._parts.seeding.done

    def outage(self, away: bool, seconds: float) -> None:
        """The frontier says that its store is away, or back."""
        self._outage_since = time.monotonic() - seconds if away else None

    # -- the run ---------------------------------------------------------------------------------------------

    async def run(self) -> Ended:
        """From open to close."""
        forked.at_home()
        try:
            return await self._run()
        finally:
            forked.left_home()

    async def _run(self) -> Ended:
        control, log = self._control, self._env.log
        if not await unless_stopped(open_stores(self._p), control):
            return await control.stopped()
        for warning in self._p.frontier.warnings:
            log.warning("{}", warning)
        if self._p.on_open is not None:
            await asyncio.to_thread(self._p.on_open)
        parts = self._parts = Components(self._p, self._env, control)
        try:
            await self._start(parts)
            ended = await control.stopped()
            if ended.outcome not in {"finished", "nothing_to_do"} and ended.signal is None:
                log.info("stopping: {}", ended.reason)
            return ended
        finally:
            await Shutdown(self._p, self._env, control, parts, self._loops).run()

    async def _start(self, parts: Components) -> None:
        control, keeper, feeder = self._control, parts.keeper, parts.feeder
        if keeper is not None:
            keeper.start()  # what comes next may take its time, and others must see that this node lives
        await parts.fetcher.open()
        await parts.call_hook("start_callback")
        parts.outbox.start()
        parts.items.start()
        parts.effects.start()
        if keeper is not None:
            keeper.loop_alive()
        parts.workers.start()
        parts.seeding.begin()
        if feeder is not None:
            feeder.start()
        self._loops = [
            control.spawn(parts.claimer.run(), "netspy-claim"),
            control.spawn(self._tick(parts), "netspy-tick"),
        ]
        if self._p.observe is not None:
            self._loops.append(control.spawn(self._show(parts), "netspy-progress"))

    async def _tick(self, parts: Components) -> None:
        """Once a second: signs of life, overdue callbacks, the time limit."""
        settings, control = self._env.settings, self._control
        while True:
            await asyncio.sleep(min(1.0, settings.SPIDER_TASK_MAX_SECONDS / 4))
            if parts.keeper is not None:
                parts.keeper.loop_alive()
            parts.handler.end_overdue()
            self._env.throttled.flush()
            parts.claimer.set_aside_cooling()
            if (over := runtime_over(settings, parts.elapsed_s())) is not None:
                control.stop(over, "limit")

    # -- what people see -------------------------------------------------------------------------------------

    async def _show(self, parts: Components) -> None:
        assert self._p.observe is not None  # noqa: S101 - only started then
        while True:
            try:
                await self._p.observe(self._view(parts))
            except (
                Exception
            ) as error:  # a display must not stop a crawl; while the store is away there is none
                self._env.log.debug("progress can't be shown: {!r}", error)
            await asyncio.sleep(self._p.observe_every_s)

    def _view(self, parts: Components) -> NodeState:
        return NodeState(
            self._state(parts),
            parts.elapsed_s(),
            parts.gauge.active,
            len(parts.held),
            parts.finish.counts,
        )

    def _state(self, parts: Components) -> str:
        """What the node does at this moment, for people."""
        gauge, items = parts.gauge, parts.items
        if self._outage_since is not None:
            return f"store away for {time.monotonic() - self._outage_since:.0f} s"
        if items.stuck:
            return "items can't be stored"
        if items.waiting is not None:
            return f"waiting: the store of {items.waiting} is away"
        if self._control.stopping:
            return "stopping"
        if gauge.seeding:
            return "seeding"
        if parts.finish.unfinished is not None and not gauge.active:
            return f"waiting: {parts.finish.unfinished}"
        return "crawling" if gauge.had_work else "starting"


def force_exit(code: int) -> None:
    """Leave at once: a second signal. Leases run out by themselves or are taken over."""
    os._exit(code)
