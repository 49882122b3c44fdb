"""How fast nodes are, from what their heartbeats say: the counters in Redis change with a beat, not between."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from netspy.observe.summary import handled_otherwise

if TYPE_CHECKING:
    from netspy.cluster.nodes import NodeInfo
    from netspy.cluster.status import Status

WINDOW_S = 15.0
SAME_BEAT_S = 0.05
"""Ages come in milliseconds: beats nearer to each other than this are one."""


def done_of(counters: dict[str, int]) -> int:
    """Requests that are over and did not fail."""
    return counters.get("request_ok", 0) + handled_otherwise(Counter(counters))


def over(node: NodeInfo) -> int:
    """Requests that are over, failed ones too."""
    return done_of(node.counters) + node.counters.get("request_failed", 0)


class BeatRates:
    """Requests per second of each node over its last beats, for at most WINDOW_S seconds."""

    def __init__(self) -> None:
        self._beats: dict[str, deque[tuple[float, int]]] = {}

    def update(self, status: Status) -> None:
        """Take what the nodes said last."""
        for node in status.nodes:
            beats = self._beats.setdefault(node.id, deque())
            at, count = status.now - node.beat_age_s, over(node)
            if beats and count < beats[-1][1]:
                beats.clear()
            if not beats or at - beats[-1][0] > SAME_BEAT_S:
                beats.append((at, count))
            while len(beats) > 2 and beats[1][0] <= at - WINDOW_S:
                beats.popleft()

    def complete(self, status: Status) -> bool:
        """Whether each live node has beaten twice."""
        return all(self.of(node) is not None for node in status.nodes if node.alive)

    def of(self, node: NodeInfo) -> float | None:
        """Of one node; None until it has beaten twice, 0 for a dead one."""
        if not node.alive:
            return 0.0
        beats = self._beats.get(node.id)
        if beats is None or len(beats) < 2:
            return None
        (start, before), (end, after) = beats[0], beats[-1]
        return (after - before) / (end - start)

    def total(self, status: Status) -> float | None:
        """Of all nodes together; None when no live node's is known."""
        known = [rate for node in status.nodes if node.alive and (rate := self.of(node)) is not None]
        if not known and status.live_nodes:
            return None
        return sum(known)
