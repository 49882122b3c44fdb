"""A node at work: starts the parts, claims requests, watches for the end, and leaves in good order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, Literal, NamedTuple

from netspy import crash
from netspy.downloader.contract import Downloader
from netspy.engine.callbacks import Callbacks, kind_of
from netspy.engine.contract import Alert, CountersLike, ItemFilter, ItemWriter, LoggerLike
from netspy.engine.crawl import Crawl, Hooks
from netspy.engine.fetch import Fetcher, SubDownloads
from netspy.engine.item_buffer import ItemBuffer
from netspy.engine.lease_keeper import LeaseKeeper
from netspy.engine.outbox import Outbox
from netspy.engine.seeding import Seeder
from netspy.engine.shelf import Shelf
from netspy.engine.threads import CallbackPool
from netspy.engine.yields import Sorter, user_line
from netspy.errors import NetspyError, StoreLostError
from netspy.frontier.contract import Frontier, Keeper
from netspy.messages import sub_download
from netspy.messages.entry import BeatReport, Claimed, Counts, Lease, SeedGrant
from netspy.messages.response import Response
from netspy.observe.faults import what
from netspy.policy.claiming import claim_limit, suspect_room
from netspy.policy.finish import finished_job_left_behind, unfinished_because
from netspy.policy.politeness import Politeness
from netspy.settings import Settings

Outcome = Literal["finished", "nothing_to_do", "stopped", "limit", "seeding_failed", "store_lost", "failed"]

_IDLE_FIRST_S = 0.02
_COOLING_SHELF_S = 5.0
_LINGER_S = 0.004
_SITE_BACKLOG = 64


class Parts(NamedTuple):
    """What assembly puts into a node. `keeper` is None where nothing can expire (one process, in memory)."""

    spider: Any
    base: type
    settings: Settings
    frontier: Frontier
    keeper: Keeper | None
    make_downloader: Callable[[], Downloader]
    middlewares: Sequence[Any]
    writer: ItemWriter
    item_filter: ItemFilter | None
    counters: CountersLike
    logger: LoggerLike
    alert: Alert
    shared: bool
    ignore: Any
    keep_alive: bool
    observe: Callable[[NodeState], Awaitable[None]] | None
    observe_every_s: float
    resumed: bool = False  # the frontier was restored from a dump: don't seed
    on_open: Callable[[], None] | None = None  # once the frontier is open, in a thread


class NodeState(NamedTuple):
    """What the node shows of itself to the progress display."""

    state: str
    elapsed_s: float
    active: int
    held: int
    counts: Counts | None


class Ended(NamedTuple):
    """How a node's run ended."""

    outcome: Outcome
    reason: str
    signal: int | None = None


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
        for warning in self._frontier.warnings:
            self._log.warning("{}", warning)
        if self._p.on_open is not None:
            await asyncio.to_thread(self._p.on_open)
        loop = asyncio.get_running_loop()
        self._finished = loop.create_future()
        if self._stopping is not None:
            self._finished.set_result(self._stopping)
        threads = (
            1
            if self._settings.DEBUG
            else self._settings.CALLBACK_MAX_THREADS or min(self._settings.SPIDER_THREAD_COUNT, 64)
        )
        active = _ActiveDownloads()
        sub_download.active.set(active)
        pool = CallbackPool(maximum=threads)
        downloader = self._p.make_downloader()
        callbacks = Callbacks(self._p.spider, framework=self._p.base)
        shelf = Shelf(Politeness(self._settings), clock=time.monotonic)
        hooks = Hooks(self._p.spider, self._p.base)
        fetcher = Fetcher(
            downloader,
            middlewares=self._p.middlewares,
            download_midware=self._own_hook("download_midware"),
            named_midware=callbacks.named,
            pool=pool,
            selector_engine=self._settings.SELECTOR_ENGINE,
        )
        self._fetcher = fetcher
        active.real = SubDownloads(fetcher, shelf, loop, self._count_page)
        sorter = Sorter(
            self._p.spider,
            callbacks,
            shared=self._p.shared,
            default_table=self._settings.ITEM_DEFAULT_TABLE,
            filter_items=self._p.item_filter is not None,
            ignore=self._p.ignore,
            counters=self._counters,
            logger=self._log,
        )
        items = ItemBuffer(
            self._p.writer,
            self._p.item_filter,
            batch_size=self._settings.ITEM_BATCH_SIZE,
            interval_s=self._settings.BUFFER_FLUSH_INTERVAL,
            bound=self._settings.ITEM_MAX_CACHED_COUNT,
            counters=self._counters,
            logger=self._log,
            alert=self._p.alert,
            on_stored=self._progressed,
        )
        outbox = Outbox(
            self._frontier,
            counters=self._counters,
            logger=self._log,
            held=self._held,
            bound=self._settings.REQUEST_BUFFER_MAX_CACHED,
            linger_s=_LINGER_S if self._p.shared else 0.0,
            on_progress=self._progressed,
        )
        crawl = Crawl(
            name=self._p.spider.name,
            settings=self._settings,
            fetcher=fetcher,
            shelf=shelf,
            pool=pool,
            callbacks=callbacks,
            hooks=hooks,
            sorter=sorter,
            outbox=outbox,
            items=items,
            held=self._held,
            counters=self._counters,
            logger=self._log,
            shared=self._p.shared,
            on_page=self._check_limits,
        )
        self._shelf, self._items, self._outbox, self._crawl, self._pool, self._sorter = (
            shelf,
            items,
            outbox,
            crawl,
            pool,
            sorter,
        )
        keeper = self._make_keeper(loop)
        helpers: list[asyncio.Task[Any]] = []
        workers: list[asyncio.Task[None]] = []
        try:
            if keeper is not None:
                keeper.start()  # what comes next may take its time, and others must see that this node lives
            await fetcher.open()
            await self._call_hook("start_callback")
            outbox.start()
            items.start()
            if keeper is not None:
                keeper.loop_alive()
            workers = [
                asyncio.create_task(self._worker(), name=f"netspy-worker-{n}")
                for n in range(self._settings.SPIDER_THREAD_COUNT)
            ]
            helpers = [
                asyncio.create_task(self._seed(), name="netspy-seed"),
                asyncio.create_task(self._claim_loop(), name="netspy-claim"),
                asyncio.create_task(self._tick(keeper), name="netspy-tick"),
            ]
            if self._p.observe is not None:
                helpers.append(asyncio.create_task(self._show(), name="netspy-progress"))
            for task in (*helpers, outbox.task, items.task):
                if task is not None:
                    task.add_done_callback(self._task_ended)
            ended = await self._finished
            if ended.outcome not in {"finished", "nothing_to_do"} and ended.signal is None:
                self._log.info("stopping: {}", ended.reason)
            self._state = "stopping"
            return ended
        finally:
            await self._leave(workers, helpers, keeper, downloader)

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
            paused=self._claims_paused,
        )

    def _own_hook(self, name: str) -> Callable[..., Any] | None:
        spider, base = self._p.spider, self._p.base
        return getattr(spider, name) if getattr(type(spider), name) is not getattr(base, name) else None

    async def _call_hook(self, name: str) -> None:
        hook = self._own_hook(name)
        if hook is None:
            return
        try:
            if kind_of(hook) == "coroutine":
                await hook()
            else:
                await self._pool.call(hook)
        except Exception as error:
            self._counters.inc("callback_error")
            self._log.error("{}.{} ({}) raised {}", self._p.spider.name, name, user_line(error), what(error))

    def _count_page(self, response: Response) -> None:
        self._counters.inc("pages")
        self._counters.inc("bytes", len(response.content))

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
        async with self._claiming:
            pass
        try:
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

    async def _seed(self) -> None:
        if self._p.resumed:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                await self._frontier.seed_finish(grant.token)
            self._had_work = self._seeding_done = True
            self._wake.set()
            return
        first = True
        while not self.stopping:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                await self._seed_under(grant)
                return
            if grant.state in {"seeded", "failed"}:
                if first and grant.state == "seeded":
                    await self._look_at_old_job(grant)
                if grant.state == "failed" and not first:
                    self._seed_error = grant.detail
                return
            first = False
            await asyncio.sleep(min(self._settings.HEARTBEAT_INTERVAL, self._settings.SPIDER_SEEDING_TTL / 4))

    async def _seed_under(self, grant: SeedGrant) -> None:
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
        finally:
            self._seeding = False
            self._seed_error = self._seeder.error
            self._wake.set()

    async def _look_at_old_job(self, grant: SeedGrant) -> None:
        counts = await self._frontier.counts()
        if self._p.shared and not self._p.keep_alive and finished_job_left_behind(counts):
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
            self._queued = claimed.queued
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
        )

    async def _over(self) -> bool:
        """Ask once, atomically, whether the run is over; end it when it is."""
        counts = self._last_counts = await self._frontier.counts()
        self._queued = counts.queued
        if not counts.intact:
            self.stop("the keys of this run are gone from the store", outcome="store_lost")
            return True
        if self._p.keep_alive:
            return False
        if counts.seed == "failed" and not (counts.queued or counts.leased or counts.delayed):
            self.stop(self._seed_error or counts.seed_detail or "seeding failed", outcome="seeding_failed")
            return True
        why = unfinished_because(
            counts,
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
        return NodeState(
            state, time.monotonic() - self._started, self._active, len(self._held), self._last_counts
        )

    # -- leaving ---------------------------------------------------------------------------------------------

    async def _leave(
        self,
        workers: list[asyncio.Task[None]],
        helpers: list[asyncio.Task[Any]],
        keeper: LeaseKeeper | None,
        downloader: Downloader,
    ) -> None:
        """Stop claiming; let running pages end; flush items; ack; give the rest back; deregister. In this order:
        a page that ends still yields items, items own acks, and acks need the lease that the keeper renews.
        """
        deadline = time.monotonic() + self._settings.SPIDER_STOP_TIMEOUT
        aborted = self._stopping is None or self._stopping.outcome == "store_lost"
        if self._seeder is not None:
            self._seeder.stop()
        if keeper is not None:
            keeper.watch_no_more()
        for task in helpers:
            if task.get_name() != "netspy-seed":
                task.cancel()
        unstarted = self._shelf.drain()
        self._outbox.release(unstarted)
        if workers and not aborted:
            _, running = await asyncio.wait(workers, timeout=max(deadline - time.monotonic() - 1.0, 0.1))
            if running:
                self._log.warning("{} page(s) did not end in time; they go back to the queue", len(running))
        for page in list(self._crawl.running.values()):
            page.timed_out = False
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._p.writer.hurry(deadline)
        if not aborted:
            await self._bounded(
                self._items.flush_all(),
                deadline,
                "items were not stored in time; their pages will be crawled again",
            )
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        if not aborted:
            # Whatever is still held now has not been settled: it goes back, its items will come again.
            await self._bounded(self._outbox.drained(), deadline, "the store did not take all acks in time")
            self._outbox.release(list(self._held.values()))
            await self._bounded(
                self._outbox.drained(),
                deadline + 0.5,
                "the store did not take all releases in time; leases run out by themselves",
            )
        await self._items.stop()
        await self._outbox.stop()
        self._crawl.complaints.flush(everything=True)
        self._sorter.complaints.flush(everything=True)
        if keeper is not None:
            keeper.stop()
        await self._call_hook_bounded("end_callback", deadline)
        await self._bounded(self._fetcher.close(), deadline + 1.0, "middlewares did not close in time")
        await self._bounded(self._p.writer.close(), deadline + 1.0, "pipelines did not close in time")
        await self._bounded(downloader.close(), deadline + 1.0, "the downloader did not close in time")
        if self._p.observe is not None and not aborted:
            await self._bounded(self._last_look(), deadline + 1.0, "")
        if keeper is not None:
            await asyncio.to_thread(keeper.join, 1.0)
        await self._bounded(self._frontier.close(), deadline + 1.5, "the store did not answer the goodbye")
        self._pool.close()

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

    async def _call_hook_bounded(self, name: str, deadline: float) -> None:
        await self._bounded(self._call_hook(name), deadline + 0.5, f"{name} did not end in time")

    async def _bounded(self, work: Awaitable[Any], deadline: float, otherwise: str) -> None:
        """Await, but not past the deadline (at least half a second): a stop is always bounded."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.5)):
                await work
        except TimeoutError:
            if otherwise:
                self._log.warning("{}", otherwise)
        except NetspyError as error:
            self._log.warning("{}", error)


class _ActiveDownloads:
    """Stands in for the node's SubDownloads until they are made: threads copy the context at their start."""

    real: SubDownloads | None = None

    def blocking(self, request: Any) -> Response:
        assert self.real is not None  # noqa: S101 - set before the first callback runs
        return self.real.blocking(request)

    async def fetching(self, request: Any) -> Response:
        assert self.real is not None  # noqa: S101 - set before the first callback runs
        return await self.real.fetching(request)


def force_exit(code: int) -> None:
    """Leave at once: a second signal. Leases run out by themselves or are taken over."""
    os._exit(code)
