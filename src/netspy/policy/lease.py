"""How long a lease lasts, in the store's eyes and in those of the node that holds it."""

from __future__ import annotations

import math
from typing import NamedTuple

from netspy.settings import Settings


class LeaseTimes(NamedTuple):
    """The times of a lease, in seconds. Of leases that never run out, only `duration_s` is None."""

    duration_s: float | None  #: one not renewed for so long may go to another node; None = never
    trusted_s: float  #: so long its holder trusts a lease: a little less than the store; `inf` = for ever
    start_margin_s: float  #: a page is not started when less than this is left
    renew_below_s: float  #: a lease is renewed at the heartbeat that finds less than this left

    @classmethod
    def of(cls, settings: Settings) -> LeaseTimes:
        """From SPIDER_TASK_LEASE (0 = leases never run out) and HEARTBEAT_INTERVAL."""
        lease_s = settings.SPIDER_TASK_LEASE
        if not lease_s:
            return cls(None, math.inf, 0.0, 0.0)
        return cls(
            lease_s,
            lease_s - min(2.0, lease_s * 0.1),
            # A part of a short lease only, else no page of it could ever start.
            min(1.0, lease_s / 4),
            # Two heartbeats may fail before the lease is in danger.
            max(lease_s / 2, 3 * settings.HEARTBEAT_INTERVAL),
        )

    @property
    def wire(self) -> str:
        """The duration as the scripts read it: milliseconds, or `+inf`."""
        return "+inf" if self.duration_s is None else str(round(self.duration_s * 1000))
