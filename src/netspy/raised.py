"""What user code raises, whatever it is, as an error of that code. Only netspy's own cancellation passes.

`except Exception` lets asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit and a BaseException of the
user's own through, and each of them would end the task that called: the page would hang, its lease renewed for ever.
A real Ctrl-C is a signal (launch/signals.py), never an exception in here. So wherever user code is called:

    try:
        ...
    except BaseException as caught:
        error = failure(caught)
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from netspy import forked
from netspy.errors import SpiderError, UserCodeError, message_of

_T = TypeVar("_T")


def failure(error: BaseException) -> Exception:
    """The error to report, count and try again for. Raises `error` itself when the running task is being cancelled.

    In a process that user code forked and that ends like this, the process ends: it is no node.
    """
    forked.leave(error)
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError) and _cancelled_by_netspy():
        raise error
    told: Exception
    if isinstance(error, SystemExit):
        told = SpiderError(f"sys.exit({message_of(error)}) was called; call self.stop() to end the crawl")
    else:
        told = UserCodeError(error)
    told.__cause__ = error
    return told.with_traceback(error.__traceback__)


async def awaited(result: Awaitable[_T]) -> _T:
    """What user code's awaitable gives. Raises Exceptions only, or our own cancellation.

    For tasks of their own: a KeyboardInterrupt or SystemExit that leaves a task ends the event loop.
    """
    try:
        return await result
    except Exception:
        raise
    except BaseException as caught:
        raise failure(caught) from caught


async def apart(work: Coroutine[Any, Any, _T]) -> _T:
    """What `work`, in which user code runs, gives from a task of its own; otherwise as `await work`.

    `asyncio.current_task().cancel()` in there is an error of that code then, and not our cancellation. When we are being
    cancelled, so is the task; what it gives all the same counts, and it is waited for GOODBYE_S seconds at most. `work`
    raises Exceptions only, or its cancellation: what else leaves a task ends the loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(_task: asyncio.Task[_T]) -> None:
        if not ended.done():
            ended.set_result(None)

    task = loop.create_task(work)
    task.add_done_callback(end)
    _apart[task] = False
    try:
        await ended
    except asyncio.CancelledError:
        _apart[task] = True
        task.cancel()
        await asyncio.wait({task}, timeout=GOODBYE_S)
        if not task.done():
            task.add_done_callback(_retrieved)
            raise
    try:
        return task.result()
    except asyncio.CancelledError as cancelled:
        if _apart[task]:
            raise
        raise UserCodeError(cancelled) from cancelled


GOODBYE_S = 1.0
_apart: WeakKeyDictionary[asyncio.Task[Any], bool] = WeakKeyDictionary()
"""The tasks of `apart`: whether netspy has cancelled them."""


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Of a task that nobody waits for any more: it was told of when it was given up."""
    if not task.cancelled():
        task.exception()


def run_loop(
    main: Coroutine[Any, Any, _T],
    *,
    strayed: Callable[[Exception], None] | None = None,
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> _T:
    """`main` to its end on an event loop of its own, made by `factory` (None: asyncio's): what it returns or raises.

    A KeyboardInterrupt or SystemExit of a task or callback that user code has put on the loop would end the loop, and
    so would its `loop.stop()`. Neither is the end of `main`: `strayed` is told (None: the loop's exception handler, which
    logs it), and the loop goes on. Ctrl-C, where nobody else handles it, cancels `main` and raises KeyboardInterrupt, as
    asyncio.run does.
    """
    loop = (factory or asyncio.new_event_loop)()
    told = strayed or (
        lambda error: loop.call_exception_handler({"message": "in user code on the loop", "exception": error})
    )
    try:
        task = loop.create_task(main)
        with _interruptible(task) as pressed:
            try:
                _through(loop, task, told, lambda: len(pressed) > 1)
                if pressed and task.cancelled():
                    raise KeyboardInterrupt
                if task.cancelled():
                    raise UserCodeError(asyncio.CancelledError(_ALL_TASKS))
                return task.result()
            finally:
                _through(loop, loop.create_task(_leave()), told, lambda: bool(pressed))
    finally:
        loop.close()


def _through(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[Any],
    told: Callable[[Exception], None],
    given_up: Callable[[], bool],
) -> None:
    """Run the loop until `task` has ended. Raises KeyboardInterrupt when Ctrl-C has `given_up` waiting for it."""
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit) as stray:
            if given_up():
                raise
            if not task.done() or task.cancelled() or task.exception() is not stray:
                told(failure(stray))
        except asyncio.CancelledError:
            pass  # its own, as its result says
        except Exception:  # its own, too; or somebody has stopped the loop
            if not task.done():
                told(SpiderError("loop.stop() was called; call self.stop() to end the crawl"))


async def _leave() -> None:
    """What asyncio.Runner does at its end; but tasks that take no cancellation are waited for a second only."""
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=GOODBYE_S)
    for task in left:
        if not task.done():
            task.add_done_callback(_retrieved)
            loop.call_exception_handler(
                {"message": "a task that doesn't end when it is cancelled", "task": task}
            )
        elif not task.cancelled() and isinstance(error := task.exception(), Exception):
            loop.call_exception_handler(
                {"message": "at the end of the run", "exception": error, "task": task}
            )
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


_ALL_TASKS = (
    "the run's own task was cancelled; cancel the tasks that you have made, and not asyncio.all_tasks()"
)


@contextmanager
def _interruptible(task: asyncio.Task[Any]) -> Iterator[list[int]]:
    """Instead of Python's handler: the first SIGINT cancels the task, a second raises KeyboardInterrupt. Gives those so far."""
    pressed: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        pressed.append(number)
        if len(pressed) > 1 or task.done():
            raise KeyboardInterrupt  # `given_up` tells it from one of user code's
        task.cancel()
        task.get_loop().call_soon_threadsafe(lambda: None)  # wakes it

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield pressed
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield pressed
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _cancelled_by_netspy() -> bool:
    """Whether the running task is being cancelled; a CancelledError that was merely raised doesn't count.

    A cancellation that user code has asked for in a task of `apart` doesn't either, and is taken back.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a worker thread: nothing can be cancelled there
        return False
    if task is None:
        return False
    if _apart.get(task) is False:
        while task.uncancel():
            pass
    return task.cancelling() > 0
