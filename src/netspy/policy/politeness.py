"""Per-site politeness: how many at once, how far apart, and when a failing site must cool down."""

from __future__ import annotations

from collections import deque
from typing import Any

from netspy.settings import Settings


class Politeness:
    """The limits of one spider, as plain numbers."""

    __slots__ = (
        "concurrency",
        "cooldown_s",
        "delay_s",
        "randomize",
        "slow_cap_s",
        "slow_first_s",
        "threshold",
    )

    def __init__(self, settings: Settings) -> None:
        self.concurrency = settings.CONCURRENT_REQUESTS_PER_DOMAIN
        self.delay_s = settings.DOWNLOAD_DELAY
        self.randomize = settings.RANDOMIZE_DOWNLOAD_DELAY
        self.threshold = settings.CIRCUIT_FAILURE_THRESHOLD
        self.cooldown_s = settings.CIRCUIT_COOLDOWN
        self.slow_first_s = settings.RETRY_BACKOFF
        self.slow_cap_s = settings.RETRY_BACKOFF_MAX

    def spacing_s(self, jitter: float) -> float:
        """Seconds between two starts on one site; `jitter` in 0..1."""
        if not self.delay_s:
            return 0.0
        return self.delay_s * (0.5 + jitter) if self.randomize else self.delay_s


TOO_FAST = frozenset({429, 503})
"""Statuses by which a host says that requests come too fast (RFC 6585 4, RFC 9110 15.6.4)."""


def tells_of_the_site(status: int) -> bool:
    """Whether a status that isn't accepted speaks of the site's health, and not of the one page."""
    return status >= 500 or status in {403, 429}


class SiteState:
    """What a node knows of one site. `slow_s`: seconds between two starts, since it said that they come too fast."""

    __slots__ = (
        "active",
        "cooling_until",
        "failures",
        "next_at",
        "queued_as_ready",
        "site",
        "slow_s",
        "waiting",
    )

    def __init__(self, site: str) -> None:
        self.site = site
        self.active = 0
        self.next_at = 0.0
        self.cooling_until = 0.0
        self.failures = 0
        self.slow_s = 0.0
        self.queued_as_ready = False
        self.waiting: deque[Any] = deque()

    def ready_at(self, limits: Politeness) -> float:
        """The earliest moment (the node's monotonic clock) at which a request may start; inf = when one ends."""
        if limits.concurrency and self.active >= limits.concurrency:
            return float("inf")
        return max(self.next_at, self.cooling_until)

    def started(self, limits: Politeness, now: float, jitter: float) -> None:
        """One request starts now."""
        self.active += 1
        if limits.delay_s or self.slow_s:
            self.next_at = now + max(limits.spacing_s(jitter), self.slow_s)

    def ended(self, now: float, *, asked_s: float | None = None) -> None:
        """One request ended. `asked_s` (Retry-After) cools the whole site."""
        self.active -= 1
        if asked_s:
            self.cooling_until = max(self.cooling_until, now + asked_s)

    def too_fast(self, limits: Politeness, now: float) -> None:
        """It answered 429 or 503: nothing starts for a while, and then in growing distances, from RETRY_BACKOFF to
        RETRY_BACKOFF_MAX. What was under way when it said so the first time says no more.
        """
        if now < self.cooling_until:
            return
        self.slow_s = min(max(2 * self.slow_s, limits.slow_first_s), limits.slow_cap_s)
        self.cooling_until = now + self.slow_s

    def judged(self, limits: Politeness, now: float, *, failed: bool) -> bool:
        """A request of this site succeeded, or failed for good in a way that tells of the site's health.

        Such are network errors, 5xx, 403 and 429. A success halves the distance that `too_fast` has set. Returns True when this
        failure opened the circuit: CIRCUIT_FAILURE_THRESHOLD failures in a row cool the site for CIRCUIT_COOLDOWN.
        """
        if not failed:
            self.failures = 0
            self.slow_s = self.slow_s / 2 if self.slow_s > limits.slow_first_s / 8 else 0.0
            return False
        self.failures += 1
        if limits.threshold and self.failures >= limits.threshold:
            self.failures = 0
            self.cooling_until = max(self.cooling_until, now + limits.cooldown_s)
            return True
        return False
