"""A line to Redis that survives outages: a call waits and repeats until the server is back.

Only for calls that are safe to repeat. One report per outage, whichever call notices it.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from netspy.errors import ConfigError, StoreUnavailableError
from netspy.policy.outage import OutageWatch, Tries
from netspy.redisio import client as clients
from netspy.redisio.errors import error_kind, one_line, unavailable, unusable
from netspy.redisio.scripts import Call, run_async
from netspy.settings import Settings, hide_password

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class StoreFullError(Exception):
    """The server refused to grow: its memory is at maxmemory. Nothing was done."""


async def cancellable(call: Awaitable[T]) -> T:
    """What `call` on redis-py's asyncio client gives; a cancellation that the client lost is raised at its end.

    It sends with asyncio.wait_for, which until Python 3.12 loses one that comes together with the end of sending. Whoever
    cancelled would wait for ever for a task that goes on.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await call
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class AsyncLink:
    """Calls on one server from one event loop.

    `on_outage(True, 0)` is called when the server went away, `on_outage(False, seconds)` when it is back. A
    call that is cancelled drops its connection, so no later call can read its answer.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        url: str | None = None,
        key: str = "",
        hello: Callable[[Any], Awaitable[None]] | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`hello` gets each new connection after its handshake, before any other command is sent on it. `key`:
        any of the job's, as for `async_client`.
        """
        self.url = url or settings.REDIS_URL
        self._timeout = settings.REDIS_OUTAGE_TIMEOUT
        self._outage = OutageWatch(on_outage)
        self._stopped = False
        self._stop: asyncio.Event | None = None

        self.client = clients.async_client(settings, url=self.url, key=key, hello=hello)

    def give_up_waiting(self) -> None:
        """From now on a call that finds the server away fails at once, and those that wait fail now."""
        self._stopped = True
        if self._stop is not None:
            self._stop.set()

    def run(self, call: Call, *, timeout_s: float | None = None) -> Awaitable[Any]:
        """The script's answer. `timeout_s`: how long to wait for a server that is away (0 = for ever, None =
        the setting).

        Raises StoreUnavailableError when waiting is over, ConfigError when the server refuses us,
        StoreFullError when its memory is full.
        """
        return self.ask(lambda: run_async(self.client, call), timeout_s=timeout_s)

    async def ask(self, send: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """`run` for anything that is safe to repeat."""
        limit = self._timeout if timeout_s is None else timeout_s
        tries = self._outage.begin(limit or math.inf)
        while True:
            answers = self._outage.answers
            try:
                answer = await cancellable(send())
            except Exception as error:
                trouble = error_kind(error)
                if trouble == "full":
                    raise StoreFullError(one_line(error)) from None
                if trouble == "type":
                    raise ConfigError(_about_keys(error)) from None
                if trouble == "config":
                    raise unusable(self.url, error) from None
                if trouble is None:
                    raise
                # Another call was answered since this one was sent: its failure is of an outage that is over.
                await self._wait(error, tries, news=self._outage.answers == answers)
            else:
                self._outage.answered()
                return answer

    async def _wait(self, error: Exception, tries: Tries, *, news: bool) -> None:
        wait_s = self._outage.failed(tries, stopping=self._stopped, news=news)
        if wait_s == "stopping":
            raise StoreUnavailableError(
                f"Redis at {hide_password(self.url)} is away ({one_line(error)}) and the node is stopping"
            ) from None
        if wait_s == "over":
            raise unavailable(self.url, error, tries.limit_s) from None
        if not wait_s:
            return
        if self._stop is None:
            self._stop = asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), wait_s)

    async def close(self) -> None:
        """Drop the connections."""
        await self.client.aclose()
        await self.client.connection_pool.disconnect()


def _about_keys(error: BaseException) -> str:
    text = one_line(error)
    if text.startswith("NETSPYLAYOUT "):
        return (
            f"Redis key {text.removeprefix('NETSPYLAYOUT ')}; keep DEDUP_INITIAL_CAPACITY, DEDUP_ERROR_RATE "
            "and DEDUP_MAX_LAYERS as they were, choose another redis_key, or delete the key to start dedup again"
        )
    return (
        f"Redis key {text.removeprefix('NETSPYTYPE ')}: another program uses this name; choose another "
        "redis_key or REDIS_KEY_PREFIX, or delete the key"
    )
