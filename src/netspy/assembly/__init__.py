"""Settings → concrete objects: the only place that chooses Redis or memory, and the only one with late imports."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from netspy import process
from netspy.assembly.contract import AnySpider, StoreParts, is_list, is_shared, is_table
from netspy.engine.contract import DeadLettersLike
from netspy.engine.control import Ended
from netspy.engine.node import Node
from netspy.engine.parts import NodeState, Parts, TaskParts
from netspy.errors import ConfigError, MissingExtraError
from netspy.messages.selectors import parsed
from netspy.messages.urls import compile_ignore
from netspy.observe.alerts import Alerts
from netspy.observe.throttle import Throttled
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.events import PipelineEvent
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.policy.descriptors import slots_for
from netspy.settings import Settings

if TYPE_CHECKING:
    from netspy.cluster.status import Status
    from netspy.downloader.contract import Downloader
    from netspy.redisio.embedded.server import EmbeddedRedis

EMBEDDED = "embedded"


class Built:
    """The parts of one node, with what has to be done around its run."""

    def __init__(self, spider: AnySpider, settings: Settings) -> None:
        self.spider = spider
        self.settings = settings
        self.redis_key = ""
        self.namespace = ""
        self.parts: Parts
        self.cluster_view: Callable[[], Awaitable[Status]] | None = None
        self._outage_listener: Callable[[bool, float], None] = lambda _away, _seconds: None
        self.async_closers: list[Callable[[], Awaitable[None]]] = []
        self.on_open: Callable[[], None] | None = None
        self.opened = False  # the store has answered
        self.pipelines: list[Any] = []
        self.closers: list[Callable[[], None]] = []
        self.keep: Callable[[Node, Ended], None] = lambda _node, _ended: None
        self.waiters: list[Callable[[], None]] = []

    def on_outage(self, listener: Callable[[bool, float], None]) -> None:
        """Who is told that the store is away or back."""
        self._outage_listener = listener

    def outage(self, away: bool, seconds: float) -> None:
        """Told by the frontier."""
        self._outage_listener(away, seconds)

    def give_up_waiting(self) -> None:
        """A stop has begun: calls that wait for a store that is away end with an error soon."""
        for waiter in self.waiters:
            waiter()

    def outputs(self) -> list[str]:
        """Where the items are, as the pipelines say."""
        return [str(p.where()) for p in self.pipelines if hasattr(p, "where")]

    async def after(self, node: Node, ended: Ended) -> None:
        """What is kept of an unfinished run in memory; connections that the node doesn't close."""
        self.keep(node, ended)
        for closer in self.async_closers:
            await closer()

    def close(self) -> None:
        """Close files."""
        for closer in self.closers:
            closer()


def _load_class(path: str, what: str) -> Any:
    module_name, _, name = path.replace(":", ".").rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{what}={path!r} can't be loaded: {error}; give the path of a class, e.g. 'package.module.Class'"
        ) from None


def make_downloader(settings: Settings) -> Downloader:
    """The downloader that DOWNLOADER names."""
    made: Downloader = downloader_class(settings)(settings)
    return made


def downloader_class(settings: Settings) -> Any:
    """The class that DOWNLOADER names. Raises ConfigError."""
    found = _load_class(settings.DOWNLOADER, "DOWNLOADER")
    if not callable(getattr(found, "fetch", None)):
        raise ConfigError(
            f"DOWNLOADER={settings.DOWNLOADER!r} has no fetch(request); see docs/downloading.md"
        )
    return found


@contextmanager
def embedded_store(spider: AnySpider, settings: Settings) -> Iterator[Settings]:
    """With REDIS_URL="embedded": the data folder's own server while the block runs. Other settings pass unchanged."""
    if not spider.shared or settings.REDIS_URL != EMBEDDED:
        yield settings
        return
    _need_redis()
    from netspy.redisio.embedded.server import EmbeddedRedis

    server = EmbeddedRedis(settings.EMBEDDED_DATA_DIR)
    url = server.acquire()
    _held.append(server)
    try:
        yield msgspec.structs.replace(settings, REDIS_URL=url)
    finally:
        _held.remove(server)
        server.release()


_held: list[EmbeddedRedis] = []
"""The embedded servers that blocks of `embedded_store` use now."""


def leave_embedded(within_s: float) -> None:
    """For a process that is about to end without unwinding: give its embedded servers up, but don't wait for long."""

    def leave() -> None:
        for server in _held:
            server.release()

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(within_s)


def _need_redis() -> None:
    try:
        importlib.import_module("redis")
    except ImportError:
        raise MissingExtraError("a Spider's queue in Redis", "redis") from None


def build(spider: AnySpider, settings: Settings) -> Built:
    """Everything one node needs. Raises ConfigError, MissingExtraError."""
    from netspy.downloader.middleware import load_middlewares

    settings = within_the_limit_of_files(spider, settings)
    parsed("", settings.SELECTOR_ENGINE, "html").css(
        "a::text"
    )  # imports what a callback would, and opens files for it
    built = Built(spider, settings)
    make = downloader_class(settings)
    counters = spider.counters
    alerts = Alerts(
        spider.on_alert if settings.WARNING_ENABLE else None,
        settings.WARNING_INTERVAL,
        count=lambda: counters.inc("alerts"),
    )
    pipelines, kind, filter_items = _storing(spider, settings)
    built.pipelines = pipelines
    writer = kind(
        pipelines,
        settings,
        dead_letter=_dead_letters(built, spider, settings, alerts),
        on_event=_pipeline_events(built, spider, alerts),
    )

    def alert(kind: str, message: str) -> None:
        alerts.raise_alert(kind, message)

    store = _store_parts(built, spider, settings, alerts, filter_items)
    tasks = _tasks(built, spider, settings)
    built.parts = Parts(
        spider=spider,
        base=base_of(spider),
        settings=settings,
        frontier=store.frontier,
        keeper=store.keeper,
        make_downloader=lambda: make(settings),
        middlewares=load_middlewares(settings.DOWNLOADER_MIDDLEWARES, settings),
        writer=writer,
        item_filter=store.item_filter,
        counters=counters,
        logger=spider.logger,
        alert=alert,
        shared=spider.shared,
        ignore=compile_ignore(settings.URL_IGNORE_PARAMS) if settings.URL_IGNORE_PARAMS else None,
        keep_alive=settings.SPIDER_KEEP_ALIVE and spider.shared,
        observe=None,
        observe_every_s=1.0,
        resumed=store.resumed,
        on_open=built.on_open,
        tasks=tasks,
    )
    return built


def within_the_limit_of_files(spider: AnySpider, settings: Settings) -> Settings:
    """SPIDER_THREAD_COUNT lowered to what this process can have connections for; that is said once."""
    limit, in_use = process.limit(), process.in_use()
    slots = slots_for(settings.SPIDER_THREAD_COUNT, limit=limit, in_use=in_use)
    if slots == settings.SPIDER_THREAD_COUNT:
        return settings
    spider.logger.warning(
        "SPIDER_THREAD_COUNT={} needs more files than this process may open ({}, of which {} are open): {} request(s) at a time; "
        "raise the limit (ulimit -n, LimitNOFILE=)",
        settings.SPIDER_THREAD_COUNT, limit, in_use, slots,
    )  # fmt: skip
    return msgspec.structs.replace(settings, SPIDER_THREAD_COUNT=slots)


def _storing(spider: AnySpider, settings: Settings) -> tuple[list[Any], type[BatchWriter], bool]:
    """The pipelines, what writes to them, and whether items are asked for in the item filter."""
    if spider.item_handler is not None:
        from netspy.pipelines.delivery.handler import HandlerPipeline, HandlerWriter

        return [HandlerPipeline(spider.item_handler)], HandlerWriter, False
    wanted = spider.pipelines if spider.pipelines is not None else settings.ITEM_PIPELINES
    return load_pipelines(wanted, settings), BatchWriter, settings.ITEM_FILTER_ENABLE


def _tasks(built: Built, spider: AnySpider, settings: Settings) -> TaskParts | None:
    if is_table(spider):
        from netspy.assembly.batch import build_batch

        return build_batch(built, spider, settings)
    if is_list(spider):
        from netspy.assembly.tasks import build_tasks

        return build_tasks(built, spider, settings)
    return None


def base_of(spider: AnySpider) -> type:
    """The framework's base class of the hooks: the last netspy class before object."""
    for klass in reversed(type(spider).__mro__):
        if klass.__module__.startswith("netspy.spiders"):
            found: type = klass
            return found
    raise ConfigError(f"{type(spider).__name__} is no netspy spider; inherit from AirSpider or Spider")


def _dead_letters(built: Built, spider: AnySpider, settings: Settings, alerts: Alerts) -> DeadLettersLike:
    """The file, or the shared store with the file behind it. Raises ConfigError, MissingExtraError."""
    file = DeadLetterFile(settings.FAILED_ITEM_PATH)
    if not settings.FAILED_ITEM_URL:
        return file
    from netspy.pipelines.dead_letters.shared import SharedLetters, open_store
    from netspy.policy.run_scope import run_scope

    job = run_scope(settings, spider.job_name, getattr(spider, "redis_key", None)).job
    store = open_store(settings, job)
    if store is None:
        return file
    built.closers.append(store.close)

    def trouble(message: str) -> None:
        alerts.raise_alert("dead_letters_local", message)

    return SharedLetters(store, file, trouble)


def _pipeline_events(built: Built, spider: AnySpider, alerts: Alerts) -> Callable[[PipelineEvent], None]:
    """What happens to pipelines: alarming events are alerts, the others log lines; what has one cause is said once in a
    while, with how often it came.
    """
    every_s = built.settings.WARNING_INTERVAL or 60.0
    retries = Throttled(lambda line: spider.logger.info("{}", line), limit=1, interval_s=every_s)
    letters = Throttled(lambda line: spider.logger.warning("{}", line), limit=1, interval_s=every_s)
    others = Throttled(lambda line: spider.logger.warning("{}", line), limit=20, interval_s=10.0)
    built.closers += [partial(kept.flush, everything=True) for kept in (retries, letters, others)]

    def tell(event: PipelineEvent) -> None:
        cause = f"{event.pipeline} {event.table} {event.cause}"
        if event.kind in {"down", "up", "stuck"}:
            alerts.raise_alert(f"pipeline_{event.kind}", event.message, about=event.pipeline)
        elif event.kind == "dead_letter":
            letters(cause, event.message)
            alerts.raise_alert("pipeline_dead_letter", event.message, about=event.pipeline, logged=True)
        elif event.kind == "retry":
            spider.counters.inc("pipeline_retry")
            retries(cause, event.message)
        else:
            others(event.kind, event.message)

    return tell


def _store_parts(
    built: Built, spider: AnySpider, settings: Settings, alerts: Alerts, filter_items: bool
) -> StoreParts:
    if is_shared(spider):
        _need_redis()
        from netspy.assembly.shared import build_shared

        return build_shared(built, spider, settings, alerts, filter_items)
    from netspy.assembly.air import build_air

    return build_air(built, spider, settings, alerts, filter_items)


def __getattr__(name: str) -> Any:
    """What needs Redis is loaded when it is first asked for."""
    if name in {"ClusterView", "check_shared", "scope_of", "fresh_budget", "revive_embedded"}:
        _need_redis()
        return getattr(importlib.import_module("netspy.assembly.shared"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Built", "NodeState", "build", "embedded_store", "make_downloader"]
