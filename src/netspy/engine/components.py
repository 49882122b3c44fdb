"""The parts of a node, put together: threads, slots, fetcher, collector, item buffer, outbox, page handler, seeding, tasks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from netspy.engine.claimer import Claimer, Workers
from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.finish import FinishWatch
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.keeper import LeaseKeeper
from netspy.engine.leases.outbox import Outbox
from netspy.engine.leases.site_slots import SiteSlots
from netspy.engine.page.callbacks import Callbacks, Hooks, kind_of, own_hook
from netspy.engine.page.effects import Effects
from netspy.engine.page.fetch import Fetcher, SubDownloads
from netspy.engine.page.handler import PageHandler
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.outcome import PageOutcome
from netspy.engine.page.output import OutputCollector
from netspy.engine.page.task_pages import TaskPages
from netspy.engine.page.threads import CallbackPool
from netspy.engine.page.user_code import UserCode
from netspy.engine.parts import Parts
from netspy.engine.seeding import SeedCoordinator, Seeder
from netspy.engine.tasks.feeder import Feeder
from netspy.engine.tasks.requests import TaskRequests
from netspy.messages import sub_download
from netspy.messages.response import Response
from netspy.observe.faults import describe_error, user_line
from netspy.observe.throttle import ThrottledLog
from netspy.policy.limits import limit_of
from netspy.policy.politeness import Politeness
from netspy.raised import failure


def env_of(parts: Parts) -> Env:
    """What every part of this node is given."""
    return Env(
        name=parts.spider.name,
        settings=parts.settings,
        log=parts.logger,
        throttled=ThrottledLog(parts.logger),
        counters=parts.counters,
        alert=parts.alert,
        shared=parts.shared,
    )


def control_of(parts: Parts) -> Control:
    """The node's will, with the limits of its settings."""
    return Control(parts.logger, limit_of(parts.settings, parts.counters.get))


class Components:
    """Made on the event loop; nothing runs before it is started. The attributes are the parts."""

    def __init__(self, parts: Parts, env: Env, control: Control) -> None:
        self._parts = parts
        self._env = env
        self._control = control
        settings = env.settings
        self.started = env.clock()
        threads = (
            1 if settings.DEBUG else settings.CALLBACK_MAX_THREADS or min(settings.SPIDER_THREAD_COUNT, 64)
        )
        active = _ActiveDownloads()
        sub_download.active.set(active)
        callbacks = Callbacks(parts.spider, framework=parts.base)
        self.pool = CallbackPool(maximum=threads)
        self.held = HeldLeases(env.counters, env.log)
        self.gauge = NodeGauge()
        self.slots = SiteSlots(Politeness(settings), clock=time.monotonic)
        self.downloader = parts.make_downloader()
        self.fetcher = Fetcher(
            self.downloader,
            middlewares=parts.middlewares,
            download_midware=own_hook(parts.spider, parts.base, "download_midware"),
            named_midware=callbacks.named,
            pool=self.pool,
            selector_engine=settings.SELECTOR_ENGINE,
            on_shortage=lambda what: env.throttled.warning(
                "shortage", f"this machine has no room: {what}; waiting"
            ),
        )
        active.real = SubDownloads(
            self.fetcher, self.slots, asyncio.get_running_loop(), self._count_sub_download
        )
        self.collector = OutputCollector(
            env, callbacks, ignore=parts.ignore, filter_items=parts.item_filter is not None
        )
        self.items = ItemBuffer(env, control, parts.writer, parts.item_filter)
        self.outbox = Outbox(env, control, parts.frontier, self.held)
        tasks = parts.tasks
        self.effects = Effects(
            env, control, {} if tasks is None else {"add": tasks.source.add, **tasks.doers}
        )
        user_code = UserCode(
            env,
            self.pool,
            callbacks,
            Hooks(parts.spider, parts.base),
            self.collector,
            self.outbox,
            self.items,
        )
        outcome = PageOutcome(env, control, self.slots, user_code, self.outbox)
        self.handler = PageHandler(
            env,
            control,
            self.held,
            self.slots,
            self.fetcher,
            user_code,
            outcome,
            self.outbox,
            None if tasks is None else TaskPages(env, tasks, self.effects),
        )
        self.workers = Workers(env, control, self.gauge, self.slots, self.handler, outcome)
        self.seeding = SeedCoordinator(
            env,
            control,
            self.gauge,
            parts.frontier,
            self._make_seeder,
            resumed=parts.resumed,
            leaves_behind=tasks is None and parts.shared and not parts.keep_alive,
        )
        self.feeder = self._make_feeder()
        self.finish = FinishWatch(
            env,
            control,
            self.gauge,
            parts.frontier,
            self.seeding,
            self.feeder,
            waiting_in=(self.slots, self.outbox, self.items, self.effects),
            keep_alive=parts.keep_alive,
            elapsed_s=self.elapsed_s,
        )
        self.claimer = Claimer(
            env,
            control,
            self.held,
            self.gauge,
            parts.frontier,
            self.slots,
            self.items,
            self.outbox,
            self.finish,
        )
        self.keeper = self._make_keeper()

    def elapsed_s(self) -> float:
        """Seconds since the node's parts were made."""
        return self._env.clock() - self.started

    def _make_seeder(self) -> Seeder:
        parts = self._parts
        return Seeder(
            self._env,
            parts.spider,
            parts.frontier,
            self.outbox,
            self.items,
            self.collector,
            self.gauge,
        )

    def _make_feeder(self) -> Feeder | None:
        parts, env, control, gauge = self._parts, self._env, self._control, self.gauge
        if parts.tasks is None:
            return None
        requests = TaskRequests(
            env, control, gauge, parts.tasks, self.outbox, self.items, self.collector, self.pool, self.effects
        )
        return Feeder(
            env,
            control,
            gauge,
            parts.tasks,
            parts.frontier,
            requests,
            keep_alive=parts.keep_alive,
        )

    def _make_keeper(self) -> LeaseKeeper | None:
        parts = self._parts
        if parts.keeper is None:
            return None
        return LeaseKeeper(
            self._env,
            self._control,
            self.held,
            self.gauge,
            parts.keeper,
            buffered=self.items.__len__,
            history=lambda: parts.frontier.history,
            paused=self.claimer.paused,
        )

    def _count_sub_download(self, response: Response) -> None:
        self._env.counters.inc("pages")
        self._env.counters.inc("bytes", len(response.content))

    async def call_hook(self, name: str) -> None:
        """Call a hook without arguments; its error is reported and counted."""
        parts, env = self._parts, self._env
        hook = own_hook(parts.spider, parts.base, name)
        if hook is None:
            return
        try:
            if kind_of(hook) == "coroutine":
                await hook()
            else:
                await self.pool.call(hook)
        except BaseException as caught:
            error = failure(caught)
            env.counters.inc("callback_error")
            env.log.error("{}.{} ({}) raised {}", env.name, name, user_line(error), describe_error(error))


class _ActiveDownloads:
    """Stands in for the node's SubDownloads until they are made: threads copy the context at their start."""

    real: SubDownloads | None = None

    def blocking(self, request: Any) -> Response:
        assert self.real is not None  # noqa: S101 - set before the first callback runs
        return self.real.blocking(request)

    async def fetching(self, request: Any) -> Response:
        assert self.real is not None  # noqa: S101 - set before the first callback runs
        return await self.real.fetching(request)
