"""A start that blocks before there is a loop: a signal ends it, and the handlers are as before afterwards."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from netspy.launch.signals import StopRequested, raise_on_stop_signal


def block_until(number: int) -> None:
    try:
        os.kill(os.getpid(), number)
        threading.Event().wait(20)
    except Exception as error:
        raise AssertionError("it was taken for a failure") from error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_what_blocks(number):
    before = signal.getsignal(number)
    with raise_on_stop_signal(), pytest.raises(StopRequested) as told:
        block_until(number)
    assert told.value.number == number
    assert signal.getsignal(number) is before


def test_in_another_thread_nothing_changes():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with raise_on_stop_signal():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
