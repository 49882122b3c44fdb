"""Processes that user code forks from a node (`os.fork`, `multiprocessing`) are no nodes, whatever they were copied from.

Such a child has the node's event loop, its connections and its signal handlers. It may run what the user forked it for;
when that is over and it would go on as a node, it ends instead, without writing or flushing anything of the node's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import traceback

_home = 0  # the process of the node; 0 = none runs here
_watching = False


def at_home() -> None:
    """A node runs in this process from now on: what is forked from it isn't one."""
    global _home, _watching  # noqa: PLW0603 - one process, one home
    _home = os.getpid()
    if not _watching and hasattr(os, "register_at_fork"):
        _watching = True
        os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals, after_in_child=_in_child)


def left_home() -> None:
    """The node has ended."""
    global _home  # noqa: PLW0603 - one process, one home
    _home = 0


def is_child() -> bool:
    """Whether this process was forked from a node's."""
    return _home != 0 and os.getpid() != _home


def leave(error: BaseException | None = None) -> None:
    """End a process that is a child, with the code of its SystemExit; return in any other."""
    if not is_child():
        return
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    os._exit(code if isinstance(code, int) else int(code is not None))


_STOPS = (signal.SIGINT, signal.SIGTERM)
_masks = threading.local()


def _hold_signals() -> None:
    """Of the forking thread: no signal reaches the child before it is set free from the node's handlers."""
    if _home:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def _let_signals() -> None:
    before = getattr(_masks, "before", None)
    if before is not None:
        _masks.before = None
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_child() -> None:
    if not _home:
        return
    # A signal to the child must end the child, and not reach the node through the pipe that both have.
    try:
        signal.set_wakeup_fd(-1)
        for number in _STOPS:
            signal.signal(number, signal.SIG_DFL)
    except ValueError:  # not the main thread of its interpreter
        return
    finally:
        _let_signals()
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    # Forked on the loop: what comes after the callback that runs now is the node's affair.
    loop.call_soon(leave)
