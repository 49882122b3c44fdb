"""The node's will: waking, limits, and the first reason of a stop."""

import asyncio

import pytest

from netspy.engine.control import Control, Ended
from netspy.errors import ConfigError, StoreLostError
from support.engine import Lines


async def test_the_first_reason_of_a_stop_counts_and_wakes_everybody():
    control = Control(Lines())
    waiting = asyncio.create_task(control.stopped())
    control.stop("asked to", signal=2)
    control.stop("later", "failed")
    assert await waiting == Ended("stopped", "asked to", 2)
    assert control.stopping
    assert await control.changed(5.0)


async def test_a_change_is_seen_once():
    control = Control(Lines())
    control.wake()
    assert await control.changed(0.0)
    control.seen()
    assert not await control.changed(0.0)


async def test_progress_beyond_a_limit_stops_the_run():
    reached = []
    control = Control(Lines(), lambda: reached[0] if reached else None)
    control.progressed()
    assert not control.stopping
    reached.append("SPIDER_MAX_PAGES=3 reached")
    control.check_limits()
    assert control.ended == Ended("limit", "SPIDER_MAX_PAGES=3 reached")


async def test_stopping_before_anybody_waits_is_not_forgotten():
    control = Control(Lines())
    control.stop("at once")
    assert (await control.stopped()).reason == "at once"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StoreLostError("gone"), "store_lost"),
        (ConfigError("wrong"), "failed"),
        (ValueError("a bug"), "failed"),
    ],
    ids=["store", "ours", "bug"],
)
async def test_a_part_that_ends_by_its_error_ends_the_run(error, outcome):
    async def breaks():
        raise error

    log = Lines()
    control = Control(log)
    control.spawn(breaks(), "netspy-claim")
    async with asyncio.timeout(5):
        assert (await control.stopped()).outcome == outcome
    assert ("internal error in netspy-claim" in log) == isinstance(error, ValueError)


async def test_a_part_that_somebody_cancels_ends_the_run_unless_the_node_is_leaving():
    async def works():
        await asyncio.Event().wait()

    control = Control(Lines())
    part = control.spawn(works(), "a")
    await asyncio.sleep(0)
    part.cancel()
    async with asyncio.timeout(5):
        assert "internal error in a" in (await control.stopped()).reason
    left = Control(Lines())
    left.leaving = True
    late = left.spawn(works(), "b")
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait({late})
    assert not left.stopping
