"""run() where an event loop runs already: a notebook, a web handler, an async test."""

from __future__ import annotations

import asyncio
import threading

import pytest

from netspy.errors import ConfigError
from netspy.launch import loops
from netspy.launch.loops import loop_factory, off_the_loop, refuse_running_loop


def nothing(_reason: str) -> None:
    raise AssertionError("nobody interrupts it")


def test_without_a_loop_it_is_a_call():
    assert off_the_loop(threading.get_ident, nothing) == threading.get_ident()
    refuse_running_loop("News.start")


async def test_beside_a_loop_it_has_a_thread_and_a_loop_of_its_own():
    """Case HO-07."""
    assert off_the_loop(lambda: asyncio.run(asyncio.sleep(0, "a result")), nothing) == "a result"


async def test_what_it_raises_is_raised_here():
    def fails() -> None:
        raise ConfigError("SPIDER_THREAD_COUNT=0")

    with pytest.raises(ConfigError, match="SPIDER_THREAD_COUNT"):
        off_the_loop(fails, nothing)


async def test_ctrl_c_stops_it_and_waits_for_its_end(monkeypatch):
    stopped = threading.Event()
    ended = []

    class Interrupted(loops.Future):
        def result(self, timeout=None):
            raise KeyboardInterrupt

    def crawl() -> None:
        stopped.wait(20)
        ended.append(True)

    monkeypatch.setattr(loops, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        off_the_loop(crawl, lambda _reason: stopped.set())
    assert ended == [True]


async def test_what_owns_its_process_says_what_to_write():
    with pytest.raises(ConfigError, match=r"News\.start\(\) .* await asyncio\.to_thread\(spider\.run\)"):
        refuse_running_loop("News.start")


def test_where_a_standard_stream_is_closed_the_loop_is_one_that_can_live_with_it(monkeypatch):
    """Case HO-04: run() leaves the streams as they are."""
    assert loop_factory() is not None
    monkeypatch.setattr(loops, "closed", lambda: [1])
    assert loop_factory() is None
