"""When a run is over, why it is not, and how a node that had nothing to do itself says it has ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netspy.engine.control import Control, NodeGauge
from netspy.engine.finish import FinishWatch
from netspy.engine.page.page import LastStep
from netspy.messages.entry import Counts
from netspy.tasks.contract import Backlog
from support.engine import Gated, entries_of, env_of, lease_of

EMPTY = Counts(0, 0, 0, 0, "seeded", seed_age_s=100.0)


async def ended(looks, left_behind="", in_time=False):
    """The outcome that a node without work gives a run of which it sees these counts, one after the other."""
    left, env = list(looks), env_of(shared=True)

    async def counts():
        return left.pop(0)

    control, seeding = (
        Control(env.log),
        SimpleNamespace(begin_again=lambda: None, left_behind=left_behind, in_time=in_time, error=None),
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


async def test_a_node_of_the_same_start_that_comes_when_all_is_done_has_not_met_an_old_job():
    """Started a moment after the first one, whose job is over by then: no "set a new RUN_ID", no exit code 9."""
    assert await ended([EMPTY], in_time=True) == "finished"


async def test_whoever_is_alone_with_a_finished_job_had_nothing_to_do():
    assert await ended([EMPTY], "this job was seeded 100 s ago") == "nothing_to_do"
    assert await ended([EMPTY._replace(seed="seeding"), EMPTY]) == "nothing_to_do", (
        "whoever was seeding is dead"
    )


# -- one look


class Told(Gated):
    """A frontier whose counts are given, one after the other; the last ones stay."""

    def __init__(self, *looks):
        super().__init__()
        self.looks = list(looks)

    async def counts(self):
        self.told.append("counts")
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


class Feeding:
    """In the place of the feeder: `why` more tasks may come, and what the source says of itself, look for look."""

    def __init__(self, why=None, *backlogs):
        self.why, self.backlogs, self.busy = why, list(backlogs) or [Backlog(0, 0, 7)], False

    async def backlog(self):
        return self.backlogs.pop(0) if len(self.backlogs) > 1 else self.backlogs[0]

    async def open_because(self, backlog):
        return self.why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"seed": "none"}, "nobody has seeded yet"),
        ({"seed": "seeding", "seed_detail": "node 3"}, "seeding is going on (node 3)"),
        ({"queued": 4}, "4 request(s) queued"),
        ({"leased": 2}, "2 request(s) leased"),
        ({"delayed": 1}, "1 request(s) delayed"),
    ],
)
async def test_a_run_with_work_anywhere_goes_on_and_says_why(bench, changed, why):
    b = bench(frontier=Told(EMPTY._replace(**changed)))
    watch = b.finish()
    assert not await watch.over()
    assert (watch.unfinished, b.control.ended) == (why, None)
    assert b.gauge.queued == changed.get("queued", 0)
    watch.on_work()
    assert watch.unfinished is None, "with work in hand, the last look is old"


async def test_a_node_that_comes_into_a_fresh_run_waits_for_its_share(bench):
    b = bench(frontier=Told(EMPTY._replace(live_nodes=2, seed_age_s=1.0)), shared=True)
    watch = b.finish()
    assert not await watch.over()
    assert "no work yet" in watch.unfinished
    b.gauge.had_work = True
    assert await watch.over()


async def test_after_a_page_an_empty_run_is_finished(bench):
    b = bench(frontier=Told(EMPTY))
    b.counters.inc("pages")
    assert await b.finish().over()
    assert b.control.ended.outcome == "finished"


async def test_a_run_that_stays_is_never_over_by_itself_and_still_counts(bench):
    b = bench(frontier=Told(EMPTY, EMPTY._replace(seed="failed")))
    watch = b.finish(keep_alive=True)
    assert [await watch.over(), await watch.over()] == [False, False]
    assert watch.counts.seed == "failed"
    assert not b.control.stopping


@pytest.mark.parametrize("keep_alive", [False, True])
async def test_a_run_whose_keys_are_gone_is_lost_whatever_it_waits_for(bench, keep_alive):
    b = bench(frontier=Told(EMPTY._replace(intact=False, queued=3)))
    assert await b.finish(keep_alive=keep_alive).over()
    assert b.control.ended.outcome == "store_lost"


@pytest.mark.parametrize("left", ["queued", "leased", "delayed"])
async def test_a_failed_seeding_ends_the_run_once_what_was_yielded_is_crawled(bench, left):
    failed = EMPTY._replace(seed="failed", seed_detail="node 3: no list")
    b = bench(frontier=Told(failed._replace(**{left: 1}), failed))
    watch = b.finish()
    assert not await watch.over()
    assert await watch.over()
    assert b.control.ended[:2] == ("seeding_failed", "node 3: no list")


async def test_a_node_says_itself_why_its_seeding_failed(bench):
    b = bench(frontier=Told(EMPTY._replace(seed="failed", seed_detail="node 3: no list")))
    seeding = b.seeding()
    seeding.error = "start_requests (main.py:3) raised OSError"
    assert await b.finish(seeding=seeding).over()
    assert b.control.ended.reason == seeding.error


@pytest.mark.parametrize("seed", ["none", "seeding"])
@pytest.mark.parametrize("keep_alive", [False, True])
async def test_a_seeding_that_the_store_says_is_not_over_is_begun_again(bench, seed, keep_alive):
    begun = []
    seeding = SimpleNamespace(begin_again=lambda: begun.append(seed), left_behind="", error=None)
    b = bench(frontier=Told(EMPTY._replace(seed=seed)))
    assert not await b.finish(seeding=seeding, keep_alive=keep_alive).over()
    assert begun == [seed]


async def test_a_run_goes_on_while_its_task_source_may_bring_more(bench):
    b, feeder = bench(frontier=Told(EMPTY)), Feeding("2 task(s) waiting")
    watch = b.finish(feeder=feeder)
    assert not await watch.over()
    assert watch.unfinished == "2 task(s) waiting"
    feeder.why = None
    assert await watch.over()


@pytest.mark.parametrize(
    ("backlogs", "looks"),
    [
        ([Backlog(0, 0, 7), Backlog(0, 0, 8)], [EMPTY]),
        ([Backlog(0, 0, 7)], [EMPTY, EMPTY._replace(queued=1)]),
        ([Backlog(0, 0, 7)], [EMPTY, EMPTY._replace(tasks_done=1)]),
    ],
    ids=["the source moved", "a request came", "a task ended"],
)
async def test_a_task_on_its_way_from_the_source_to_the_frontier_is_not_overlooked(bench, backlogs, looks):
    b = bench(frontier=Told(*looks))
    watch = b.finish(feeder=Feeding(None, *backlogs))
    assert not await watch.over()
    assert watch.unfinished == "tasks are on their way"


# -- idle


@pytest.mark.parametrize("what", ["a worker", "the seeding", "a lease", "an ack", "an item", "the feeder"])
async def test_a_node_with_work_anywhere_is_not_idle(bench, what):
    b, feeder = bench(), Feeding()
    watch = b.finish(feeder=feeder)
    assert watch.is_idle
    match what:
        case "a worker":
            b.gauge.active = 1
        case "the seeding":
            b.gauge.seeding = True
        case "a lease":
            b.slots.add([lease_of()])
        case "an ack":
            b.outbox.settle(lease_of())
        case "an item":
            b.items.add(LastStep(), [object()])
        case "the feeder":
            feeder.busy = True
    assert not watch.is_idle


async def test_a_look_reads_the_counts_and_decides_nothing(bench):
    b = bench()
    watch = b.finish()
    await b.frontier.put(entries_of("http://a.example/"))
    await watch.look()
    assert (watch.counts.queued, watch.unfinished, b.gauge.queued) == (1, None, None)
