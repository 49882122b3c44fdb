"""What a node knows of the queue's length, and how its parts wait."""

from __future__ import annotations

import asyncio

from netspy.engine.gauge import NodeGauge
from netspy.engine.waiting import Waiters, wait_for_event


def test_what_was_fed_since_the_queue_was_counted_counts_as_queued():
    gauge = NodeGauge()
    assert not gauge.is_ahead(10)  # not counted yet: nothing is known to be there
    gauge.on_count(4)
    gauge.fed += 5
    assert not gauge.is_ahead(10)
    gauge.fed += 1
    assert gauge.is_ahead(10)


def test_a_new_count_holds_what_was_fed_so_it_is_not_counted_twice():
    gauge = NodeGauge()
    gauge.fed += 8
    gauge.on_count(8)
    assert not gauge.is_ahead(10)


async def test_an_event_that_has_happened_is_seen_though_the_time_is_over():
    event = asyncio.Event()
    event.set()
    assert await wait_for_event(event, 0.0)
    assert await wait_for_event(event, -1.0)


async def test_an_event_that_never_comes_is_waited_for_no_longer_than_told():
    assert not await wait_for_event(asyncio.Event(), 0.001)


async def test_a_cancelled_waiter_does_not_keep_the_others_waiting():
    waiters = Waiters()
    first, second = asyncio.create_task(waiters.wait()), asyncio.create_task(waiters.wait())
    await asyncio.sleep(0)
    first.cancel()
    waiters.wake()
    done, _ = await asyncio.wait({first, second}, timeout=30)
    assert done == {first, second}
    assert first.cancelled()
    assert second.exception() is None
