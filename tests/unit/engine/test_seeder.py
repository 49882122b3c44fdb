"""Drawing start_requests: every seed that was yielded is handed over, and never do two draw at a time."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from netspy.frontier.contract import SeedsLostError
from netspy.messages.entry import Adopted
from netspy.messages.request import Request
from netspy.testing.clock import FakeClock
from support.engine import Gated, Spider, until

TTL_S = 10.0


def url(n):
    return f"http://a.example/{n}"


def spider_of(function):
    """A spider whose start_requests is this one."""

    class Seeding(Spider):
        start_requests = function

    return Seeding()


def three(_self):
    return [url(0), Request(url(1)), url(2)]


def plain(_self):
    yield from three(None)


async def awaited(_self):
    await asyncio.sleep(0)
    return three(None)


async def agen(_self):
    for seed in three(None):
        yield seed


@pytest.fixture
def seeding(bench):
    """A bench with its seeder, the outbox writing; `b.grant` is the lock it has."""

    async def make(function, *, frontier=None, **settings):
        b = bench(spider_of(function), frontier=frontier, **settings)
        b.outbox.start()
        b.seeder = b.seeder()
        b.grant = await b.frontier.seed_acquire()
        return b

    return make


@pytest.mark.parametrize("function", [three, plain, awaited, agen])
async def test_start_requests_may_be_written_in_any_way_and_every_seed_arrives(seeding, function):
    b = await seeding(function)
    assert await b.seeder.run(b.grant)
    counts = await b.frontier.counts()
    assert (counts.queued, counts.seed, b.seeder.seeds) == (3, "seeded", 3)
    assert not [thread for thread in threading.enumerate() if thread.name == "netspy-seeding"]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_items_of_the_seeding_are_kept_too(seeding, kind):
    async def asynchronous(_self):
        yield {"n": 1}

    b = await seeding((lambda _self: [{"n": 1}]) if kind == "plain" else asynchronous)
    b.items.start()
    assert await b.seeder.run(b.grant)
    assert b.rows.stored == [{"n": 1}]


def breaks(_self):
    yield url(0)
    yield url(1)
    raise OSError("no list of shops")


async def breaks_async(_self):
    for value in breaks(None):
        yield value


@pytest.mark.parametrize("function", [breaks, breaks_async])
async def test_when_start_requests_raises_what_it_had_yielded_is_handed_over_and_the_seeding_has_failed(
    seeding, function
):
    b = await seeding(function)
    assert not await b.seeder.run(b.grant)
    counts = await b.frontier.counts()
    assert (counts.queued, counts.seed) == (2, "failed")
    assert counts.seed_detail == b.seeder.error
    assert "test_seeder.py:" in b.seeder.error
    assert "OSError: no list of shops" in b.seeder.error
    assert "after 2 seed(s); what was yielded is crawled" in b.log


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_start_requests_that_returns_nothing_is_a_mistake_and_not_an_empty_run(seeding, kind):
    async def asynchronous(_self):
        return None

    b = await seeding((lambda _self: None) if kind == "plain" else asynchronous)
    assert not await b.seeder.run(b.grant)
    assert "start_requests returned None; yield requests from it" in b.seeder.error


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_seeder_whose_lock_another_has_hands_over_no_more_and_says_nothing_of_the_end(seeding, kind):
    gate, agate = threading.Event(), asyncio.Event()

    def slow(_self):
        yield url(0)
        gate.wait(20)
        yield url(1)

    async def slow_async(_self):
        yield url(0)
        await agate.wait()
        yield url(1)

    clock = FakeClock()
    b = await seeding(
        slow if kind == "plain" else slow_async, frontier=Gated(clock=clock, seeding_ttl_s=TTL_S)
    )
    running = asyncio.create_task(b.seeder.run(b.grant))
    if kind == "plain":
        await until(lambda: b.seeder.seeds == 1)
    clock.advance(TTL_S + 1)
    assert (await b.frontier.seed_acquire()).token, "another node"
    gate.set()
    agate.set()
    assert not await running
    assert "another node took over the seeding" in b.log
    assert (await b.frontier.counts()).seed == "seeding", "the other one's"


async def test_a_lock_that_cannot_be_renewed_ends_the_drawing(seeding):
    drawn, gate = [], threading.Event()

    def endless(_self):
        while True:
            drawn.append(url(len(drawn)))
            yield drawn[-1]
            gate.wait(20)

    clock = FakeClock()
    b = await seeding(endless, frontier=Gated(clock=clock, seeding_ttl_s=TTL_S), SPIDER_SEEDING_TTL=0.04)
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: b.seeder.seeds == 1)
    clock.advance(TTL_S + 1)
    assert (await b.frontier.seed_acquire()).token, "another node"
    await until(lambda: b.seeder._stop)
    gate.set()
    assert not await running
    assert b.seeder.seeds == 1


class Forgetful(Gated):
    """Goes back to an earlier state at the first put of seeds."""

    def __init__(self):
        super().__init__()
        self.renewed = 0

    async def put(self, entries, **keywords):
        await self._asked("put")
        raise SeedsLostError("the store went back")

    async def seed_renew(self, token):
        self.renewed += 1
        return True


async def test_when_seeds_are_lost_start_requests_comes_to_rest_before_it_is_said(seeding):
    gate, rested = threading.Event(), []

    def slow(_self):
        yield url(0)
        gate.wait(20)
        rested.append(True)
        yield url(1)

    b = await seeding(slow, frontier=Forgetful(), SPIDER_SEEDING_TTL=0.04)
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: "put" in b.frontier.told)
    renewed = b.frontier.renewed
    await until(lambda: b.frontier.renewed >= renewed + 2)
    assert not running.done(), "the lock is renewed while the thread is in start_requests"
    gate.set()
    with pytest.raises(SeedsLostError):
        await running
    assert rested


async def test_a_node_that_leaves_does_not_wait_for_a_start_requests_whose_seeds_are_lost(seeding):
    gate = threading.Event()

    def hangs(_self):
        yield url(0)
        gate.wait(20)

    b = await seeding(hangs, frontier=Forgetful())
    b.frontier.gates["put"].clear()
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: "put" in b.frontier.told)
    b.seeder.stop()
    b.frontier.gates["put"].set()
    with pytest.raises(SeedsLostError):
        await running
    assert not gate.is_set()
    gate.set()


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_start_requests_runs_ahead_by_no_more_than_a_buffer_while_enough_requests_are_queued(
    seeding, kind
):
    drawn = []

    def many(_self):
        for n in range(9000):
            drawn.append(n)
            yield url(n)

    async def many_async(_self):
        for seed in many(None):
            yield seed

    b = await seeding(many if kind == "plain" else many_async, SPIDER_SEED_AHEAD=100)
    b.gauge.on_count(100)
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: b.seeder.seeds and b.seeder._size >= 2000)
    assert b.seeder.seeds <= 500, "one step"
    assert len(drawn) <= b.seeder.seeds + 2001
    b.gauge.on_count(0)
    assert await running
    assert (await b.frontier.counts()).queued == 9000


class Slow:
    """Yields ten rows; `kind` says how."""

    @staticmethod
    def of(kind):
        def plain(_self):
            for n in range(10):
                yield {"n": n}

        async def agen(_self):
            for row in plain(None):
                yield row

        async def returned(_self):
            return list(plain(None))

        def breaks(_self):
            yield from plain(None)
            raise OSError("no list of shops")

        return locals()[kind]


@pytest.mark.parametrize("kind", ["plain", "agen", "returned", "breaks"])
async def test_f4_the_seeding_is_not_over_before_its_items_are_stored(seeding, kind):
    """F4: a node that is killed in between must leave a seeding that is done again."""
    b = await seeding(Slow.of(kind), BUFFER_FLUSH_INTERVAL=0.001)
    b.items.start()
    b.rows.gate.clear()
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: b.seeder.drawn_to_end)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (await b.frontier.counts()).seed == "seeding"
    b.rows.gate.set()
    assert await running is (kind != "breaks")
    assert [row["n"] for row in b.rows.stored] == list(range(10))
    assert (await b.frontier.counts()).seed == ("failed" if kind == "breaks" else "seeded")


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_f4_items_of_a_huge_seeding_are_drawn_no_faster_than_they_are_stored(seeding, kind):
    drawn = []

    def many(_self):
        for n in range(20_000):
            drawn.append(n)
            yield {"n": n}

    async def many_async(_self):
        for row in many(None):
            yield row

    b = await seeding(many if kind == "plain" else many_async, ITEM_MAX_CACHED_COUNT=100)
    b.items.start()
    b.rows.gate.clear()
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: b.seeder._size >= 2000 and b.items.full)
    assert len(drawn) <= 2000 + 500 + 100 + 1
    b.rows.gate.set()
    assert await running
    assert len(b.rows.stored) == 20_000


async def test_user_code_that_cancels_the_task_it_runs_in_fails_the_seeding(seeding):
    async def cancels(_self):
        yield url(0)
        asyncio.current_task().cancel()
        await asyncio.sleep(0)
        yield url(1)

    b = await seeding(cancels)
    assert not await b.seeder.run(b.grant)
    counts = await b.frontier.counts()
    assert (counts.queued, counts.seed) == (1, "failed")
    assert "start_requests was cancelled, and not by netspy" in b.seeder.error


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_stop_hands_over_what_was_drawn_and_leaves_the_lock_to_run_out(seeding, kind):
    def endless(_self):
        n = 0
        while True:
            yield url(n)
            n += 1

    async def endless_async(_self):
        for seed in endless(None):
            yield seed
            await asyncio.sleep(0)

    b = await seeding(endless if kind == "plain" else endless_async)
    running = asyncio.create_task(b.seeder.run(b.grant))
    await until(lambda: b.seeder.seeds)
    b.seeder.stop()
    assert not await running
    counts = await b.frontier.counts()
    assert (counts.queued, counts.seed) == (b.seeder.seeds, "seeding")


async def test_a_plain_start_requests_sees_the_context_that_the_seeder_was_made_in(seeding):
    who = ContextVar("who")
    who.set("made")
    b = await seeding(lambda _self: [url(who.get())])
    who.set("changed")
    assert await b.seeder.run(b.grant)
    [(request, _)] = b.frontier.snapshot()
    assert request.url == url("made")


class Earlier(Gated):
    """A frontier with an earlier run that may be alive, then is not; it notes what was queued when it was asked."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    async def adopt(self):
        self.asked.append((await self.counts()).queued)
        return Adopted(7, waits=len(self.asked) < 3)


async def test_what_earlier_runs_left_comes_before_the_seeds_and_is_waited_for(seeding):
    b = await seeding(plain, frontier=Earlier(), HEARTBEAT_INTERVAL=0.02)
    assert await b.seeder.run(b.grant)
    assert b.frontier.asked == [0, 0, 0]
    assert b.seeder.seeds == 3
    assert "21 request(s) that earlier runs had queued" in b.log


async def test_a_node_that_stops_waits_for_no_earlier_run(seeding):
    frontier = Earlier()
    b = await seeding(plain, frontier=frontier, HEARTBEAT_INTERVAL=0.02)
    b.seeder.stop()
    assert not await b.seeder.run(b.grant)
    assert frontier.asked == []
