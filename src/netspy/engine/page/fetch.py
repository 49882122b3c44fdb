"""The way of one fetch: middlewares, the spider's download_midware, the downloader, and back."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from netspy.downloader.contract import Downloader
from netspy.engine.leases.site_slots import SiteSlots
from netspy.engine.page.threads import CallbackPool
from netspy.errors import ConfigError, ShortageError, SpiderError
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.observe.faults import describe_error, user_line
from netspy.policy.retry import Backoff
from netspy.raised import apart, awaited

_SHORTAGE_FIRST_S, _SHORTAGE_CAP_S = 0.2, 5.0


class Replaced(Exception):  # noqa: N818 - a way out, not an error
    """A middleware answered a response with a request, which takes the place of the one at work."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request


class Fetcher:
    """Runs one fetch through everything that is wrapped around the downloader.

    Plain `def` hooks run on worker threads; a stage that doesn't exist costs nothing.
    """

    def __init__(
        self,
        downloader: Downloader,
        *,
        middlewares: Sequence[Any],
        download_midware: Callable[[Request], Any] | None,
        named_midware: Callable[[str], Callable[[Request], Any]],
        pool: CallbackPool,
        selector_engine: Literal["turbohtml", "parsel"],
        max_tree_nodes: int,
        on_shortage: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """`on_shortage` is told each time that the machine has no room for a fetch."""
        self._middlewares = middlewares
        self._engine = selector_engine
        self._max_tree_nodes = max_tree_nodes
        self._downloader = downloader
        self._on_shortage = on_shortage
        self._pool = pool
        self._midware = download_midware
        self._named = named_midware
        self._before = [m.process_request for m in middlewares if _overrides(m, "process_request")]
        self._after = [m.process_response for m in reversed(middlewares) if _overrides(m, "process_response")]
        self._errors = [
            m.process_exception for m in reversed(middlewares) if _overrides(m, "process_exception")
        ]
        self._simple = not (self._before or self._after or self._errors or self._midware)

    async def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await apart(awaited(function(*args)))
        result = await self._pool.call(lambda: function(*args))
        return await apart(awaited(result)) if inspect.isawaitable(result) else result

    async def open(self) -> None:
        """Open the middlewares, outermost first. Raises ConfigError for what they raise."""
        for middleware in self._middlewares:
            if hasattr(middleware, "open"):
                try:
                    await self._call(middleware.open)
                except Exception as error:
                    raise ConfigError(
                        f"middleware {type(middleware).__name__} can't be opened: {describe_error(error)}"
                    ) from error

    async def close(self) -> None:
        """Close the middlewares, innermost first. Raises SpiderError when all are closed that could be."""
        problems = []
        for middleware in reversed(self._middlewares):
            if hasattr(middleware, "close"):
                try:
                    await self._call(middleware.close)
                except Exception as error:
                    problems.append(
                        f"{type(middleware).__name__}.close ({user_line(error)}) raised {describe_error(error)}"
                    )
        if problems:
            raise SpiderError("; ".join(problems))

    async def fetch(self, request: Request) -> Response:
        """The response. Raises what the downloader raises, and Replaced."""
        if self._simple and request.download_midware is None:
            response = await self._download(request)
        else:
            response = await self._wrapped(request)
        response.engine = self._engine
        response.max_tree_nodes = self._max_tree_nodes
        return response

    async def _download(self, request: Request) -> Response:
        """A machine that has no file descriptor or memory left is waited for: that is no try of the request, and while it waits
        it keeps its slot, so less is begun.
        """
        try:
            return await self._downloader.fetch(request)
        except ShortageError as error:
            short = error
        pause = Backoff(_SHORTAGE_FIRST_S, _SHORTAGE_CAP_S)
        while True:
            self._on_shortage(str(short))
            await asyncio.sleep(pause.next_s())
            try:
                return await self._downloader.fetch(request)
            except ShortageError as error:
                short = error

    async def _wrapped(self, request: Request) -> Response:
        answer = await self._prepare(request)
        if isinstance(answer, Response):
            response = answer
        else:
            request = answer
            try:
                response = await self._download(request)
            except Exception as error:
                response = await self._recover(request, error)
        for step in self._after:
            result = await self._call(step, request, response)
            if isinstance(result, Request):
                raise Replaced(result)
            if not isinstance(result, Response):
                raise SpiderError(
                    f"{_name(step)} returned {type(result).__name__}; process_response must return a Response or a Request"
                )
            response = result
        return response

    async def _prepare(self, request: Request) -> Request | Response:
        for step in self._before:
            result = await self._call(step, request)
            if isinstance(result, Response):
                return result
            if isinstance(result, Request):
                request = result
            elif result is not None:
                raise SpiderError(
                    f"{_name(step)} returned {type(result).__name__}; process_request must return None, a Request or a Response"
                )
        own = request.download_midware
        midware = self._midware if own is None else (self._named(own) if isinstance(own, str) else own)
        if midware is not None:
            result = await self._call(midware, request)
            if isinstance(result, Response | Request):
                return result
            if result is not None:
                raise SpiderError(
                    f"download_midware returned {type(result).__name__}; it must return a Request or None"
                )
        return request

    async def _recover(self, request: Request, error: Exception) -> Response:
        for step in self._errors:
            result = await self._call(step, request, error)
            if isinstance(result, Request):
                raise Replaced(result)
            if isinstance(result, Response):
                return result
        raise error


def _overrides(middleware: Any, name: str) -> bool:
    """Whether the middleware does something at this stage (its base class's methods don't)."""
    found = getattr(type(middleware), name, None)
    return found is not None and not found.__module__.startswith("netspy.downloader")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


class SubDownloads:
    """What `await request.fetch()` and `request.download()` use inside a callback: the node's own way of fetching.

    Site limits are kept; there is one try; errors are the caller's.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        slots: SiteSlots,
        loop: asyncio.AbstractEventLoop,
        count: Callable[[Response], None],
    ) -> None:
        self._fetcher = fetcher
        self._slots = slots
        self._loop = loop
        self._count = count

    async def fetching(self, request: Request) -> Response:
        """Fetch on the loop."""
        site = request.site
        await self._slots.enter(site)
        try:
            response = await self._fetcher.fetch(request)
        finally:
            self._slots.on_ended(site)
        self._count(response)
        return response

    def blocking(self, request: Request) -> Response:
        """Fetch from a worker thread and wait for it."""
        awaitable: Awaitable[Response] = self.fetching(request)
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()  # type: ignore[arg-type]
