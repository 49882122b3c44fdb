"""Waits that grow: doubled after each failure, up to a cap."""

from __future__ import annotations


def backoff_s(n: int, *, first_s: float, cap_s: float, jitter: float = 1.0) -> float:
    """Seconds to wait, after `n` waits before this one: `first_s` doubled `n` times, at most `cap_s`.

    `jitter` lies in 0..1 and stands for half the wait to the whole of it, so that many who fail together don't try
    again together.
    """
    return min(cap_s, first_s * 2.0 ** min(n, 64)) * (0.5 + jitter / 2)


class Backoff:
    """The growing waits of one thing that is tried, or looked for, again and again."""

    __slots__ = ("_cap_s", "_first_s", "_n")

    def __init__(self, first_s: float = 0.5, cap_s: float = 15.0) -> None:
        """Seconds, as for `backoff_s`. The defaults suit what holds up everything else until it goes well."""
        self._first_s = first_s
        self._cap_s = cap_s
        self._n = 0

    def next_s(self) -> float:
        """Seconds to wait now; the next answer is twice as long."""
        wait_s = backoff_s(self._n, first_s=self._first_s, cap_s=self._cap_s)
        self._n += 1
        return wait_s

    def reset(self) -> None:
        """It went well: the next wait is the first."""
        self._n = 0
