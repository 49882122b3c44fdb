"""Blocking calls in threads: results, exceptions and order, and that a call that hangs holds nobody up."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from netspy.blocking import SerialThread, Threads, in_thread

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def end_early() -> None:
    raise StopIteration("no more")


async def test_a_call_runs_elsewhere_with_the_context_of_its_caller():
    WHO.set("me")
    thread, who = await in_thread(lambda: (threading.current_thread(), WHO.get()))
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert who == "me"


async def test_what_it_raises_is_the_callers_and_stop_iteration_does_not_leave_it_waiting_for_ever():
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="no more"):
        await asyncio.wait_for(in_thread(end_early), 30)


async def test_calls_of_one_thread_come_in_order_and_never_two_at_a_time():
    thread, seen = SerialThread("one"), []
    calls = [thread.submit(seen.append, n) for n in range(50)]
    await asyncio.gather(*calls)
    assert seen == list(range(50))
    thread.close()


async def test_a_call_that_is_given_up_keeps_the_others_going():
    go_on = threading.Event()
    threads = Threads("few", 2)
    stuck = asyncio.ensure_future(threads.call(go_on.wait))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(threads.call(lambda: 7), 30) == 7
    stuck.cancel()
    go_on.set()
    await asyncio.gather(stuck, return_exceptions=True)
    threads.close()


async def test_a_call_that_takes_long_is_told_once_and_one_that_does_not_is_not(monkeypatch):
    monkeypatch.setattr("netspy.blocking.SLOW_S", 0.05)
    go_on, told = threading.Event(), []

    def slow() -> None:
        told.append(1)
        go_on.set()

    loop, timers = asyncio.get_running_loop(), []
    real = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda *told: timers.append(real(*told)) or timers[-1])
    assert await in_thread(lambda: go_on.wait(20), slow=slow)
    assert told == [1]
    monkeypatch.setattr("netspy.blocking.SLOW_S", 600)
    assert await in_thread(lambda: "at once", slow=slow) == "at once"
    assert timers[1].cancelled()
