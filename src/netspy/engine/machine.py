"""The parts inside a node, put together: threads, shelf, fetcher, sorter, item buffer, outbox, crawl."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from netspy.engine.after_store import AfterStore
from netspy.engine.callbacks import Callbacks, kind_of
from netspy.engine.crawl import Crawl, Hooks
from netspy.engine.fetch import Fetcher, SubDownloads
from netspy.engine.item_buffer import ItemBuffer
from netspy.engine.outbox import Outbox
from netspy.engine.parts import Parts
from netspy.engine.shelf import Shelf
from netspy.engine.threads import CallbackPool
from netspy.engine.yields import Sorter, user_line
from netspy.messages import sub_download
from netspy.messages.entry import Lease
from netspy.messages.response import Response
from netspy.observe.faults import what
from netspy.policy.politeness import Politeness

_LINGER_S = 0.004


class Machine:
    """Made on the event loop. Nothing runs until `outbox.start()` and `items.start()`."""

    def __init__(
        self,
        parts: Parts,
        held: dict[int, Lease],
        *,
        on_progress: Callable[[], None],
        on_page: Callable[[], None],
    ) -> None:
        self._parts = parts
        settings = parts.settings
        threads = (
            1 if settings.DEBUG else settings.CALLBACK_MAX_THREADS or min(settings.SPIDER_THREAD_COUNT, 64)
        )
        active = _ActiveDownloads()
        sub_download.active.set(active)
        pool = CallbackPool(maximum=threads)
        downloader = parts.make_downloader()
        callbacks = Callbacks(parts.spider, framework=parts.base)
        shelf = Shelf(Politeness(settings), clock=time.monotonic)
        hooks = Hooks(parts.spider, parts.base)
        fetcher = Fetcher(
            downloader,
            middlewares=parts.middlewares,
            download_midware=self.own_hook("download_midware"),
            named_midware=callbacks.named,
            pool=pool,
            selector_engine=settings.SELECTOR_ENGINE,
        )
        active.real = SubDownloads(fetcher, shelf, asyncio.get_running_loop(), self._count_page)
        sorter = Sorter(
            parts.spider,
            callbacks,
            shared=parts.shared,
            default_table=settings.ITEM_DEFAULT_TABLE,
            filter_items=parts.item_filter is not None,
            validate_items=settings.ITEM_VALIDATE,
            ignore=parts.ignore,
            counters=parts.counters,
            logger=parts.logger,
        )
        items = ItemBuffer(
            parts.writer,
            parts.item_filter,
            batch_size=settings.ITEM_BATCH_SIZE,
            interval_s=settings.BUFFER_FLUSH_INTERVAL,
            bound=settings.ITEM_MAX_CACHED_COUNT,
            counters=parts.counters,
            logger=parts.logger,
            alert=parts.alert,
            on_stored=on_progress,
        )
        outbox = Outbox(
            parts.frontier,
            counters=parts.counters,
            logger=parts.logger,
            held=held,
            bound=settings.REQUEST_BUFFER_MAX_CACHED,
            linger_s=_LINGER_S if parts.shared else 0.0,
            on_progress=on_progress,
        )
        tasks = parts.tasks
        doers = {"add": tasks.source.add, **tasks.doers} if tasks is not None else {}
        after_store = AfterStore(doers, logger=parts.logger, alert=parts.alert, on_progress=on_progress)
        crawl = Crawl(
            name=parts.spider.name,
            settings=settings,
            fetcher=fetcher,
            shelf=shelf,
            pool=pool,
            callbacks=callbacks,
            hooks=hooks,
            sorter=sorter,
            outbox=outbox,
            items=items,
            after_store=after_store,
            tasks=tasks,
            held=held,
            counters=parts.counters,
            logger=parts.logger,
            shared=parts.shared,
            on_page=on_page,
        )
        self.pool = pool
        self.downloader = downloader
        self.shelf = shelf
        self.fetcher = fetcher
        self.sorter = sorter
        self.items = items
        self.outbox = outbox
        self.after_store = after_store
        self.crawl = crawl

    def own_hook(self, name: str) -> Callable[..., Any] | None:
        """The spider's hook of that name; None when it is only the base class's."""
        spider, base = self._parts.spider, self._parts.base
        return getattr(spider, name) if getattr(type(spider), name) is not getattr(base, name) else None

    async def call_hook(self, name: str) -> None:
        """Call a hook without arguments; its error is reported and counted."""
        hook = self.own_hook(name)
        if hook is None:
            return
        try:
            if kind_of(hook) == "coroutine":
                await hook()
            else:
                await self.pool.call(hook)
        except Exception as error:
            self._parts.counters.inc("callback_error")
            self._parts.logger.error(
                "{}.{} ({}) raised {}", self._parts.spider.name, name, user_line(error), what(error)
            )

    def _count_page(self, response: Response) -> None:
        self._parts.counters.inc("pages")
        self._parts.counters.inc("bytes", len(response.content))


class _ActiveDownloads:
    """Stands in for the node's SubDownloads until they are made: threads copy the context at their start."""

    real: SubDownloads | None = None

    def blocking(self, request: Any) -> Response:
        assert self.real is not None  # noqa: S101 - set before the first callback runs
        return self.real.blocking(request)

    async def fetching(self, request: Any) -> Response:
        assert self.real is not None  # noqa: S101 - set before the first callback runs
        return await self.real.fetching(request)
