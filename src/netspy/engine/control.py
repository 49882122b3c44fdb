"""A node's will: to look for work again, to stop, and to end when one of its parts does. Every part is given it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple

from netspy.engine.waiting import wait_for_event
from netspy.errors import NetspyError, StoreLostError
from netspy.observe.faults import describe_error
from netspy.observe.throttle import LoggerLike

Outcome = Literal["finished", "nothing_to_do", "stopped", "limit", "seeding_failed", "store_lost", "failed"]


class Ended(NamedTuple):
    """How a node's run ended. `signal`: the number of the one that stopped it."""

    outcome: Outcome
    reason: str
    signal: int | None = None


class Control:
    """All methods are called on the event loop; other threads go through `loop.call_soon_threadsafe`.

    `limit_reached` says which of the run's limits (SPIDER_MAX_PAGES …) is reached, None while none is; without it the
    run has no limits, and asking costs nothing.
    """

    def __init__(self, log: LoggerLike, limit_reached: Callable[[], str | None] | None = None) -> None:
        self._log = log
        self._limit_reached = limit_reached
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self.ended: Ended | None = None
        """How the run ended; None while it goes on."""
        self.leaving = False
        """The node is on its way out: that a part ends is no news any more."""

    # -- work ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something happened that may make a claim worth while."""
        self._changed.set()

    def progressed(self) -> None:
        """Work was finished: as `wake`, and a limit may be reached."""
        self._changed.set()
        self.check_limits()

    def seen(self) -> None:
        """What happened so far is taken into account: `changed` waits for what comes now."""
        self._changed.clear()

    async def changed(self, within_s: float) -> bool:
        """Wait until something happened; False when `within_s` seconds were over before."""
        return await wait_for_event(self._changed, within_s)

    # -- stopping --------------------------------------------------------------------------------------------

    def check_limits(self) -> None:
        """Stop when a limit of the run is reached."""
        if self._limit_reached is not None and (why := self._limit_reached()) is not None:
            self.stop(why, "limit")

    def stop(self, reason: str, outcome: Outcome = "stopped", *, signal: int | None = None) -> None:
        """Begin a graceful stop. The first reason counts."""
        if self.ended is None:
            self.ended = Ended(outcome, reason, signal)
            self._stop.set()
            self._changed.set()

    @property
    def stopping(self) -> bool:
        """A stop has begun."""
        return self.ended is not None

    async def stopped(self) -> Ended:
        """Wait for the stop; how the run ended."""
        await self._stop.wait()
        assert self.ended is not None  # noqa: S101 - set before the event
        return self.ended

    # -- parts -----------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task of the node: its error ends the run, and so does a cancellation that isn't the node's leaving."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._part_ended)
        return task

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.broke(task.get_name(), "it was cancelled, and not by netspy")
        elif (error := task.exception()) is None:
            return
        elif isinstance(error, StoreLostError):
            self.stop(str(error), "store_lost")
        elif isinstance(error, NetspyError):
            self.stop(str(error), "failed")
        else:
            self.broke(task.get_name(), describe_error(error))

    def broke(self, name: str, why: str) -> None:
        """The part of that name has ended by itself: so does the node, loudly."""
        if not self.leaving:
            self._log.error("internal error in {}: {}", name, why)
            self.stop(f"internal error in {name}: {why}", "failed")
