"""Workers: an error of ours costs one request, never a worker; a node has as many workers at its end as at its start."""

from __future__ import annotations

import asyncio
import json

import pytest

from netspy.engine.claimer import Workers
from netspy.errors import StoreLostError
from support.engine import entries_of, until

N = 4


class Handler:
    """In the place of the page handler: does with each page what its URL's path says."""

    def __init__(self):
        self.done = []
        self.gate = asyncio.Event()

    async def handle(self, lease):
        what = lease.payload.url.rpartition("/")[2].rstrip("0123456789")
        if what == "bug":
            raise ValueError("a bug of ours")
        if what == "lost":
            raise StoreLostError("the store is gone")
        if what == "cancel":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        if what == "slow":
            await self.gate.wait()
        self.done.append(lease.payload.url.rpartition("/")[2])


@pytest.fixture
async def working(bench):
    """A bench whose started workers get the pages of these names."""

    started = []

    async def make(*names):
        b = bench(SPIDER_THREAD_COUNT=N, CONCURRENT_REQUESTS_PER_DOMAIN=0)
        b.handler = Handler()
        b.workers = Workers(b.env, b.control, b.gauge, b.slots, b.handler, b.outcome())
        b.outbox.start()
        await b.frontier.put(entries_of(*(f"http://a.example/{name}" for name in names)))
        leases = (await b.frontier.claim(len(names))).leases
        b.held.took(leases)
        b.slots.add(leases)
        b.workers.start()
        started.append(b.workers)
        return b

    yield make
    for workers in started:
        workers.cancel()
        await asyncio.gather(*workers.tasks, return_exceptions=True)


async def test_an_error_of_ours_puts_the_request_into_the_failed_list_and_the_worker_lives_on(working):
    b = await working(*(f"bug{n}" for n in range(2 * N)), "fine")
    await until(lambda: b.handler.done)
    await b.outbox.drained()
    assert b.handler.done == ["fine"]
    assert len(b.failed) == 2 * N
    record = json.loads(b.failed[0])
    assert (record["reason"], record["error"]) == ("ValueError", "ValueError: a bug of ours")
    assert b.counters.get("callback_error") == 2 * N
    assert "internal error while handling http://a.example/bug" in b.log
    assert len(b.held) == 1, "only the fake handler's page is not acked"
    assert not b.control.stopping


async def test_a_store_that_is_lost_stops_the_node_and_condemns_no_request(working):
    b = await working("lost", "fine")
    assert (await b.control.stopped()).outcome == "store_lost"
    await until(lambda: b.handler.done)
    await b.outbox.drained()
    assert (b.failed, len(b.held)) == ([], 2)


async def test_a_worker_that_user_code_cancels_is_replaced_and_its_request_given_up(working):
    b = await working(*(f"cancel{n}" for n in range(N)), "fine")
    await until(lambda: b.handler.done)
    await b.outbox.drained()
    assert len(b.workers.tasks) == N
    assert not any(task.done() for task in b.workers.tasks)
    assert len(b.failed) == N
    assert "the task that worked on it was cancelled, and not by netspy" in json.loads(b.failed[0])["error"]


async def test_a_node_that_leaves_ends_its_workers_and_their_requests_are_not_given_up(working):
    b = await working("slow")
    await until(lambda: b.gauge.active)
    b.workers.cancel()
    await asyncio.gather(*b.workers.tasks, return_exceptions=True)
    await b.outbox.drained()
    assert (b.failed, b.gauge.active, len(b.held)) == ([], 0, 1)
    assert len(b.workers.tasks) == N


async def test_workers_go_home_when_the_slots_are_closed(working):
    b = await working()
    b.slots.drain()
    await asyncio.gather(*b.workers.tasks)
    assert not b.control.stopping


@pytest.mark.parametrize(("waiting", "woken"), [(N // 2 + 1, False), (N // 2, True)])
async def test_the_claimer_is_woken_when_only_half_a_round_of_requests_waits_to_be_started(
    working, waiting, woken
):
    b = await working(*(f"slow{n}" for n in range(N + waiting)))
    await until(lambda: b.gauge.active == N)
    assert b.slots.waiting == waiting
    assert await b.control.changed(0.0) == woken


async def test_the_claimer_is_woken_when_a_worker_has_become_free(working):
    b = await working("slow")
    await until(lambda: b.gauge.active)
    b.control.seen()
    b.handler.gate.set()
    assert await b.control.changed(20.0)
    assert b.gauge.active == 0
