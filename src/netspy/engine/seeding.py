"""Seeding: one node at a time draws start_requests lazily and hands the seeds over while it goes on; others wait."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from typing import Any

from netspy import crash, forked, process
from netspy.engine.contract import SpiderLike
from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.leases.outbox import Outbox
from netspy.engine.page.callbacks import kind_of
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.output import CallbackOutput, OutputCollector, YieldSite, as_iterator
from netspy.engine.page.page import LastStep
from netspy.errors import SpiderError
from netspy.frontier.contract import Frontier, SeedLockLostError, SeedsLostError
from netspy.messages.entry import NewEntry, SeedGrant
from netspy.observe.faults import describe_error, user_line
from netspy.policy.finish import came_with_the_others, finished_job_left_behind, finished_job_text
from netspy.policy.retry import Backoff
from netspy.raised import failure

_CHUNK = 500
_BUFFERED = 2000
_PAUSE_S = 0.05


async def _each(values: Iterator[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


class Seeder:
    """Draws the seeds of one run under the seeding lock.

    start_requests runs in a thread, or where it is `async` in a task, of its own, so that a slow one holds nobody up:
    what it has yielded is handed over every few hundredths of a second, and it pauses while more than SPIDER_SEED_AHEAD
    requests are queued, or ITEM_MAX_CACHED_COUNT items wait. The seeding is over when all its items are stored, too.
    """

    def __init__(
        self,
        env: Env,
        spider: SpiderLike,
        frontier: Frontier,
        outbox: Outbox,
        items: ItemBuffer,
        collector: OutputCollector,
        gauge: NodeGauge,
    ) -> None:
        """Made in the context (`contextvars`) that start_requests is to run in."""
        self._spider = spider
        self._name = env.name
        self._frontier = frontier
        self._outbox = outbox
        self._items = items
        self._collector = collector
        self._log = env.log
        self._ahead = env.settings.SPIDER_SEED_AHEAD
        self._gauge = gauge
        self._renew_every_s = env.settings.SPIDER_SEEDING_TTL / 4
        self._adopt_again_s = env.settings.HEARTBEAT_INTERVAL / 2
        self._context = copy_context()
        self._stop = False
        self._drawn: deque[CallbackOutput] = deque()
        self._size = 0
        self._condition = threading.Condition()
        self._room = asyncio.Event()  # for a task that draws
        self._task: asyncio.Task[None] | None = None  # that draws
        self._to_end = False  # start_requests has returned, or raised
        self._drawing_done = False
        self._drawing = False  # a thread, or a task, is in start_requests
        self._error: Exception | None = None
        self._own_items = LastStep()
        self.handed_over = asyncio.Event()  # what was drawn is in the frontier and in the item buffer
        self.drawn_to_end = False  # only the items of the seeding, and its end, are still to be written down
        self.seeds = 0  # handed over so far
        self.error: str | None = None  # why start_requests failed

    def stop(self) -> None:
        """Draw no more; what has been drawn is still handed over."""
        self._stop = True
        self._room.set()
        if self._task is not None:
            self._task.cancel()
        with self._condition:
            self._condition.notify_all()

    async def run(self, grant: SeedGrant) -> bool:
        """Seed under `grant.token`. True when start_requests came to its end.

        A raising start_requests sets the state *failed*, after everything it had yielded was handed over. A node
        that stops in the middle leaves the lock to run out: the next one draws again, under dedup. Raises
        SeedsLostError, when start_requests has come to rest: acquire the lock again and start over.
        """
        assert grant.token is not None  # noqa: S101 - the caller checked
        token = grant.token
        origin = YieldSite(f"{self._name}.start_requests", f"s{grant.generation}".encode())
        renewer = asyncio.create_task(self._renew(token), name="netspy-seed-lock")
        try:
            await self._adopt()
            return await self._seed(origin, token)
        except SeedLockLostError:
            self._log.warning("another node took over the seeding; this one stops seeding")
            return False
        except SeedsLostError:
            await self._come_to_rest()
            raise
        finally:
            renewer.cancel()
            self.stop()
            self.handed_over.set()

    async def _adopt(self) -> None:
        """What earlier runs left comes first."""
        total = 0
        while not self._stop:
            adopted = await self._frontier.adopt()
            total += adopted.moved
            if not adopted.waits:
                break
            await asyncio.sleep(self._adopt_again_s)
        if total:
            self._log.info(
                "{}: {} request(s) that earlier runs had queued and never crawled are queued again",
                self._name,
                total,
            )

    async def _seed(self, origin: YieldSite, token: str) -> bool:
        self._begin_drawing(origin)
        to_end = await self._hand_over_drawn(token)
        self.stop()
        self.handed_over.set()
        if not to_end:
            return False
        self.drawn_to_end = True
        await self._own_items.ended()
        if self._error is not None:
            error = self._error
            if isinstance(error, SpiderError):
                self.error = str(error)
            else:
                self.error = f"start_requests ({user_line(error)}) raised {describe_error(error)}"
            self._log.error(
                "{}: {} after {} seed(s); what was yielded is crawled", self._name, self.error, self.seeds
            )
            await self._frontier.seed_finish(token, error=self.error)
            return False
        if not await self._frontier.seed_finish(token):
            self._log.warning("the seeding lock was taken over while the last seeds were handed over")
        return True

    async def _come_to_rest(self) -> None:
        """Wait for it to end, so that start_requests never runs twice at a time; the lock is renewed meanwhile."""
        stopped_by_node = self._stop
        self.stop()
        while self._drawing and not stopped_by_node:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(_PAUSE_S)

    async def _renew(self, token: str) -> None:
        while True:
            await asyncio.sleep(self._renew_every_s)
            if not await self._frontier.seed_renew(token):
                self.stop()
                return

    async def _hand_over(self, out: CallbackOutput, token: str) -> None:
        if out.rows:
            self._items.add(self._own_items, out.rows)
            await self._items.room()
        entries: list[NewEntry] = out.children
        for at in range(0, len(entries), _CHUNK):
            await self._outbox.put(entries[at : at + _CHUNK], seed_token=token)
            if crash.armed:
                crash.reached("seed_put")
        self.seeds += len(entries)

    async def _pause_if_ahead(self) -> None:
        while not self._stop and (self._gauge.queued or 0) >= self._ahead:  # noqa: ASYNC110 - the number is another task's
            await asyncio.sleep(_PAUSE_S)

    # -- drawing ---------------------------------------------------------------------------------------------

    def _begin_drawing(self, origin: YieldSite) -> None:
        self._drawing = True
        context = self._context.copy()
        if kind_of(self._spider.start_requests) == "plain":
            threading.Thread(
                target=lambda: context.run(self._draw, origin), name="netspy-seeding", daemon=True
            ).start()
            return
        self._task = asyncio.create_task(
            self._draw_async(origin), name="netspy-start-requests", context=context
        )
        self._task.add_done_callback(self._drawing_ended)

    def _draw(self, origin: YieldSite) -> None:
        """In the seeding thread."""
        try:
            origin.generator = iterator = self._seeds_of(self._spider.start_requests())
            for value in iterator:
                self._keep(value, origin)
                with self._condition:
                    while self._size >= _BUFFERED and not self._stop:
                        self._condition.wait(0.5)
                if self._stop:
                    return
            self._to_end = True
        except BaseException as caught:
            self._error = failure(caught)
            self._to_end = True
        finally:
            forked.leave()
            self._drawing_done = True
            self._drawing = False

    async def _draw_async(self, origin: YieldSite) -> None:
        try:
            generator = self._spider.start_requests()
            if not hasattr(generator, "__aiter__"):
                generator = _each(self._seeds_of(await generator))
            else:
                origin.generator = generator
            number = 0
            async for value in generator:
                self._keep(value, origin)
                number += 1
                if number % _CHUNK == 0:
                    await asyncio.sleep(0)  # a generator that never waits must not hold up the loop
                while self._size >= _BUFFERED and not self._stop:
                    self._room.clear()
                    await self._room.wait()
                if self._stop:
                    return
            self._to_end = True
        except BaseException as caught:
            error = failure(caught)
            if not self._stop:  # else it may well be what user code makes of our cancellation
                self._error, self._to_end = error, True
        forked.leave()

    def _drawing_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self._stop:
            self._error = SpiderError("the task that ran start_requests was cancelled, and not by netspy")
            self._to_end = True
        self._drawing_done = True
        self._drawing = False

    def _seeds_of(self, result: Any) -> Iterator[Any]:
        iterator: Iterator[Any] | None = as_iterator(result)
        if iterator is None:
            raise SpiderError(
                f"{self._name}.start_requests returned None; yield requests from it, or return a list of them"
            )
        return iterator

    def _keep(self, value: Any, origin: YieldSite) -> None:
        """One value that was yielded, for the loop to hand over."""
        out = CallbackOutput()
        seed = self._spider.request_from_seed(value) if isinstance(value, str) else value
        self._collector.take(out, seed, origin)
        with self._condition:
            self._drawn.append(out)
            self._size += out.size()

    async def _hand_over_drawn(self, token: str) -> bool:
        """Hand over what is drawn, until a stop or the end. True when it was the end, and everything is handed over."""
        # Quick at first for the seeds of a list, then easy on a generator that takes its time.
        backoff = Backoff(0.001, _PAUSE_S)
        while True:
            done = self._drawing_done
            gathered = CallbackOutput()
            with self._condition:
                while self._drawn and gathered.size() < _CHUNK:
                    out = self._drawn.popleft()
                    gathered.children.extend(out.children)
                    gathered.rows.extend(out.rows)
                    gathered.heavy += out.heavy
                    self._size -= out.size()
                self._condition.notify_all()
            self._room.set()
            if gathered.size():
                await self._hand_over(gathered, token)
                backoff.reset()
                await self._pause_if_ahead()
            elif done or self._stop:
                return done and self._to_end
            else:
                await asyncio.sleep(backoff.next_s())


_NAME = "netspy-seed"


class SeedCoordinator:
    """`begin` starts it. `done`: start_requests has been drawn to its end by this node. `error`: why seeding failed.

    `in_time`: others had seeded, and this node was started together with them. `left_behind`: what to say when there turns out
    to be nothing to do, because others had seeded; else ''.
    """

    def __init__(
        self,
        env: Env,
        control: Control,
        gauge: NodeGauge,
        frontier: Frontier,
        make_seeder: Callable[[], Seeder],
        *,
        resumed: bool = False,
        leaves_behind: bool = False,
        process_age_s: Callable[[], float] = process.age_s,
    ) -> None:
        """`resumed`: the frontier was restored with the requests of an earlier run: no seeding. `leaves_behind`: a job
        that was finished before is worth a word, as nothing more comes to it.
        """
        self._settings = env.settings
        self._log = env.log
        self._control = control
        self._gauge = gauge
        self._frontier = frontier
        self._make_seeder = make_seeder
        self._resumed = resumed
        self._leaves_behind = leaves_behind
        self.task: asyncio.Task[None] | None = None
        self.seeder: Seeder | None = None
        self.done = False
        self.error: str | None = None
        self.left_behind = ""
        self.in_time = False
        self._process_age_s = process_age_s

    def begin(self) -> None:
        """Start the task."""
        self.task = self._control.spawn(self._run(), _NAME)

    def begin_again(self) -> None:
        """The store says that the seeding isn't over, and this node believes it is.

        Either another node, which had taken it over, died; or the store went back to an earlier state.
        """
        if self.task is None or not self.task.done() or self._control.stopping or self._resumed:
            return
        self.task = self._control.spawn(self._run(again=True), _NAME)

    async def handed_over(self) -> None:
        """Wait until what start_requests had yielded before a stop is in the frontier and in the item buffer."""
        if self.seeder is not None:
            await self.seeder.handed_over.wait()

    async def written_down(self) -> None:
        """Wait for the end of a seeding that only has its end left to write down; not for another one."""
        if self.seeder is not None and self.seeder.drawn_to_end and self.task is not None:
            await asyncio.wait({self.task})

    async def _run(self, *, again: bool = False) -> None:
        if self._resumed:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                await self._frontier.seed_finish(grant.token)
            self._gauge.had_work = self.done = True
            self._control.wake()
            return
        first = not again
        while not self._control.stopping:
            grant = await self._frontier.seed_acquire()
            if grant.token is not None:
                if await self._seed_under(grant):
                    return
                continue
            if grant.state in {"seeded", "failed"}:
                if first and grant.state == "seeded":
                    await self._look_at_old_job(grant)
                if grant.state == "failed" and not first:
                    self.error = grant.detail
                return
            first = False
            await asyncio.sleep(min(self._settings.HEARTBEAT_INTERVAL, self._settings.SPIDER_SEEDING_TTL / 4))

    async def _seed_under(self, grant: SeedGrant) -> bool:
        """False when the store went back meanwhile: to be done again."""
        gauge = self._gauge
        gauge.had_work = gauge.seeding = True
        self.seeder = self._make_seeder()
        try:
            self.done = await self.seeder.run(grant)
        except SeedsLostError:
            self._log.warning(
                "Redis went back to an earlier state during the seeding (a fail-over or a restart): start_requests runs "
                "again, and what is still there is not queued twice"
            )
            return False
        finally:
            gauge.seeding = False
            self.error = self.seeder.error
            self._control.wake()
        return True

    async def _look_at_old_job(self, grant: SeedGrant) -> None:
        if not self._leaves_behind:
            return
        if came_with_the_others(grant.age_s, self._process_age_s()):
            self.in_time = True
            return
        self.left_behind = finished_job_text(grant.age_s, grant.detail)
        if finished_job_left_behind(await self._frontier.counts()):
            self._log.warning("nothing to do: {}", self.left_behind)
            self.left_behind = "the job was finished before (see above)"
