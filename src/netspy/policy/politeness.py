"""Per-site politeness: how many at once, how far apart, and when a failing site must cool down."""

from __future__ import annotations

from collections import deque
from typing import Any

from netspy.settings import Settings


class Politeness:
    """The limits of one spider, as plain numbers."""

    __slots__ = ("concurrency", "cooldown_s", "delay_s", "randomize", "threshold")

    def __init__(self, settings: Settings) -> None:
        self.concurrency = settings.CONCURRENT_REQUESTS_PER_DOMAIN
        self.delay_s = settings.DOWNLOAD_DELAY
        self.randomize = settings.RANDOMIZE_DOWNLOAD_DELAY
        self.threshold = settings.CIRCUIT_FAILURE_THRESHOLD
        self.cooldown_s = settings.CIRCUIT_COOLDOWN

    def spacing_s(self, jitter: float) -> float:
        """Seconds between two starts on one site; `jitter` in 0..1."""
        if not self.delay_s:
            return 0.0
        return self.delay_s * (0.5 + jitter) if self.randomize else self.delay_s


class SiteState:
    """What a node knows of one site."""

    __slots__ = ("active", "cooling_until", "failures", "next_at", "queued_as_ready", "site", "waiting")

    def __init__(self, site: str) -> None:
        self.site = site
        self.active = 0
        self.next_at = 0.0
        self.cooling_until = 0.0
        self.failures = 0
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
        if limits.delay_s:
            self.next_at = now + limits.spacing_s(jitter)

    def ended(self, now: float, *, asked_s: float | None = None) -> None:
        """One request ended. `asked_s` (Retry-After) cools the whole site."""
        self.active -= 1
        if asked_s:
            self.cooling_until = max(self.cooling_until, now + asked_s)

    def judged(self, limits: Politeness, now: float, *, failed: bool) -> bool:
        """A request of this site succeeded, or failed for good in a way that tells of the site's health.

        Such are network errors, 5xx and 429. Returns True when this failure opened the circuit: CIRCUIT_FAILURE_THRESHOLD
        failures in a row cool the site for CIRCUIT_COOLDOWN.
        """
        if not failed:
            self.failures = 0
            return False
        self.failures += 1
        if limits.threshold and self.failures >= limits.threshold:
            self.failures = 0
            self.cooling_until = max(self.cooling_until, now + limits.cooldown_s)
            return True
        return False
