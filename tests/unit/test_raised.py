"""What user code raises becomes an error, and only a cancellation that somebody asked for stays one."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest
import uvloop

from netspy.blocking import in_thread
from netspy.engine.page.threads import CallbackPool
from netspy.errors import SpiderError, UserCodeError
from netspy.observe.faults import describe_error
from netspy.raised import apart, awaited, failure, run_loop


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


# -- the loop


class Unshown(Exception):
    """Its message can't be had."""

    def __str__(self):
        raise KeyboardInterrupt


def test_an_error_whose_message_can_not_be_shown_is_told_all_the_same():
    class Below(BaseException):
        def __str__(self):
            raise Own

    assert describe_error(Unshown()) == "Unshown: (its message can't be shown: KeyboardInterrupt)"
    assert "can't be shown: Own" in str(caught(Below()))
    assert "can't be shown" in str(caught(SystemExit(Unshown())))


LOOPS = pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


async def ending(error):
    raise error


def soon(error):
    def call():
        raise error

    asyncio.get_running_loop().call_soon(call)


@LOOPS
@pytest.mark.parametrize("error", [KeyboardInterrupt("x"), SystemExit("x")], ids=repr)
@pytest.mark.parametrize("how", ["task", "callback", "stop"])
def test_what_user_code_has_put_on_the_loop_ends_neither_the_loop_nor_the_run(factory, error, how):
    told = []

    async def main():
        for _ in range(3):
            if how == "task":
                task = asyncio.create_task(ending(error))
                await asyncio.sleep(0.001)
                assert task.exception() is error
            elif how == "callback":
                soon(error)
            else:
                asyncio.get_running_loop().stop()
            await asyncio.sleep(0.05)  # uvloop may end a short sleep before it stops
        return "whole"

    assert run_loop(main(), strayed=told.append, factory=factory) == "whole"
    assert len(told) == 3
    assert all(isinstance(one, SpiderError | UserCodeError) for one in told)


@LOOPS
def test_a_task_that_ends_like_that_when_it_is_cancelled_costs_the_result_nothing(factory):
    told = []

    async def stubborn():
        try:
            await asyncio.sleep(60)
        finally:
            raise SystemExit(9)

    async def main():
        main.kept = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        return 7

    assert run_loop(main(), strayed=told.append, factory=factory) == 7
    assert [type(one) for one in told] == [SpiderError]
    assert main.kept.exception() is not None


@LOOPS
@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt("x"), RuntimeError("x"), Own("x")], ids=repr
)
def test_what_the_run_itself_raises_is_raised(factory, error):
    told = []
    with pytest.raises(type(error)) as raised:
        run_loop(ending(error), strayed=told.append, factory=factory)
    assert (raised.value, told) == (error, [])


def test_ctrl_c_where_nobody_handles_it_cancels_the_run_and_is_raised():
    cleaned = []

    async def main():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_loop(main())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert cleaned == [True]


def test_ctrl_c_while_tasks_that_take_no_cancellation_are_waited_for_is_raised_too():
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                os.kill(os.getpid(), signal.SIGINT)

    async def main():
        main.kept = asyncio.create_task(stubborn())
        await asyncio.sleep(0)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_loop(main(), strayed=lambda error: pytest.fail(str(error)))
    finally:
        signal.signal(signal.SIGINT, before)
    main.kept.get_coro().close()


def test_what_is_told_to_nobody_is_logged(caplog):
    async def main():
        soon(SystemExit("x"))
        await asyncio.sleep(0.05)

    run_loop(main())
    assert "sys.exit(x) was called" in caplog.text


def test_errors_of_tasks_that_are_ended_with_the_loop_are_logged(caplog):
    async def breaks():
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("in its last words")

    async def main():
        main.kept = asyncio.create_task(breaks())
        await asyncio.sleep(0)

    run_loop(main())
    assert "in its last words" in caplog.text


# -- a task of its own


async def test_what_user_code_cancels_in_a_task_of_its_own_is_its_error_and_ours_passes():
    async def cancels_itself():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(UserCodeError, match="CancelledError"):
        await apart(cancels_itself())
    with pytest.raises(UserCodeError, match="CancelledError"):
        await apart(awaited(cancels_itself()))
    assert asyncio.current_task().cancelling() == 0
    waiting = asyncio.create_task(apart(asyncio.sleep(60)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_a_cancelled_task_gives_all_the_same_counts():
    async def swallows():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 7

    waiting = asyncio.create_task(apart(swallows()))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await waiting == 7


async def test_what_takes_no_cancellation_is_waited_for_a_second():
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(0.2)
                if stubborn.over:
                    return
            except asyncio.CancelledError:
                continue

    stubborn.over = False
    waiting = asyncio.create_task(apart(stubborn()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await waiting
    stubborn.over = True
