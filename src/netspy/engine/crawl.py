"""Steps 5 to 8 of a request's path: fetch it, judge the answer, run the callback, hand over what it yielded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from netspy import crash
from netspy.engine.actions import current
from netspy.engine.after_store import AfterStore
from netspy.engine.callbacks import Callbacks
from netspy.engine.complaints import Complaints
from netspy.engine.contract import CountersLike, LoggerLike
from netspy.engine.failures import Failures
from netspy.engine.fetch import Fetcher, Replaced
from netspy.engine.outbox import Outbox
from netspy.engine.page import Page
from netspy.engine.parts import TaskParts
from netspy.engine.shelf import Shelf
from netspy.engine.threads import CallbackPool
from netspy.engine.user_code import UserCode
from netspy.engine.yields import Origin, Yielded
from netspy.errors import (
    CallbackTimeoutError,
    ContentTypeRejectedError,
    DownloadError,
    HttpStatusError,
    InvalidUrlError,
    NotRetryError,
    RequestError,
    UnknownCallbackError,
    ValidationError,
)
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.observe.faults import user_line, what
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.policy.retry import StatusPolicy, retry_after_s
from netspy.raised import failure
from netspy.settings import Settings

_START_MARGIN_S = 1.0


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
        user_code: UserCode,
        failures: Failures,
        outbox: Outbox,
        after_store: AfterStore,
        tasks: TaskParts | None,
        held: dict[int, Lease],
        counters: CountersLike,
        logger: LoggerLike,
        complaints: Complaints,
        on_page: Callable[[], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._fetcher = fetcher
        self._shelf = shelf
        self._pool = pool
        self._callbacks = callbacks
        self._user_code = user_code
        self._failures = failures
        self._outbox = outbox
        self._after_store = after_store
        self._tasks = tasks
        self._held = held
        self._counters = counters
        self._log = logger
        self._complaints = complaints
        self._on_page = on_page
        self._status = StatusPolicy(settings)
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
        task = page.task = asyncio.current_task()
        current.set(page)
        self.running[id(page)] = page
        try:
            await self._work(page)
        except asyncio.CancelledError:
            if not page.timed_out:
                raise
            if task is not None:
                task.uncancel()
            await self._failures.fail(page, self._timeout_error(page))
        finally:
            if page.timed_out and task is not None:
                task.uncancel()  # also when the user's code has swallowed it: the next page is not being cancelled
            del self.running[id(page)]
            page.let_go()

    async def _work(self, page: Page) -> None:
        if page.lease.task[:1] == "!":
            if not await self._prepare_end(page):
                return
        else:
            request = page.request
            try:
                page.function = self._callbacks.of(request)
                if request.errback is not None or request.download_midware is not None:
                    self._callbacks.check(request)
            except UnknownCallbackError as error:
                self._shelf.ended(page.lease.site)
                await self._failures.fail(page, error, retry=False)
                return
            if request.auto_request:
                if not await self._fetch(page):
                    return
            else:
                self._shelf.ended(page.lease.site)
            await self._user_code.room(page)
            page.started = time.monotonic()
        assert page.function is not None  # noqa: S101 - both ways here have set it
        if self._callbacks.kind(page.function) == "plain":
            try:
                out = await self._user_code.run_plain(page)
            except CallbackTimeoutError as error:
                await self._failures.fail(page, error)
                return
        else:
            out = await self._user_code.run_async(page)
        await self._callback_ended(page, out)

    async def _prepare_end(self, page: Page) -> bool:
        """The last request of a task: nothing to fetch, only the spider's hook to call. False when there is none."""
        self._shelf.ended(page.lease.site)
        ended = self._tasks.ended if self._tasks is not None else None
        failures = page.lease.task[1:]
        if ended is None or not failures.isdigit():
            problem = UnknownCallbackError(f"{self._name} has no tasks, so none can end")
            await self._failures.fail(page, problem, retry=False)
            return False
        page.origin.label = f"{self._name}.{'task_failed' if int(failures) else 'task_done'}"
        request = page.request
        told = request.cb_kwargs or {}
        request.cb_kwargs = {
            "task": told.get("task"), "failed": int(failures), "token": told.get("token", ""),
        }  # fmt: skip
        page.function = ended
        return True

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
                await self._failures.replace(page, replaced.request)
                return False
            page.response = response
            verdict = self._status.judge(response.status_code)
            if verdict == "retry":
                asked_s = retry_after_s(
                    response.headers.get("retry-after"),
                    now=datetime.now(UTC),
                    maximum=self._settings.RETRY_AFTER_MAX,
                )
        except BaseException as caught:
            await self._fetch_failed(page, failure(caught))
            return False
        finally:
            self._shelf.ended(site, asked_s=asked_s)
        self._counters.inc("pages")
        self._counters.inc("bytes", len(response.content))
        self._on_page()
        if verdict == "accept":
            self._shelf.judged(site, failed=False)
            return True
        await self._failures.fail(
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
            self._complaints.info("content type", f"dropped: {error}")
            page.finish(lambda: self._outbox.settle(page.lease))
        elif isinstance(error, NotRetryError):
            self._drop(page, str(error) or "NotRetryError")
        elif isinstance(error, DownloadError):
            await self._failures.fail(
                page,
                error,
                retry=error.retryable,
                site_health=error.reason not in {"too_large", "redirects", "url", "decode", "blocked"},
            )
        elif isinstance(error, InvalidUrlError) or type(error) is RequestError:
            await self._failures.fail(page, error, retry=False)  # what the request asks for can't be sent
        else:
            await self._failures.fail(page, error)

    def _drop(self, page: Page, why: str) -> None:
        self._counters.inc("dropped")
        self._complaints.info("dropped", f"dropped {page.request.url}: {why[:MAX_ERROR_CHARS]}")
        if self._tasks is not None and not page.told:
            self._look_for_report(page, f"{page.request.url} was dropped: {why[:200]}")
        page.finish(lambda: self._outbox.settle(page.lease, (), page.history))

    # -- how it ended ----------------------------------------------------------------------------------------

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
            await self._user_code.hand_over(page, out)
            page.finish(lambda: self._outbox.settle(page.lease, (), page.history))
            return
        await self._user_code.hand_over(page, out)
        # The page comes again, and asks for these again when it succeeds.
        page.actions = [action for action in page.actions if not action.on_success]
        if isinstance(error, NotRetryError):
            self._drop(page, str(error) or "NotRetryError")
        elif isinstance(error, ValidationError):
            await self._failures.fail(page, error)
        else:
            self._counters.inc("parse_error")
            place = f"{page.origin.label} ({user_line(error)})"
            self._complaints.error(place, f"{place} raised {what(error)}, while handling {page.request.url}")
            await self._failures.fail(page, error, logged=True)

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
            self._complaints.error("overdue", f"{error}; its thread may still hang")
            if page.job is not None and not page.job.done():
                self._pool.abandon(page.job, error)
            elif page.task is not None:
                page.task.cancel()
