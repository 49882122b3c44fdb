"""A clock that moves only when it is told to."""

from __future__ import annotations


class FakeClock:
    """Seconds that stand still until `advance`. Calling it, `now`, `time` and `monotonic` all give the same.

    >>> clock = FakeClock(100.0)
    >>> clock.advance(2.5)
    102.5
    >>> clock()
    102.5
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        """The time in seconds."""
        return self._now

    now = time = monotonic = __call__

    def advance(self, seconds: float) -> float:
        """Let `seconds` pass and return the new time. Raises ValueError when they are negative."""
        if seconds < 0:
            raise ValueError(f"advance({seconds:g}): this clock doesn't run backwards; use set() to jump")
        self._now += seconds
        return self._now

    def set(self, now: float) -> None:
        """Jump to a time, also to an earlier one, as a wall clock may."""
        self._now = now

    def __repr__(self) -> str:
        return f"<FakeClock {self._now:.3f}>"
