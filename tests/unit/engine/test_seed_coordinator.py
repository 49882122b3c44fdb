"""One node at a time seeds; others wait, and take over from one that died."""

from __future__ import annotations

import pytest

from netspy.errors import StoreLostError
from netspy.frontier.contract import SeedsLostError
from netspy.testing.clock import FakeClock
from support.engine import Gated, Spider, until

TTL_S = 10.0


class Shop(Spider):
    calls = 0

    def start_requests(self):
        self.calls += 1
        return ["http://a.example/1", "http://a.example/2"]


class Broken(Spider):
    def start_requests(self):
        raise OSError("no list")


@pytest.fixture
def coordinating(bench):
    def make(spider=None, *, frontier=None, shared=False, **keywords):
        clock = FakeClock()
        b = bench(
            spider or Shop(),
            frontier=frontier or Gated(clock=clock, seeding_ttl_s=TTL_S),
            clock=clock,
            shared=shared,
            HEARTBEAT_INTERVAL=0.005,
        )
        b.outbox.start()
        b.seeding = b.seeding(**keywords)
        return b

    return make


async def at_rest(b):
    await until(b.seeding.task.done)
    assert b.seeding.task.exception() is None


async def test_whoever_has_the_lock_seeds_once(coordinating):
    b = coordinating()
    b.seeding.begin()
    await at_rest(b)
    counts = await b.frontier.counts()
    assert (counts.queued, counts.seed, b.spider.calls) == (2, "seeded", 1)
    assert (b.seeding.done, b.seeding.error) == (True, None)
    assert (b.gauge.had_work, b.gauge.seeding) == (True, False)
    assert await b.control.changed(0.0), "there may be work now"


async def test_a_seeding_without_seeds_wakes_whoever_asks_whether_the_run_is_over(coordinating):
    b = coordinating(Spider())
    b.seeding.begin()
    await at_rest(b)
    assert await b.control.changed(0.0)


async def test_while_another_node_seeds_this_one_waits_and_takes_over_from_a_dead_one(coordinating):
    b = coordinating()
    assert (await b.frontier.seed_acquire()).token, "another node"
    b.seeding.begin()
    await until(lambda: b.frontier.told.count("seed_acquire") >= 4)
    assert (b.spider.calls, b.gauge.seeding, b.seeding.done) == (0, False, False)
    b.clock.advance(TTL_S + 1)
    await at_rest(b)
    assert (b.spider.calls, b.seeding.done) == (1, True)


async def test_when_another_node_has_seeded_there_is_nothing_to_draw(coordinating):
    b = coordinating()
    other = await b.frontier.seed_acquire()
    b.seeding.begin()
    await until(lambda: b.frontier.told.count("seed_acquire") >= 2)
    await b.frontier.seed_finish(other.token)
    await at_rest(b)
    assert (b.spider.calls, b.seeding.done, b.gauge.had_work) == (0, False, False)


async def test_the_failure_of_a_seeding_that_was_waited_for_is_this_runs_failure(coordinating):
    b = coordinating()
    other = await b.frontier.seed_acquire()
    b.seeding.begin()
    await until(lambda: b.frontier.told.count("seed_acquire") >= 2)
    await b.frontier.seed_finish(other.token, error="no list")
    await at_rest(b)
    assert b.seeding.error == "no list"


async def test_the_failure_of_an_earlier_run_is_not_this_ones(coordinating):
    b = coordinating()
    other = await b.frontier.seed_acquire()
    await b.frontier.seed_finish(other.token, error="no list")
    b.seeding.begin()
    await at_rest(b)
    assert b.seeding.error is None


async def test_a_failed_start_requests_is_known_when_the_run_asks_why(coordinating):
    b = coordinating(Broken())
    b.seeding.begin()
    await at_rest(b)
    assert "OSError: no list" in b.seeding.error
    assert not b.seeding.done


async def test_a_resumed_run_does_not_seed_again_and_is_marked_seeded(coordinating):
    b = coordinating(resumed=True)
    b.seeding.begin()
    await at_rest(b)
    counts = await b.frontier.counts()
    assert (b.spider.calls, counts.seed, counts.queued) == (0, "seeded", 0)
    assert (b.seeding.done, b.gauge.had_work) == (True, True)
    before = b.seeding.task
    b.seeding.begin_again()
    assert b.seeding.task is before


@pytest.mark.parametrize("age_s", [5.0, 300.0])
async def test_a_job_that_was_finished_long_ago_is_said_and_a_node_that_comes_late_is_not_bothered(
    coordinating, age_s
):
    b = coordinating(leaves_behind=True, process_age_s=lambda: 0.1)
    await b.seeded()
    b.clock.advance(age_s)
    b.seeding.begin()
    await at_rest(b)
    assert ("nothing to do: this job was seeded" in b.log) == (age_s == 300.0)
    assert b.seeding.left_behind, "for the end, which may have no more to say"


@pytest.mark.parametrize(
    ("age_s", "process_age_s", "in_time"), [(0.3, 0.4, True), (5.0, 6.0, True), (0.6, 0.2, False)]
)
async def test_a_node_of_the_same_start_is_told_from_one_that_meets_a_finished_job(
    coordinating, age_s, process_age_s, in_time
):
    b = coordinating(leaves_behind=True, process_age_s=lambda: process_age_s)
    await b.seeded()
    b.clock.advance(age_s)
    b.seeding.begin()
    await at_rest(b)
    assert (b.seeding.in_time, bool(b.seeding.left_behind)) == (in_time, not in_time)


async def test_where_more_work_may_come_an_old_job_is_worth_no_word(coordinating):
    b = coordinating()
    await b.seeded()
    b.clock.advance(300.0)
    b.seeding.begin()
    await at_rest(b)
    assert (b.log.lines, b.seeding.left_behind) == ([], "")


async def test_a_seeding_begins_again_only_from_rest(coordinating):
    b = coordinating()
    b.seeding.begin_again()
    assert b.seeding.task is None, "it has not begun"
    b.frontier.gates["seed_acquire"].clear()
    b.seeding.begin()
    first = b.seeding.task
    await until(lambda: b.frontier.told)
    b.seeding.begin_again()
    assert b.seeding.task is first, "it is under way"
    b.frontier.gates["seed_acquire"].set()
    await at_rest(b)
    b.seeding.begin_again()
    assert b.seeding.task is not first
    await at_rest(b)
    last = b.seeding.task
    b.control.stop("told to")
    b.seeding.begin_again()
    assert b.seeding.task is last, "the node leaves"


class GoesBackOnce(Gated):
    """Forgets at the first seeds that anybody seeds."""

    async def put(self, entries, **keywords):
        if "gone back" not in self.told:
            self.told.append("gone back")
            self._seed.state = "none"
            raise SeedsLostError("the store went back")
        return await super().put(entries, **keywords)


async def test_seeds_that_were_lost_with_the_store_are_drawn_again(coordinating):
    b = coordinating(frontier=GoesBackOnce())
    b.seeding.begin()
    await at_rest(b)
    counts = await b.frontier.counts()
    assert (b.spider.calls, counts.queued, counts.seed) == (2, 2, "seeded")
    assert "start_requests runs again" in b.log
    assert b.seeding.done


async def test_a_store_that_is_lost_during_the_seeding_ends_the_run(coordinating):
    class Lost(Gated):
        async def seed_acquire(self):
            raise StoreLostError("gone")

    b = coordinating(frontier=Lost())
    b.seeding.begin()
    assert (await b.control.stopped()).outcome == "store_lost"
