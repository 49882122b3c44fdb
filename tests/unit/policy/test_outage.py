"""A server that is away: told of once, waited for as long as promised, and not at all by who stops."""

from __future__ import annotations

import math

import pytest

from netspy.policy.outage import OutageWatch


class Rig:
    """A watch on a clock that is turned by hand, without jitter; `told` are the reports."""

    def __init__(self, **changes):
        self.now = 100.0
        self.told = []
        self.watch = OutageWatch(
            lambda away, seconds: self.told.append((away, seconds)),
            clock=lambda: self.now,
            jitter=lambda: 1.0,
            **changes,
        )


def test_a_connection_that_was_merely_cut_is_replaced_at_once_and_nobody_hears_of_it():
    rig = Rig()
    assert rig.watch.failed(rig.watch.begin(math.inf)) == 0.0
    rig.watch.answered()
    assert rig.told == []


def test_many_calls_meet_one_outage_and_it_is_told_once_with_its_whole_length():
    rig = Rig()
    calls = [rig.watch.begin(math.inf) for _ in range(3)]
    for call in calls:
        rig.watch.failed(call)
    rig.now += 4
    waits = [rig.watch.failed(call) for call in calls]
    assert rig.told == [(True, 0.0)]
    assert waits == [0.2, 0.2, 0.2]
    rig.now += 2
    rig.watch.answered()
    rig.watch.answered()
    assert rig.told == [(True, 0.0), (False, 6.0)]


def test_the_next_outage_is_told_again():
    rig = Rig(excused=0)
    for _ in range(2):
        rig.watch.failed(rig.watch.begin(math.inf))
        rig.watch.answered()
    assert [away for away, _ in rig.told] == [True, False, True, False]


def test_waits_grow_and_end_with_the_patience_of_the_call():
    rig = Rig()
    call = rig.watch.begin(4.5)
    waits = []
    while (wait_s := rig.watch.failed(call)) != "over":
        waits.append(round(wait_s, 3))
        rig.now += wait_s
    assert waits == [0.0, 0.2, 0.4, 0.8, 1.6, 1.5]
    assert rig.now == pytest.approx(104.5)
    assert rig.watch.failed(rig.watch.begin(0.0)) == "over"


def test_a_call_without_a_limit_is_tried_for_ever():
    rig = Rig()
    call = rig.watch.begin(math.inf)
    for _ in range(2000):
        rig.now += 3600
        wait_s = rig.watch.failed(call)
    assert wait_s == 2.0


def test_who_stops_tries_a_cut_connection_once_more_and_no_server_that_is_known_to_be_away():
    rig = Rig()
    call = rig.watch.begin(math.inf)
    assert rig.watch.failed(call, stopping=True) == 0.0
    assert rig.watch.failed(call, stopping=True) == "stopping"
    assert rig.told == []
    other = rig.watch.begin(math.inf)
    rig.watch.failed(other)
    rig.watch.failed(other)
    assert rig.watch.failed(rig.watch.begin(math.inf), stopping=True) == "stopping"


def test_a_failure_from_before_the_last_answer_begins_no_outage_but_the_call_still_waits():
    rig = Rig()
    call = rig.watch.begin(math.inf)
    seen = rig.watch.answers
    rig.watch.answered()
    waits = [rig.watch.failed(call, news=rig.watch.answers == seen) for _ in range(2)]
    assert waits == [0.0, 0.2]
    assert rig.told == []
    rig.now += 50
    later = rig.watch.begin(math.inf)
    rig.watch.failed(later)
    rig.watch.failed(later)
    rig.now += 3
    rig.watch.answered()
    assert rig.told == [(True, 0.0), (False, 3.0)]


def test_trouble_that_passes_soon_is_not_told():
    rig = Rig(excused=0, told_after_s=1.0)
    call = rig.watch.begin(60.0)
    rig.watch.failed(call)
    rig.now += 0.9
    rig.watch.failed(call)
    assert rig.told == []
    assert not rig.watch.told
    rig.now += 0.1
    rig.watch.failed(call)
    assert rig.told == [(True, 0.0)]
    assert rig.watch.told
