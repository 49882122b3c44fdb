"""A batch master from its start to its end: one batch, a stop, a lock that is lost, a start without a table."""

import asyncio

import pytest

from netspy.engine.batch.master import BatchMaster
from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.policy.batch import DONE, Schedule
from netspy.tasks.batch_store import FencedError
from netspy.tasks.memory_batch import MemoryBatchStore
from support.engine import LOCK_S, FakeBatchQueue, env_of


class Rig:
    """A master and what it is made from."""

    def __init__(self, *, once=False, store=None, queue=None):
        self.queue = queue or FakeBatchQueue()
        self.store = store or MemoryBatchStore([{"id": n} for n in range(5)], clock=self.queue.clock)
        self.env = env_of(clock=self.queue.clock, HEARTBEAT_INTERVAL=0.01, BATCH_MONITOR_INTERVAL=0.01)
        parts = {"job": "netspy:Crawl", "schedule": Schedule(3600.0), "once": once, "id_field": "id"}
        self.master = BatchMaster(self.env, self.store, self.queue, **parts)

    async def run(self):
        async with asyncio.timeout(60):
            return await self.master.run()

    async def until(self, seen):
        """The running master, when `seen()` is true."""
        running = asyncio.create_task(self.run())
        while not seen():
            assert not running.done(), running
            await asyncio.sleep(0.001)
        return running


class Workers(FakeBatchQueue):
    """Whatever is pushed is done at once."""

    store = None

    async def push(self, batch, pairs):
        self.store.mark_tasks([(task_id, DONE) for task_id, _ in pairs], batch_id=batch)
        return 0


async def test_a_single_run_brings_one_batch_to_its_end_and_gives_everything_back():
    rig = Rig(once=True, queue=Workers())
    rig.queue.store = rig.store
    end = await rig.run()
    assert (end.outcome, end.reason, end.batch, end.counts.done) == ("finished", "", 1, 5)
    assert not rig.queue.is_master
    assert rig.store.hold_table("netspy:Other", 0.0) is None
    again = Rig(once=True, store=rig.store, queue=rig.queue)
    assert (await again.run()).outcome == "nothing_to_do"


async def test_a_stop_gives_the_lock_up_and_leaves_the_batch_open_for_the_next_master():
    rig = Rig()
    running = await rig.until(lambda: rig.queue.pushed)
    rig.master.stop("SIGTERM", 15)
    rig.master.stop("SIGINT", 2)
    end = await running
    assert (end.outcome, end.reason, end.signal, end.batch, end.counts.doing) == (
        "stopped",
        "SIGTERM",
        15,
        1,
        5,
    )
    assert not rig.queue.is_master
    assert not rig.store.records[-1].is_done


class GoesAway(MemoryBatchStore):
    """Counts tasks once, and then no more."""

    counted = False

    def count_tasks(self):
        if self.counted:
            raise StoreLostError("the database is away")
        self.counted = True
        return super().count_tasks()


async def test_a_stop_while_the_table_is_away_is_a_stop():
    rig = Rig(store=GoesAway([{"id": 1}]))
    running = await rig.until(lambda: rig.env.alert)
    rig.master.stop("SIGTERM", 15)
    end = await running
    assert (end.outcome, end.signal) == ("stopped", 15)


class LostInAStop(FakeBatchQueue):
    """A queue that is away; a stop ends its waiting with an error."""

    gave_up = None
    waits = False

    async def acquire(self, at_least=1):
        self.waits = True
        await self.gave_up.wait()
        raise StoreLostError("Redis is away")


async def test_a_queue_that_gives_up_waiting_because_of_a_stop_is_how_it_was_stopped():
    rig = Rig(queue=LostInAStop())
    rig.queue.gave_up = asyncio.Event()
    running = await rig.until(lambda: rig.queue.waits)
    rig.master.stop("SIGTERM", 15)
    rig.queue.gave_up.set()
    assert (await running).outcome == "stopped"
    assert "warning: Redis is away" in rig.env.log.lines


async def test_a_queue_that_is_lost_without_a_stop_is_an_error():
    rig = Rig(queue=LostInAStop())
    rig.queue.gave_up = asyncio.Event()
    rig.queue.gave_up.set()
    with pytest.raises(StoreLostError):
        await rig.run()


class NotThere(MemoryBatchStore):
    def ensure_schema(self):
        raise StoreUnavailableError("the database has not answered for 30 s")


async def test_a_start_without_a_table_is_an_error_and_no_outage():
    rig = Rig(store=NotThere())
    with pytest.raises(StoreUnavailableError):
        await rig.run()
    assert rig.env.alert == []


async def test_a_resident_master_that_lost_its_lock_takes_it_again_when_it_can():
    rig = Rig()
    running = await rig.until(lambda: rig.queue.pushed)
    rig.queue.clock.advance(LOCK_S + 1)
    other = rig.queue.rival()
    await other.acquire()
    while "was lost (now: host:2); standing by" not in rig.env.log:
        await asyncio.sleep(0.001)
    before = len(rig.queue.told)
    await other.release()
    while len(rig.queue.told) == before:
        await asyncio.sleep(0.001)
    assert rig.store.fence_token == 3
    rig.master.stop("SIGTERM", 15)
    assert (await running).outcome == "stopped"


async def test_a_single_run_that_lost_its_lock_to_another_master_leaves():
    rig = Rig(once=True)
    running = await rig.until(lambda: rig.queue.pushed)
    rig.queue.clock.advance(LOCK_S + 1)
    await rig.queue.rival().acquire()
    end = await running
    assert end.outcome == "not_master"
    assert "host:2" in end.reason
    assert (end.batch, end.counts.doing) == (1, 5)


class FencedByAnother(MemoryBatchStore):
    """From `fenced` on it has seen the higher token of a master that has a lock of its own."""

    fenced = False

    def reset_lost_tasks(self, stale):
        if self.fenced:
            raise FencedError(self.fence_token, self.fence_token + 1)
        return super().reset_lost_tasks(stale)


async def test_two_masters_with_a_lock_each_do_not_take_turns():
    rig = Rig(store=FencedByAnother([{"id": 1}]))
    running = await rig.until(lambda: rig.queue.pushed)
    rig.store.fenced = True
    with pytest.raises(ConfigError, match="with a lock of its own"):
        await running
    assert not rig.queue.is_master


async def test_a_table_of_another_job_is_a_wrong_set_up_and_nothing_is_changed():
    rig = Rig()
    rig.store.hold_table("netspy:Other", 1e9)
    with pytest.raises(ConfigError, match="another job, netspy:Other"):
        await rig.run()
    assert rig.store.records == []
    assert not rig.queue.is_master
