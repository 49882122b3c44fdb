"""A start that waits for a store: nothing holds up a stop, and only a stop makes an away store no error."""

from __future__ import annotations

import asyncio

import pytest

from netspy.engine.control import Control
from netspy.engine.shutdown import unless_stopped
from netspy.errors import ConfigError, StoreUnavailableError
from support.engine import Lines


async def away():
    await asyncio.sleep(0)
    raise StoreUnavailableError("away")


async def wrong():
    await asyncio.sleep(0)
    raise ConfigError("wrong")


async def fine():
    await asyncio.sleep(0)


class Silent:
    """What never answers; `closed` tells that it was cut off."""

    closed = False

    async def __call__(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_what_opens_is_open_also_when_a_stop_came_meanwhile():
    control = Control(Lines())
    assert await unless_stopped(fine(), control)
    control.stop("told to")
    assert await unless_stopped(fine(), control)


async def test_a_silent_store_is_cut_off_soon_after_a_stop():
    control, silent = Control(Lines()), Silent()
    asyncio.get_running_loop().call_soon(control.stop, "told to")
    assert not await asyncio.wait_for(unless_stopped(silent(), control, grace_s=0.01), 10)
    assert silent.closed


async def test_a_store_that_is_away_is_an_error_unless_a_stop_has_begun():
    control = Control(Lines())
    with pytest.raises(StoreUnavailableError):
        await unless_stopped(away(), control)
    control.stop("told to")
    assert not await unless_stopped(away(), control)
    with pytest.raises(ConfigError):
        await unless_stopped(wrong(), control)


async def test_who_is_cancelled_while_opening_leaves_nothing_running():
    control, silent = Control(Lines()), Silent()
    waiting = asyncio.ensure_future(unless_stopped(silent(), control))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)
    assert silent.closed
