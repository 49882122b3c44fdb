"""Waiting: for an event, but not for ever; for a task to come to rest."""

from __future__ import annotations

import asyncio


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set; False when `seconds` were over before."""
    try:
        # Not wait_for: until Python 3.12 it loses a cancellation that comes together with the event.
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Waiters:
    """Those who wait for a task to come to rest."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Until `wake`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        await future

    def wake(self) -> None:
        """The task is at rest, or has ended."""
        for future in self._futures:
            if not future.done():
                future.set_result(None)
        self._futures.clear()
