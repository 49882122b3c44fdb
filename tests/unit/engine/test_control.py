"""The node's will: waking, limits, and the first reason of a stop."""

import asyncio

from netspy.engine.control import Control, Ended


async def test_the_first_reason_of_a_stop_counts_and_wakes_everybody():
    control = Control()
    waiting = asyncio.create_task(control.stopped())
    control.stop("asked to", signal=2)
    control.stop("later", "failed")
    assert await waiting == Ended("stopped", "asked to", 2)
    assert control.stopping
    assert await control.changed(5.0)


async def test_a_change_is_seen_once():
    control = Control()
    control.wake()
    assert await control.changed(0.0)
    control.seen()
    assert not await control.changed(0.0)


async def test_progress_beyond_a_limit_stops_the_run():
    reached = []
    control = Control(lambda: reached[0] if reached else None)
    control.progressed()
    assert not control.stopping
    reached.append("SPIDER_MAX_PAGES=3 reached")
    control.check_limits()
    assert control.ended == Ended("limit", "SPIDER_MAX_PAGES=3 reached")


async def test_stopping_before_anybody_waits_is_not_forgotten():
    control = Control()
    control.stop("at once")
    assert (await control.stopped()).reason == "at once"
