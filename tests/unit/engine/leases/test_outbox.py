"""The frontier's one writer: order of children and acks, batches, back-pressure, errors that leave nobody waiting."""

import asyncio

import pytest

from netspy.engine.control import Control
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.outbox import Outbox
from netspy.errors import StoreUnavailableError
from netspy.frontier.contract import SeedLockLostError
from netspy.frontier.memory.frontier import MemoryFrontier
from netspy.messages.entry import NewEntry
from netspy.policy.failed_record import pack_failed
from support.engine import env_of


class Recording(MemoryFrontier):
    """A memory frontier that remembers its calls and can be slow, broken, or forget leases."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.calls = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = None

    async def _note(self, name, size):
        await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        self.calls.append((name, size))

    async def put(self, entries, *, seed_token=None, tasks=()):
        await self._note("put", len(entries))
        return await super().put(entries, seed_token=seed_token, tasks=tasks)

    async def settle(self, settlements):
        await self._note("settle", len(settlements))
        return await super().settle(settlements)


class Rig:
    def __init__(self, *, shared=False):
        self.failed = []
        self.frontier = Recording(on_failed=self.failed.append)
        env = env_of(shared=shared, REQUEST_BUFFER_MAX_CACHED=100)
        self.counters, self.log = env.counters, env.log
        self.control = Control(env.log)
        self.held = HeldLeases(env.counters, env.log)
        self.outbox = Outbox(env, self.control, self.frontier, self.held)
        self.outbox.start()

    async def claim(self, n):
        claimed = await self.frontier.claim(n)
        self.held.took(claimed.leases)
        return claimed.leases


def entries(*names):
    return [NewEntry(name, name.encode().ljust(16, b"_"), 300, "a") for name in names]


@pytest.fixture
async def rig():
    made = Rig()
    await made.frontier.open()
    yield made
    await made.outbox.stop()


@pytest.fixture
async def one(rig):
    """A lease of one page."""
    await rig.outbox.put(entries("page"))
    [lease] = await rig.claim(1)
    return lease


async def test_put_returns_when_the_store_has_the_entries_and_counts_them(rig):
    await rig.outbox.put(entries("a", "b", "a"))
    counts = await rig.frontier.counts()
    assert counts.queued == 2
    assert (rig.counters.get("queued"), rig.counters.get("dedup_dropped")) == (2, 1)
    await rig.outbox.put([])


async def test_children_come_in_with_their_parents_ack(rig, one):
    rig.outbox.settle(one, entries("x", "y", "page"))
    await rig.outbox.drained()
    counts = await rig.frontier.counts()
    assert (counts.queued, counts.leased) == (2, 0)
    assert rig.held.snapshot() == []
    assert (rig.counters.get("queued"), rig.counters.get("dedup_dropped")) == (3, 1)
    assert await rig.control.changed(0.0), "the claimer hears of it"


async def test_children_put_early_are_in_the_store_before_the_parent_is_acked(rig, one):
    rig.frontier.gate.clear()
    early = asyncio.ensure_future(rig.outbox.put(entries("x")))
    rig.outbox.settle(one, ())
    await asyncio.sleep(0)
    rig.frontier.gate.set()
    await early
    await rig.outbox.drained()
    names = [name for name, _ in rig.frontier.calls]
    assert names == ["put", "put", "settle"]


async def test_while_one_call_is_under_way_the_next_batch_gathers(rig):
    await rig.outbox.put(entries(*"abcdefgh"))
    leases = await rig.claim(8)
    rig.frontier.gate.clear()
    rig.outbox.settle(leases[0])
    await asyncio.sleep(0)
    for lease in leases[1:]:
        rig.outbox.settle(lease)
    rig.frontier.gate.set()
    await rig.outbox.drained()
    assert [call for call in rig.frontier.calls if call[0] == "settle"] == [("settle", 1), ("settle", 7)]


async def test_delay_give_up_and_release_take_the_lease_out_of_our_hands(rig):
    await rig.outbox.put(entries("a", "b", "c"))
    first, second, third = await rig.claim(3)
    rig.outbox.delay(first, 60.0, "a again")
    record = pack_failed(None, reason="x", error="x", attempts=1, time=0.0, raw="b")
    rig.outbox.give_up(second, record)
    rig.outbox.release([third])
    await rig.outbox.drained()
    counts = await rig.frontier.counts()
    assert (counts.queued, counts.delayed, counts.leased, counts.failed) == (1, 1, 0, 1)
    assert rig.failed == [record]
    assert rig.held.snapshot() == []


async def test_a_lease_that_is_not_ours_any_more_is_counted_and_changes_nothing(rig, one):
    await rig.frontier.release([one])
    rig.outbox.settle(one, entries("x"))
    await rig.outbox.drained()
    assert rig.counters.get("lease_lost") == 1
    assert "lease was lost" in rig.log.lines[0]
    counts = await rig.frontier.counts()
    assert counts.queued == 1, "the page is still to be done; its late children are not taken"


async def test_too_many_children_hold_their_makers_back_until_the_store_has_them(rig):
    rig.outbox._bound = 3
    rig.frontier.gate.clear()
    put = asyncio.ensure_future(rig.outbox.put(entries("a", "b", "c")))
    await asyncio.sleep(0)
    assert rig.outbox.full
    waiting = asyncio.ensure_future(rig.outbox.room())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    rig.frontier.gate.set()
    await asyncio.gather(put, waiting)
    assert not rig.outbox.full


async def test_a_seeder_whose_lock_is_gone_is_told_and_others_are_not_harmed(rig):
    with pytest.raises(SeedLockLostError):
        await rig.outbox.put(entries("seed"), seed_token="somebody else's")
    await rig.outbox.put(entries("child"))
    assert (await rig.frontier.counts()).queued == 1
    assert not rig.outbox.full


async def test_when_the_store_is_lost_everybody_who_waits_is_told(rig):
    rig.frontier.gate.clear()
    under_way = asyncio.ensure_future(rig.outbox.put(entries("a")))
    await asyncio.sleep(0.01)
    queued = asyncio.ensure_future(rig.outbox.put(entries("b")))
    drained = asyncio.ensure_future(rig.outbox.drained())
    await asyncio.sleep(0.01)
    rig.frontier.broken = StoreUnavailableError("away")
    rig.frontier.gate.set()
    results = await asyncio.wait_for(asyncio.gather(under_way, queued, return_exceptions=True), 30)
    assert [type(result) for result in results] == [StoreUnavailableError, StoreUnavailableError]
    await asyncio.wait_for(drained, 30)
    assert isinstance(rig.outbox.task.exception(), StoreUnavailableError)
    await asyncio.wait_for(rig.outbox.drained(), 30)


async def test_many_children_go_in_several_calls(rig):
    await rig.outbox.put(entries(*"abc"))
    leases = await rig.claim(3)
    for n, lease in enumerate(leases):
        rig.outbox.settle(lease, entries(*(f"{n}-{i}" for i in range(1500))))
    await rig.outbox.drained()
    assert [size for name, size in rig.frontier.calls if name == "settle"] == [1, 1, 1]
    assert (await rig.frontier.counts()).queued == 4500


async def test_drained_at_once_when_nothing_is_there(rig):
    await asyncio.wait_for(rig.outbox.drained(), 30)
    assert rig.outbox.empty
