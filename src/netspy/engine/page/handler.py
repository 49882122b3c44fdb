"""Steps 5 to 8 of a request's path: fetch it, judge the answer, run the callback, hand over what it yielded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from netspy import crash
from netspy.engine.control import Control
from netspy.engine.env import Env
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.outbox import Outbox
from netspy.engine.leases.site_slots import SiteSlots
from netspy.engine.page.actions import current
from netspy.engine.page.fetch import Fetcher, Replaced
from netspy.engine.page.outcome import PageOutcome
from netspy.engine.page.output import CallbackOutput, YieldSite
from netspy.engine.page.page import Page
from netspy.engine.page.task_pages import TaskPages
from netspy.engine.page.user_code import UserCode
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
    message_of,
)
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.observe.faults import describe_error, user_line
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.policy.lease import LeaseTimes
from netspy.policy.politeness import TOO_FAST, tells_of_the_site
from netspy.policy.retry import StatusPolicy, retry_after_s
from netspy.raised import apart, failure


class PageHandler:
    """Handles leases one by one, many at a time. Holds no loop of its own: workers call `handle`."""

    def __init__(
        self,
        env: Env,
        control: Control,
        held: HeldLeases,
        slots: SiteSlots,
        fetcher: Fetcher,
        user_code: UserCode,
        outcome: PageOutcome,
        outbox: Outbox,
        tasks: TaskPages | None = None,
    ) -> None:
        """`tasks`: None where the spider has none."""
        self._name = env.name
        self._settings = env.settings
        self._clock = env.clock
        self._counters = env.counters
        self._throttled = env.throttled
        self._control = control
        self._held = held
        self._slots = slots
        self._fetcher = fetcher
        self._user_code = user_code
        self._pool = user_code.pool
        self._callbacks = user_code.callbacks
        self._outcome = outcome
        self._outbox = outbox
        self._tasks = tasks
        self._effects = tasks.effects if tasks is not None else None
        self._status = StatusPolicy(env.settings)
        self._margin_s = LeaseTimes.of(env.settings).start_margin_s
        self.running: dict[int, Page] = {}

    # -- one request -----------------------------------------------------------------------------------------

    async def handle(self, lease: Lease) -> None:
        """Work on one lease until its last step is taken or handed to the item buffer."""
        now = self._clock()
        if lease.valid_until < now + self._margin_s:
            # It may be another node's by now; whoever reclaims it will work on it.
            self._held.expired(lease)
            self._slots.on_ended(lease.site)
            return
        request: Request = lease.payload
        named = "" if lease.is_task_end else lease.task
        origin = YieldSite(
            lambda: f"{self._name}.{request.callback_name or self._callbacks.default}",
            b"c%d" % lease.seq,
            request.url,
            task=named,
            salt=self._tasks.salt(named) if named and self._tasks is not None else b"",
        )
        page = Page(lease, request, origin, now)
        page.effects = self._effects
        task = page.worker = asyncio.current_task()
        current.set(page)
        self.running[id(page)] = page
        try:
            await self._work(page)
        except asyncio.CancelledError:
            if not page.timed_out:
                raise
            if task is not None:
                task.uncancel()
            await self._outcome.fail(page, self._timeout_error(page))
        finally:
            if page.timed_out and task is not None:
                task.uncancel()  # also when the user's code has swallowed it: the next page is not being cancelled
            del self.running[id(page)]
            page.let_go()

    async def _work(self, page: Page) -> None:
        if page.lease.is_task_end:
            if not await self._prepare_end(page):
                return
        else:
            request = page.request
            try:
                page.function = self._callbacks.of(request)
                if request.errback is not None or request.download_midware is not None:
                    self._callbacks.check(request)
            except UnknownCallbackError as error:
                self._slots.on_ended(page.lease.site)
                await self._outcome.fail(page, error, retry=False)
                return
            if request.auto_request:
                if not await self._fetch(page):
                    return
            else:
                self._slots.on_ended(page.lease.site)
            await self._user_code.room(page)
            page.started = self._clock()
        assert page.function is not None  # noqa: S101 - both ways here have set it
        if self._callbacks.kind(page.function) == "plain":
            try:
                out = await self._user_code.run_plain(page)
            except CallbackTimeoutError as error:
                await self._outcome.fail(page, error)
                return
        else:
            out = await apart(self._user_code.run_async(page))
        await self._callback_ended(page, out)

    async def _prepare_end(self, page: Page) -> bool:
        """The last request of a task: nothing to fetch, only the spider's hook to call. False when there is none."""
        self._slots.on_ended(page.lease.site)
        try:
            if self._tasks is None:
                raise UnknownCallbackError(f"{self._name} has no tasks, so none can end")
            self._tasks.prepare_end(page)
        except UnknownCallbackError as problem:
            await self._outcome.fail(page, problem, retry=False)
            return False
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
                await self._outcome.replace(page, replaced.request)
                return False
            page.response = response
            verdict = self._status.judge(response.status_code)
            if verdict != "accept" and response.status_code in TOO_FAST:
                self._slots.on_too_fast(site)
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
            self._slots.on_ended(site, asked_s=asked_s)
        self._counters.inc("pages")
        self._counters.inc("bytes", len(response.content))
        self._control.check_limits()
        if verdict == "accept":
            self._slots.on_verdict(site, failed=False)
            return True
        await self._outcome.fail(
            page,
            HttpStatusError(response.status_code, response.url),
            retry=verdict == "retry",
            asked_s=asked_s,
            site_health=tells_of_the_site(response.status_code),
        )
        return False

    async def _fetch_failed(self, page: Page, error: Exception) -> None:
        if isinstance(error, ContentTypeRejectedError):
            self._counters.inc("content_type_dropped")
            self._throttled.info("content type", f"dropped: {error}")
            page.finish(lambda: self._outbox.settle(page.lease))
        elif isinstance(error, NotRetryError):
            self._drop(page, message_of(error) or "NotRetryError")
        elif isinstance(error, DownloadError):
            await self._outcome.fail(
                page,
                error,
                retry=error.retryable,
                site_health=error.reason not in {"too_large", "redirects", "url", "decode", "blocked"},
            )
        elif isinstance(error, InvalidUrlError) or type(error) is RequestError:
            await self._outcome.fail(page, error, retry=False)  # what the request asks for can't be sent
        else:
            await self._outcome.fail(page, error)

    def _drop(self, page: Page, why: str) -> None:
        self._counters.inc("dropped")
        self._throttled.info("dropped", f"dropped {page.request.url}: {why[:MAX_ERROR_CHARS]}")
        if self._tasks is not None:
            self._tasks.look_for_report(page, f"{page.request.url} was dropped: {why[:200]}")
        page.finish(lambda: self._outbox.settle(page.lease, (), page.history))

    # -- how it ended ----------------------------------------------------------------------------------------

    async def _callback_ended(self, page: Page, out: CallbackOutput) -> None:
        error = out.error
        if error is None:
            if out.verdict is False:
                self._drop(page, "validate returned False")
                return
            if self._tasks is not None and page.lease.is_task_end:
                self._tasks.count_end(page.lease)
            else:
                self._counters.inc("request_ok")
                if self._tasks is not None and not out.children:
                    self._tasks.look_for_report(page, page.request.url)
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
            self._drop(page, message_of(error) or "NotRetryError")
        elif isinstance(error, ValidationError):
            await self._outcome.fail(page, error)
        else:
            self._counters.inc("parse_error")
            place = f"{page.origin.label} ({user_line(error)})"
            self._throttled.error(
                place, f"{place} raised {describe_error(error)}, while handling {page.request.url}"
            )
            await self._outcome.fail(page, error, logged=True)

    # -- time limit ------------------------------------------------------------------------------------------

    def _timeout_error(self, page: Page) -> CallbackTimeoutError:
        return CallbackTimeoutError(
            f"{page.origin.label} ran longer than SPIDER_TASK_MAX_SECONDS="
            f"{self._settings.SPIDER_TASK_MAX_SECONDS:g} s for {page.request.url}"
        )

    def end_overdue(self) -> None:
        """Give up waiting for callbacks that run past SPIDER_TASK_MAX_SECONDS, so that a crawl always ends."""
        # All are judged before any is ended: the thread that takes an ended one's place begins a waiting job at once.
        for page in [page for page in self.running.values() if self._overdue(page)]:
            page.timed_out = True
            error = self._timeout_error(page)
            self._throttled.error("overdue", f"{error}; its thread may still hang")
            if page.job is not None and not page.job.done():
                self._pool.abandon(page.job, error)
            elif page.worker is not None:
                page.worker.cancel()

    def _overdue(self, page: Page) -> bool:
        now = self._clock()
        if page.timed_out or page.started > now - self._settings.SPIDER_TASK_MAX_SECONDS:
            return False
        if page.job is not None and not page.job.done() and not self._pool.runs(page.job):
            page.started = now  # it has waited for a thread; its own time begins now
            return False
        return True
