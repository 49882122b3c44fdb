"""What a batch master does in each step, on a task table in memory and a turned clock."""

from datetime import timedelta

import pytest

from netspy.engine.batch.lock import MasterLock
from netspy.engine.batch.steps import MasterSteps
from netspy.engine.batch.store_calls import MasterExit, StoreCalls
from netspy.engine.control import Control
from netspy.errors import ConfigError
from netspy.policy.batch import DOING, DONE, FAILED, TODO, Schedule
from netspy.tasks.memory_batch import MemoryBatchStore
from netspy.testing.clock import FakeClock
from support.engine import FakeBatchQueue, Lines, env_of

HOUR_S = 3600.0


class Rig:
    """A master's steps and what they are made from. One clock for the process, the queue and the table."""

    def __init__(self, rows=3, *, once=False, store=MemoryBatchStore, queue=FakeBatchQueue, **settings):
        self.clock = FakeClock()
        self.queue = queue(self.clock)
        self.store = store([{"id": n} for n in range(1, rows + 1)], clock=self.clock)
        self.env = env_of(name="Crawl", clock=self.clock, HEARTBEAT_STALE=1e9, **settings)
        calls = StoreCalls(self.env, Control(Lines()))
        self.lock = MasterLock(self.env, self.store, self.queue, calls, job="netspy:Crawl", once=once)
        self.steps = MasterSteps(
            self.env,
            self.store,
            self.queue,
            calls,
            self.lock,
            schedule=Schedule(HOUR_S),
            once=once,
            id_field="id",
        )

    async def begin(self):
        await self.queue.acquire()
        self.queue.place["until"] = float("inf")
        await self.steps.begin()
        return self

    def states(self):
        return [row["batch_status"] for row in self.store.rows]

    def mark(self, *ids, state=DONE):
        self.queue.pushed = [one for one in self.queue.pushed if one[2] not in ids]
        self.store.mark_tasks([(task_id, state) for task_id in ids])


async def test_opening_a_batch_makes_every_task_new_and_the_workers_forget_the_last_batch():
    rig = await Rig().begin()
    rig.store.mark_tasks([(1, DONE), (2, FAILED)])
    assert await rig.steps.step() == 0.0
    assert rig.states() == [TODO, TODO, TODO]
    assert rig.queue.begun == 1
    [record] = rig.store.records
    assert (record.id, record.total_count, record.is_done) == (1, 3, False)
    assert rig.steps.batch == 1


async def test_tasks_are_claimed_until_the_push_limit_waits_for_the_workers():
    rig = await Rig(10, BATCH_PUSH_LIMIT=4, BATCH_MONITOR_INTERVAL=7.0).begin()
    await rig.steps.step()
    assert await rig.steps.step() == 7.0
    assert [(batch, round_, task_id) for batch, round_, task_id, _ in rig.queue.pushed] == [
        (1, 0, n) for n in (1, 2, 3, 4)
    ]
    rig.mark(1, 2, 3)
    await rig.steps.step()
    assert len(rig.queue.pushed) == 4, "one had been left, so three more"
    assert rig.states().count(DOING) == 4
    assert rig.steps.counts.done == 3


async def test_tasks_without_a_sign_of_life_come_back_in_a_round_of_their_own():
    rig = await Rig(2, BATCH_LOST_TASK_STALE=600.0).begin()
    await rig.steps.step()
    await rig.steps.step()
    rig.queue.pushed = []
    rig.queue.live = [2]
    rig.clock.advance(601.0)
    await rig.steps.step()
    assert [(round_, task_id) for _, round_, task_id, _ in rig.queue.pushed] == [(1, 1)]
    assert "1 task(s) were in process without a sign of life for 600 s" in rig.env.log


async def test_who_waits_for_a_worker_longer_than_a_task_may_be_stale_is_not_lost():
    rig = await Rig(2, BATCH_LOST_TASK_STALE=600.0).begin()
    await rig.steps.step()
    for _ in range(3):
        await rig.steps.step()
        rig.clock.advance(599.0)
    assert len(rig.queue.pushed) == 2
    assert rig.queue.round == 0


class TurnedAfterTouch(MemoryBatchStore):
    """The table goes away for a thousand seconds when it has written the times of the living."""

    def touch_tasks(self, ids):
        touched = super().touch_tasks(ids)
        self._clock.advance(1000.0)
        return touched


async def test_the_time_of_an_outage_makes_no_task_stale():
    rig = await Rig(2, store=TurnedAfterTouch, BATCH_LOST_TASK_STALE=600.0).begin()
    await rig.steps.step()
    await rig.steps.step()
    await rig.steps.step()
    assert rig.queue.round == 0
    assert rig.states() == [DOING, DOING]


async def test_a_row_that_cannot_travel_fails_with_its_reason_and_holds_up_nothing():
    rig = Rig(0)
    rig.store.add_tasks([{"id": 1, "odd": object()}, {"id": 2}])
    await rig.begin()
    await rig.steps.step()
    await rig.steps.step()
    assert rig.states() == [FAILED, DOING]
    assert "error: task 1 can't be handed to a worker and is marked failed" in rig.env.log


async def test_a_batch_is_closed_when_every_task_is_settled_and_the_failed_ones_are_named():
    rig = await Rig(3).begin()
    await rig.steps.step()
    await rig.steps.step()
    rig.mark(1, 2)
    rig.mark(3, state=FAILED)
    assert await rig.steps.step() == 0.0
    [record] = rig.store.records
    assert (record.done_count, record.fail_count, record.total_count, record.is_done) == (2, 1, 3, True)
    assert rig.queue.done == [1]
    assert rig.queue.told[-1]["is_done"] is True
    assert "warning: batch 1 is done with 1 failed of 3: 3" in rig.env.log.lines


async def test_a_resident_master_waits_until_the_next_batch_is_due_and_says_so_once():
    rig = await Rig(0, BATCH_MONITOR_INTERVAL=10.0).begin()
    await rig.steps.step()
    await rig.steps.step()
    assert await rig.steps.step() == 10.0
    rig.clock.advance(HOUR_S - 4)
    assert await rig.steps.step() == pytest.approx(4.0, abs=1.0)
    assert sum("the next one is due" in line for line in rig.env.log.lines) == 1
    rig.clock.advance(5)
    assert await rig.steps.step() == 0.0
    assert len(rig.store.records) == 2


async def test_a_single_run_leaves_when_it_has_brought_a_batch_to_its_end():
    rig = await Rig(0, once=True).begin()
    await rig.steps.step()
    await rig.steps.step()
    with pytest.raises(MasterExit) as left:
        await rig.steps.step()
    assert left.value.outcome == "finished"


async def test_a_single_run_leaves_at_once_when_no_batch_is_due():
    rig = Rig(once=True)
    rig.store.finish_batch(rig.store.create_batch(rig.store.now(), 3, 1, "hour"))
    await rig.begin()
    with pytest.raises(MasterExit, match="the next one is due") as left:
        await rig.steps.step()
    assert left.value.outcome == "nothing_to_do"


async def test_a_batch_that_is_open_when_the_next_one_is_due_raises_one_alert():
    rig = await Rig(1).begin()
    await rig.steps.step()
    rig.clock.advance(HOUR_S + 90)
    await rig.steps.step()
    await rig.steps.step()
    [(kind, message)] = rig.env.alert
    assert kind == "batch_overdue"
    assert "Crawl: the next batch is due and batch 1: 0/1, overdue by 90 s" in message


async def test_the_mark_of_a_closed_batch_that_its_master_could_not_set_is_set_by_the_next_one():
    rig = Rig()
    rig.store.finish_batch(rig.store.create_batch(rig.store.now() - timedelta(hours=2), 3, 1, "hour"))
    await rig.begin()
    assert rig.queue.done == [1]


async def test_a_table_that_another_job_has_taken_meanwhile_is_left_alone():
    rig = await Rig().begin()
    rig.store.hold_table("netspy:Other", 1e9)
    with pytest.raises(ConfigError, match="another job, netspy:Other"):
        await rig.steps.step()
    assert rig.store.records == []
