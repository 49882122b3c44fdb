"""What happens when in a chaos run: a function of the seed."""
# ruff: noqa: INP001 - part of a script

from __future__ import annotations

import random
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "kill", "freeze", "stop", "cut", "stall", "slow", "lose", "redis kill", "redis stop", "redis older"
]
NODE_KINDS: tuple[Kind, ...] = ("kill", "freeze", "stop")
NETWORK_KINDS: tuple[Kind, ...] = ("cut", "stall", "slow", "lose")
REDIS_KINDS: tuple[Kind, ...] = ("redis kill", "redis stop", "redis older")
LOST_ANSWERS = (
    "claim",
    "put",
    "settle",
    "move",
    "seed",
    "beat",
    "renew",
    "sweep",
    "reclaim",
    "counts",
    "join",
)


class Event(NamedTuple):
    """Trouble that begins at `at` and is over `seconds` later (seconds from the start). `detail`: which answer is lost.
    With "redis older" the server dies at the end, and is back at once in the state of the beginning.
    """

    at: float
    kind: Kind
    node: int
    seconds: float
    detail: str = ""

    def __str__(self) -> str:
        who = f" node {self.node}" if self.kind in NODE_KINDS else ""
        return f"{self.at:6.2f} s  {self.kind}{who} {self.detail} for {self.seconds:.2f} s"


def plan(seed: int, seconds: float, nodes: int) -> list[Event]:
    """The events of a run: a function of the arguments alone. Trouble of one kind doesn't overlap itself."""
    dice = random.Random(seed)
    free_at: dict[Any, float] = {}
    events: list[Event] = []
    now = 1.0
    while now < seconds:
        group, kinds = dice.choices(
            [("node", NODE_KINDS), ("network", NETWORK_KINDS), ("redis", REDIS_KINDS)], [6, 4, 1]
        )[0]
        kind = dice.choice(kinds)
        node = dice.randrange(nodes)
        # Half of the troubles are shorter than HEARTBEAT_STALE, half longer; few outlast the lease.
        lasts = dice.choice([dice.uniform(0.1, 1.3), dice.uniform(1.3, 3.5), dice.uniform(0.2, 7.0)])
        detail = dice.choice(LOST_ANSWERS) if kind == "lose" else ""
        place = (group, node) if group == "node" else group
        if free_at.get(place, 0.0) <= now:
            if kind == "lose":
                lasts = 0.0
            elif group != "node":
                lasts = min(lasts, 3.0)
            events.append(Event(round(now, 2), kind, node, round(lasts, 2), detail))
            free_at[place] = now + lasts + (1.0 if group == "redis" else 0.3)
        now += dice.uniform(0.15, 1.2)
    return events
