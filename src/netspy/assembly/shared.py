"""The parts of a spider on Redis."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from netspy.assembly import Built
from netspy.assembly.air import fill_kind, fill_message
from netspy.assembly.contract import AnySpider, SharedSpider, StoreParts
from netspy.cluster.failed import retry_failed
from netspy.cluster.status import Status, may_alert_async, read_status, read_status_async
from netspy.errors import NetspyError, SerializationError
from netspy.frontier.redis.frontier import RedisFrontier
from netspy.frontier.redis.membership import Owner
from netspy.frontier.redis.session import Events
from netspy.messages.request import Request
from netspy.observe.alerts import Alerts
from netspy.observe.log import Logger
from netspy.policy.run_scope import RunScope, run_scope
from netspy.redisio import client as clients
from netspy.redisio.errors import error_kind, unavailable, unusable
from netspy.redisio.link import cancellable
from netspy.redisio.scripts import load_all
from netspy.settings import Settings, hide_password

if TYPE_CHECKING:
    from collections.abc import Callable

_CONNECT_PAUSE_S = 0.2
_SCRIPTS = ("netspy.frontier.redis.lua", "netspy.tasks.redis.lua", "netspy.cluster.lua")
START_NOTICE_S = 2.0
"""So long a start that waits for Redis says nothing."""


def scope_of(spider: SharedSpider, settings: Settings) -> RunScope:
    """The names of the spider's run in Redis. Raises ConfigError."""
    return run_scope(settings, spider.job_name, spider.redis_key, use_run_id=spider.kind != "batch")


def build_shared(
    built: Built, spider: SharedSpider, settings: Settings, alerts: Alerts, filter_items: bool
) -> StoreParts:
    """Connects nothing yet. Raises ConfigError for a wrong Redis URL, key or DEDUP_FILTER."""
    scope = scope_of(spider, settings)
    for folder in _SCRIPTS:
        load_all(folder)
    built.redis_key = scope.redis_key
    built.namespace = scope.ns
    log = spider.logger
    look = SharedView(settings, scope)
    frontier = RedisFrontier(
        settings,
        scope,
        Owner(spider.job_name, spider.kind, spider.take_over),
        pack=_pack,
        unpack=Request.unpack,
        renewed=_renewed,
        events=Events(
            on_fill=lambda rate: look.once(alerts, fill_kind(rate), fill_message(rate, settings)),
            on_outage=_outages(built, spider, settings),
            on_full=lambda full: _memory_full(alerts, log, full=full),
            on_unreadable=lambda n: _unreadable(spider, alerts, n),
        ),
    )
    if settings.DEDUP_FILTER in {"memory", "lite", "bloom"}:
        log.warning(
            "DEDUP_FILTER={!r} deduplicates in each process by itself: nodes don't know of each other's requests, so pages "
            "are fetched and rows written more than once; use auto, redis or redis-set", settings.DEDUP_FILTER,
        )  # fmt: skip
        if scope.incremental:
            log.warning(
                "DEDUP_SCOPE=spider has no effect with DEDUP_FILTER={!r}: what a process remembers is gone with it, so every run "
                "crawls all pages again; use auto, redis or redis-set", settings.DEDUP_FILTER,
            )  # fmt: skip
    elif scope.incremental:
        log.info(
            "DEDUP_SCOPE=spider: URLs that earlier runs of {} crawled are not crawled again; what they queued and never "
            "crawled is",
            scope.redis_key,
        )
    built.waiters.append(frontier.give_up_waiting)
    built.cluster_view = look.look
    built.async_closers.append(look.close)

    def opened() -> None:
        built.opened = True
        if settings.RETRY_FAILED_ON_START:
            requeue_failed(spider, settings, scope)

    def waits() -> None:
        if not built.opened:
            # It has a history once a node has joined; what comes after that is the task source.
            _waits(log, settings, "" if frontier.history is None else "the task source")

    built.on_open = opened
    asyncio.get_running_loop().call_later(START_NOTICE_S, waits)
    return StoreParts(
        frontier, frontier.keeper(), frontier.item_filter() if filter_items else None, resumed=False
    )


class SharedView:
    """The cluster's status, read on a connection of its own; and alerts that go out once per cluster."""

    def __init__(self, settings: Settings, scope: RunScope) -> None:
        self._settings = settings
        self._scope = scope
        self._client = clients.async_client(settings, key=scope.job, pool_size=1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self) -> Status:
        """One snapshot. Raises what the client raises while Redis is away."""
        return await cancellable(read_status_async(self._client, self._scope, self._settings))

    def once(self, alerts: Alerts, kind: str, message: str) -> None:
        """Raise the alert, unless another node has done so within WARNING_INTERVAL. On the loop."""

        async def ask() -> None:
            try:
                mine = await may_alert_async(self._client, self._scope, kind, self._settings.WARNING_INTERVAL)
            except Exception:
                mine = True  # better twice than never
            if mine:
                alerts.raise_alert(kind, message)

        task = asyncio.get_running_loop().create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop the connection, after alerts under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self._client.aclose()
        await self._client.connection_pool.disconnect()


class ClusterView:
    """The cluster's status, blocking: for a parent process and the command line."""

    def __init__(self, spider: SharedSpider, settings: Settings) -> None:
        self.settings = settings
        self.scope = scope_of(spider, settings)
        self.client = clients.sync_client(settings, key=self.scope.job)

    def look(self) -> Status | None:
        """One snapshot; None while Redis is away."""
        try:
            return read_status(self.client, self.scope, self.settings)
        except Exception as error:
            if error_kind(error) is None:
                raise
            return None

    def close(self) -> None:
        """Drop the connection."""
        self.client.close()
        self.client.connection_pool.disconnect()


def check_shared(spider: SharedSpider, settings: Settings) -> None:
    """Whether the spider's names and its Redis can be used. Raises ConfigError, StoreUnavailableError."""
    view = ClusterView(spider, settings)
    began = time.monotonic()
    said = False
    try:
        while True:
            try:
                view.client.ping()
            except Exception as error:
                trouble = error_kind(error)
                if trouble == "config":
                    raise unusable(settings.REDIS_URL, error) from None
                if trouble is None:
                    raise
                waited = time.monotonic() - began
                if waited >= settings.REDIS_START_TIMEOUT:
                    raise unavailable(settings.REDIS_URL, error, waited) from None
                if waited >= START_NOTICE_S and not said:
                    said = True
                    _waits(spider.logger, settings)
                time.sleep(_CONNECT_PAUSE_S)
            else:
                return
    finally:
        view.close()


def fresh_budget(payload: bytes) -> bytes:
    """A failed request with its retries given back."""
    request = Request.unpack(payload)
    request.retry_times = 0
    return request.pack()


def _renewed(payload: bytes) -> bytes:
    try:
        return fresh_budget(payload)
    except SerializationError:
        return payload


def requeue_failed(spider: AnySpider, settings: Settings, scope: RunScope) -> None:
    """RETRY_FAILED_ON_START: move failed requests back to the queue, with a fresh retry budget."""
    client = clients.sync_client(settings, key=scope.job)
    try:
        moved = retry_failed(client, scope, edit=fresh_budget)
    finally:
        client.close()
        client.connection_pool.disconnect()
    if moved.queued:
        spider.logger.info("{} failed request(s) of earlier runs are queued again", moved.queued)
    if moved.unreadable:
        spider.logger.warning(
            "{} record(s) of failed requests can't be read as requests and stay in the list {}:failed_requests; "
            "`netspy failed` shows them (the first: {})",
            moved.unreadable, scope.ns, moved.why,
        )  # fmt: skip


def _outages(built: Built, spider: AnySpider, settings: Settings) -> Callable[[bool, float], None]:
    log = spider.logger

    def tell(away: bool, seconds: float) -> None:
        if not built.opened:
            return  # a start that fails says so itself, in one line
        if away:
            log.warning("Redis is away; waiting for it (nothing is lost, work goes on when it is back)")
            if spider.load_settings().settings.REDIS_URL == "embedded":
                threading.Thread(
                    target=revive_embedded, args=(spider, settings), name="netspy-revive", daemon=True
                ).start()
        else:
            log.info("Redis is back after {:.1f} s", seconds)
        built.outage(away, seconds)

    return tell


def _waits(log: Logger, settings: Settings, what: str = "") -> None:
    log.info(
        "{} does not answer; waiting for it, at most {:g} s (REDIS_START_TIMEOUT)",
        what or hide_password(settings.REDIS_URL), settings.REDIS_START_TIMEOUT,
    )  # fmt: skip


def revive_embedded(spider: AnySpider, settings: Settings) -> None:
    """Start the embedded server again if it died: it is ours, so nobody else will. A live one is left alone. Blocks."""
    from netspy.redisio.embedded.server import EmbeddedRedis

    try:
        if EmbeddedRedis(settings.EMBEDDED_DATA_DIR).ensure():
            spider.logger.warning("the embedded Redis had died and was started again")
    except NetspyError as error:
        spider.logger.warning("{}", error)


def _pack(request: Request) -> bytes:
    packed: bytes = request.pack()
    return packed


def _memory_full(alerts: Alerts, log: Logger, *, full: bool) -> None:
    if full:
        alerts.raise_alert(
            "redis_full",
            "Redis has no memory left (maxmemory): new requests wait until there is; free memory or raise it",
        )
    else:
        log.info("Redis takes new requests again")


def _unreadable(spider: AnySpider, alerts: Alerts, n: int) -> None:
    for _ in range(n):
        spider.counters.fail("unreadable")
    alerts.raise_alert(
        "unreadable", f"{n} queued request(s) can't be read by this version and went to the failed list"
    )
