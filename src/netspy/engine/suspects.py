"""The suspects among what a node holds: requests that were lost with a process, and may have ended it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from netspy.messages.entry import Claimed, Lease
from netspy.policy.claiming import LAST_CHANCE, last_chances_may_come, suspect_room

_OFFER_EVERY = 4.0  # times HEARTBEAT_STALE


class Suspects:
    """Says before each claim how many suspects may come (`room`), and is told what came (`took`).

    `held` is the node's table of leases. `stale_s` is HEARTBEAT_STALE: what a dead node held comes back so long after it
    died, all nodes being of one mind. So how long this node has to live before it takes last chances is drawn by lot: a
    series of kills in that rhythm must not meet the same request each time.
    """

    def __init__(
        self,
        held: Mapping[int, Lease],
        stale_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        lot: Callable[[], float] = random.random,
    ) -> None:
        self._held = held
        self._clock = clock
        self._began = self._offered = clock()
        self._calm_s = stale_s * (1.0 + lot())
        self._offer_every_s = stale_s * _OFFER_EVERY
        self._mine: list[Lease] = []  # of those held, perhaps some more
        self._nothing_else = False

    def room(self) -> tuple[int, int, int]:
        """Room for suspects beside those that this node holds: all of them would go down with the process."""
        if self._mine:
            self._mine = [lease for lease in self._mine if self._held.get(id(lease)) is lease]
        now = self._clock()
        may_come = last_chances_may_come(
            alive_s=now - self._began,
            calm_s=self._calm_s,
            nothing_else=self._nothing_else,
            since_offer_s=now - self._offered,
            offer_every_s=self._offer_every_s,
        )
        room = suspect_room([lease.suspicion for lease in self._mine], last_chances=may_come)
        if room[2]:
            self._offered = now
        return room

    def took(self, claimed: Claimed) -> None:
        """What the claim brought."""
        others = any(lease.suspicion < LAST_CHANCE for lease in claimed.leases)
        if others or not claimed.leases:
            self._nothing_else = not others and claimed.queued > 0
        self._mine += [lease for lease in claimed.leases if lease.suspicion]
