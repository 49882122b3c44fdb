"""A node at work: starts the parts, ends when the run is over or it is told to, and leaves in good order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from typing import Any

from netspy.engine.claims import Claims
from netspy.engine.feeding import Feeder
from netspy.engine.finish_watch import FinishWatch
from netspy.engine.lease_keeper import LeaseKeeper
from netspy.engine.leaving import Leaving
from netspy.engine.machine import Machine
from netspy.engine.opening import open_stores, unless_stopped
from netspy.engine.parts import Ended, NodeState, Outcome, Parts
from netspy.engine.seed_turn import SeedTurn
from netspy.engine.standing import Standing
from netspy.engine.workers import Workers
from netspy.errors import NetspyError, StoreLostError
from netspy.messages.entry import BeatReport, Lease
from netspy.observe.faults import what


class Node:
    """One process crawling. `run` returns when the run is over or was stopped; it raises only configuration errors."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._settings = parts.settings
        self._log = parts.logger
        self._counters = parts.counters
        self._frontier = parts.frontier
        self._held: dict[int, Lease] = {}
        self._standing = Standing()
        self._wake = asyncio.Event()
        self._stopping: Ended | None = None
        self._finished: asyncio.Future[Ended] | None = None
        self._leaving = False
        self._helpers: list[asyncio.Task[Any]] = []
        self._turn: SeedTurn | None = None
        self._outage_since: float | None = None

    # -- what others call ------------------------------------------------------------------------------------

    def stop(self, reason: str, *, outcome: Outcome = "stopped", signal: int | None = None) -> None:
        """Begin a graceful stop (on the loop). The first reason counts."""
        if self._stopping is None:
            self._stopping = Ended(outcome, reason, signal)
            if self._finished is not None and not self._finished.done():
                self._finished.set_result(self._stopping)
            self._wake.set()

    @property
    def stopping(self) -> bool:
        """A stop has begun."""
        return self._stopping is not None

    @property
    def seeding_unfinished(self) -> bool:
        """start_requests has not been drawn to its end."""
        return self._turn is None or not self._turn.done

    def outage(self, away: bool, seconds: float) -> None:
        """The frontier says that its store is away, or back."""
        self._outage_since = time.monotonic() - seconds if away else None

    # -- the run ---------------------------------------------------------------------------------------------

    async def run(self) -> Ended:
        """From open to close."""
        self._finished = asyncio.get_running_loop().create_future()
        if self._stopping is not None:
            self._finished.set_result(self._stopping)
        if not await unless_stopped(open_stores(self._p), self._finished):
            return await self._finished
        for warning in self._frontier.warnings:
            self._log.warning("{}", warning)
        if self._p.on_open is not None:
            await asyncio.to_thread(self._p.on_open)
        turn = self._put_together()
        try:
            await self._start(turn)
            ended = await self._finished
            if ended.outcome not in {"finished", "nothing_to_do"} and ended.signal is None:
                self._log.info("stopping: {}", ended.reason)
            self._standing.state = "stopping"
            return ended
        finally:
            self._leaving = True
            await Leaving(
                self._p,
                self._machine,
                self._held,
                workers=self._workers,
                helpers=self._helpers,
                keeper=self._keeper,
                seeder=turn.seeder,
                feeder=self._feeder,
                last_look=self._watch.look if self._p.observe is not None else None,
                aborted=self._stopping is None or self._stopping.outcome == "store_lost",
            ).leave()

    def _put_together(self) -> SeedTurn:
        """Make the parts; none of them runs yet."""
        machine = self._machine = Machine(
            self._p, self._held, on_progress=self._progressed, on_page=self._check_limits
        )
        workers = self._workers = Workers(
            machine,
            self._settings.SPIDER_THREAD_COUNT,
            wake=self._wake,
            on_store_lost=self._store_lost,
        )
        turn = self._turn = SeedTurn(
            self._p,
            machine,
            self._standing,
            wake=self._wake,
            stopping=lambda: self.stopping,
            spawn=self._spawn,
        )
        self._feeder = self._make_feeder(machine)
        self._watch = FinishWatch(
            self._p,
            self._standing,
            workers=workers,
            turn=turn,
            feeder=self._feeder,
            stop=lambda why, outcome: self.stop(why, outcome=outcome),
        )
        self._claims = Claims(
            self._p,
            machine,
            self._held,
            self._standing,
            workers,
            wake=self._wake,
            stopping=lambda: self.stopping,
            idle=self._idle,
            over=self._watch.over,
        )
        self._keeper = self._make_keeper()
        return turn

    def _make_feeder(self, machine: Machine) -> Feeder | None:
        if self._p.tasks is None:
            return None
        return Feeder(
            self._p.tasks,
            spider=self._p.spider,
            settings=self._settings,
            frontier=self._frontier,
            outbox=machine.outbox,
            items=machine.items,
            sorter=machine.sorter,
            pool=machine.pool,
            counters=self._counters,
            logger=self._log,
            keep_alive=self._p.keep_alive,
            standing=self._standing,
            on_progress=self._wake.set,
            on_failure=lambda why: self.stop(why, outcome="failed"),
        )

    def _make_keeper(self) -> LeaseKeeper | None:
        if self._p.keeper is None:
            return None
        return LeaseKeeper(
            self._p.keeper,
            settings=self._settings,
            held=self._held,
            report=lambda: BeatReport(len(self._held), len(self._machine.items), self._counters.own()),
            loop=asyncio.get_running_loop(),
            logger=self._log,
            history=lambda: self._frontier.history,
            on_rejoined=self._rejoined,
            on_store_lost=self._store_lost,
            on_broken=lambda why: self._part_broke("netspy-lease-keeper", why),
            on_nodes=self._saw_nodes,
            on_poison=self._poisoned,
            on_taken_over=lambda n: self._counters.inc("reclaimed", n),
            paused=self._claims.paused,
        )

    async def _start(self, turn: SeedTurn) -> None:
        machine, keeper, feeder = self._machine, self._keeper, self._feeder
        if keeper is not None:
            keeper.start()  # what comes next may take its time, and others must see that this node lives
        await machine.fetcher.open()
        await machine.call_hook("start_callback")
        machine.outbox.start()
        machine.items.start()
        machine.after_store.start()
        for task in (machine.outbox.task, machine.items.task, machine.after_store.task):
            if task is not None:
                task.add_done_callback(self._task_ended)
        if keeper is not None:
            keeper.loop_alive()
        self._workers.start()
        turn.begin()
        self._spawn(self._claims.run(), "netspy-claim")
        self._spawn(self._tick(), "netspy-tick")
        if feeder is not None:
            self._spawn(feeder.run(), "netspy-feed")
            self._spawn(feeder.look_after(), "netspy-feed-keep")
        if self._p.observe is not None:
            self._spawn(self._show(), "netspy-progress")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task of this node; an error in it ends the run."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        self._helpers.append(task)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """A part ended by itself: its error ends the run, and so does a cancellation that isn't the node's leaving."""
        if task.cancelled():
            self._part_broke(task.get_name(), "it was cancelled, and not by netspy")
        elif (error := task.exception()) is None:
            return
        elif isinstance(error, StoreLostError):
            self._store_lost(str(error))
        elif isinstance(error, NetspyError):
            self.stop(str(error), outcome="failed")
        else:
            self._part_broke(task.get_name(), what(error))

    def _part_broke(self, name: str, why: str) -> None:
        if not self._leaving:
            self._log.error("internal error in {}: {}", name, why)
            self.stop(f"internal error in {name}: {why}", outcome="failed")

    # -- events from other parts -----------------------------------------------------------------------------

    def _progressed(self) -> None:
        self._wake.set()
        if self._settings.SPIDER_MAX_ITEMS:
            self._check_limits()

    def _check_limits(self) -> None:
        s, count = self._settings, self._counters.get
        for limit, name, counter in (
            (s.SPIDER_MAX_PAGES, "SPIDER_MAX_PAGES", "pages"),
            (s.SPIDER_MAX_ITEMS, "SPIDER_MAX_ITEMS", "items"),
            (s.SPIDER_MAX_ERRORS, "SPIDER_MAX_ERRORS", "request_failed"),
        ):
            if limit and count(counter) >= limit:
                self.stop(f"{name}={limit} reached", outcome="limit")

    def _store_lost(self, why: str) -> None:
        self.stop(why, outcome="store_lost")

    def _saw_nodes(self, live: int) -> None:
        self._standing.live_nodes = max(live, 1)

    def _poisoned(self, n: int) -> None:
        self._counters.inc("poisoned", n)
        for _ in range(n):
            self._counters.fail("poison")
        self._p.alert(
            "poison", f"{n} request(s) ended their process again and again and went to the failed list"
        )

    def _rejoined(self) -> None:
        """The store gave this node a new id: what it held is void."""
        self._held.clear()
        self._wake.set()

    # -- at work ---------------------------------------------------------------------------------------------

    def _idle(self) -> bool:
        machine = self._machine
        return (
            not (self._workers.active or machine.shelf.waiting or self._standing.seeding)
            and machine.outbox.empty
            and machine.items.empty
            and machine.after_store.empty
            and not (self._feeder is not None and self._feeder.busy)
        )

    async def _tick(self) -> None:
        """Once a second: signs of life, overdue callbacks, the time limit."""
        settings = self._settings
        while True:
            await asyncio.sleep(min(1.0, settings.SPIDER_TASK_MAX_SECONDS / 4))
            if self._keeper is not None:
                self._keeper.loop_alive()
            self._machine.crawl.end_overdue()
            self._machine.flush_complaints()
            self._claims.set_aside_cooling()
            if settings.SPIDER_MAX_RUNTIME and self._standing.elapsed_s >= settings.SPIDER_MAX_RUNTIME:
                self.stop(f"SPIDER_MAX_RUNTIME={settings.SPIDER_MAX_RUNTIME:g} reached", outcome="limit")

    async def _show(self) -> None:
        assert self._p.observe is not None  # noqa: S101 - only started then
        while True:
            try:
                await self._p.observe(self._view())
            except (
                Exception
            ) as error:  # a display must not stop a crawl; while the store is away there is none
                self._log.debug("progress can't be shown: {!r}", error)
            await asyncio.sleep(self._p.observe_every_s)

    def _view(self) -> NodeState:
        """What to show now."""
        standing, items = self._standing, self._machine.items
        state = standing.state
        if self._outage_since is not None:
            state = f"store away for {time.monotonic() - self._outage_since:.0f} s"
        elif items.stuck:
            state = "items can't be stored"
        elif items.waiting is not None:
            state = f"waiting: the store of {items.waiting} is away"
        return NodeState(state, standing.elapsed_s, self._workers.active, len(self._held), self._watch.counts)


def force_exit(code: int) -> None:
    """Leave at once: a second signal. Leases run out by themselves or are taken over."""
    os._exit(code)
