"""What user code raises becomes an error, and only a cancellation that somebody asked for stays one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from netspy.blocking import in_thread
from netspy.engine.page.threads import CallbackPool
from netspy.errors import SpiderError, UserCodeError
from netspy.raised import awaited, failure


class Own(BaseException):
    """As of gevent.Timeout's kind."""


KINDS = pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, Own])


def caught(error):
    try:
        raise error
    except BaseException as found:
        return failure(found)


def test_an_exception_stays_as_it_is():
    kept = ValueError("x")
    assert failure(kept) is kept


def test_sys_exit_is_an_error_that_names_the_way_to_stop():
    made = caught(SystemExit(3))
    assert isinstance(made, SpiderError)
    assert "self.stop()" in str(made)


@KINDS
def test_what_is_no_exception_keeps_its_name_message_and_place_ho_01(kind):
    error = kind("on purpose")
    made = caught(error)
    assert isinstance(made, UserCodeError)
    assert str(made) == f"{kind.__name__}: on purpose"
    assert (made.__cause__, made.__traceback__) == (error, error.__traceback__)
    assert str(caught(kind())) == kind.__name__


@KINDS
async def test_raised_on_the_loop_it_is_an_error_and_ends_no_task_ho_01(kind):
    async def raises():
        raise kind("on purpose")

    with pytest.raises(UserCodeError, match=f"^{kind.__name__}: on purpose$"):
        await asyncio.create_task(awaited(raises()))


async def test_a_task_that_is_cancelled_is_cancelled():
    begun = asyncio.Event()

    async def waits():
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(awaited(waits()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_limit_of_time_passes_as_one():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await awaited(asyncio.Event().wait())


@KINDS
async def test_raised_on_a_thread_it_does_not_cancel_who_waits_ho_01(kind):
    def raises():
        raise kind("on purpose")

    pool = CallbackPool(maximum=1)
    for call in (pool.call, in_thread):
        with pytest.raises(UserCodeError, match=f"^{kind.__name__}: on purpose$"):
            await call(raises)
    assert await pool.call(threading.get_ident) != threading.get_ident()
    pool.close()
