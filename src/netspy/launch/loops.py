"""The event loop of a run: which one, and what happens where one runs already."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from netspy.errors import ConfigError
from netspy.stdio import closed

Result = TypeVar("Result")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes a run's event loop: uvloop's, or None for asyncio's own.

    libuv aborts the process when it closes a descriptor below 3, which it gets where a standard stream is closed.
    """
    if sys.platform == "win32" or closed():
        return None
    import uvloop

    return uvloop.new_event_loop


def runs_here() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_running_loop(called: str) -> None:
    """Raises ConfigError: `called` owns its process, which an event loop that runs here does, too."""
    if runs_here():
        raise ConfigError(
            f"{called}() is called where an event loop runs (a notebook, an async function); write "
            "`summary = await asyncio.to_thread(spider.run)`, or spider.run() in a notebook"
        )


def off_the_loop(run: Callable[[], Result], stop: Callable[[str], None]) -> Result:
    """`run()`, in a thread of its own where an event loop runs in this one. Blocks.

    What interrupts the waiting (Ctrl-C) calls `stop` once, waits for the end, and is raised.
    """
    if not runs_here():
        return run()
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(run())
        except BaseException as error:  # raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=work, name="netspy-run", daemon=True).start()
    try:
        return future.result()
    except BaseException:
        if not future.done():
            stop("interrupted")
            future.exception()
        raise
