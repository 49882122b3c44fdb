"""Steps 5 to 8 of a request's path: fetch it, judge the answer, run the callback, hand over what it yielded."""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from netspy import crash
from netspy.engine.actions import current
from netspy.engine.after_store import AfterStore
from netspy.engine.callbacks import Callbacks
from netspy.engine.complaints import Complaints
from netspy.engine.contract import CountersLike, LoggerLike
from netspy.engine.fetch import Fetcher, Replaced
from netspy.engine.item_buffer import ItemBuffer
from netspy.engine.outbox import Outbox
from netspy.engine.page import Page
from netspy.engine.parts import TaskParts
from netspy.engine.shelf import Shelf
from netspy.engine.threads import CallbackPool
from netspy.engine.yields import Origin, Sorter, Yielded, as_iterator, draw, failure, is_async, user_line
from netspy.errors import (
    CallbackTimeoutError,
    ContentTypeRejectedError,
    DownloadError,
    HttpStatusError,
    InvalidUrlError,
    NetspyError,
    NotRetryError,
    RequestError,
    SerializationError,
    UnknownCallbackError,
    ValidationError,
)
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.observe.faults import MAX_TEXT, what
from netspy.policy.failed_record import MAX_ERROR_CHARS, pack_failed
from netspy.policy.retry import StatusPolicy, may_retry, retry_after_s, retry_delay_s
from netspy.settings import Settings

_START_MARGIN_S = 1.0


class Hooks:
    """The spider's hooks that are really overridden; None = nothing to call."""

    __slots__ = ("exception_request", "failed_request", "validate", "validate_awaited")

    def __init__(self, spider: Any, base: type) -> None:
        def own(name: str) -> Callable[..., Any] | None:
            return getattr(spider, name) if getattr(type(spider), name) is not getattr(base, name) else None

        validate = own("validate")
        awaited = validate is not None and inspect.iscoroutinefunction(validate)
        self.validate = None if awaited else validate
        self.validate_awaited = validate if awaited else None
        self.failed_request = own("failed_request")
        self.exception_request = own("exception_request")


class Crawl:
    """Handles leases one by one, many at a time. Holds no loop of its own: workers call `handle`."""

    def __init__(
        self,
        *,
        name: str,
        settings: Settings,
        fetcher: Fetcher,
        shelf: Shelf,
        pool: CallbackPool,
        callbacks: Callbacks,
        hooks: Hooks,
        sorter: Sorter,
        outbox: Outbox,
        items: ItemBuffer,
        after_store: AfterStore,
        tasks: TaskParts | None,
        held: dict[int, Lease],
        counters: CountersLike,
        logger: LoggerLike,
        shared: bool,
        on_page: Callable[[], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._fetcher = fetcher
        self._shelf = shelf
        self._pool = pool
        self._callbacks = callbacks
        self._hooks = hooks
        self._sorter = sorter
        self._outbox = outbox
        self._items = items
        self._after_store = after_store
        self._tasks = tasks
        self._held = held
        self._counters = counters
        self._log = logger
        self.complaints = Complaints(logger)
        self._shared = shared
        self._on_page = on_page
        self._status = StatusPolicy(settings)
        self._chunk = settings.CALLBACK_CHUNK
        # A part of a short lease only, else no page of it could ever start.
        self._margin_s = min(_START_MARGIN_S, settings.SPIDER_TASK_LEASE / 4)
        self.running: dict[int, Page] = {}
        self._silent: set[str] = set()

    # -- one request -----------------------------------------------------------------------------------------

    async def handle(self, lease: Lease) -> None:
        """Work on one lease until its last step is taken or handed to the item buffer."""
        now = time.monotonic()
        if lease.valid_until < now + self._margin_s:
            # It may be another node's by now; whoever reclaims it will work on it.
            self._held.pop(id(lease), None)
            self._shelf.ended(lease.site)
            self._counters.inc("lease_lost")
            return
        request: Request = lease.payload
        named = lease.task if lease.task[:1] != "!" else ""
        origin = Origin(
            f"{self._name}.{request.callback_name or self._callbacks.default}",
            b"c%d" % lease.seq,
            request.url,
            task=named,
            salt=self._tasks.salt(named) if named and self._tasks is not None else b"",
        )
        page = Page(lease, request, origin, now)
        page.after_store = self._after_store
        page.task = asyncio.current_task()
        current.set(page)
        self.running[id(page)] = page
        try:
            await self._work(page)
        except asyncio.CancelledError:
            if not page.timed_out:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            await self._fail(page, self._timeout_error(page))
        finally:
            del self.running[id(page)]
            page.let_go()

    async def _work(self, page: Page) -> None:
        request = page.request
        if page.lease.task[:1] == "!":
            await self._task_ended(page)
            return
        try:
            page.function = self._callbacks.of(request)
            if request.errback is not None or request.download_midware is not None:
                self._callbacks.check(request)
        except UnknownCallbackError as error:
            self._shelf.ended(page.lease.site)
            await self._fail(page, error, retry=False)
            return
        if request.auto_request:
            if not await self._fetch(page):
                return
        else:
            self._shelf.ended(page.lease.site)
        await self._room(page)
        page.started = time.monotonic()
        kind = self._callbacks.kind(page.function)
        if kind == "plain":
            await self._run_plain(page)
        else:
            await self._run_async(page)

    async def _task_ended(self, page: Page) -> None:
        """The last request of a task: nothing to fetch, only the spider's hook to call."""
        self._shelf.ended(page.lease.site)
        ended = self._tasks.ended if self._tasks is not None else None
        failures = page.lease.task[1:]
        if ended is None or not failures.isdigit():
            await self._fail(
                page, UnknownCallbackError(f"{self._name} has no tasks, so none can end"), retry=False
            )
            return
        page.origin.label = f"{self._name}.{'task_failed' if int(failures) else 'task_done'}"
        request = page.request
        told = request.cb_kwargs or {}
        request.cb_kwargs = {
            "task": told.get("task"), "failed": int(failures), "token": told.get("token", ""),
        }  # fmt: skip
        page.function = ended
        if self._callbacks.kind(ended) == "plain":
            await self._run_plain(page)
        else:
            await self._run_async(page)

    async def _fetch(self, page: Page) -> bool:
        """Download and judge. True when the callback is to run."""
        request = page.request
        site = page.lease.site
        asked_s: float | None = None
        try:
            try:
                if crash.armed:
                    crash.reached("in_fetch")
                response = await self._fetcher.fetch(request)
            except Replaced as replaced:
                await self._replace(page, replaced.request)
                return False
            page.response = response
            verdict = self._status.judge(response.status_code)
            if verdict == "retry":
                asked_s = retry_after_s(
                    response.headers.get("retry-after"),
                    now=datetime.now(UTC),
                    maximum=self._settings.RETRY_AFTER_MAX,
                )
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._fetch_failed(page, error)
            return False
        finally:
            self._shelf.ended(site, asked_s=asked_s)
        self._counters.inc("pages")
        self._counters.inc("bytes", len(response.content))
        self._on_page()
        if verdict == "accept":
            self._shelf.judged(site, failed=False)
            return True
        await self._fail(
            page,
            HttpStatusError(response.status_code, response.url),
            retry=verdict == "retry",
            asked_s=asked_s,
            site_health=response.status_code >= 500 or response.status_code == 429,
        )
        return False

    async def _fetch_failed(self, page: Page, error: Exception) -> None:
        if isinstance(error, ContentTypeRejectedError):
            self._counters.inc("content_type_dropped")
            self.complaints.info("content type", f"dropped: {error}")
            page.finish(lambda: self._outbox.settle(page.lease))
        elif isinstance(error, NotRetryError):
            self._drop(page, str(error) or "NotRetryError")
        elif isinstance(error, DownloadError):
            await self._fail(
                page,
                error,
                retry=error.retryable,
                site_health=error.reason not in {"too_large", "redirects", "url", "decode", "blocked"},
            )
        elif isinstance(error, InvalidUrlError) or type(error) is RequestError:
            await self._fail(page, error, retry=False)  # what the request asks for can't be sent
        else:
            await self._fail(page, error)

    async def _replace(self, page: Page, request: Request) -> None:
        """A middleware put another request in the place of this one: it is tried within the same retry budget."""
        if not may_retry(page.request.retry_times, self._settings):
            await self._fail(
                page, NotRetryError("a middleware replaced the request again and again"), retry=False
            )
            return
        request.retry_times = page.request.retry_times + 1
        self._counters.inc("retry")
        self._outbox.delay(page.lease, 0.0, self._payload(request))

    def _drop(self, page: Page, why: str) -> None:
        self._counters.inc("dropped")
        self.complaints.info("dropped", f"dropped {page.request.url}: {why[:MAX_ERROR_CHARS]}")
        if self._tasks is not None and not page.told:
            self._look_for_report(page, f"{page.request.url} was dropped: {why[:200]}")
        page.finish(lambda: self._outbox.settle(page.lease, page.children, page.history))

    # -- callbacks -------------------------------------------------------------------------------------------

    def _draw_first(self, page: Page) -> Yielded:
        """On a worker thread: validate, call, draw the first values."""
        out = Yielded()
        current.set(page)
        try:
            if self._hooks.validate is not None and page.response is not None:
                out.verdict = self._hooks.validate(page.request, page.response)
                if out.verdict is False:
                    return out
            assert page.function is not None  # noqa: S101 - set by _work
            result = page.function(page.request, page.response, **(page.request.cb_kwargs or {}))
            if is_async(result):
                out.later = result
                return out
            page.iterator = as_iterator(result)
        except (Exception, SystemExit) as error:
            out.error = failure(error)
            return out
        return self._draw(page, out) if page.iterator is not None else out

    def _draw(self, page: Page, out: Yielded | None = None) -> Yielded:
        """On a worker thread: draw up to a chunk of values."""
        if out is None:
            out = Yielded()
        origin = page.origin
        origin.generator = page.iterator
        current.set(page)
        sort = self._sorter.sort
        try:
            out.more = draw(page.iterator, lambda value: sort(out, value, origin), out.__len__, self._chunk)
        except (Exception, SystemExit) as error:
            out.error = failure(error)
        return out

    async def _run_plain(self, page: Page) -> None:
        out = Yielded()
        if self._hooks.validate_awaited is not None and not await self._validated(page, out):
            await self._callback_ended(page, out)
            return
        page.job = self._pool.call(lambda: self._draw_first(page))
        while True:
            try:
                out = await page.job
            except CallbackTimeoutError as error:
                await self._fail(page, error)
                return
            if out.later is not None:
                await self._drain(page, out, out.later)
                break
            if out.verdict is False or out.error is not None or not out.more:
                break
            await self._accept(page, out)
            page.job = self._pool.call(lambda: self._draw(page))
        await self._callback_ended(page, out)

    async def _validated(self, page: Page, out: Yielded) -> bool:
        """Ask `validate` on the loop; False when the callback is not to run (`out` tells why)."""
        validate = self._hooks.validate or self._hooks.validate_awaited
        if validate is None or page.response is None:
            return True
        try:
            out.verdict = await self._hook(validate, page.request, page.response)
        except (Exception, SystemExit) as error:
            out.error = failure(error)
            return False
        return out.verdict is not False

    async def _run_async(self, page: Page) -> None:
        out = Yielded()
        assert page.function is not None  # noqa: S101 - set by _work
        if await self._validated(page, out):
            try:
                result = page.function(page.request, page.response, **(page.request.cb_kwargs or {}))
            except Exception as error:
                out.error = error
            else:
                await self._drain(page, out, result)
        await self._callback_ended(page, out)

    async def _drain(self, page: Page, out: Yielded, result: Any) -> None:
        """On the loop: gather what an awaitable returns or an async generator yields."""
        origin = page.origin
        try:
            if hasattr(result, "__aiter__"):
                origin.generator = result
                async for value in result:
                    self._sorter.sort(out, value, origin)
                    if len(out) >= self._chunk:
                        await self._accept(page, out)
                        out.children, out.rows = [], []
            else:
                for one in as_iterator(await result) or ():
                    self._sorter.sort(out, one, origin)
        except (Exception, SystemExit) as error:
            out.error = failure(error)

    async def _hook(self, function: Callable[..., Any], *args: Any) -> Any:
        """A spider's hook outside a worker thread: awaited when async, else on a thread."""
        if self._callbacks.kind(function) == "coroutine":
            return await function(*args)
        return await self._pool.call(lambda: function(*args))

    async def _callback_ended(self, page: Page, out: Yielded) -> None:
        error = out.error
        if error is None:
            if out.verdict is False:
                self._drop(page, "validate returned False")
                return
            if page.lease.task[:1] == "!":
                if self._tasks is None or not self._tasks.reported:  # a report counts where it is written
                    self._counters.inc("tasks_done" if page.lease.task == "!0" else "tasks_failed")
            else:
                self._counters.inc("request_ok")
                if self._tasks is not None and not page.told and not out.children:
                    self._look_for_report(page, page.request.url)
            if not out.rows and not page.pending and not page.put_early and not page.actions:
                # The usual case: children and ack in one step of the store.
                if crash.armed:
                    crash.reached("after_callback")
                self._outbox.settle(page.lease, out.children)
                return
            await self._accept(page, out)
            page.finish(lambda: self._outbox.settle(page.lease, (), page.history))
            return
        await self._accept(page, out)
        # The page comes again, and asks for these again when it succeeds.
        page.actions = [action for action in page.actions if not action.on_success]
        if isinstance(error, NotRetryError):
            self._drop(page, str(error) or "NotRetryError")
        elif isinstance(error, ValidationError):
            await self._fail(page, error)
        else:
            self._counters.inc("parse_error")
            place = f"{page.origin.label} ({user_line(error)})"
            self.complaints.error(place, f"{place} raised {what(error)}, while handling {page.request.url}")
            await self._fail(page, error, logged=True)

    def _look_for_report(self, page: Page, how: str) -> None:
        """Whether a task's last page seems to have ended without a word about the task; said once per callback."""
        assert self._tasks is not None  # noqa: S101 - the caller checked
        if not self._tasks.reported or page.put_early or not page.origin.task:
            return
        label = page.origin.label
        if label not in self._silent:
            self._silent.add(label)
            self._log.warning(
                "{} ended for a task without update_task and without further requests ({}). Unless another page of the "
                "task reports, it stays in process and is crawled again after BATCH_LOST_TASK_STALE",
                label, how,
            )  # fmt: skip

    async def _accept(self, page: Page, out: Yielded) -> None:
        """Hand over what was yielded so far: items to the buffer, children to the store, before the parent's ack."""
        if out.rows:
            self._items.add(page, out.rows)
        if out.children:
            page.put_early = True
            if crash.armed:
                crash.reached("after_callback")
            history = await self._outbox.put(out.children)
            # Of several puts the first one's history counts: the ack must not outlive any of them.
            page.history = page.history or history
            if crash.armed:
                crash.reached("after_children")
        await self._room(page)

    async def _room(self, page: Page) -> None:
        """Wait for room in the buffers. It may take as long as a store is away, and is no time of the callback's own."""
        if self._items.full or self._outbox.full:
            page.started = math.inf
            await self._items.room()
            await self._outbox.room()
            page.started = time.monotonic()

    # -- failure ---------------------------------------------------------------------------------------------

    def _payload(self, request: Request) -> Any:
        return request.pack() if self._shared else request

    async def _fail(
        self,
        page: Page,
        error: Exception,
        *,
        retry: bool = True,
        asked_s: float | None = None,
        site_health: bool = False,
        logged: bool = False,
    ) -> None:
        """Another try, or the end of this request."""
        request = page.request
        if retry and may_retry(request.retry_times, self._settings):
            if self._hooks.exception_request is not None:
                await self._run_hook(
                    page, "exception_request", self._hooks.exception_request, request, page.response, error
                )
            request.retry_times += 1
            wait_s = retry_delay_s(
                request.retry_times, self._settings, jitter=random.random(), asked_s=asked_s
            )
            self._counters.inc("retry")
            self._log.debug(
                "retry {} of {} in {:.1f} s: {}", request.retry_times, request.url, wait_s, what(error)
            )
            try:
                payload = self._payload(request)
            except SerializationError as problem:
                await self._give_up(page, problem)
                return
            page.finish(lambda: self._outbox.delay(page.lease, wait_s, payload))
            return
        if site_health and self._shelf.judged(page.lease.site, failed=True):
            self.complaints.warning(
                "cooling",
                f"{request.host} failed {self._settings.CIRCUIT_FAILURE_THRESHOLD} times in a row; "
                f"no request goes there for {self._settings.CIRCUIT_COOLDOWN:g} s",
            )
        if not logged:
            tries = request.retry_times + 1
            text = told(error)
            where = "" if request.url in text else f"{request.url}: "
            self.complaints.warning(
                reason_of(error), f"failed after {tries} {'try' if tries == 1 else 'tries'}: {where}{text}"
            )
        await self._give_up(page, error)

    async def _give_up(self, page: Page, error: Exception) -> None:
        request = page.request
        self._counters.fail(reason_of(error))
        if request.errback is not None:
            try:
                errback = (
                    self._callbacks.named(request.errback)
                    if isinstance(request.errback, str)
                    else request.errback
                )
            except UnknownCallbackError as problem:
                if not isinstance(error, UnknownCallbackError):
                    self.complaints.error("errback", str(problem))
            else:
                await self._run_hook(page, "errback", errback, request, page.response, error)
        if self._hooks.failed_request is not None:
            await self._run_hook(page, "failed_request", self._hooks.failed_request, request, page.response)
        record = failed_record(request, error, priority=page.lease.priority, site=page.lease.site)
        page.finish(lambda: self._outbox.give_up(page.lease, record))
        self._on_page()

    def broke(self, lease: Lease, error: Exception) -> None:
        """Give up a request whose handling failed by an error of our own."""
        url = getattr(lease.payload, "url", "?")
        self.complaints.error("internal error", f"internal error while handling {url}: {what(error)}")
        self._counters.inc("callback_error")
        self._counters.fail("internal error")
        try:
            record = failed_record(lease.payload, error, priority=lease.priority, site=lease.site)
        except Exception as problem:
            record = pack_failed(
                None,
                reason="internal error",
                error=f"{what(error)}; {what(problem)}",
                attempts=lease.deliveries,
                time=time.time(),
                priority=lease.priority,
                site=lease.site,
                raw=repr(lease.payload)[:MAX_ERROR_CHARS],
            )
        self._outbox.give_up(lease, record)

    async def _run_hook(self, page: Page, name: str, function: Callable[..., Any], *args: Any) -> None:
        """A hook that may yield like a callback; its own error is reported and costs only itself."""
        origin = Origin(
            f"{self._name}.{getattr(function, '__name__', name)}",
            b"h%d.%s.%d" % (page.lease.seq, name.encode(), page.request.retry_times),
            page.request.url,
            task=page.origin.task,
            salt=page.origin.salt,
        )
        out = Yielded()

        def plain() -> Any:
            current.set(page)
            result = function(*args)
            if is_async(result):
                return result
            origin.generator = iterator = as_iterator(result)
            for value in iterator or ():
                self._sorter.sort(out, value, origin)
            return None

        try:
            kind = self._callbacks.kind(function)
            later = await self._pool.call(plain) if kind == "plain" else function(*args)
            if hasattr(later, "__aiter__"):
                async for value in later:
                    self._sorter.sort(out, value, origin)
            elif later is not None:
                for value in as_iterator(await later) or ():
                    self._sorter.sort(out, value, origin)
        except (Exception, SystemExit) as caught:
            error = failure(caught)
            self._counters.inc("callback_error")
            place = f"{origin.label} ({user_line(error)})"
            self.complaints.error(place, f"{place} raised {what(error)}")
        await self._accept(page, out)

    # -- time limit ------------------------------------------------------------------------------------------

    def _timeout_error(self, page: Page) -> CallbackTimeoutError:
        return CallbackTimeoutError(
            f"{page.origin.label} ran longer than SPIDER_TASK_MAX_SECONDS="
            f"{self._settings.SPIDER_TASK_MAX_SECONDS:g} s for {page.request.url}"
        )

    def end_overdue(self) -> None:
        """Give up waiting for callbacks that run past SPIDER_TASK_MAX_SECONDS, so that a crawl always ends."""
        limit = time.monotonic() - self._settings.SPIDER_TASK_MAX_SECONDS
        for page in list(self.running.values()):
            if page.started > limit or page.timed_out:
                continue
            if page.job is not None and not page.job.done() and not self._pool.runs(page.job):
                page.started = time.monotonic()  # it has waited for a thread; its own time begins now
                continue
            page.timed_out = True
            error = self._timeout_error(page)
            self.complaints.error("overdue", f"{error}; its thread may still hang")
            if page.job is not None and not page.job.done():
                self._pool.abandon(page.job, error)
            elif page.task is not None:
                page.task.cancel()


def told(error: Exception) -> str:
    """What an error says; its type where it isn't one of ours, whose messages speak for themselves."""
    text = what(error, 2 * MAX_TEXT)
    return text.partition(": ")[2] or text if isinstance(error, NetspyError) else text


def reason_of(error: Exception) -> str:
    """A short label to count failures by."""
    if isinstance(error, HttpStatusError):
        return f"HTTP {error.status_code}"
    if isinstance(error, DownloadError):
        return error.reason
    return type(error).__name__


def failed_record(request: Request, error: Exception, *, priority: float, site: str) -> bytes:
    """The JSON object that goes to the failed list: the request, why, how often it was tried and when."""
    payload: bytes | None = None
    raw = None
    try:
        payload = request.pack()
    except SerializationError as problem:
        raw = f"{request.method} {request.url} ({problem})"
    return pack_failed(
        payload,
        reason=reason_of(error),
        error=what(error, MAX_ERROR_CHARS),
        attempts=request.retry_times + 1,
        time=time.time(),
        priority=priority,
        site=site,
        raw=raw,
    )
