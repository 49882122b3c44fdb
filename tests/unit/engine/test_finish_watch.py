"""How a node that had nothing to do itself says the run has ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netspy.engine.control import Control
from netspy.engine.finish import FinishWatch
from netspy.engine.gauge import NodeGauge
from netspy.messages.entry import Counts
from support.engine import env_of

EMPTY = Counts(0, 0, 0, 0, "seeded", seed_age_s=100.0)


async def ended(looks, left_behind=""):
    """The outcome that a node without work gives a run of which it sees these counts, one after the other."""
    left, env = list(looks), env_of(shared=True)

    async def counts():
        return left.pop(0)

    control, seeding = (
        Control(env.log),
        SimpleNamespace(begin_again=lambda: None, left_behind=left_behind, error=None),
    )
    frontier = SimpleNamespace(counts=counts)
    watch = FinishWatch(
        env, control, NodeGauge(), frontier, seeding, None, waiting_in=(), elapsed_s=lambda: 0.0
    )
    over = [await watch.over() for _ in looks]
    assert over == [False] * (len(looks) - 1) + [True]
    return control.ended.outcome


@pytest.mark.parametrize(
    "at_work", [{"queued": 1}, {"leased": 1}, {"delayed": 1}, {"seed": "seeding"}], ids=str
)
@pytest.mark.parametrize("left_behind", ["", "this job was seeded 3 s ago"])
async def test_the_last_to_leave_of_a_run_that_others_worked_off_has_not_met_an_empty_one(
    at_work, left_behind
):
    during = EMPTY._replace(live_nodes=2, **at_work)
    assert await ended([during, EMPTY], left_behind) == "finished"


async def test_whoever_is_alone_with_a_finished_job_had_nothing_to_do():
    assert await ended([EMPTY], "this job was seeded 100 s ago") == "nothing_to_do"
    assert await ended([EMPTY._replace(seed="seeding"), EMPTY]) == "nothing_to_do", (
        "whoever was seeding is dead"
    )
