"""The parts inside a node, put together: threads, shelf, fetcher, sorter, item buffer, outbox, crawl."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from netspy.engine.after_store import AfterStore
from netspy.engine.callbacks import Callbacks, kind_of
from netspy.engine.complaints import Complaints
from netspy.engine.crawl import Crawl
from netspy.engine.failures import Failures
from netspy.engine.fetch import Fetcher, SubDownloads
from netspy.engine.hooks import Hooks, own_hook
from netspy.engine.item_buffer import ItemBuffer
from netspy.engine.outbox import Outbox
from netspy.engine.parts import Parts
from netspy.engine.shelf import Shelf
from netspy.engine.threads import CallbackPool
from netspy.engine.user_code import UserCode
from netspy.engine.yields import Sorter
from netspy.messages import sub_download
from netspy.messages.entry import Lease
from netspy.messages.response import Response
from netspy.observe.faults import user_line, what
from netspy.policy.politeness import Politeness
from netspy.raised import failure

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
        self.pool = CallbackPool(maximum=threads)
        self.downloader = parts.make_downloader()
        self.shelf = Shelf(Politeness(settings), clock=time.monotonic)
        self.complaints = Complaints(parts.logger)
        callbacks = Callbacks(parts.spider, framework=parts.base)
        self.fetcher = Fetcher(
            self.downloader,
            middlewares=parts.middlewares,
            download_midware=own_hook(parts.spider, parts.base, "download_midware"),
            named_midware=callbacks.named,
            pool=self.pool,
            selector_engine=settings.SELECTOR_ENGINE,
        )
        active.real = SubDownloads(self.fetcher, self.shelf, asyncio.get_running_loop(), self._count_page)
        self.sorter = self._make_sorter(callbacks)
        self.items = self._make_items(on_progress)
        self.outbox = self._make_outbox(held, on_progress)
        self.after_store = self._make_after_store(on_progress)
        self.failures, self.crawl = self._make_crawl(callbacks, held, on_page)

    def _make_sorter(self, callbacks: Callbacks) -> Sorter:
        parts = self._parts
        return Sorter(
            parts.spider,
            callbacks,
            shared=parts.shared,
            default_table=parts.settings.ITEM_DEFAULT_TABLE,
            filter_items=parts.item_filter is not None,
            validate_items=parts.settings.ITEM_VALIDATE,
            ignore=parts.ignore,
            counters=parts.counters,
            logger=parts.logger,
        )

    def _make_items(self, on_progress: Callable[[], None]) -> ItemBuffer:
        parts, settings = self._parts, self._parts.settings
        return ItemBuffer(
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

    def _make_outbox(self, held: dict[int, Lease], on_progress: Callable[[], None]) -> Outbox:
        parts = self._parts
        return Outbox(
            parts.frontier,
            counters=parts.counters,
            logger=parts.logger,
            held=held,
            bound=parts.settings.REQUEST_BUFFER_MAX_CACHED,
            linger_s=_LINGER_S if parts.shared else 0.0,
            on_progress=on_progress,
        )

    def _make_after_store(self, on_progress: Callable[[], None]) -> AfterStore:
        parts = self._parts
        doers = {"add": parts.tasks.source.add, **parts.tasks.doers} if parts.tasks is not None else {}
        return AfterStore(doers, logger=parts.logger, alert=parts.alert, on_progress=on_progress)

    def _make_crawl(
        self, callbacks: Callbacks, held: dict[int, Lease], on_page: Callable[[], None]
    ) -> tuple[Failures, Crawl]:
        parts = self._parts
        hooks = Hooks(parts.spider, parts.base)
        user_code = UserCode(
            name=parts.spider.name,
            chunk=parts.settings.CALLBACK_CHUNK,
            pool=self.pool,
            callbacks=callbacks,
            hooks=hooks,
            sorter=self.sorter,
            outbox=self.outbox,
            items=self.items,
            counters=parts.counters,
            complaints=self.complaints,
        )
        failures = Failures(
            settings=parts.settings,
            callbacks=callbacks,
            hooks=hooks,
            user_code=user_code,
            shelf=self.shelf,
            outbox=self.outbox,
            counters=parts.counters,
            logger=parts.logger,
            complaints=self.complaints,
            shared=parts.shared,
            on_end=on_page,
        )
        crawl = Crawl(
            name=parts.spider.name,
            settings=parts.settings,
            fetcher=self.fetcher,
            shelf=self.shelf,
            pool=self.pool,
            callbacks=callbacks,
            user_code=user_code,
            failures=failures,
            outbox=self.outbox,
            after_store=self.after_store,
            tasks=parts.tasks,
            held=held,
            counters=parts.counters,
            logger=parts.logger,
            complaints=self.complaints,
            on_page=on_page,
        )
        return failures, crawl

    def flush_complaints(self, *, everything: bool = False) -> None:
        """See `Complaints.flush`."""
        self.complaints.flush(everything=everything)
        self.sorter.complaints.flush(everything=everything)

    async def call_hook(self, name: str) -> None:
        """Call a hook without arguments; its error is reported and counted."""
        hook = own_hook(self._parts.spider, self._parts.base, name)
        if hook is None:
            return
        try:
            if kind_of(hook) == "coroutine":
                await hook()
            else:
                await self.pool.call(hook)
        except BaseException as caught:
            error = failure(caught)
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
