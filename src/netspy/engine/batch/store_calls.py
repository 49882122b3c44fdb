"""A batch master's calls on its task table, and how it is told to stop while one of them, or a pause, lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from netspy.aside import SLOW_S, in_thread
from netspy.engine.contract import Alert
from netspy.errors import StoreLostError
from netspy.observe.throttle import LoggerLike
from netspy.policy.backoff import Backoff

MasterOutcome = Literal["finished", "nothing_to_do", "stopped", "not_master", "failed", "store_lost"]


class PatrolEnded(Exception):  # noqa: N818 - leaves the loop, not an error
    """The master's work is over."""

    def __init__(self, outcome: MasterOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome: MasterOutcome = outcome
        self.reason = reason


class TableCalls:
    """On the loop. `stopped`: why, and by which signal; None until then."""

    def __init__(self, logger: LoggerLike, alert: Alert) -> None:
        self.stopping = asyncio.Event()
        self.stopped: tuple[str, int | None] | None = None
        self._log = logger
        self._alert = alert
        self._away = False

    def stop(self, reason: str, signal: int | None) -> None:
        """The first reason counts."""
        if self.stopped is None:
            self.stopped = (reason, signal)
        self.stopping.set()

    def check_stop(self) -> None:
        """Raises PatrolEnded once told to stop."""
        if self.stopped is not None:
            raise PatrolEnded("stopped", self.stopped[0])

    async def pause(self, seconds: float) -> None:
        """Raises PatrolEnded as soon as told to stop."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self.stopping.wait()
        except TimeoutError:
            pass
        self.check_stop()

    async def call(self, function: Callable[[], Any], *, insist: bool = True) -> Any:
        """What `function` gives, in a thread; while the database is away it is tried again and again, until stopped.

        Without `insist` the store's own patience has to do. Raises StoreLostError then, and whatever else `function` raises.
        """
        backoff = Backoff()
        while True:
            try:
                result = await in_thread(function, slow=self._say_slow)
            except StoreLostError as error:
                if not insist:
                    raise
                if not self._away:
                    self._away = True
                    self._alert("batch_store_away", f"{error}; the master tries again until it answers")
                await self.pause(backoff.next_s())
            else:
                if self._away:
                    self._away = False
                    self._log.info("the task table answers again")
                return result

    def _say_slow(self) -> None:
        self._log.warning(
            "the task table has been asked for {:.0f} s and has not answered; the master waits", SLOW_S
        )
