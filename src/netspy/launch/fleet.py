"""Several node processes on one machine: one run, one display, one summary from the parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from netspy import assembly
from netspy.errors import ConfigError, NetspyError
from netspy.launch.observer import cluster_snapshot
from netspy.launch.single import failure_summary, run_single
from netspy.observe import log
from netspy.observe import summary as summaries
from netspy.observe.outcome import ExitCode, exit_code
from netspy.observe.panel import make_progress
from netspy.observe.progress import RateMeter
from netspy.observe.summary import RunSummary

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_LOOK_EVERY_S = 1.0


class _Child:
    """One node process, its result and its output."""

    def __init__(self, number: int, process: Any, result: Connection, out: int, err: int) -> None:
        self.number = number
        self.process = process
        self.result = result
        self.out = out
        self.err = err
        self.summary: RunSummary | None = None
        self.reported = False

    def poll(self) -> bool:
        """Take the summary when it is there; True while the process lives."""
        try:
            if self.summary is None and self.result.poll():
                self.summary = msgspec.json.decode(self.result.recv_bytes(), type=RunSummary)
        except (EOFError, OSError):
            pass
        return bool(self.process.is_alive())


def run_fleet(spider: Any, processes: int) -> tuple[RunSummary, bool]:
    """Start `processes` nodes and wait for all; (the run's summary, whether to print its line).

    Signals to the parent go to the nodes: the first stops gracefully, the second at once. A node that dies is
    reported; the others take its requests over. Raises ConfigError.
    """
    if sys.platform == "win32" or "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigError(
            f"processes={processes} needs fork(), which this system doesn't have; start the script {processes} times"
        )
    loaded = spider.load_settings()
    log.setup(loaded.settings, spider=spider.name)
    for warning in loaded.warnings:
        spider.logger.warning("{}", warning)
    started = datetime.now(UTC)
    with assembly.embedded_store(spider, loaded.settings) as settings:
        assembly.check_shared(spider, settings)
        if settings.REDIS_URL != loaded.settings.REDIS_URL:
            spider.override_settings({"REDIS_URL": settings.REDIS_URL})
        children = [_fork(spider, number) for number in range(1, processes + 1)]
        relay = _Relay(children)
        shown = make_progress(settings)
        relay.start()
        view = assembly.ClusterView(spider, settings)
        try:
            _wait(children, spider, settings, shown, view)
        finally:
            view.close()
            relay.join(2.0)
            shown.close()
    found = [child.summary for child in children if child.summary is not None]
    if not found:
        now = datetime.now(UTC)
        return summaries.build(
            spider.counters, spider=spider.name, kind=spider.kind, outcome="failed", code=ExitCode.INTERNAL, started=started,
            finished=now, elapsed_s=(now - started).total_seconds(), reason="every node process died", nodes=processes,
        ), settings.RUN_SUMMARY_ENABLE  # fmt: skip
    merged = summaries.merge(found, fail_on_nothing_to_do=settings.FAIL_ON_NOTHING_TO_DO)
    dead = processes - len(found)
    if dead:
        merged = msgspec.structs.replace(
            merged, reason=merged.reason or f"{dead} node process(es) died; the others took over"
        )
    if merged.outcome == "nothing_to_do" and all(one.outcome == "finished" for one in found):
        merged = msgspec.structs.replace(merged, outcome="finished", exit_code=int(exit_code("finished")))
    return msgspec.structs.replace(merged, nodes=processes), settings.RUN_SUMMARY_ENABLE


def _fork(spider: Any, number: int) -> _Child:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = context.Process(
        target=_child_main, args=(spider, number, there, out_write, err_write, os.getpid()), daemon=False
    )
    process.start()
    there.close()
    os.close(out_write)
    os.close(err_write)
    return _Child(number, process, here, out_read, err_read)


def _child_main(spider: Any, number: int, result: Connection, out: int, err: int, parent: int) -> None:
    os.setpgrp()  # the terminal's Ctrl-C goes to the parent, which passes it on once
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(int(ExitCode.SIGTERM))
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    try:
        summary = run_single(spider, node_name=str(number)).summary
    except NetspyError as error:
        print(f"netspy: error: {error}", file=sys.stderr)  # noqa: T201 - the one line promised
        summary = failure_summary(spider, error)
    except KeyboardInterrupt:
        os._exit(int(ExitCode.SIGINT))
    result.send_bytes(msgspec.json.encode(summary))
    sys.stdout.flush()
    sys.stderr.flush()


def _wait(children: list[_Child], spider: Any, settings: Any, shown: Any, view: Any) -> None:
    """Until every process has ended: pass signals on, report deaths, show progress."""
    restore = _forward_signals(children)
    began = time.monotonic()
    next_look = 0.0
    rate, node_rates = RateMeter(), {}  # type: tuple[RateMeter, dict[str, RateMeter]]
    try:
        while True:
            alive = [child.poll() for child in children]
            for child, lives in zip(children, alive, strict=True):
                if not lives and not child.reported:
                    child.reported = True
                    child.poll()
                    if child.summary is None:
                        spider.logger.error(
                            "node process {} died (exit {}); the others take its requests over",
                            child.number,
                            child.process.exitcode,
                        )
            if not any(alive):
                return
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK_EVERY_S
                cluster = view.look()
                if cluster is not None:
                    shown.update(
                        cluster_snapshot(
                            cluster, spider.name, settings.RUN_ID, now - began, "crawling", rate, node_rates
                        )
                    )
            time.sleep(_POLL_S)
    finally:
        for child in children:
            child.process.join()
            child.poll()
            child.process.close()
            child.result.close()
        restore()


def _forward_signals(children: list[_Child]) -> Callable[[], None]:
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def forward(number: int, _frame: Any) -> None:
        for child in children:
            try:
                if child.process.is_alive():
                    os.kill(child.process.pid, number)
            except (ValueError, ProcessLookupError):
                continue

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


class _Relay(threading.Thread):
    """Passes the nodes' output on line by line, above the panel when there is one."""

    def __init__(self, children: list[_Child]) -> None:
        super().__init__(name="netspy-relay", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, bytes] = {}
        self._targets: dict[int, str] = {}
        for child in children:
            for fd, name in ((child.out, "stdout"), (child.err, "stderr")):
                self._selector.register(fd, selectors.EVENT_READ)
                self._parts[fd] = b""
                self._targets[fd] = name

    def run(self) -> None:
        """Until every pipe is closed."""
        while self._parts:
            for key, _ in self._selector.select(1.0):
                fd = key.fd
                data = os.read(fd, 65536)
                whole, newline, rest = (self._parts[fd] + data).rpartition(b"\n")
                if not data:
                    whole, newline, rest = whole + newline + rest, b"\n" if rest else b"", b""
                if whole or newline:
                    self._write(self._targets[fd], (whole + newline).decode("utf-8", "replace"))
                self._parts[fd] = rest
                if not data:
                    self._selector.unregister(fd)
                    del self._parts[fd]
                    os.close(fd)
        self._selector.close()

    @staticmethod
    def _write(name: str, text: str) -> None:
        stream = getattr(sys, name)
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):  # whoever read it is gone; the crawl goes on
            return
