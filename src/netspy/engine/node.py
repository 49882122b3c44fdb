"""A node at work: starts the parts, claims requests, watches for the end, and leaves in good order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any

from netspy import crash
from netspy.engine.feeding import Feeder
from netspy.engine.lease_keeper import LeaseKeeper
from netspy.engine.leaving import leave
from netspy.engine.machine import Machine
from netspy.engine.parts import Ended, NodeState, Outcome, Parts
from netspy.engine.seeding import Seeder
from netspy.errors import NetspyError, StoreLostError
from netspy.frontier.contract import SeedsLostError
from netspy.messages.entry import BeatReport, Claimed, Counts, Lease, SeedGrant
from netspy.observe.faults import what
from netspy.policy.claiming import claim_limit, suspect_room
from netspy.policy.finish import finished_job_left_behind, unfinished_because
from netspy.tasks.contract import Backlog

_IDLE_FIRST_S = 0.02
_COOLING_SHELF_S = 5.0
_SITE_BACKLOG = 64


class Node:
    """One process crawling. `run` returns when the run is over or was stopped; it raises only configuration errors."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._settings = parts.settings
        self._log = parts.logger
        self._counters = parts.counters
        self._frontier = parts.frontier
        self._held: dict[int, Lease] = {}
        self._suspects: list[Lease] = []  # of those held, perhaps some more
        self._live_nodes = 1
        self._queued: int | None = None
        self._had_work = False
        self._seeding = False
        self._seeding_done = False
        self._seeder: Seeder | None = None
        self._feeder: Feeder | None = None
        self._seed_task: asyncio.Task[None] | None = None
        self._helpers: list[asyncio.Task[Any]] = []
        self._stopping: Ended | None = None
        self._started = time.monotonic()
        self._claims_free = asyncio.Event()
        self._claims_free.set()
        self._claiming = asyncio.Lock()
        # Requests of a site that is at its limit only wait here: one round of them, the rest is for other nodes.
        limits = parts.settings
        self._site_backlog = min(
            _SITE_BACKLOG,
            limits.COLLECTOR_TASK_COUNT,
            limits.CONCURRENT_REQUESTS_PER_DOMAIN or limits.SPIDER_THREAD_COUNT,
        )
        self._wake = asyncio.Event()
        self._finished: asyncio.Future[Ended] | None = None
        self._state = "starting"
        self._active = 0
        self._last_counts: Counts | None = None
        self._seed_error: str | None = None
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

    def outage(self, away: bool, seconds: float) -> None:
        """The frontier says that its store is away, or back."""
        self._outage_since = time.monotonic() - seconds if away else None

    # -- the run ---------------------------------------------------------------------------------------------

    async def run(self) -> Ended:
        """From open to close."""
        try:
            await self._frontier.open()
        except StoreLostError:
            if self._stopping is None:
                raise
            # Told to stop while it waited for a store that is away: that is how it ended, the store is not lost.
            await self._frontier.close()
            return self._stopping
        if self._p.tasks is not None:
            try:
                await self._p.tasks.source.open()
            except BaseException:
                await self._frontier.close()
                raise
        for warning in self._frontier.warnings:
            self._log.warning("{}", warning)
        if self._p.on_open is not None:
            await asyncio.to_thread(self._p.on_open)
        loop = asyncio.get_running_loop()
        self._finished = loop.create_future()
        if self._stopping is not None:
            self._finished.set_result(self._stopping)
        machine = self._machine = Machine(
            self._p, self._held, on_progress=self._progressed, on_page=self._check_limits
        )
        self._shelf, self._items, self._outbox = machine.shelf, machine.items, machine.outbox
        self._crawl, self._sorter = machine.crawl, machine.sorter
        keeper = self._make_keeper(loop)
        helpers: list[asyncio.Task[Any]] = []
        workers: list[asyncio.Task[None]] = []
        try:
            if keeper is not None:
                keeper.start()  # what comes next may take its time, and others must see that this node lives
            await machine.fetcher.open()
            await machine.call_hook("start_callback")
            machine.outbox.start()
            machine.items.start()
            machine.after_store.start()
            if keeper is not None:
                keeper.loop_alive()
            workers = [
                asyncio.create_task(self._worker(), name=f"netspy-worker-{n}")
                for n in range(self._settings.SPIDER_THREAD_COUNT)
            ]
            self._seed_task = asyncio.create_task(self._seed(), name="netspy-seed")
            self._helpers = helpers = [
                self._seed_task,
                asyncio.create_task(self._claim_loop(), name="netspy-claim"),
                asyncio.create_task(self._tick(keeper), name="netspy-tick"),
            ]
            if self._p.tasks is not None:
                self._feeder = self._make_feeder(machine)
                helpers.append(asyncio.create_task(self._feeder.run(), name="netspy-feed"))
                helpers.append(asyncio.create_task(self._feeder.look_after(), name="netspy-feed-keep"))
            if self._p.observe is not None:
                helpers.append(asyncio.create_task(self._show(), name="netspy-progress"))
            for task in (*helpers, machine.outbox.task, machine.items.task, machine.after_store.task):
                if task is not None:
                    task.add_done_callback(self._task_ended)
            ended = await self._finished
            if ended.outcome not in {"finished", "nothing_to_do"} and ended.signal is None:
                self._log.info("stopping: {}", ended.reason)
            self._state = "stopping"
            return ended
        finally:
            await leave(
                self._p,
                machine,
                self._held,
                workers=workers,
                helpers=helpers,
                keeper=keeper,
                seeder=self._seeder,
                feeder=self._feeder,
                last_look=self._last_look if self._p.observe is not None else None,
                aborted=self._stopping is None or self._stopping.outcome == "store_lost",
            )

    def _make_feeder(self, machine: Machine) -> Feeder:
        assert self._p.tasks is not None  # noqa: S101 - the caller checked
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
            queued=lambda: self._queued or 0,
            on_progress=self._wake.set,
            on_failure=lambda why: self.stop(why, outcome="failed"),
        )

    def _make_keeper(self, loop: asyncio.AbstractEventLoop) -> LeaseKeeper | None:
        if self._p.keeper is None:
            return None
        return LeaseKeeper(
            self._p.keeper,
            settings=self._settings,
            held=self._held,
            report=lambda: BeatReport(len(self._held), len(self._items), self._counters.own()),
            loop=loop,
            logger=self._log,
            history=lambda: self._frontier.history,
            on_rejoined=self._rejoined,
            on_store_lost=lambda why: self.stop(why, outcome="store_lost"),
            on_nodes=self._saw_nodes,
            on_poison=self._poisoned,
            on_taken_over=lambda n: self._counters.inc("reclaimed", n),
            paused=self._claims_paused,
        )

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """A part ended by itself: its error ends the run."""
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, StoreLostError):
            self.stop(str(error), outcome="store_lost")
        elif isinstance(error, NetspyError):
            self.stop(str(error), outcome="failed")
        else:
            self._log.error(
                "internal error in {}: {}",
                task.get_name(),
                what(error),
            )
            self.stop(f"internal error in {task.get_name()}: {what(error)}", outcome="failed")

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

    def _saw_nodes(self, live: int) -> None:
        self._live_nodes = max(live, 1)

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

    @asynccontextmanager
    async def _claims_paused(self) -> AsyncIterator[None]:
        self._claims_free.clear()
        try:
            async with self._claiming:
                pass
            yield
        finally:
            self._claims_free.set()

    # -- tasks -----------------------------------------------------------------------------------------------

    async def _worker(self) -> None:
        shelf, crawl = self._shelf, self._crawl
        while True:
            lease = await shelf.take()
            if lease is None:
                return
            self._active += 1
            if shelf.waiting <= self._low_water:
                self._wake.set()
            try:
                await crawl.handle(lease)
            except asyncio.CancelledError:
                raise
            except StoreLostError as error:
                self.stop(str(error), outcome="store_lost")
            except Exception as error:
                # Not the user's code (that is caught where it is called). Given back it would come again at once
                # and for ever; in the failed list it is seen, and can be tried again.
                crawl.broke(lease, error)
            finally:
                self._active -= 1
                self._wake.set()

    @property
    def _low_water(self) -> int:
        return self._settings.SPIDER_THREAD_COUNT // 2

    async def _seed(self, *, again: bool = False) -> None:
        if self._p.resumed:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                await self._frontier.seed_finish(grant.token)
            self._had_work = self._seeding_done = True
            self._wake.set()
            return
        first = not again
        while not self.stopping:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                if await self._seed_under(grant):
                    return
                continue
            if grant.state in {"seeded", "failed"}:
                if first and grant.state == "seeded":
                    await self._look_at_old_job(grant)
                if grant.state == "failed" and not first:
                    self._seed_error = grant.detail
                return
            first = False
            await asyncio.sleep(min(self._settings.HEARTBEAT_INTERVAL, self._settings.SPIDER_SEEDING_TTL / 4))

    def _seed_again(self) -> None:
        """The store says that the seeding isn't over, and this node believes it is.

        Either another node, which had taken it over, died; or the store went back to an earlier state.
        """
        if self._seed_task is None or not self._seed_task.done() or self.stopping or self._p.resumed:
            return
        self._seed_task = asyncio.create_task(self._seed(again=True), name="netspy-seed")
        self._seed_task.add_done_callback(self._task_ended)
        self._helpers.append(self._seed_task)

    async def _seed_under(self, grant: SeedGrant) -> bool:
        """False when the store went back meanwhile: to be done again."""
        self._had_work = self._seeding = True
        self._state = "seeding"
        self._seeder = Seeder(
            self._p.spider,
            name=self._p.spider.name,
            frontier=self._frontier,
            outbox=self._outbox,
            items=self._items,
            sorter=self._sorter,
            logger=self._log,
            ahead=self._settings.SPIDER_SEED_AHEAD,
            queued=lambda: self._queued or 0,
            renew_every_s=self._settings.SPIDER_SEEDING_TTL / 4,
            context=copy_context(),
        )
        try:
            self._seeding_done = await self._seeder.run(grant)
        except SeedsLostError:
            self._log.warning(
                "Redis went back to an earlier state during the seeding (a fail-over or a restart): start_requests runs "
                "again, and what is still there is not queued twice"
            )
            return False
        finally:
            self._seeding = False
            self._seed_error = self._seeder.error
            self._wake.set()
        return True

    async def _look_at_old_job(self, grant: SeedGrant) -> None:
        counts = await self._frontier.counts()
        if (
            self._p.tasks is None
            and self._p.shared
            and not self._p.keep_alive
            and finished_job_left_behind(counts)
        ):
            self._log.warning(
                "nothing to do: this job was seeded {:.0f} s ago ({}) and is finished. To crawl again, set a new RUN_ID "
                "(e.g. NETSPY_RUN_ID=$(date +%s)), or clear the job with `netspy reset`",
                grant.age_s, grant.detail,
            )  # fmt: skip

    async def _claim_loop(self) -> None:
        settings = self._settings
        idle_s = _IDLE_FIRST_S
        while not self.stopping:
            self._wake.clear()
            await self._claims_free.wait()
            claimed, asked = await self._claim()
            if claimed is not None and claimed.leases:
                idle_s = _IDLE_FIRST_S
                continue
            if asked and self._idle() and await self._over():
                return
            wait_s = idle_s if asked else settings.DONE_CHECK_INTERVAL
            if asked:
                idle_s = min(idle_s * 2, settings.DONE_CHECK_INTERVAL)
                if claimed is not None and claimed.next_due_s is not None:
                    wait_s = min(wait_s, max(claimed.next_due_s, 0.001))
            if await self._wait_for_work(wait_s, emptied=asked) and not self._p.shared:
                idle_s = _IDLE_FIRST_S

    async def _wait_for_work(self, seconds: float, *, emptied: bool) -> bool:
        """Wait until a claim may bring something; True when something happened before the time was over.

        After a claim that brought nothing (`emptied`) a free worker is no reason to ask the store again. New requests
        of this node are, and half of what waits here for its site being started (the claim had passed that site over),
        and having nothing left to do, which is when the run may be over.
        """
        known = self._counters.get("queued")
        waiting = self._shelf.waiting
        until = time.monotonic() + seconds
        while await self._woken(until - time.monotonic()):
            if not emptied or self.stopping or self._counters.get("queued") != known or self._idle():
                return True
            if self._shelf.waiting <= waiting // 2 < waiting:
                return True
            self._wake.clear()
        return False

    async def _woken(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _may_claim(self) -> bool:
        return (
            not self._items.stuck
            and self._items.waiting is None
            and len(self._held) < self._settings.SPIDER_MAX_UNACKED
            and not self._items.full
        )

    async def _claim(self) -> tuple[Claimed | None, bool]:
        """One claim; the second value tells whether the store was asked."""
        if not self._may_claim() or self.stopping:
            return None, False
        shelf, settings = self._shelf, self._settings
        limit = claim_limit(
            slots=settings.SPIDER_THREAD_COUNT,
            free_slots=settings.SPIDER_THREAD_COUNT - self._active,
            held=shelf.startable(),
            ceiling=settings.COLLECTOR_TASK_COUNT,
            queued=self._queued,
            live_nodes=self._live_nodes,
        )
        limit = min(limit, settings.SPIDER_MAX_UNACKED - len(self._held))
        if limit <= 0:
            return None, False
        async with self._claiming:
            claimed = await self._frontier.claim(
                limit,
                pass_over=shelf.full_sites(self._site_backlog),
                suspect_room=self._suspect_room(),
            )
            self._counted(claimed.queued)
            for lease in claimed.leases:
                self._held[id(lease)] = lease
                if lease.suspicion:
                    self._suspects.append(lease)
        if claimed.leases:
            if crash.armed:
                crash.reached("after_claim")
            self._counters.inc("delivered", len(claimed.leases))
            self._had_work = True
            if not self._seeding:
                self._state = "crawling"
            shelf.add(claimed.leases)
            self._set_aside_cooling()
        return claimed, True

    def _counted(self, queued: int) -> None:
        self._queued = queued
        if self._feeder is not None:
            self._feeder.counted()

    def _suspect_room(self) -> tuple[int, int, int]:
        """Room for suspects beside those that this node holds: all of them would go down with the process."""
        if self._suspects:
            self._suspects = [lease for lease in self._suspects if self._held.get(id(lease)) is lease]
        return suspect_room([lease.suspicion for lease in self._suspects])

    def _set_aside_cooling(self) -> None:
        """Requests of a site that cools down wait in the store's delayed set, not in this node's hands."""
        for lease, left_s in self._shelf.take_cooling(_COOLING_SHELF_S):
            payload = lease.payload.pack() if self._p.shared else lease.payload
            self._outbox.delay(lease, left_s, payload)

    def _idle(self) -> bool:
        return (
            not (self._active or self._shelf.waiting or self._seeding)
            and self._outbox.empty
            and self._items.empty
            and self._machine.after_store.empty
            and not (self._feeder is not None and self._feeder.busy)
        )

    async def _over(self) -> bool:
        """Ask once, atomically, whether the run is over; end it when it is."""
        backlog = await self._feeder.backlog() if self._feeder is not None else None
        counts = self._last_counts = await self._frontier.counts()
        self._counted(counts.queued)
        if not counts.intact:
            self.stop("the keys of this run are gone from the store", outcome="store_lost")
            return True
        if counts.seed in {"none", "seeding"}:
            self._seed_again()
        if self._p.keep_alive:
            return False
        if counts.seed == "failed" and not (counts.queued or counts.leased or counts.delayed):
            self.stop(self._seed_error or counts.seed_detail or "seeding failed", outcome="seeding_failed")
            return True
        why = unfinished_because(
            counts,
            source_open=await self._source_open(backlog, counts),
            had_work=self._had_work,
            node_age_s=time.monotonic() - self._started,
            grace_s=self._settings.SPIDER_STARTUP_GRACE if self._p.shared else 0.0,
        )
        if why is not None:
            if not self._active:
                self._state = f"waiting: {why}"
            return False
        did = (
            self._counters.get("pages")
            or self._counters.get("request_ok")
            or self._counters.get("request_failed")
        )
        if did or counts.failed:
            self.stop("finished", outcome="finished")
        else:
            self.stop(
                "nothing to do", outcome="nothing_to_do" if not self._others_did(counts) else "finished"
            )
        return True

    async def _source_open(self, backlog: Backlog | None, counts: Counts) -> str | None:
        """Why the task source may still bring work.

        Source and frontier can't be read at one instant, so each is read twice in turn: a task that was in neither
        place when it was looked at has moved a counter.
        """
        if self._feeder is None or backlog is None:
            return None
        why = await self._feeder.open_because(backlog)
        if why is not None or counts.queued or counts.leased or counts.delayed or counts.tasks:
            return why
        again = await self._feeder.backlog()
        after = await self._frontier.counts()
        if (
            again != backlog
            or after[:4] != counts[:4]
            or (after.tasks_done, after.tasks_failed)
            != (
                counts.tasks_done,
                counts.tasks_failed,
            )
        ):
            return "tasks are on their way"
        return None

    def _others_did(self, counts: Counts) -> bool:
        """Whether other nodes of this very run are or were at work, so that an idle node is no sign of an empty run."""
        return counts.live_nodes > 1

    async def _tick(self, keeper: LeaseKeeper | None) -> None:
        """Once a second: signs of life, overdue callbacks, the time limit."""
        settings = self._settings
        while True:
            await asyncio.sleep(min(1.0, settings.SPIDER_TASK_MAX_SECONDS / 4))
            if keeper is not None:
                keeper.loop_alive()
            self._crawl.end_overdue()
            self._crawl.complaints.flush()
            self._sorter.complaints.flush()
            self._set_aside_cooling()
            if (
                settings.SPIDER_MAX_RUNTIME
                and time.monotonic() - self._started >= settings.SPIDER_MAX_RUNTIME
            ):
                self.stop(f"SPIDER_MAX_RUNTIME={settings.SPIDER_MAX_RUNTIME:g} reached", outcome="limit")

    async def _show(self) -> None:
        assert self._p.observe is not None  # noqa: S101 - only started then
        while True:
            try:
                await self._p.observe(self.view())
            except (
                Exception
            ) as error:  # a display must not stop a crawl; while the store is away there is none
                self._log.debug("progress can't be shown: {!r}", error)
            await asyncio.sleep(self._p.observe_every_s)

    def view(self) -> NodeState:
        """What to show now."""
        state = self._state
        if self._outage_since is not None:
            state = f"store away for {time.monotonic() - self._outage_since:.0f} s"
        elif self._items.stuck:
            state = "items can't be stored"
        elif self._items.waiting is not None:
            state = f"waiting: the store of {self._items.waiting} is away"
        return NodeState(
            state, time.monotonic() - self._started, self._active, len(self._held), self._last_counts
        )

    async def _last_look(self) -> None:
        self._last_counts = await self._frontier.counts()

    @property
    def seeding_unfinished(self) -> bool:
        """start_requests has not been drawn to its end."""
        return not self._seeding_done

    @property
    def last_counts(self) -> Counts | None:
        """The last counts read."""
        return self._last_counts


def force_exit(code: int) -> None:
    """Leave at once: a second signal. Leases run out by themselves or are taken over."""
    os._exit(code)
