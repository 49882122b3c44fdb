"""Which suspects a node takes, claim after claim."""

from __future__ import annotations

import pytest

from netspy.engine.claimer import Suspects
from netspy.engine.leases.held import HeldLeases
from netspy.messages.entry import Claimed, Lease
from support.engine import env_of

STALE = 15.0


class Node:
    """What a node does with its suspects, on a clock that is turned."""

    def __init__(self, lot: float = 0.0) -> None:
        self.now = 0.0
        env = env_of()
        self.held = HeldLeases(env.counters, env.log)
        self.suspects = Suspects(self.held, STALE, clock=lambda: self.now, lot=lambda: lot)

    def claims(self, *suspicions: int, queued: int = 0) -> tuple[int, int, int]:
        """One claim that brings leases of these suspicions; the room it was made with."""
        room = self.suspects.room()
        leases = [
            Lease(seq=i, payload=b"", priority=1.0, site="aa", suspicion=s) for i, s in enumerate(suspicions)
        ]
        self.held.took(leases)
        self.suspects.took(Claimed(leases, queued, 0, 0, None))
        return room

    def settles(self) -> None:
        self.held.void()


@pytest.mark.parametrize(("lot", "calm_s"), [(0.0, 15.0), (0.5, 22.5), (1.0, 30.0)])
def test_a_young_node_takes_no_last_chance_and_how_long_it_is_young_is_drawn_by_lot(lot, calm_s):
    node = Node(lot)
    for at in (0.0, calm_s - 0.1):
        node.now = at
        assert node.claims(queued=1)[2] == 0
    node.now = calm_s
    assert node.claims(queued=1)[2] == 1


def test_last_chances_come_one_by_one_once_the_queue_has_nothing_else():
    node = Node()
    node.now = 40.0
    assert node.claims(0, 1, queued=9) == (64, 8, 0)
    assert node.claims(0, queued=9) == (63, 8, 0), "the suspect is still held"
    assert node.claims(queued=9) == (63, 8, 0)
    node.settles()
    assert node.claims(3, queued=8) == (64, 8, 1), "the last claim had brought nothing"
    assert node.claims(queued=8) == (0, 0, 0), "beside it there is no other suspect"
    node.settles()
    assert node.claims(4, queued=7) == (64, 8, 1)
    node.settles()
    assert node.claims(0, queued=7) == (64, 8, 1), "it can't know of new requests"
    node.settles()
    assert node.claims(queued=7) == (64, 8, 0)


def test_an_empty_queue_is_not_one_with_nothing_else():
    node = Node()
    node.now = 40.0
    node.claims(queued=0)
    assert node.claims(queued=0)[2] == 0


def test_a_queue_that_never_runs_empty_hides_them_for_a_while_only():
    node = Node()
    rooms = []
    for now in range(0, 200, 5):
        node.now = float(now)
        rooms.append(node.claims(0, queued=1000)[2])
        node.settles()
    assert [at * 5 for at, room in enumerate(rooms) if room] == [60, 120, 180]
