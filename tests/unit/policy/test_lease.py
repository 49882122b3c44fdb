"""A lease's times are ordered: started and renewed while it is trusted, and trusted for less than the store keeps it."""

import math

import pytest

from netspy.policy.lease import LeaseTimes
from netspy.settings import Settings


def times(lease_s: float, heartbeat_s: float = 1.0) -> LeaseTimes:
    return LeaseTimes.of(
        Settings(SPIDER_TASK_LEASE=lease_s, HEARTBEAT_INTERVAL=heartbeat_s, HEARTBEAT_STALE=60.0)
    )


@pytest.mark.parametrize(
    ("lease_s", "expected"),
    [
        (4.0, LeaseTimes(duration_s=4.0, trusted_s=3.6, start_margin_s=1.0, renew_below_s=3.0)),
        (2.0, LeaseTimes(duration_s=2.0, trusted_s=1.8, start_margin_s=0.5, renew_below_s=3.0)),
        (60.0, LeaseTimes(duration_s=60.0, trusted_s=58.0, start_margin_s=1.0, renew_below_s=30.0)),
        (600.0, LeaseTimes(duration_s=600.0, trusted_s=598.0, start_margin_s=1.0, renew_below_s=300.0)),
    ],
)
def test_a_node_stops_trusting_a_lease_before_the_store_does(lease_s, expected):
    assert times(lease_s) == expected


@pytest.mark.parametrize("lease_s", [2.0, 4.0, 20.0, 600.0])
def test_pages_of_the_shortest_lease_can_start_and_a_long_one_is_renewed_while_it_is_trusted(lease_s):
    made = times(lease_s)
    assert 0 < made.start_margin_s < made.trusted_s < lease_s
    assert made.renew_below_s >= 3.0, "three heartbeats before its end a lease is due"


def test_a_slow_heartbeat_renews_earlier():
    assert times(60.0, heartbeat_s=15.0).renew_below_s == 45.0


def test_leases_that_are_off_never_run_out_and_are_never_due():
    made = times(0)
    now = 1e9
    valid_until = now + made.trusted_s
    assert made.duration_s is None
    assert not valid_until < now + made.start_margin_s
    assert not valid_until - now < made.renew_below_s
    assert valid_until == math.inf


@pytest.mark.parametrize(("lease_s", "text"), [(0, "+inf"), (4, "4000"), (2.0004, "2000"), (2.0006, "2001")])
def test_scripts_get_whole_milliseconds_or_infinity(lease_s, text):
    assert times(lease_s).wire == text
