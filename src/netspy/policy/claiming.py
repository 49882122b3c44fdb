"""How much a node may take: never much more than it can start, and a fair share when the queue is short."""

from __future__ import annotations

from collections.abc import Sequence

_LONG = 10
_SUSPECTS = (64, 8, 1)
LAST_CHANCE = len(_SUSPECTS)
"""The suspicion from which on an entry is handed out with no other suspect beside it."""


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


MAX_CLAIM_BYTES = 8 << 20
_HELD_BYTES = 32 << 20


def byte_budget(held_bytes: int) -> int:
    """How many bytes of entries to claim now, on top of `held_bytes` that were claimed and not started; 0 = none.

    The store gives one entry at least, however large it is. Where requests are small this never bounds anything.
    """
    return max(min(MAX_CLAIM_BYTES, _HELD_BYTES - held_bytes), 0)


def suspicion_limit(max_deliveries: int) -> int:
    """The suspicion above which an entry is poison: so often (SPIDER_MAX_DELIVERIES) it was lost with its process while it
    was the only suspect there. What was lost beside others doesn't count: any of them may have ended the process.
    """
    return LAST_CHANCE - 1 + max_deliveries


def suspect_room(held: Sequence[int], *, last_chances: bool = True) -> tuple[int, int, int]:
    """How many more entries with suspicion 1, 2, and 3 or more a node may take; `held`: the suspicion of each it has.

    Whatever a process holds when it dies becomes more suspect, so the more often an entry was there, the fewer share
    its fate. At its last chance an entry is with no other suspect: it must not be condemned for another's deed. With
    `last_chances` False none of these comes.
    """
    if held and max(held) >= LAST_CHANCE:
        return (0, 0, 0)
    ones, twos = held.count(1), held.count(2)
    alone = _SUSPECTS[2] if last_chances and not held else 0
    return (max(_SUSPECTS[0] - ones, 0), max(_SUSPECTS[1] - twos, 0), alone)


def last_chances_may_come(
    *, alive_s: float, calm_s: float, nothing_else: bool, since_offer_s: float, offer_every_s: float
) -> bool:
    """Whether a node may take an entry at its last chance now.

    Such an entry has been lost with its process three times and may be innocent: whoever kills nodes again and again
    (a supervisor, a machine short of memory) hits what they hold at that moment. So it keeps out of the way of such a
    series: it comes to a node that has lived for `calm_s` seconds, and only when the queue holds `nothing_else` for that
    node. A queue that never runs empty hides it for `offer_every_s` seconds at most.
    """
    return alive_s >= calm_s and (nothing_else or since_offer_s >= offer_every_s)
