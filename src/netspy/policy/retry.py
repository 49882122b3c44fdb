"""Accept, retry or fail: the status policy, the retry budget and the waits between tries."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from netspy.policy.backoff import backoff_s
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
