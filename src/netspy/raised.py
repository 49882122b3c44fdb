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
from collections.abc import Awaitable
from typing import TypeVar

from netspy import forked
from netspy.errors import SpiderError, UserCodeError

_T = TypeVar("_T")


def failure(error: BaseException) -> Exception:
    """The error to report, count and try again for. Raises `error` itself when the running task is being cancelled.

    In a process that user code forked and that ends like this, the process ends: it is no node.
    """
    forked.leave(error)
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError) and _being_cancelled():
        raise error
    told: Exception
    if isinstance(error, SystemExit):
        told = SpiderError(f"sys.exit({error}) was called; call self.stop() to end the crawl")
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


def _being_cancelled() -> bool:
    """Whether somebody called `cancel()` on the running task; a CancelledError that was merely raised doesn't count."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a worker thread: nothing can be cancelled there
        return False
    return task is not None and task.cancelling() > 0
