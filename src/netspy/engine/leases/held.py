"""The node's one book of leases: what it has claimed and has not finished in the store."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from netspy.engine.contract import CountersLike
from netspy.messages.entry import Lease
from netspy.observe.throttle import LoggerLike


class HeldLeases:
    """Every method may be called on any thread: the loop takes and finishes leases, the keeper's thread renews them.

    A lease is entered when its claim is answered, and leaves when the store has answered its last step.
    """

    def __init__(self, counters: CountersLike, log: LoggerLike) -> None:
        self._counters = counters
        self._log = log
        self._leases: dict[int, Lease] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, lease: Lease) -> bool:
        return id(lease) in self._leases

    def took(self, leases: Iterable[Lease]) -> None:
        """These were claimed."""
        with self._lock:
            for lease in leases:
                self._leases[id(lease)] = lease

    def done(self, lease: Lease, *, ours: bool = True) -> None:
        """The store has answered its last step. Not `ours`: it was another node's by then, which is counted and said."""
        with self._lock:
            self._leases.pop(id(lease), None)
        if not ours:
            self._counters.inc("lease_lost")
            self._log.warning(
                "a lease was lost before its page was finished (lease seq {}): another node has the request now",
                lease.seq,
            )

    def expired(self, lease: Lease) -> None:
        """It ran out before its page was started: whoever reclaims it works on it."""
        with self._lock:
            self._leases.pop(id(lease), None)
        self._counters.inc("lease_lost")

    def void(self) -> None:
        """The store gave this node a new id: what was held under the old one is nobody's."""
        with self._lock:
            self._leases.clear()

    def due(self, before: float) -> list[Lease]:
        """Those that end before this moment (of the monotonic clock)."""
        with self._lock:
            return [lease for lease in self._leases.values() if lease.valid_until < before]

    def not_ours(self, lease: Lease) -> None:
        """A renewal was refused: it was finished in this moment, or is another's; it is trusted no longer."""
        with self._lock:
            if id(lease) in self._leases:
                lease.valid_until = 0.0

    def snapshot(self) -> list[Lease]:
        """All of them, as they are now."""
        with self._lock:
            return list(self._leases.values())
