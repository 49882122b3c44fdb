"""What becomes of a request that failed: another try, or the end of it with a record in the failed list."""

from __future__ import annotations

import time
from typing import Any

from netspy.engine.control import Control
from netspy.engine.env import Env
from netspy.engine.leases.outbox import Outbox
from netspy.engine.leases.site_slots import SiteSlots
from netspy.engine.page.page import Page
from netspy.engine.page.user_code import UserCode
from netspy.errors import (
    DownloadError,
    HttpStatusError,
    NetspyError,
    NotRetryError,
    SerializationError,
    UnknownCallbackError,
    UserCodeError,
)
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.observe.faults import MAX_TEXT, describe_error
from netspy.policy.failed_record import MAX_ERROR_CHARS, pack_failed
from netspy.policy.retry import may_retry, retry_delay_s


class PageOutcome:
    """Retries within the budget, then gives up: errback, `failed_request`, the failed list."""

    def __init__(
        self, env: Env, control: Control, slots: SiteSlots, user_code: UserCode, outbox: Outbox
    ) -> None:
        self._settings = env.settings
        self._callbacks = user_code.callbacks
        self._hooks = user_code.hooks
        self._user_code = user_code
        self._slots = slots
        self._outbox = outbox
        self._counters = env.counters
        self._log = env.log
        self._throttled = env.throttled
        self._shared = env.shared
        self._jitter = env.jitter
        self._control = control

    async def fail(
        self,
        page: Page,
        error: Exception,
        *,
        retry: bool = True,
        asked_s: float | None = None,
        site_health: bool = False,
        logged: bool = False,
    ) -> None:
        """Another try, if it may be and `retry`; else the end of this request.

        `asked_s`: what the server asked to wait. `site_health`: the failure speaks of the site, not of the request.
        `logged`: it was told of already.
        """
        request = page.request
        if retry and may_retry(request.retry_times, self._settings):
            await self._try_again(page, error, asked_s)
            return
        if site_health and self._slots.on_verdict(page.lease.site, failed=True):
            self._throttled.warning(
                "cooling",
                f"{request.host} failed {self._settings.CIRCUIT_FAILURE_THRESHOLD} times in a row; "
                f"no request goes there for {self._settings.CIRCUIT_COOLDOWN:g} s",
            )
        if not logged:
            tries = request.retry_times + 1
            text = _told(error)
            where = "" if request.url in text else f"{request.url}: "
            self._throttled.warning(
                _reason_of(error), f"failed after {tries} {'try' if tries == 1 else 'tries'}: {where}{text}"
            )
        await self._give_up(page, error)

    async def _try_again(self, page: Page, error: Exception, asked_s: float | None) -> None:
        request = page.request
        hook = self._hooks.exception_request
        if hook is not None:
            await self._user_code.run_hook(page, "exception_request", hook, request, page.response, error)
        request.retry_times += 1
        wait_s = retry_delay_s(request.retry_times, self._settings, jitter=self._jitter(), asked_s=asked_s)
        self._counters.inc("retry")
        self._log.debug(
            "retry {} of {} in {:.1f} s: {}", request.retry_times, request.url, wait_s, describe_error(error)
        )
        try:
            payload = self._payload(request)
        except SerializationError as problem:
            await self._give_up(page, problem)
            return
        page.finish(lambda: self._outbox.delay(page.lease, wait_s, payload))

    async def replace(self, page: Page, request: Request) -> None:
        """A middleware put another request in the place of this one: it is tried within the same retry budget."""
        if not may_retry(page.request.retry_times, self._settings):
            problem = NotRetryError("a middleware replaced the request again and again")
            await self.fail(page, problem, retry=False)
            return
        request.retry_times = page.request.retry_times + 1
        self._counters.inc("retry")
        self._outbox.delay(page.lease, 0.0, self._payload(request))

    def _payload(self, request: Request) -> Any:
        return request.pack() if self._shared else request

    async def _give_up(self, page: Page, error: Exception) -> None:
        request = page.request
        self._counters.fail(_reason_of(error))
        if request.errback is not None:
            try:
                errback = (
                    self._callbacks.named(request.errback)
                    if isinstance(request.errback, str)
                    else request.errback
                )
            except UnknownCallbackError as problem:
                if not isinstance(error, UnknownCallbackError):
                    self._throttled.error("errback", str(problem))
            else:
                await self._user_code.run_hook(page, "errback", errback, request, page.response, error)
        hook = self._hooks.failed_request
        if hook is not None:
            await self._user_code.run_hook(page, "failed_request", hook, request, page.response)
        record = _record_of(request, error, priority=page.lease.priority, site=page.lease.site)
        page.finish(lambda: self._outbox.give_up(page.lease, record, page.history))
        self._control.check_limits()

    def broke(self, lease: Lease, error: Exception) -> None:
        """Give up a request whose handling failed by an error of our own."""
        url = getattr(lease.payload, "url", "?")
        self._throttled.error(
            "internal error", f"internal error while handling {url}: {describe_error(error)}"
        )
        self._counters.inc("callback_error")
        self._counters.fail("internal error")
        try:
            record = _record_of(lease.payload, error, priority=lease.priority, site=lease.site)
        except Exception as problem:
            record = pack_failed(
                None,
                reason="internal error",
                error=f"{describe_error(error)}; {describe_error(problem)}",
                attempts=lease.deliveries,
                time=time.time(),
                priority=lease.priority,
                site=lease.site,
                raw=repr(lease.payload)[:MAX_ERROR_CHARS],
            )
        self._outbox.give_up(lease, record)


def _reason_of(error: Exception) -> str:
    """A short label to count failures by."""
    if isinstance(error, HttpStatusError):
        return f"HTTP {error.status_code}"
    if isinstance(error, DownloadError):
        return error.reason
    return error.name if isinstance(error, UserCodeError) else type(error).__name__


def _told(error: Exception) -> str:
    """What an error says; its type where it isn't one of ours, whose messages speak for themselves."""
    text = describe_error(error, 2 * MAX_TEXT)
    return text.partition(": ")[2] or text if isinstance(error, NetspyError) else text


def _record_of(request: Request, error: Exception, *, priority: float, site: str) -> bytes:
    """The JSON object that goes to the failed list: the request, why, how often it was tried and when."""
    payload: bytes | None = None
    raw = None
    try:
        payload = request.pack()
    except SerializationError as problem:
        raw = f"{request.method} {request.url} ({problem})"
    return pack_failed(
        payload,
        reason=_reason_of(error),
        error=describe_error(error, MAX_ERROR_CHARS),
        attempts=request.retry_times + 1,
        time=time.time(),
        priority=priority,
        site=site,
        raw=raw,
    )
