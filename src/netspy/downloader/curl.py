"""The downloader: fetches over libcurl, follows redirects itself, keeps cookies. See the room's docstring."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from curl_cffi.const import CurlHttpVersion, CurlOpt
from curl_cffi.curl import DEFAULT_CACERT

from netspy import process
from netspy.downloader import decoding, failures, interim, redirects, streams, user_agents
from netspy.downloader.cookies import CookieJar
from netspy.downloader.decoding import BodyError
from netspy.downloader.failures import Kind, download_error
from netspy.downloader.guard import ProxyGuard, blocked_error, look_up, open_socket
from netspy.downloader.multi import ABORTED_BY_CALLBACK, OK, WEIRD_REPLY, Multi
from netspy.downloader.outgoing import IDEMPOTENT, Outgoing, line, milliseconds, place_of
from netspy.downloader.transfer import Head, Transfer
from netspy.errors import ConfigError, InvalidUrlError
from netspy.messages import urls
from netspy.messages.headers import Headers
from netspy.messages.response import Response
from netspy.policy.descriptors import connections_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from netspy.downloader.guard import Resolve
    from netspy.downloader.transfer import Option, Sink
    from netspy.errors import NetspyError
    from netspy.messages.request import Request
    from netspy.settings import Settings

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
RECEIVE_BUFFER = 131072  # bytes libcurl reads from a socket at a time
# What the library offers by itself, without two suites that it can't decrypt: a server that picks one can't be reached.
CIPHERS = b"DEFAULT:!ECDHE-ECDSA-AES256-SHA384:!ECDHE-RSA-AES256-SHA384"


class Saving(NamedTuple):
    """Where a body goes instead of into memory, and how many bytes of it at most (0 = no limit)."""

    sink: Sink
    max_bytes: int


class Answer(NamedTuple):
    """What one hop brought."""

    head: Head
    content: bytes
    location: bytes | None  # of a redirect to follow
    set_cookies: list[bytes]


class CurlDownloader:
    """The default downloader. Belongs to the event loop on which it first fetches."""

    def __init__(self, settings: Settings, *, resolve: Resolve = look_up) -> None:
        """`resolve` looks up the targets of proxied requests under BLOCK_PRIVATE_ADDRESSES.

        Raises ConfigError when DOWNLOADER_IMPERSONATE names no browser that libcurl knows.
        """
        self._settings = settings
        self._guard = ProxyGuard(resolve) if settings.BLOCK_PRIVATE_ADDRESSES else None
        self._jar = CookieJar()
        self._pools: dict[str, Pool] = {}
        self._defaults: dict[tuple[str, str], Defaults] = {}
        self._accept_encoding = decoding.accept_encoding()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._max_connects = connections_kept(
            settings.SPIDER_THREAD_COUNT, limit=process.limit(), in_use=process.in_use()
        )
        if settings.DOWNLOADER_IMPERSONATE:
            self._check_impersonate(settings.DOWNLOADER_IMPERSONATE)

    async def fetch(self, request: Request) -> Response:
        """See Downloader.fetch. Besides its errors, RequestError says that a keyword of `request` can't be
        sent.
        """
        return await self._fetch(request, None)

    async def save(self, request: Request, sink: Sink, *, max_bytes: int) -> Response:
        """See FileDownloader.save."""
        return await self._fetch(request, Saving(sink, max_bytes))

    async def _fetch(self, request: Request, saving: Saving | None) -> Response:
        loop = self._loop or self._open()
        started = loop.time()
        if request.render:
            raise download_error(
                request.method,
                request.url,
                "render=True: pages that need a browser can't be had yet; leave it out, or name a DOWNLOADER of your own",
                Kind("render", retryable=False),
            )
        out = Outgoing(request, urls.require_http(request.wire_url), self._settings)
        pool = self._pools.get(out.impersonate) or self._new_pool(out)
        fragment = request.url[request.url.index("#") :] if "#" in request.url else ""
        history: list[Response] = []
        cookies: dict[str, str] = {}
        while True:
            hop_started = loop.time() if history else started
            answer = await self._hop(pool, out, hop_started - started, saving)
            set_here: dict[str, str] = {}
            if answer.set_cookies:
                set_here = self._keep_cookies(out, answer.set_cookies)
                cookies.update(set_here)
            response = Response(
                url=out.url + fragment,
                status_code=answer.head.status,
                content=answer.content,
                headers=Headers.of_lines(answer.head.pairs),
                cookies=set_here if answer.location is not None else cookies,
                request=request,
                encoding=request.encoding,
                elapsed=loop.time() - (hop_started if answer.location is not None else started),
                history=None if answer.location is not None else history,
            )
            if answer.location is None:
                return response
            fragment = self._follow(out, answer, fragment, len(history))
            history.append(response)

    async def close(self) -> None:
        """See Downloader.close. What still runs fails with DownloadError `reset`."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    async def _hop(self, pool: Pool, out: Outgoing, spent_s: float, saving: Saving | None) -> Answer:
        """Send one request of the chain, `spent_s` seconds after its start, and take its answer."""
        settings = self._settings
        pin = await self._guard.pin(out) if self._guard is not None and out.kwargs else ""
        transfer = self._borrow(pool, out)
        got = transfer.got
        try:
            got.method = out.method
            got.follow = out.follow
            got.range = out.range
            if saving is None:
                got.sink = None
                got.cap = settings.MAX_RESPONSE_SIZE
                got.allowed = settings.ALLOWED_CONTENT_TYPES
            else:
                got.sink, got.cap = saving
                got.allowed = []
            self._arm(transfer, out, spent_s, pin)
            code = await pool.run(transfer)
            if got.stale:
                transfer.renew()
                code = await pool.run(transfer)
            if got.hinted and code == WEIRD_REPLY and out.method in IDEMPOTENT:
                # libcurl takes the Location of an interim answer for the final one's, and refuses the two.
                if (redirect := await self._ask_plainly(transfer, out)) is not None:
                    return redirect
                # A client of HTTP/1.0 is sent no interim answers (RFC 9110 15.2).
                transfer.renew(http_1_0=True)
                code = await pool.run(transfer)
            if got.location is None:
                error = self._error(transfer, out, code)
                if error is not None:
                    raise error
            try:
                content = got.body() if code == OK else b""
            except decoding.BodyError as error:
                if got.location is None:
                    raise failures.from_body(error, method=out.method, url=out.url) from None
                content = b""
            head = got.head
            if head is None:
                raise download_error(out.method, out.url, "the answer has no head", failures.UNKNOWN)
            return Answer(head, content, got.location, got.set_cookies)
        finally:
            pool.give_back(transfer)

    async def _ask_plainly(self, transfer: Transfer, out: Outgoing) -> Answer | None:
        """The redirect that libcurl could not read; None where it is no redirect, or can't be had."""
        if not out.can_ask_plainly or self._guard is not None:
            return None
        verify = out.kwargs.get("verify")
        got = transfer.got
        try:
            lines = await interim.final_head(
                out.url, out.method, transfer.lines, timeout_s=out.total_s,
                verify=self._settings.VERIFY_TLS if verify is None else bool(verify),
            )  # fmt: skip
        except (OSError, ValueError):
            return None
        got.clear()
        got.lines = lines
        got.on_header(b"\r\n")
        return (
            None
            if got.head is None or got.location is None
            else Answer(got.head, b"", got.location, got.set_cookies)
        )

    def _arm(self, transfer: Transfer, out: Outgoing, spent_s: float, pin: str) -> None:
        """Tell libcurl what to send. `pin` is the address that a proxy is to connect to, "" for the URL's host."""
        settings = self._settings
        jar_cookies = self._cookies_for(out) if self._jar.domains and settings.COOKIES_ENABLED else []
        defaults = self._defaults_for(out)
        options: list[Option] = []
        if out.plain and not jar_cookies:
            lines = defaults.lines
        else:
            lines = out.lines(defaults.headers, jar_cookies)
            options = out.options()
        transfer.got.vet = self._guard is not None and not out.proxied
        if pin:
            options.append((CurlOpt.CONNECT_TO, (f"::{pin}:".encode(),)))
        if spent_s:
            left = out.total_s - spent_s
            if left <= 0:
                raise download_error(
                    out.method, out.url, f"the redirects took longer than {out.total_s:g} s", Kind("timeout")
                )
            options.append((CurlOpt.TIMEOUT_MS, milliseconds(left)))
        try:
            transfer.arm(out.url, lines, options)
        except ValueError as error:
            raise download_error(out.method, out.url, str(error), Kind("protocol", retryable=False)) from None

    def _error(self, transfer: Transfer, out: Outgoing, code: int) -> BaseException | None:
        """Why the hop failed, None when it didn't."""
        got = transfer.got
        if got.rejected is not None:
            return failures.content_type_error(out.method, out.url, got.rejected, got.allowed)
        if isinstance(got.error, decoding.BodyError):
            return failures.from_body(got.error, method=out.method, url=out.url)
        if got.error is not None:
            return got.error
        if code == OK:
            if got.cut:
                return download_error(
                    out.method, out.url, "the HTTP/2 stream was reset before its end", Kind("truncated")
                )
            return None
        if self._closed:
            return closed(out)
        if got.refused is not None and not got.opened:
            return blocked_error(out.method, out.url, *got.refused)
        if got.sendings > 1:
            return download_error(
                out.method,
                out.url,
                f"the connection ended before an answer, and a {out.method} isn't sent again by itself",
                Kind("reset"),
            )
        if failures.is_shortage(code, transfer.os_error()):
            return failures.shortage(out.method, out.url, transfer.error_text())
        return failures.from_curl(
            code,
            transfer.error_text(),
            method=out.method,
            url=out.url,
            progressed=got.head is not None,
            proxied=out.proxied,
        )

    def _follow(self, out: Outgoing, answer: Answer, fragment: str, hops: int) -> str:
        """Turn `out` into the next hop; the fragment of its URL. Raises DownloadError `redirects` or
        `url`.
        """
        limit = self._settings.MAX_REDIRECTS
        if hops >= limit:
            raise download_error(
                out.method,
                out.url,
                f"more than MAX_REDIRECTS={limit} redirects",
                Kind("redirects", retryable=False),
            )
        try:
            found = redirects.target(out.url + fragment, answer.location or b"")
            there = urls.require_http(found)
        except InvalidUrlError as error:
            raise download_error(
                out.method,
                out.url,
                f"it redirects to what can't be fetched: {error}",
                Kind("url", retryable=False),
            ) from None
        out.redirect(answer.head.status, there)
        return found[found.index("#") :] if "#" in found else ""

    def _cookies_for(self, out: Outgoing) -> list[tuple[str, str]]:
        return self._jar.matching(**place_of(out.url))

    def _keep_cookies(self, out: Outgoing, lines: list[bytes]) -> dict[str, str]:
        """Store what the answer set; the next hop sends the new value even where the request gave an old
        one.
        """
        jar = self._jar if self._settings.COOKIES_ENABLED else CookieJar()
        found = jar.store(lines, **place_of(out.url))
        if self._settings.COOKIES_ENABLED:
            out.forget_cookies(found)
        return found

    def _open(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _borrow(self, pool: Pool, out: Outgoing) -> Transfer:
        if self._closed:
            raise closed(out)
        return pool.borrow()

    def _new_pool(self, out: Outgoing) -> Pool:
        if self._closed or self._loop is None:
            raise closed(out)
        if out.impersonate:
            try:
                self._check_impersonate(out.impersonate)
            except ConfigError as error:
                raise download_error(
                    out.method, out.url, str(error), Kind("protocol", retryable=False)
                ) from None
        pool = self._pools[out.impersonate] = Pool(
            self._loop,
            base=base_options(self._settings, impersonating=bool(out.impersonate)),
            impersonate=out.impersonate,
            max_connects=self._max_connects,
            idle_s=self._settings.IDLE_TIMEOUT,
            open_socket=None if self._guard is None else open_socket,
        )
        return pool

    def _check_impersonate(self, target: str) -> None:
        try:
            Transfer([], target).close()
        except ValueError as error:
            raise ConfigError(
                f"DOWNLOADER_IMPERSONATE or impersonate={target!r}: {error}; try chrome, safari or firefox"
            ) from None

    def _defaults_for(self, out: Outgoing) -> Defaults:
        """The headers every request gets; made once per User-Agent."""
        agent = self._settings.USER_AGENT
        if not agent and not out.impersonate:
            agent = (
                user_agents.browser_for(urls.host_of(out.url)) if out.random_user_agent else user_agents.own()
            )
        key = (out.impersonate, agent)
        found = self._defaults.get(key)
        if found is None:
            given = {"User-Agent": agent} if agent else {}
            if not out.impersonate:  # libcurl adds the browser's own
                given |= {"Accept": ACCEPT, "Accept-Encoding": self._accept_encoding}
            lines = tuple(line(name, value) for name, value in given.items())
            found = self._defaults[key] = Defaults(given, lines)
        return found


class Defaults(NamedTuple):
    """Default headers, and the same as header lines."""

    headers: Mapping[str, str]
    lines: tuple[bytes, ...]


def closed(out: Outgoing) -> NetspyError:
    """The error of a fetch that meets a closed downloader."""
    return download_error(out.method, out.url, "the downloader was closed", Kind("reset"))


def base_options(settings: Settings, *, impersonating: bool) -> list[Option]:
    """What every handle is told once."""
    verify = settings.VERIFY_TLS
    options: list[Option] = [
        (CurlOpt.NOSIGNAL, 1),
        (CurlOpt.PATH_AS_IS, 1),
        (CurlOpt.PROTOCOLS_STR, b"http,https"),
        (CurlOpt.FOLLOWLOCATION, 0),
        (CurlOpt.HTTP_CONTENT_DECODING, 0),  # decoding.py does it, with a cap and with checks
        (CurlOpt.SUPPRESS_CONNECT_HEADERS, 1),
        (CurlOpt.BUFFERSIZE, RECEIVE_BUFFER),
        (CurlOpt.PROXY, b""),  # a crawl must not depend on http_proxy and no_proxy of the shell
        (CurlOpt.NOPROXY, b""),
        (CurlOpt.CAINFO, DEFAULT_CACERT.encode()),
        (CurlOpt.PROXY_CAINFO, DEFAULT_CACERT.encode()),
        (CurlOpt.PROXY_SSL_CIPHER_LIST, CIPHERS),
        (CurlOpt.SSL_VERIFYPEER, 1 if verify else 0),
        (CurlOpt.SSL_VERIFYHOST, 2 if verify else 0),
        (CurlOpt.TIMEOUT_MS, milliseconds(settings.REQUEST_TIMEOUT)),
        (CurlOpt.CONNECTTIMEOUT_MS, milliseconds(settings.CONNECT_TIMEOUT)),
    ]
    if not impersonating:  # a browser's offer is a part of its fingerprint
        options.append((CurlOpt.SSL_CIPHER_LIST, CIPHERS))
    if not settings.HTTPX_HTTP2:
        options.append((CurlOpt.HTTP_VERSION, CurlHttpVersion.V1_1))
    elif not impersonating:
        options.append((CurlOpt.HTTP_VERSION, CurlHttpVersion.V2TLS))
    return options


REDIRECT_GRACE = 1.0  # seconds that a redirect's body may take before its connection is given up
LOOKS_PER_IDLE = 5  # an idle transfer is noticed at most a fifth of IDLE_TIMEOUT late


class Pool:
    """Runs transfers; keeps their handles and connections for the next ones."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        base: list[Option],
        impersonate: str,
        max_connects: int,
        idle_s: float,
        open_socket: Any = None,
        watcher: Callable[..., Any] | None = None,
    ) -> None:
        """`idle_s` seconds without a byte end a transfer; 0 = never. See Transfer and Multi for the rest."""
        self._loop = loop
        self._base = base
        self._impersonate = impersonate
        self._open_socket = open_socket
        self._idle_s = idle_s
        self._multi = Multi(loop, max_connects=max_connects, watcher=watcher)
        self._free: list[Transfer] = []
        self._busy: dict[Transfer, Activity] = {}
        self._unmarked: set[Transfer] = set()  # whose body's end is told by HTTP/2 frames only
        self._patrol: asyncio.TimerHandle | None = None
        self._closed = False

    def borrow(self) -> Transfer:
        """A handle without traces of its last use. Raises ValueError for an unknown impersonation target."""
        if self._free:
            return self._free.pop()
        transfer = Transfer(self._base, self._impersonate, self._open_socket)
        transfer.got.on_redirect = partial(self._hurry, transfer)
        if streams.available:
            transfer.got.on_unmarked = partial(self._watch, transfer)
        return transfer

    async def run(self, transfer: Transfer) -> int:
        """Perform an armed transfer; its CURLcode. Cancelling ends it at once and closes its connection."""
        done = self._multi.start(transfer.easy)
        self._busy[transfer] = Activity(self._loop.time())
        if self._unmarked:
            transfer.trace(True)
        if self._idle_s and self._patrol is None:
            self._schedule_patrol()
        try:
            return await done
        finally:
            del self._busy[transfer]
            if not done.done() or done.cancelled():
                self._multi.stop(transfer.easy)
            if self._unmarked:
                self._watch_no_longer(transfer)

    def give_back(self, transfer: Transfer) -> None:
        """Take a handle back; what it received is forgotten."""
        if transfer.grace is not None:
            transfer.grace.cancel()
            transfer.grace = None
        if self._closed:
            transfer.close()
        else:
            transfer.forget()
            self._free.append(transfer)

    def close(self) -> None:
        """End all transfers and close all connections. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._patrol is not None:
            self._patrol.cancel()
        self._multi.close()
        for transfer in self._free:
            transfer.close()
        self._free.clear()

    def _hurry(self, transfer: Transfer) -> None:
        transfer.grace = self._loop.call_later(
            REDIRECT_GRACE, self._multi.stop, transfer.easy, ABORTED_BY_CALLBACK
        )

    def _watch(self, transfer: Transfer) -> None:
        if not self._unmarked:
            for one in self._busy:
                one.trace(True)
        self._unmarked.add(transfer)

    def _watch_no_longer(self, transfer: Transfer) -> None:
        transfer.trace(False)
        self._unmarked.discard(transfer)
        if not self._unmarked:
            for one in self._busy:
                one.trace(False)

    def _schedule_patrol(self) -> None:
        self._patrol = self._loop.call_later(self._idle_s / LOOKS_PER_IDLE, self._look)

    def _look(self) -> None:
        """End the transfers that have been idle for too long."""
        self._patrol = None
        now = self._loop.time()
        for transfer, activity in list(self._busy.items()):
            if activity.idle(transfer.progress(), now) >= self._idle_s:
                transfer.got.error = BodyError("timeout", f"not a byte for {self._idle_s:g} s (IDLE_TIMEOUT)")
                self._multi.stop(transfer.easy)
        if self._busy:
            self._schedule_patrol()


class Activity:
    """When a transfer last moved a byte."""

    __slots__ = ("counters", "since")

    def __init__(self, now: float) -> None:
        self.counters: tuple[int, ...] | None = None
        self.since = now

    def idle(self, counters: tuple[int, ...] | None, now: float) -> float:
        """Seconds since the counters last changed; connecting (None) is not idling."""
        if counters is None or counters != self.counters:
            self.counters = counters
            self.since = now
        return now - self.since
