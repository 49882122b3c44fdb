"""Downloads outside a spider: `Request(url).download()` in a plain script."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspy.downloader.contract import Downloader
    from netspy.messages.request import Request
    from netspy.messages.response import Response

_CLOSE_S = 2.0


class Session:
    """One downloader in a thread of its own, for as long as the process lives: cookies and connections are shared."""

    def __init__(self, make: Any) -> None:
        """`make` gives the downloader."""
        self._make = make
        self._downloader: Downloader | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="netspy-session", daemon=True)
        self._thread.start()
        self.pid = os.getpid()
        atexit.register(self.close)

    def fetch(self, request: Request) -> Response:
        """The response. Blocks; from any thread. Raises what the downloader raises."""
        return asyncio.run_coroutine_threadsafe(self._fetch(request), self._loop).result()

    async def _fetch(self, request: Request) -> Response:
        if self._downloader is None:
            self._downloader = self._make()
        return await self._downloader.fetch(request)

    def close(self) -> None:
        """Close the connections. In a forked child, which has no such thread, nothing happens."""
        if self.pid != os.getpid() or not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        self._thread.join(_CLOSE_S)

    async def _close(self) -> None:
        if self._downloader is not None:
            await self._downloader.close()
        self._loop.stop()


_lock = threading.Lock()
_session: Session | None = None


def bare_download(request: Request) -> Response:
    """Fetch, outside a spider. `use_session` (USE_SESSION where the request says nothing) shares cookies and connections
    with the other such calls of this process. Blocks. Raises ConfigError, and what the downloader raises.
    """
    from netspy.assembly import make_downloader
    from netspy.settings import load

    settings = load().settings
    shares = settings.USE_SESSION if request.use_session is None else request.use_session
    if shares:
        return _shared(lambda: make_downloader(settings)).fetch(request)

    async def fetch() -> Response:
        downloader = make_downloader(settings)
        try:
            return await downloader.fetch(request)
        finally:
            await downloader.close()

    return asyncio.run(fetch())


def _shared(make: Any) -> Session:
    global _session  # noqa: PLW0603 - the one of this process
    with _lock:
        if _session is None or _session.pid != os.getpid():
            _session = Session(make)
        return _session
