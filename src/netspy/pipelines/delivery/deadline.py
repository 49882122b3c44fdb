"""A moment after which nothing may start, that can be set while things run."""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Deadline:
    """Unset (infinitely far) at first. Lives on the event loop's thread."""

    def __init__(self) -> None:
        self._at = inf  # on the clock of time.monotonic
        self._calls: set[asyncio.Timeout] = set()
        self._pauses: dict[asyncio.Timeout, float] = {}

    def set(self, at: float) -> None:
        """Bring the deadline forward to `at` (time.monotonic). Running calls end there; pauses beyond it
        end now.
        """
        if at >= self._at:
            return
        self._at = at
        loop = asyncio.get_running_loop()
        end = loop.time() + self.left()
        for call in self._calls:
            before = call.when()
            call.reschedule(end if before is None else min(before, end))
        for pause, until in self._pauses.items():
            if until >= at:
                pause.reschedule(loop.time())

    def left(self) -> float:
        """Seconds until the deadline, infinite when there is none."""
        return max(0.0, self._at - time.monotonic())

    @property
    def hurried(self) -> bool:
        """Whether a deadline is set."""
        return self._at != inf

    async def call(self, awaitable: Awaitable[None], limit_s: float) -> None:
        """Await within `limit_s` and the deadline. Raises LimitError when it was cut."""
        seconds = min(limit_s, self.left())
        timeout = asyncio.timeout(None if seconds == inf else seconds)
        try:
            async with timeout:
                self._calls.add(timeout)
                try:
                    await awaitable
                finally:
                    self._calls.discard(timeout)
        except TimeoutError:
            if timeout.expired():
                raise LimitError from None
            raise

    async def pause(self, seconds: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Sleep; not at all when the deadline would pass meanwhile, and cut short when one is set that
        would.
        """
        if seconds <= 0 or seconds >= self.left():
            return
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._pauses[timeout] = time.monotonic() + seconds
                try:
                    await sleep(seconds)
                finally:
                    del self._pauses[timeout]
        except TimeoutError:
            if not timeout.expired():
                raise


class LimitError(Exception):
    """Something took longer than it may."""
