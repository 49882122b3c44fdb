"""What a node knows of the run and of itself at this moment."""

from __future__ import annotations

import time


class Standing:
    """Read and written by the parts of one node, on its loop.

    `queued`: the queue's length as last counted (None = not yet), `fed`: requests put there by the task feeder since.
    `live_nodes`: as the last heartbeat said. `seeding`: this node is at it. `had_work`: it has seeded or claimed something.
    `state`: for people.
    """

    __slots__ = ("fed", "had_work", "live_nodes", "queued", "seeding", "started", "state")

    def __init__(self) -> None:
        self.queued: int | None = None
        self.fed = 0
        self.live_nodes = 1
        self.seeding = False
        self.had_work = False
        self.state = "starting"
        self.started = time.monotonic()

    def counted(self, queued: int) -> None:
        """The queue has just been counted: the number holds all that was fed."""
        self.queued = queued
        self.fed = 0

    def ahead(self, limit: int) -> bool:
        """Whether so many requests wait that no more should be put there."""
        return (self.queued or 0) + self.fed >= limit

    @property
    def elapsed_s(self) -> float:
        """Seconds since the node was made."""
        return time.monotonic() - self.started
