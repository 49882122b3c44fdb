"""One node process of a fleet: forked by the parent, told to stop by signals, heard through three pipes."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import msgspec
from msgspec import Struct

from netspy.assembly.contract import AnySpider
from netspy.errors import NetspyError
from netspy.launch.signals import heeded
from netspy.launch.single import failure_summary, leave_at_once, run_single
from netspy.observe import log
from netspy.observe.summary import RunSummary
from netspy.pipelines.stdout import writes_stdout


class Report(Struct, frozen=True):
    """What a node process says at its end; `error` is why it could not start, in one line."""

    summary: RunSummary
    error: str = ""


class Child:
    """A node process as its parent sees it."""

    def __init__(self, number: int, process: Any, result: Connection, out: int, err: int) -> None:
        self.number = number
        self.process = process
        self.pid: int = process.pid
        self.result = result
        self.out = out
        self.err = err
        self.report: Report | None = None
        self.alive = True

    def poll(self) -> bool:
        """Take the report when it is there; True while the process lives. A dead one is reaped."""
        self.alive = self.alive and bool(self.process.is_alive())
        with suppress(EOFError, OSError):
            if self.report is None and self.result.poll():
                self.report = msgspec.json.decode(self.result.recv_bytes(), type=Report)
        return self.alive

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def how_it_ended(self) -> str:
        """`killed by SIGKILL`, `exit code 1`."""
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"

    def close(self) -> None:
        """Wait for the end of the process, take its report, free what belonged to it (not the output pipes)."""
        self.process.join()
        self.poll()
        self.result.close()


class Lifeline:
    """A pipe that nobody writes to: when its end comes, whoever held the other side is gone, however that ended.

    (Linux' parent-death signal may come twice, once for each thread of the parent that dies.)
    """

    def __init__(self) -> None:
        self.read, self.write = os.pipe()

    def close(self) -> None:
        """The holder's end: let go."""
        os.close(self.read)
        os.close(self.write)

    def watch(self) -> None:
        """In the child: a graceful stop when the parent has died."""
        os.close(self.write)
        threading.Thread(target=self._wait, name="netspy-lifeline", daemon=True).start()

    def _wait(self) -> None:
        os.read(self.read, 1)
        os.kill(os.getpid(), signal.SIGTERM)


def fork(
    spider: AnySpider, number: int, *, on_terminal: bool, lifeline: Lifeline, close: Iterable[Child] = ()
) -> Child:
    """Start node `number`. Call it before this process has threads, and with STOP_SIGNALS blocked.

    `on_terminal`: its log lines end on a terminal, through the parent. `close`: earlier children, whose pipes
    the new one must not hold open.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    foreign = [out_read, err_read, here.fileno()]
    for other in close:
        foreign += [other.out, other.err, other.result.fileno()]
    # What is buffered now would be written twice otherwise.
    sys.stdout.flush()
    sys.stderr.flush()
    process = context.Process(
        target=_main, args=(spider, number, there, out_write, err_write, foreign, lifeline, on_terminal)
    )
    process.start()
    there.close()
    os.close(out_write)
    os.close(err_write)
    return Child(number, process, here, out_read, err_read)


def _main(
    spider: AnySpider,
    number: int,
    result: Connection,
    out: int,
    err: int,
    foreign: list[int],
    lifeline: Lifeline,
    on_terminal: bool,
) -> None:
    # A group of its own: Ctrl-C on the terminal is for the parent, which passes it on once.
    os.setpgrp()
    # The node's event loop handles them while it runs. When it is over the report is on its way, which nothing may cut.
    for stopping in heeded():
        signal.signal(stopping, _is_leaving)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    for fd in foreign:
        os.close(fd)
    lifeline.watch()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    # Rows that go nowhere must not count as written.
    settings = spider.load_settings().settings
    rows = writes_stdout(spider.pipelines or settings.ITEM_PIPELINES)
    sys.stdout = _text(1, io.FileIO if rows else _Pipe)
    sys.stderr = _text(2, _Pipe)

    def send(summary: RunSummary, error: str = "") -> None:
        with suppress(OSError):  # the parent is gone
            result.send_bytes(msgspec.json.encode(Report(summary, error)))

    def forced(summary: RunSummary) -> None:
        send(summary)
        leave_at_once()

    try:
        # The parent has said the warnings about settings.
        log.setup(settings, spider=spider.name, node=str(number), terminal=on_terminal)
        send(run_single(spider, setup_log=False, on_forced=forced).summary)
    except NetspyError as error:
        send(failure_summary(spider, error), str(error))
    with suppress(OSError):  # nobody reads it any more
        sys.stdout.flush()
    sys.stderr.flush()


def _is_leaving(_number: int, _frame: Any) -> None:
    """Nothing: the parent kills a node that takes too long."""


def _text(fd: int, kind: type[io.FileIO]) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(kind(fd, "w", closefd=False)),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


class _Pipe(io.FileIO):
    """Output whose reader may be killed: then it goes nowhere, instead of raising in the user's `print`."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(data)
