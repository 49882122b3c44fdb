"""The limits that end a run."""

import pytest

from netspy.policy.limits import limit_of, runtime_over
from netspy.settings import Settings


def test_without_limits_there_is_nothing_to_ask():
    assert limit_of(Settings(), {}.__getitem__) is None


@pytest.mark.parametrize(
    ("name", "counter"),
    [("SPIDER_MAX_PAGES", "pages"), ("SPIDER_MAX_ITEMS", "items"), ("SPIDER_MAX_ERRORS", "request_failed")],
)
def test_a_limit_is_reached_with_its_number(name, counter):
    counts = {"pages": 0, "items": 0, "request_failed": 0}
    reached = limit_of(Settings(**{name: 3}), counts.__getitem__)
    counts[counter] = 2
    assert reached() is None
    counts[counter] = 3
    assert reached() == f"{name}=3 reached"


def test_a_run_without_a_time_limit_is_never_over_by_time():
    assert runtime_over(Settings(), 1e9) is None
    assert runtime_over(Settings(SPIDER_MAX_RUNTIME=5), 4.9) is None
    assert runtime_over(Settings(SPIDER_MAX_RUNTIME=5), 5.0) == "SPIDER_MAX_RUNTIME=5 reached"
