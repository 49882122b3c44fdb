"""A cancellation that redis-py loses, as asyncio.wait_for does until Python 3.12, ends the task all the same."""

from __future__ import annotations

import asyncio

import pytest

from netspy.redisio.link import AsyncLink
from netspy.settings import Settings


class Losing:
    """A call that takes a cancellation for its end."""

    def __init__(self, error=None):
        self.error = error

    async def __call__(self):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.error is not None:
                raise self.error from None
        return b"an answer"


@pytest.fixture
async def link():
    link = AsyncLink(Settings(REDIS_URL="redis://127.0.0.1:1/0"))
    yield link
    await link.close()


@pytest.mark.parametrize("error", [None, ConnectionError("the handler is closed")])
async def test_who_is_cancelled_in_a_call_goes_no_further(link, error):
    went_on = []

    async def ask_again_and_again():
        while True:
            await link.ask(Losing(error))
            went_on.append(1)

    task = asyncio.create_task(ask_again_and_again())
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done
    assert task.cancelled()
    assert went_on == []


async def test_a_time_limit_around_a_call_is_kept(link):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await link.ask(Losing())


async def test_calls_on_a_real_server_that_are_cancelled_at_any_moment_end_as_cancelled(redis_url):
    link = AsyncLink(Settings(REDIS_URL=redis_url))
    for n in range(300):
        task = asyncio.create_task(link.ask(lambda: link.client.get("a")))
        for _ in range(n % 15):
            await asyncio.sleep(0)
        if task.done():
            continue
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
    await link.close()
