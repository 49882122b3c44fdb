"""Waiting for brokers that are away: with growing pauses, for ever or for a while, until a stop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from netspy.brokers import kafka as brokers
from netspy.errors import StoreUnavailableError

if TYPE_CHECKING:
    from netspy.brokers.kafka import KafkaAddress

T = TypeVar("T")

BACKOFF_FIRST_S, BACKOFF_CAP_S = 0.1, 2.0


class Patience:
    """Of one source. `timeout_s` 0: for ever. `refused`: the error that says waiting won't help, when there is one.

    `on_outage(True, 0)` is called when the brokers went away, `on_outage(False, seconds)` when they are back.
    """

    def __init__(
        self,
        address: KafkaAddress,
        *,
        timeout_s: float,
        stop: asyncio.Event,
        refused: Callable[[], Any],
        on_outage: Callable[[bool, float], None] | None,
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._stop = stop
        self._refused = refused
        self._on_outage = on_outage
        self._away_since: float | None = None

    async def ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` gives; it is called again while the brokers are away. Raises as `wait`."""
        started = time.monotonic()
        failures = 0
        while True:
            try:
                answer = await ask()
            except Exception as error:
                if not is_kafka(error):
                    raise
                failures += 1
                await self.wait(error, failures, started)
            else:
                self._back()
                return answer

    async def wait(self, error: Any, failures: int, started: float) -> None:
        """After a failure. Raises ConfigError when waiting won't help, StoreUnavailableError when it is over."""
        refused = self._refused()
        if refused is not None or brokers.trouble_of(error) == "config":
            raise brokers.unusable(self._address, refused or error) from None
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            if self._on_outage is not None:
                self._on_outage(True, 0.0)
        if self._stop.is_set():
            raise StoreUnavailableError(
                f"Kafka at {self._address.shown} is away ({brokers.one_line(error)}) and the node is stopping"
            ) from None
        if self._timeout_s and now - started >= self._timeout_s:
            raise self.unavailable(brokers.one_line(error), self._timeout_s) from None
        delay = min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), delay)

    def _back(self) -> None:
        if self._away_since is None:
            return
        gone, self._away_since = time.monotonic() - self._away_since, None
        if self._on_outage is not None:
            self._on_outage(False, gone)

    def unavailable(self, why: str, waited_s: float) -> StoreUnavailableError:
        """The error for brokers that did not answer."""
        return StoreUnavailableError(
            f"Kafka at {self._address.shown} did not answer within {waited_s:g} s ({why}); start it, or correct its address"
        )


def is_kafka(error: BaseException) -> bool:
    """Whether it comes from the client library."""
    return isinstance(error, brokers.library().KafkaException)
