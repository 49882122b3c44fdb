"""How much a node may take: never much more than it can start, and a fair share when the queue is short."""

from __future__ import annotations

_LONG = 10


def claim_limit(
    *, slots: int, free_slots: int, held: int, ceiling: int, queued: int | None, live_nodes: int
) -> int:
    """How many requests to claim now; 0 = none.

    `held` is claimed and unstarted, `ceiling` is COLLECTOR_TASK_COUNT, `queued` the queue's length as last seen
    (None = unknown). A full claim refills to twice the free slots, but at least to one round of slots, so that a
    busy node has its next requests at hand; the refill waits until half of them are used, which keeps round trips
    rare. From a long queue (ten ceilings and more) it takes a full ceiling, which starves nobody. While other nodes
    live and the queue is short, nobody holds more than its share.
    """
    ceiling = max(ceiling, 1)
    target = min(max(2 * free_slots, slots), ceiling)
    if queued is not None and queued >= _LONG * ceiling:
        target = ceiling
    if queued is not None and live_nodes > 1:
        share = -(-queued // live_nodes)
        target = min(target, max(share, free_slots, 1))
    if held > target // 2:
        return 0
    return max(target - held, 0)
