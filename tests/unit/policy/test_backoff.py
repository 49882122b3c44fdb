"""Waits between tries: long enough for whoever is tried, never beyond the cap, not all at the same moment."""

from __future__ import annotations

import pytest

from netspy.policy.backoff import Backoff, backoff_s


@pytest.mark.parametrize(("n", "wait_s"), [(0, 0.2), (1, 0.4), (2, 0.8), (3, 1.6), (4, 2.0), (5, 2.0)])
def test_a_wait_is_twice_the_one_before_up_to_the_cap(n, wait_s):
    assert backoff_s(n, first_s=0.2, cap_s=2.0) == pytest.approx(wait_s)


def test_a_million_failures_are_no_overflow():
    assert backoff_s(1_000_000, first_s=0.1, cap_s=60.0) == 60.0


def test_jitter_takes_up_to_half_of_a_wait_also_at_the_cap():
    assert backoff_s(0, first_s=1.0, cap_s=2.0, jitter=0.0) == 0.5
    assert backoff_s(9, first_s=1.0, cap_s=2.0, jitter=0.0) == 1.0
    assert backoff_s(9, first_s=1.0, cap_s=2.0, jitter=0.5) == 1.5


def test_a_first_wait_beyond_the_cap_is_capped_and_none_stays_none():
    assert backoff_s(0, first_s=9.0, cap_s=2.0) == 2.0
    assert backoff_s(7, first_s=0.0, cap_s=2.0) == 0.0


def test_after_success_the_waits_begin_anew():
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_s() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    backoff.reset()
    assert backoff.next_s() == 1.0
