"""Downloading inside a callback: `await request.fetch()`, `request.download()`.

The engine says who does it while a callback runs (`active`), so that the sub-request goes through the same
middlewares, limits and sessions as the others; outside a spider, `default` is used. A request fetched this
way never enters the frontier: it is not deduplicated, not retried, and dies with its callback.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from netspy.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from netspy.messages.request import Request
    from netspy.messages.response import Response


class SubDownload(Protocol):
    """What the engine puts into `active`."""

    def blocking(self, request: Request) -> Response:
        """Fetch, called from a worker thread, which waits. Raises as `fetching` does."""

    async def fetching(self, request: Request) -> Response:
        """Fetch, on the engine's event loop. Raises what the downloader raises."""


active: ContextVar[SubDownload | None] = ContextVar("netspy_sub_download", default=None)
"""Set by the engine around each callback, in the context the callback runs in."""

default: Callable[[Request], Response] | None = None
"""Downloads outside a spider; blocking. Set by the room that can make a downloader."""


async def fetch(request: Request) -> Response:
    """The response of a sub-request, in async code. Raises RequestError where nobody can fetch it."""
    if (engine := active.get()) is not None:
        return await engine.fetching(request)
    if default is not None:
        import asyncio

        return await asyncio.to_thread(default, request)
    return _nobody(request)


def download(request: Request, downloader: Any = None) -> Any:
    """The response of a sub-request; in async code an awaitable of it.

    `downloader` is an object with `fetch(request)`, plain or `async`; it is used instead of the engine's.
    """
    if _on_a_running_loop():
        return PendingResponse(request, downloader)
    if downloader is not None:
        answer = downloader.fetch(request)
        return _run(answer) if hasattr(answer, "__await__") else answer
    if (engine := active.get()) is not None:
        return engine.blocking(request)
    if default is not None:
        return default(request)
    return _nobody(request)


class PendingResponse:
    """What `request.download()` gives in async code, where waiting would stop every other request."""

    __slots__ = ("_downloader", "_request")

    def __init__(self, request: Request, downloader: Any = None) -> None:
        self._request = request
        self._downloader = downloader

    def __await__(self) -> Generator[Any, None, Response]:
        return self._fetch().__await__()

    async def _fetch(self) -> Response:
        if self._downloader is None:
            return await fetch(self._request)
        answer = self._downloader.fetch(self._request)
        response: Response = await answer if hasattr(answer, "__await__") else answer
        return response

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self._request!r}.download() was called in async code, where it must be awaited before .{name} "
            "can be read: write `response = await request.download()`"
        )


def _on_a_running_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(answer: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait())


def _nobody(request: Request) -> NoReturn:
    raise RequestError(
        f"{request!r} can't be downloaded here: no callback is running; yield it from a spider, call this in "
        "a callback, or give a downloader"
    )
