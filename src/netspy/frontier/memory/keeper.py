"""The keeper's side of the frontier in memory: there are no other nodes to look after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netspy.messages.entry import BeatReply, BeatReport, Lease, Reclaimed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspy.frontier.memory.frontier import MemoryFrontier


class MemoryKeeper:
    """See `contract.Keeper`. There are no other nodes."""

    def __init__(self, frontier: MemoryFrontier) -> None:
        self._frontier = frontier
        self.taken_over = 0

    def beat(self, report: BeatReport) -> BeatReply:  # noqa: ARG002  # nobody else reads it
        """Always known, never anybody stale."""
        return BeatReply(known=True, sweeping=True, stale_nodes=[], intact=True, live_nodes=1)

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        """See the contract."""
        return self._frontier.renew(leases)

    def reclaim(self, limit: int = 500) -> Reclaimed:
        """See the contract."""
        moved = self._frontier.reclaim(limit)
        self.taken_over += moved.returned
        return moved

    def sweep(self, node: str) -> bool:  # noqa: ARG002  # there is no other node
        """Nothing to find."""
        return True

    def reconcile(self, held: Sequence[Lease]) -> int:
        """See the contract."""
        return self._frontier.reconcile(held)

    def rejoin(self) -> None:
        """Nothing to do: memory forgets nobody."""

    def close(self) -> None:
        """Nothing to drop."""
