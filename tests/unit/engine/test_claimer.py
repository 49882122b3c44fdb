"""When a node claims and how much: never what it can't work on, and never so often that an empty store is stormed."""

from __future__ import annotations

import asyncio

import pytest

from netspy.engine.claimer import Claimer
from netspy.engine.page.output import ItemRow
from netspy.engine.page.page import LastStep
from netspy.messages.row import Row
from support.engine import TurningControl, entries_of, lease_of, until

A, B = "http://a.example/", "http://b.example/"


def pages(n, site=A):
    return entries_of(*(f"{site}{number}" for number in range(n)))


@pytest.fixture
def claiming(bench):
    """A bench with its claimer; each of `steps` is called at the end of one of the claimer's waits."""

    def make(*steps, keep_alive=False, **settings):
        b = bench(control=lambda env: TurningControl(env, *steps), **settings)
        b.watch = b.finish(keep_alive=keep_alive)
        b.claimer = Claimer(
            b.env, b.control, b.held, b.gauge, b.frontier, b.slots, b.items, b.outbox, b.watch
        )
        return b

    return make


def fill_items(b):
    b.items.add(LastStep(), [ItemRow(Row("t", {"n": 1}), None)] * b.env.settings.ITEM_MAX_CACHED_COUNT)


def be_stuck(b):
    b.items.stuck = "disk full"


def be_away(b):
    b.rows.waited_for = ["mysql"]


def hold_too_many(b):
    b.held.took([lease_of(seq=-n) for n in range(b.env.settings.SPIDER_MAX_UNACKED)])


def get_well(b):
    b.items._room.set()
    b.items.stuck, b.rows.waited_for = None, []
    b.held.void()


@pytest.mark.parametrize("trouble", [fill_items, be_stuck, be_away, hold_too_many])
async def test_a_node_that_cannot_get_rid_of_its_items_or_acks_claims_nothing_until_it_can(claiming, trouble):
    seen = []

    def look():
        seen.append(list(b.frontier.limits))

    b = claiming(
        look,
        lambda: (look(), get_well(b)),
        ITEM_MAX_CACHED_COUNT=2,
        SPIDER_MAX_UNACKED=5,
        SPIDER_THREAD_COUNT=2,
    )
    await b.frontier.put(pages(3))
    trouble(b)
    await b.claimer.run()
    assert seen == [[], []]
    assert b.control.waits[:2] == [b.env.settings.DONE_CHECK_INTERVAL] * 2, "the store need not be asked soon"
    assert len(b.held) == 3


async def test_no_more_is_claimed_than_may_be_unacked(claiming):
    b = claiming(SPIDER_MAX_UNACKED=5)
    b.held.took([lease_of(seq=-n) for n in range(3)])
    await b.frontier.put(pages(9))
    await b.claimer.run()
    assert b.frontier.limits == [2]
    assert len(b.held) == 5


async def test_requests_of_a_site_that_cools_down_wait_in_the_store_and_free_their_place_here(claiming):
    b = claiming(keep_alive=True, shared=True)
    b.outbox.start()
    await b.frontier.put(pages(3) + pages(1, B))
    await b.claimer.run()
    first = await b.slots.take()
    b.slots.on_ended(first.site, asked_s=60.0)
    b.claimer.set_aside_cooling()
    await b.outbox.drained()
    counts = await b.frontier.counts()
    assert (counts.delayed, counts.next_due_s) == (2, 60.0)
    assert sorted(lease.payload.url for lease in b.held.snapshot()) == [f"{A}0", f"{B}0"]
    b.clock.advance(60.0)
    assert all(isinstance(lease.payload, bytes) for lease in (await b.frontier.claim(9)).leases), (
        "they travel"
    )


async def test_a_short_cooling_is_sat_out_here(claiming):
    b = claiming(keep_alive=True)
    await b.frontier.put(pages(3))
    await b.claimer.run()
    b.slots.on_ended((await b.slots.take()).site, asked_s=2.0)
    b.claimer.set_aside_cooling()
    assert (b.outbox.empty, b.slots.waiting) == (True, 2)


async def test_a_claim_passes_over_a_site_of_which_enough_waits_here(claiming):
    b = claiming(lambda: None, keep_alive=True, CONCURRENT_REQUESTS_PER_DOMAIN=2, SPIDER_THREAD_COUNT=4)
    await b.frontier.put(pages(10) + pages(2, B))
    await b.claimer.run()
    held = [lease.payload.url for lease in b.held.snapshot()]
    assert held == [*(f"{A}{n}" for n in range(8)), f"{B}0", f"{B}1"]


async def test_an_idle_node_asks_less_and_less_often_and_at_once_often_again_when_work_came(claiming):
    async def bring():
        await b.frontier.put(pages(1))
        b.control.wake()

    def more():
        coming.append(asyncio.ensure_future(bring()))

    coming = []
    nothing = [lambda: None] * 5
    b = claiming(*nothing, more, keep_alive=True, shared=True, DONE_CHECK_INTERVAL=0.5)
    await b.claimer.run()
    assert b.control.waits[:6] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5]
    assert b.control.waits[6:] == [0.02], "the claim that brought it began the count anew"
    assert coming[0].done()


async def test_an_idle_node_asks_in_time_for_what_is_due(claiming):
    b = claiming(keep_alive=True, DONE_CHECK_INTERVAL=0.5)
    await b.frontier.put(pages(1))
    [lease] = (await b.frontier.claim(1)).leases
    await b.frontier.delay([(lease, 0.007, None)])
    await b.claimer.run()
    assert b.control.waits[0] == 0.007


async def test_a_free_worker_is_no_reason_to_ask_an_empty_store_again_and_a_new_request_is(claiming):
    def worker_is_free():
        asked.append(len(b.frontier.limits))
        b.control.wake()

    def new_request():
        asked.append(len(b.frontier.limits))
        b.counters.inc("queued")
        b.control.wake()

    asked = []
    b = claiming(worker_is_free, worker_is_free, new_request, keep_alive=True)
    b.gauge.active = 1
    await b.claimer.run()
    assert asked == [1, 1, 1]
    assert len(b.frontier.limits) == 2


async def test_a_passed_over_site_is_asked_for_when_half_of_what_waited_has_started(claiming):
    def start_one():
        asked.append(len(b.frontier.limits))
        with pytest.raises(StopIteration):  # it need not wait
            b.slots.take().send(None)
        b.control.wake()

    asked = []
    limits = {"CONCURRENT_REQUESTS_PER_DOMAIN": 0, "COLLECTOR_TASK_COUNT": 8, "SPIDER_THREAD_COUNT": 8}
    b = claiming(start_one, start_one, keep_alive=True, **limits)
    b.gauge.active = 1
    await b.frontier.put(pages(4))
    await b.claimer.run()
    assert asked == [2, 2], "four wait, and the store had no more"
    assert len(b.frontier.limits) == 3, "two of them have started"


async def test_nothing_is_claimed_inside_a_pause_and_a_claim_under_way_is_waited_for(claiming):
    b = claiming(keep_alive=True)
    gate = b.frontier.gates["claim"]
    gate.clear()
    running = asyncio.create_task(b.claimer.run())
    await until(lambda: b.frontier.limits)
    pause = b.claimer.paused()
    entering = asyncio.create_task(pause.__aenter__())
    await asyncio.sleep(0)
    assert not entering.done()
    await b.frontier.put(pages(1))
    gate.set()
    await entering
    assert len(b.held) == 1, "what the claim brought is in the book"
    await b.frontier.put(pages(2, B))
    b.control.wake()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(b.frontier.limits) == 1
    await pause.__aexit__(None, None, None)
    await running
    assert len(b.held) == 3


async def test_whether_the_run_is_over_is_asked_only_when_the_node_has_nothing_to_do(claiming):
    def work_ends():
        asked.append(b.frontier.told.count("counts"))
        b.gauge.active = 0
        b.control.wake()

    asked = []
    b = claiming(lambda: None, work_ends)
    b.gauge.active = 1
    await b.seeded()
    await b.claimer.run()
    assert asked == [0]
    assert b.control.ended.outcome == "nothing_to_do"


async def test_a_claim_takes_what_can_be_started_and_a_fair_share_of_a_short_queue(claiming):
    b = claiming(lambda: b.control.wake(), keep_alive=True, SPIDER_THREAD_COUNT=8, COLLECTOR_TASK_COUNT=50)
    await b.frontier.put(pages(20))
    b.gauge.active, b.gauge.live_nodes = 6, 4
    b.gauge.on_count(20)
    await b.claimer.run()
    assert b.frontier.limits == [5], "a quarter of the queue, which is more than the two free slots"
    assert b.gauge.queued == 15, "the claim has counted"


async def test_a_long_queue_fills_the_hands(claiming):
    b = claiming(SPIDER_THREAD_COUNT=2, COLLECTOR_TASK_COUNT=6)
    await b.frontier.put(pages(80))
    b.gauge.on_count(80)
    await b.claimer.run()
    assert b.frontier.limits == [6]
    assert b.counters.get("delivered") == 6
    assert b.gauge.had_work


async def test_work_that_came_makes_what_the_last_look_said_old(claiming):
    b = claiming(
        lambda: bringing.append(asyncio.ensure_future(bring())), lambda: seen.append(b.watch.unfinished)
    )

    async def bring():
        await b.frontier.put(pages(1))
        b.counters.inc("queued")
        b.control.wake()

    bringing, seen = [], []
    await b.claimer.run()
    assert bringing
    assert seen == [None]


async def test_a_stop_ends_claiming_before_the_next_claim(claiming):
    b = claiming()
    b.control.stop("told to")
    await b.frontier.put(pages(1))
    await b.claimer.run()
    assert b.frontier.limits == []
