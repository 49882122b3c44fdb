"""Waiting for a site holds no slot, and a lease is never lost on the shelf."""

import asyncio
import time

import pytest

from netspy.engine.leases.site_slots import SiteSlots
from netspy.messages.entry import Lease
from netspy.policy.politeness import Politeness
from netspy.settings import Settings


def lease(seq: int, site: str = "aaaaaaaa") -> Lease:
    return Lease(seq=seq, payload=None, priority=300, site=site)


def shelf(**kw) -> SiteSlots:
    settings = Settings(**({"CONCURRENT_REQUESTS_PER_DOMAIN": 0, "RANDOMIZE_DOWNLOAD_DELAY": False} | kw))
    return SiteSlots(Politeness(settings), clock=time.monotonic)


async def now_or_none(it: SiteSlots):
    try:
        return await asyncio.wait_for(it.take(), 0.02)
    except TimeoutError:
        return None


async def test_first_in_first_out_within_a_site():
    it = shelf()
    it.add([lease(1), lease(2), lease(3)])
    assert [(await it.take()).seq for _ in range(3)] == [1, 2, 3]
    assert it.waiting == 0


async def test_a_full_site_doesnt_hold_up_another_one():
    it = shelf(CONCURRENT_REQUESTS_PER_DOMAIN=1)
    it.add([lease(1, "aaaaaaaa"), lease(2, "aaaaaaaa"), lease(3, "bbbbbbbb")])
    assert [(await it.take()).seq, (await it.take()).seq] == [1, 3]
    assert await now_or_none(it) is None
    it.on_ended("aaaaaaaa")
    assert (await it.take()).seq == 2


async def test_a_waiting_worker_is_served_when_a_request_of_the_site_ends():
    it = shelf(CONCURRENT_REQUESTS_PER_DOMAIN=1)
    it.add([lease(1), lease(2)])
    await it.take()
    taker = asyncio.create_task(it.take())
    await asyncio.sleep(0)
    assert not taker.done()
    it.on_ended("aaaaaaaa")
    assert (await taker).seq == 2


async def test_delay_spaces_the_starts_of_one_site_only():
    it = shelf(DOWNLOAD_DELAY=0.05)
    it.add([lease(1), lease(2), lease(3, "bbbbbbbb")])
    begin = time.monotonic()
    first = [(await it.take()).seq for _ in range(2)]
    assert sorted(first) == [1, 3]
    assert (await it.take()).seq == 2
    assert time.monotonic() - begin >= 0.045


async def test_a_cooling_site_is_named_and_its_leases_can_be_taken_back():
    it = shelf()
    it.add([lease(1)])
    await it.take()
    begin = time.monotonic()
    it.on_ended("aaaaaaaa", asked_s=30.0)
    it.add([lease(2), lease(3)])
    assert it.full_sites(64) == ["aaaaaaaa"]
    assert await now_or_none(it) is None
    taken = it.take_cooling(5.0)
    assert [one.seq for one, _ in taken] == [2, 3]
    gone = time.monotonic() - begin
    assert all(30 - gone <= left <= 30 for _, left in taken)
    assert it.waiting == 0


async def test_a_lease_handed_over_in_the_moment_of_a_cancellation_stays():
    it = shelf()
    taker = asyncio.create_task(it.take())
    await asyncio.sleep(0)
    it.add([lease(1)])  # resolves the future; the task has not run yet
    taker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taker
    assert [one.seq for one in it.drain()] == [1]


async def test_draining_returns_everything_and_sends_waiting_workers_home():
    it = shelf(CONCURRENT_REQUESTS_PER_DOMAIN=1)
    it.add([lease(n) for n in range(5)])
    await it.take()
    takers = [asyncio.create_task(it.take()) for _ in range(3)]
    await asyncio.sleep(0)
    assert sorted(one.seq for one in it.drain()) == [1, 2, 3, 4]
    assert await asyncio.gather(*takers) == [None, None, None]
    assert await it.take() is None


async def test_startable_counts_only_what_a_slot_could_take_now():
    it = shelf(CONCURRENT_REQUESTS_PER_DOMAIN=2)
    it.add([lease(n) for n in range(6)] + [lease(9, "bbbbbbbb")])
    assert it.startable() == 3
    await it.take()
    await it.take()
    await it.take()
    assert it.startable() == 0
    assert it.full_sites(4) == ["aaaaaaaa"]


def test_a_site_that_is_due_within_the_loops_own_millisecond_is_served_without_an_error():
    """uvloop calls it at once then, with a handle that doesn't know its time."""
    import uvloop

    errors = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        it = shelf(DOWNLOAD_DELAY=0.0014)
        for first in range(0, 200, 2):
            it.add(
                [
                    lease(first, f"{first:08d}"),
                    lease(first + 1, f"{first:08d}"),
                    lease(first, f"x{first:07d}"),
                ]
            )
            it.add([lease(first + 1, f"x{first:07d}")])
            for _ in range(4):
                await it.take()

    uvloop.run(main())
    assert errors == []
