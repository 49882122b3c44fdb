"""What SIGINT, SIGTERM and SIGHUP do, from a run's start until its process is gone.

Before there is an event loop they raise StopRequested where something blocks (`raise_on_stop_signal`). While the run
works, its loop (`install_stop_handlers`) or a fleet's parent handles them: the first begins a graceful stop, the second
ends the process. Python's own handlers would take over when that ends: a second press then is a KeyboardInterrupt in the
middle of the summary, or a death by the signal after a last line that told another exit code. So ExitSignals has them:

- until the last line is written a second signal is what it always is, the end at once;
- after it the process is as good as gone: a further signal changes nothing, unless something holds the process up for
  more than a second; then it ends at once, with the code that the last line told;
- code that caught the SystemExit and goes on has the handlers from before the run.

SIGHUP tells that the terminal has gone. It begins a stop and never ends one at once: shells and service managers send it
beside another signal, or twice. Where it was ignored at the start (`nohup`), it still is.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

_SIGHUP = getattr(signal, "SIGHUP", None)  # Windows has none
STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM} | ({_SIGHUP} if _SIGHUP is not None else set()))
_EXIT_S = 1.0
"""How long after the last line a process may take to end by itself while it is told to stop."""


def heeded() -> frozenset[signal.Signals]:
    """The signals that stop a run: STOP_SIGNALS, but SIGHUP where it is ignored."""
    if _SIGHUP is None or signal.getsignal(_SIGHUP) != signal.SIG_IGN:
        return STOP_SIGNALS
    return STOP_SIGNALS - {_SIGHUP}


def is_second(number: int) -> bool:
    """Whether this signal, coming after another one, ends the process at once."""
    return number != _SIGHUP


class StopRequested(BaseException):
    """A signal asked to stop in a `raise_on_stop_signal` block. Not an Exception: nobody on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def raise_on_stop_signal() -> Iterator[None]:
    """The signals of a stop raise StopRequested in the block: for calls that block before there is a loop. Main thread only."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        raise StopRequested(number)

    before = {number: signal.signal(number, handle) for number in heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def end_as_process_1() -> None:
    """As process 1, as in a container, SIGTERM does nothing without a handler: until the run has one, it ends the process."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def install_stop_handlers(
    stop: Callable[[str, int], None], forced: Callable[[], None]
) -> tuple[list[int], Callable[[], None]]:
    """While an event loop works: the first signal calls `stop`, the second `forced`, which has to end the process.

    `stop` gets the signal's name, for people, and its number. Returns the signals so far, and what removes the handlers.
    To be called on the loop. In another thread than the main one, and on Windows, nothing is installed.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        return seen, lambda: None
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if seen and not is_second(number):
            return
        seen.append(number)
        if len(seen) > 1:
            forced()
        else:
            stop("Ctrl-C (SIGINT)" if number == signal.SIGINT else number.name, int(number))

    numbers = heeded()
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    # A fleet's parent blocks them while it forks, so that none comes before there is a handler.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def uninstall() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return seen, uninstall


class ExitSignals:
    """The signals of one run after its work. Made before it begins, in the main thread; elsewhere it does nothing."""

    def __init__(self) -> None:
        self._mine = threading.current_thread() is threading.main_thread() and sys.platform != "win32"
        self._before: dict[int, Any] = {}
        self._forced: Callable[[], None] | None = None
        self._count = 0
        self._exit: weakref.ref[SystemExit] | None = None
        self._code = 0
        self._last_line_at = 0.0
        self._root: CodeType | None = None
        if self._mine:
            self._before = {number: signal.getsignal(number) for number in heeded()}

    def hold(self, stopping: bool, forced: Callable[[], None] | None = None) -> None:
        """The work is over. `stopping`: a signal has ended it, so the next one calls `forced`."""
        if self._mine:
            self._count = int(stopping)
            self._forced = forced
            self._take(self._held)

    def on_last_line(self, leaving: SystemExit) -> None:
        """The last line is about to be written, and `leaving` raised. Call `restore` when it isn't."""
        if self._mine and self._count:
            self._exit = weakref.ref(leaving)
            self._code = int(leaving.code or 0)
            self._last_line_at = time.monotonic()
            self._root = _root(sys._getframe()).f_code  # noqa: SLF001 - what signal handlers are given
            self._take(self._late)
            atexit.register(self._at_exit)
        else:
            self.restore()

    def restore(self) -> None:
        """The handlers from before the run."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _take(self, handler: Callable[[int, FrameType | None], None]) -> None:
        for number in self._before:
            signal.signal(number, handler)

    def _held(self, number: int, _frame: FrameType | None) -> None:
        if self._count and not is_second(number):
            return
        self._count += 1
        if self._count > 1 and self._forced is not None:
            # Once: a third signal must not begin it again in the middle of the last line.
            forced, self._forced = self._forced, None
            forced()

    def _late(self, number: int, frame: FrameType | None) -> None:
        on_its_way = self._exit is not None and self._exit() is not None
        if not on_its_way and frame is not None and _root(frame).f_code is self._root:
            # The program that caught the SystemExit goes on, and this is its own affair.
            self.restore()
            os.kill(os.getpid(), number)
        elif time.monotonic() - self._last_line_at > _EXIT_S:
            os._exit(self._code)

    def _at_exit(self) -> None:
        """The interpreter resets all handlers but this one while it frees what it holds."""
        for number in self._before:
            if signal.getsignal(number) == self._late:
                signal.signal(number, signal.SIG_IGN)


def _root(frame: FrameType) -> FrameType:
    """The outermost frame: the program's while it runs, another one while the interpreter shuts down."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame
