"""Accept, retry or fail: the status policy, the retry budget and the waits between tries."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from netspy.settings import Settings

Verdict = Literal["accept", "retry", "fail"]


class StatusPolicy:
    """Judges HTTP statuses by CHECK_STATUS_CODE, RETRY_STATUS_CODES and ACCEPT_STATUS_CODES."""

    __slots__ = ("_accept", "_check", "_retry")

    def __init__(self, settings: Settings) -> None:
        self._check = settings.CHECK_STATUS_CODE
        self._accept = frozenset(settings.ACCEPT_STATUS_CODES)
        self._retry = frozenset(settings.RETRY_STATUS_CODES)

    def judge(self, status: int) -> Verdict:
        """2xx and 3xx pass, then what ACCEPT_STATUS_CODES lists; RETRY_STATUS_CODES are tried again; the rest fail."""
        if not self._check or status in self._accept:
            return "accept"
        if status in self._retry:
            return "retry"
        return "accept" if 200 <= status < 400 else "fail"


def retry_after_s(value: str | None, *, now: datetime, maximum: float) -> float | None:
    """Seconds asked for by a Retry-After header (RFC 9110, 10.2.3), at most `maximum`; None when absent or unreadable."""
    if not value:
        return None
    text = value.strip()
    if text.isdigit():
        return min(float(text), maximum)
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max((when - now).total_seconds(), 0.0), maximum)


def retry_delay_s(tries: int, settings: Settings, *, jitter: float, asked_s: float | None = None) -> float:
    """Seconds to wait before the next try.

    `tries` is how many tries have failed (1 = the first). `jitter` lies in 0..1. What the server asked for
    (`asked_s`, from Retry-After) replaces the back-off.
    """
    if asked_s is not None:
        return asked_s + settings.SPIDER_RETRY_INTERVAL
    return settings.SPIDER_RETRY_INTERVAL + backoff_s(
        tries - 1, first_s=settings.RETRY_BACKOFF, cap_s=settings.RETRY_BACKOFF_MAX, jitter=jitter
    )


def may_retry(retry_times: int, settings: Settings) -> bool:
    """Whether a request that was already retried `retry_times` times may be tried once more."""
    return retry_times < settings.SPIDER_MAX_RETRY_TIMES


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
