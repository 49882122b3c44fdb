"""A start that blocks before there is a loop: a signal ends it, and the handlers are as before afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from netspy.launch.signals import (
    STOP_SIGNALS,
    StopRequested,
    end_as_process_1,
    heeded,
    install_stop_handlers,
    raise_on_stop_signal,
)


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


@pytest.fixture
def sighup():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who ran the tests may have ignored it
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_goes_stops_a_run_but_not_where_it_is_ignored(sighup):
    """Case HO-08: nohup ignores the signal, and that is meant."""
    assert signal.SIGHUP in heeded()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert heeded() == STOP_SIGNALS - {signal.SIGHUP}


@pytest.mark.parametrize(
    ("sent", "stops", "forced"),
    [
        ([signal.SIGHUP, signal.SIGHUP], [signal.SIGHUP], 0),
        ([signal.SIGTERM, signal.SIGHUP], [signal.SIGTERM], 0),
        ([signal.SIGHUP, signal.SIGTERM], [signal.SIGHUP], 1),
        ([signal.SIGTERM, signal.SIGHUP, signal.SIGINT], [signal.SIGTERM], 1),
    ],
)
async def test_sighup_begins_a_stop_and_never_ends_one_at_once(sent, stops, forced, sighup):
    """A shell sends it beside the kernel, systemd after SIGTERM: the pages at work keep their time."""
    began, ended = [], []
    seen, uninstall = install_stop_handlers(
        lambda _name, number: began.append(number), lambda: ended.append(1)
    )
    try:
        for number in sent:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            for _ in range(500):
                if (number == signal.SIGHUP and seen) or number in seen:
                    break
                await asyncio.sleep(0.01)
    finally:
        uninstall()
    assert (began, len(ended)) == (stops, forced)


def test_process_1_ends_on_sigterm_before_the_run_has_its_handlers(monkeypatch):
    """The kernel drops a signal to process 1 that has no handler: `docker stop` would wait for its SIGKILL."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        end_as_process_1()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        monkeypatch.setattr(os, "getpid", lambda: 1)
        end_as_process_1()
        with pytest.raises(SystemExit) as left:
            signal.raise_signal(signal.SIGTERM)
        assert left.value.code == 143
    finally:
        signal.signal(signal.SIGTERM, before)
