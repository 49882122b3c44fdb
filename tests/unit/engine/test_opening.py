"""A start that waits for a store: nothing holds up a stop, and only a stop makes an away store no error."""

from __future__ import annotations

import asyncio

import pytest

from netspy.engine.opening import unless_stopped
from netspy.errors import ConfigError, StoreUnavailableError


async def away():
    await asyncio.sleep(0)
    raise StoreUnavailableError("away")


async def wrong():
    await asyncio.sleep(0)
    raise ConfigError("wrong")


async def fine():
    await asyncio.sleep(0)


@pytest.fixture
def silent(monkeypatch):
    """What never answers; `silent.closed` tells that it was cut off."""
    monkeypatch.setattr("netspy.engine.opening._GRACE_S", 0.05)

    class Silent:
        closed = False

        async def __call__(self):
            try:
                await asyncio.Event().wait()
            finally:
                self.closed = True

    return Silent()


async def test_what_opens_is_open_also_when_a_stop_came_meanwhile():
    stopping = asyncio.get_running_loop().create_future()
    assert await unless_stopped(fine(), stopping)
    stopping.set_result(None)
    assert await unless_stopped(fine(), stopping)


async def test_a_silent_store_is_cut_off_soon_after_a_stop(silent):
    stopping = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, stopping.set_result, None)
    assert not await asyncio.wait_for(unless_stopped(silent(), stopping), 10)
    assert silent.closed


async def test_a_store_that_is_away_is_an_error_unless_a_stop_has_begun():
    stopping = asyncio.get_running_loop().create_future()
    with pytest.raises(StoreUnavailableError):
        await unless_stopped(away(), stopping)
    stopping.set_result(None)
    assert not await unless_stopped(away(), stopping)
    with pytest.raises(ConfigError):
        await unless_stopped(wrong(), stopping)


async def test_who_is_cancelled_while_opening_leaves_nothing_running(silent):
    stopping = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(unless_stopped(silent(), stopping))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)
    assert silent.closed
