"""SIGINT and SIGTERM while an event loop works: the first begins a graceful stop, the second ends the process."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


def heed(
    stop: Callable[[str, int], None], forced: Callable[[], None]
) -> tuple[list[int], Callable[[], None]]:
    """`stop` gets the signal's name, for people, and its number. Returns the signals so far, and what undoes it.

    To be called on the loop. In another thread than the main one, and on Windows, nothing is heeded.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        return seen, lambda: None
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        seen.append(number)
        if len(seen) > 1:
            forced()
        else:
            stop("Ctrl-C (SIGINT)" if number == signal.SIGINT else number.name, int(number))

    for number in _NUMBERS:
        loop.add_signal_handler(number, handle, number)
    # A fleet's parent blocks them while it forks, so that none comes before there is somebody to heed it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)

    def undo() -> None:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)

    return seen, undo
