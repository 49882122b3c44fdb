"""Being the one master: the lock, the fence of the task table and the job that the table belongs to agree."""

import asyncio
from datetime import UTC, datetime

import pytest

from netspy.engine.batch.lock import MasterLock
from netspy.engine.batch.store_calls import MasterExit, StoreCalls
from netspy.engine.control import Control
from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.tasks.batch_store import FencedError
from netspy.tasks.master_lock import NotMasterError
from netspy.tasks.memory_batch import MemoryBatchStore
from support.engine import LOCK_S, FakeBatchQueue, Lines, env_of


class Rig:
    """A lock and what it is made from. One clock for the process, the queue and the table."""

    def __init__(self, *, once=False, store=None, queue=None, job="netspy:Crawl"):
        self.queue = queue or FakeBatchQueue()
        self.store = store or MemoryBatchStore([{"id": 1}], clock=self.queue.clock)
        self.env = env_of(name="Crawl", clock=self.queue.clock, HEARTBEAT_INTERVAL=0.01)
        self.control = Control(Lines())
        calls = StoreCalls(self.env, self.control)
        self.lock = MasterLock(self.env, self.store, self.queue, calls, job=job, once=once)


async def test_the_master_has_the_lock_the_fence_and_the_table():
    rig = Rig()
    await rig.lock.acquire()
    rig.lock.check()
    assert rig.queue.is_master
    assert rig.store.fence_token == 1
    assert rig.store.hold_table("netspy:Other", 1.0).job == "netspy:Crawl"
    assert "info: master of Crawl (fencing token 1)" in rig.env.log.lines


async def test_what_was_released_is_anybodys_at_once():
    rig = Rig()
    await rig.lock.acquire()
    await rig.lock.release()
    assert await rig.queue.rival().acquire() == 2
    assert rig.store.hold_table("netspy:Other", 1.0) is None


class Counting(FakeBatchQueue):
    asked = 0

    async def acquire(self, at_least=1):
        self.asked += 1
        return await super().acquire(at_least)


async def test_a_resident_master_stands_by_until_the_other_one_has_gone_and_says_so_once():
    rig = Rig(queue=Counting())
    other = rig.queue.rival()
    await other.acquire()
    standing_by = asyncio.create_task(rig.lock.acquire())
    while rig.queue.asked < 3:
        await asyncio.sleep(0)
    await other.release()
    await standing_by
    assert rig.queue.is_master
    assert sum("holds the lock" in line for line in rig.env.log.lines) == 1
    assert "another master holds the lock of Crawl: host:2 since 2026-01-01" in rig.env.log


async def test_who_stands_by_can_be_stopped():
    rig = Rig()
    await rig.queue.rival().acquire()
    standing_by = asyncio.create_task(rig.lock.acquire())
    while "standing by" not in rig.env.log:
        await asyncio.sleep(0)
    rig.control.stop("SIGTERM")
    with pytest.raises(MasterExit) as left:
        await standing_by
    assert left.value.outcome == "stopped"


class TurnedWhenAsked(FakeBatchQueue):
    """Each request for the lock takes 3 seconds; with `rival_lives` the other master has renewed it meanwhile."""

    rival_lives = False

    async def acquire(self, at_least=1):
        self.clock.advance(3.0)
        if self.rival_lives:
            self.place["until"] = self.clock() + LOCK_S
        return await super().acquire(at_least)


async def test_a_single_run_leaves_when_the_other_master_renews_its_lock():
    rig = Rig(once=True, queue=TurnedWhenAsked())
    await rig.queue.rival().acquire()
    rig.queue.rival_lives = True
    with pytest.raises(MasterExit, match="another master runs for Crawl: host:2") as left:
        await rig.lock.acquire()
    assert left.value.outcome == "not_master"
    await rig.lock.release()
    assert rig.queue.place["until"] > rig.queue.clock(), "the other one's lock is not this one's to give back"


async def test_a_single_run_outlasts_the_lock_of_a_master_that_died():
    rig = Rig(once=True, queue=TurnedWhenAsked())
    await rig.queue.rival().acquire()
    await rig.lock.acquire()
    assert rig.queue.is_master
    assert "it is dead if it doesn't renew it within 7.0 s" in rig.env.log


async def test_a_table_of_another_job_is_refused_and_stays_the_other_jobs():
    rig = Rig()
    rig.store.hold_table("netspy:Other", 30.0)
    with pytest.raises(ConfigError, match="in the hands of another job, netspy:Other"):
        await rig.lock.acquire()
    await rig.lock.release()
    assert rig.store.hold_table("netspy:Crawl", 1.0).job == "netspy:Other"
    assert not rig.queue.is_master


async def test_a_table_whose_job_has_died_is_free_when_its_time_is_over():
    rig = Rig()
    rig.store.hold_table("netspy:Other", 30.0)
    rig.queue.clock.advance(31.0)
    await rig.lock.acquire()
    assert rig.store.hold_table("netspy:Other", 1.0).job == "netspy:Crawl"


async def test_a_redis_that_lost_its_count_takes_it_from_the_table():
    rig = Rig()
    rig.store.use_fence(41)
    await rig.lock.acquire()
    assert rig.store.fence_token == rig.queue.place["fence"] == 42


class AnswerGetsLost(MemoryBatchStore):
    """The first token is taken, and the answer doesn't come back."""

    lost = False

    def use_fence(self, token):
        super().use_fence(token)
        if not self.lost:
            self.lost = True
            raise StoreLostError("the answer was lost")


async def test_a_token_whose_answer_was_lost_is_followed_by_a_higher_one():
    rig = Rig(store=AnswerGetsLost([{"id": 1}]))
    await rig.lock.acquire()
    assert rig.store.fence_token == rig.queue.place["fence"] == 2
    rig.store.create_batch(datetime(2026, 1, 1, tzinfo=UTC), 1, 1, "day")


class AlwaysFenced(MemoryBatchStore):
    """Others raise their token whenever this one does."""

    def use_fence(self, token):
        raise FencedError(token, token + 1)


async def test_a_race_for_the_fence_that_does_not_end_is_lost():
    rig = Rig(store=AlwaysFenced())
    with pytest.raises(FencedError):
        await rig.lock.acquire()


class RenewedWithTrouble(FakeBatchQueue):
    """The first renewal fails, the second one works, before the third one the lock is another's."""

    calls = 0

    async def renew(self):
        self.calls += 1
        if self.calls == 1:
            raise StoreUnavailableError("Redis is away")
        if self.calls == 3:
            self.clock.advance(LOCK_S + 1)
            await self.rival().acquire()
        await super().renew()


async def test_the_lock_is_renewed_through_an_outage_until_it_is_anothers():
    rig = Rig(queue=RenewedWithTrouble())
    await rig.lock.acquire()
    async with asyncio.timeout(30):
        await rig.lock.keep_renewed()
    assert rig.queue.renewed == 1
    assert "the master lock could not be renewed" in rig.env.log
    with pytest.raises(NotMasterError) as lost:
        rig.lock.check()
    assert "host:2" in lost.value.holder
    rig.queue.clock.advance(LOCK_S + 1)
    await rig.lock.acquire()
    rig.lock.check()


async def test_a_lost_lock_is_stood_by_for_again_unless_it_is_a_single_run():
    taken = NotMasterError("token 2 host:2 2026-01-01", 5.0)
    resident = Rig()
    await resident.lock.on_lost(taken)
    assert "warning: the master lock of Crawl was lost (now: host:2); standing by to take it again" in (
        resident.env.log.lines
    )
    with pytest.raises(MasterExit, match="now: host:2") as left:
        await Rig(once=True).lock.on_lost(taken)
    assert left.value.outcome == "not_master"


async def test_a_lock_that_nobody_took_is_no_reason_for_a_single_run_to_leave():
    rig = Rig(once=True)
    await rig.lock.on_lost(NotMasterError(""))
    assert "(now: nobody); standing by to take it again" in rig.env.log


async def test_who_is_fenced_and_still_has_its_lock_has_met_a_second_lock():
    """A master of the same name on another Redis: they would take turns for ever."""
    rig = Rig()
    await rig.lock.acquire()
    with pytest.raises(ConfigError, match="with a lock of its own"):
        await rig.lock.on_lost(FencedError(1, 2))


async def test_who_is_fenced_after_its_lock_ran_out_stands_by():
    rig = Rig()
    await rig.lock.acquire()
    rig.queue.clock.advance(LOCK_S + 1)
    await rig.lock.on_lost(FencedError(1, 2))
    assert "standing by to take it again" in rig.env.log


class CannotLetGo(FakeBatchQueue):
    async def release(self):
        raise StoreUnavailableError("Redis is away")


async def test_a_lock_that_cannot_be_given_back_does_not_keep_the_table():
    rig = Rig(queue=CannotLetGo())
    await rig.lock.acquire()
    await rig.lock.release()
    assert "the master lock could not be given back" in rig.env.log
    assert rig.store.hold_table("netspy:Other", 1.0) is None


async def test_who_never_asked_for_the_lock_gives_nothing_back():
    rig = Rig(queue=CannotLetGo())
    await rig.lock.release()
    assert rig.env.log.lines == []
