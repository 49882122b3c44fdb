"""Waiting for brokers that are away: with growing pauses, for ever or for a while, until a stop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from netspy.brokers import kafka as brokers
from netspy.errors import StoreUnavailableError
from netspy.policy.outage import OutageWatch, Tries

if TYPE_CHECKING:
    from netspy.brokers.kafka import KafkaAddress

T = TypeVar("T")


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
        self._outage = OutageWatch(on_outage, excused=0)  # the client itself replaces a cut connection

    def begin(self) -> Tries:
        """Of a call that is sent now."""
        return self._outage.begin(self._timeout_s or math.inf)

    async def ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` gives; it is called again while the brokers are away. Raises as `wait`."""
        tries = self.begin()
        while True:
            try:
                answer = await ask()
            except Exception as error:
                if not is_kafka(error):
                    raise
                await self.wait(error, tries)
            else:
                self._outage.answered()
                return answer

    async def wait(self, error: Any, tries: Tries) -> None:
        """After a failure. Raises ConfigError when waiting won't help, StoreUnavailableError when it is over."""
        refused = self._refused()
        if refused is not None or brokers.error_kind(error) == "config":
            raise brokers.unusable(self._address, refused or error) from None
        wait_s = self._outage.failed(tries, stopping=self._stop.is_set())
        if wait_s == "stopping":
            raise StoreUnavailableError(
                f"Kafka at {self._address.shown} is away ({brokers.one_line(error)}) and the node is stopping"
            ) from None
        if wait_s == "over":
            raise self.unavailable(brokers.one_line(error), self._timeout_s) from None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), wait_s)

    def unavailable(self, why: str, waited_s: float) -> StoreUnavailableError:
        """The error for brokers that did not answer."""
        return StoreUnavailableError(
            f"Kafka at {self._address.shown} did not answer within {waited_s:g} s ({why}); start it, or correct its address"
        )


def is_kafka(error: BaseException) -> bool:
    """Whether it comes from the client library."""
    return isinstance(error, brokers.library().KafkaException)
