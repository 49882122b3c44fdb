"""When a server counts as away, when people hear of it, and how long a call on it waits before it tries again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Literal

from netspy.policy.backoff import backoff_s

_CAP_S = 2.0  # between two tries: whoever waits for a server goes on soon after it is back
_SHORTEST_S = 0.01


class Tries:
    """Of one call on a server: since when, how many failed, and for how many seconds it may go on (inf: for ever)."""

    __slots__ = ("failures", "limit_s", "started")

    def __init__(self, started: float, limit_s: float) -> None:
        self.started = started
        self.limit_s = limit_s
        self.failures = 0


class OutageWatch:
    """Of one server, for all calls on it: an outage is told of once, whichever call meets it, and so is its end.

    `on_outage(True, 0.0)` is called when the server went away, `on_outage(False, seconds)` when it answers again.
    """

    def __init__(
        self,
        on_outage: Callable[[bool, float], None] | None = None,
        *,
        first_s: float = 0.2,
        excused: int = 1,
        told_after_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`first_s`: the first wait. `excused`: so many failures in a row of a call are of a connection that was merely
        cut: it is replaced at once, and nobody hears of it. `told_after_s`: only what lasts longer is told of.
        """
        self._on_outage = on_outage
        self._first_s = first_s
        self._excused = excused
        self._told_after_s = told_after_s
        self._clock = clock
        self._jitter = jitter
        self._away_since: float | None = None
        self.told = False
        """Whether people have heard that it is away."""
        self.answers = 0
        """How many calls were answered so far."""

    def begin(self, limit_s: float) -> Tries:
        """Of a call that is sent now."""
        return Tries(self._clock(), limit_s)

    def failed(
        self, tries: Tries, *, stopping: bool = False, news: bool = True
    ) -> float | Literal["stopping", "over"]:
        """The call found the server away. Seconds until its next try; or why there is none: the node is `stopping`,
        or the time of the call is over.

        `news` is False when the server has answered another call since this one was sent: its failure is then of an
        outage that is over.
        """
        now = self._clock()
        if news and self._away_since is None:
            self._away_since = now
        tries.failures += 1
        excused = tries.failures <= self._excused
        # While the node stops, too: giving up at a cut connection would leave the acks of its last pages unsent.
        if stopping and (self.told or not excused):
            return "stopping"
        waited_s = now - tries.started
        if waited_s >= tries.limit_s:
            return "over"
        if excused:
            return 0.0
        if news and not self.told and waited_s >= self._told_after_s:
            self.told = True
            if self._on_outage is not None:
                self._on_outage(True, 0.0)
        n = tries.failures - self._excused - 1
        wait_s = backoff_s(n, first_s=self._first_s, cap_s=_CAP_S, jitter=self._jitter())
        return min(wait_s, max(_SHORTEST_S, tries.limit_s - waited_s))

    def answered(self) -> None:
        """A call was answered."""
        self.answers += 1
        since, told = self._away_since, self.told
        self._away_since, self.told = None, False
        if told and since is not None and self._on_outage is not None:
            self._on_outage(False, self._clock() - since)
