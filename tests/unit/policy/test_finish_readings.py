"""Two readings of the counts tell whether anything moved between them."""

import pytest

from netspy.messages.entry import Counts
from netspy.policy.finish import nothing_moved

NOTHING = Counts(queued=0, leased=0, delayed=0, failed=0, seed="seeded")


@pytest.mark.parametrize("place", ["queued", "leased", "delayed", "failed", "tasks_done", "tasks_failed"])
def test_whatever_moves_a_request_or_ends_a_task_between_two_readings_is_seen(place):
    assert not nothing_moved(NOTHING, NOTHING._replace(**{place: 1}))


def test_time_alone_moves_nothing():
    assert nothing_moved(NOTHING._replace(seed_age_s=1.0), NOTHING._replace(seed_age_s=2.0))
