"""Pages that wait for the test: what it does comes in the middle of the crawl, however slow the machine is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from netspy.testing.site import Incoming, LocalSite


class Gate:
    """The pages of one prefix: the site's first `after` requests are answered, later ones wait until `open`.

    Only those that `holds` says True of have to wait; `delay` seconds come to it. `body`: what a page is. A node asks again
    for a page that waits longer than its IDLE_TIMEOUT (15 s) and REQUEST_TIMEOUT: set both where each is to be asked for once.
    """

    def __init__(
        self,
        site: LocalSite,
        prefix: str = "/d/",
        *,
        after: int = 0,
        delay: float = 0.0,
        holds: Callable[[Incoming], bool] = lambda _request: True,
        body: Callable[[Incoming], str] = lambda request: f"<h1>{request.path}</h1>",
    ) -> None:
        self._site = site
        self._after = after
        self._holds = holds
        self._body = body
        self._open = threading.Event()
        site.route(prefix, self._answer, prefix=True, delay=delay)

    def open(self) -> None:
        """Let everything go on."""
        self._open.set()

    async def _answer(self, request: Incoming) -> str:
        if self._site.total > self._after and self._holds(request):
            while not self._open.is_set():
                await asyncio.sleep(0.01)
        return self._body(request)
