"""What a node knows of the queue and of its own work, as numbers."""

from __future__ import annotations


class NodeGauge:
    """Read and written by the parts of one node, on its loop; the lease keeper's thread writes `live_nodes`."""

    __slots__ = ("active", "fed", "had_work", "live_nodes", "queued", "seeding")

    def __init__(self) -> None:
        self.queued: int | None = None  #: the queue's length at the last count; None before the first
        self.fed = 0  #: requests put there by the task feeder since that count
        self.live_nodes = 1  #: as the last heartbeat said, this one included
        self.seeding = False  #: this node draws start_requests
        self.had_work = False  #: it has seeded, or claimed something
        self.active = 0  #: workers at work on a request

    def on_count(self, queued: int) -> None:
        """The queue was counted: the number holds all that was fed."""
        self.queued = queued
        self.fed = 0

    def is_ahead(self, limit: int) -> bool:
        """Whether so many requests wait that no more should be put there."""
        return (self.queued or 0) + self.fed >= limit
