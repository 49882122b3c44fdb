"""Several node processes on one machine: one run, one display, one summary from the parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing import connection
from typing import Any, NamedTuple

import msgspec

from netspy import assembly
from netspy.assembly.contract import SharedSpider
from netspy.errors import ConfigError
from netspy.launch.child import Child, Lifeline, fork
from netspy.launch.observer import run_id_of
from netspy.launch.output import OutputMultiplexer
from netspy.launch.signals import (
    STOP_SIGNALS,
    ExitSignals,
    StopRequested,
    heeded,
    is_second,
    raise_on_stop_signal,
)
from netspy.launch.single import say_settings
from netspy.launch.watch import Watch
from netspy.observe import log
from netspy.observe import summary as summaries
from netspy.observe.counters import NAMES
from netspy.observe.outcome import ExitCode, exit_code, stop_of
from netspy.observe.panel import make_progress
from netspy.observe.summary import RunSummary
from netspy.pipelines.stdout import check_stdout, writes_stdout
from netspy.settings import DEFAULT_ORIGIN, Settings

_POLL_S = 0.2
_FORCED_AFTER_S = 1.5
"""After a second signal the nodes have this long to leave by themselves."""

_START_TOGETHER_S = 2.0
"""An error at the start of one node that the others don't report within this time is that node's own."""

_OUTPUT_AFTER_S = 2.0
"""How long further output is waited for when the nodes are gone; something they started may hold their pipes."""


class FleetEnd(NamedTuple):
    """The run's end. `error` is why no node could start, in one line; empty when they did."""

    summary: RunSummary
    settings: Settings
    error: str = ""


def run_fleet(spider: SharedSpider, processes: int, exit_signals: ExitSignals | None = None) -> FleetEnd:
    """Start `processes` nodes and wait for all of them.

    Signals to the parent go to the nodes: the first stops gracefully, the second at once (what still lives after
    1.5 s is killed), Ctrl-Z pauses all. A node that dies is reported; the others take its requests over. When all are
    gone `exit_signals` handles them; without it, the handlers from before are in place again. Raises ConfigError,
    StoreUnavailableError.
    """
    if sys.platform == "win32" or "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigError(
            f"processes={processes} needs fork(), which this system doesn't have; "
            f"start the script {processes} times"
        )
    loaded = spider.load_settings()
    log.setup(loaded.settings, spider=spider.name)
    say_settings(spider, loaded)
    check_stdout(spider.pipelines or loaded.settings.ITEM_PIPELINES)
    started = datetime.now(UTC)
    children: list[Child] = []
    # The nodes are users of an embedded server themselves: it serves on when this process is killed.
    with assembly.embedded_store(spider, loaded.settings) as settings:
        try:
            with raise_on_stop_signal():
                assembly.check_shared(spider, settings)
        except StopRequested as stop:
            return FleetEnd(_stopped(spider, settings, started, stop.number), settings)
        if loaded.origins["SPIDER_STARTUP_GRACE"] == DEFAULT_ORIGIN:
            # The grace is for nodes that start apart. These start together and see one seeding lock: whoever finds it
            # over and everything empty need not wait.
            spider.override_settings({"SPIDER_STARTUP_GRACE": 0.0})
        with _Signals(children, exit_signals).passed_on() as signals:
            lifeline = Lifeline()
            _start(children, spider, processes, lifeline)
            relay = OutputMultiplexer(
                [(c.out, "stdout") for c in children] + [(c.err, "stderr") for c in children],
                rows=writes_stdout(spider.pipelines or settings.ITEM_PIPELINES),
            )
            relay.start()
            watch = Watch(spider, settings, make_progress(settings), children)
            watch.start()
            try:
                _wait(children, spider, signals, watch)
            finally:
                for child in children:
                    child.close()
                lifeline.close()
                passed_on = relay.finish(_OUTPUT_AFTER_S, lambda: signals.count > 1)
                watch.end(_end_state(children))
    errors = [child.report.error for child in children if child.report is not None and child.report.error]
    summary = _summed(
        spider, children, watch.seen, settings, started,
        forced=signals.count > 1, rows_lost=relay.rows and not passed_on,
    )  # fmt: skip
    return FleetEnd(summary, settings, errors[0] if len(errors) == len(children) else "")


def _stopped(spider: SharedSpider, settings: Settings, started: datetime, number: int) -> RunSummary:
    """The run was told to stop before a node was started."""
    name = signal.Signals(number).name
    now = datetime.now(UTC)
    return summaries.build(
        spider.counters, spider=spider.name, kind=spider.kind, outcome="stopped",
        code=exit_code("stopped", stop=stop_of(number)), started=started, finished=now,
        elapsed_s=(now - started).total_seconds(), reason=name, redis_key=spider.redis_key or spider.job_name,
        run_id=run_id_of(spider, settings),
    )  # fmt: skip


def _start(children: list[Child], spider: SharedSpider, processes: int, lifeline: Lifeline) -> None:
    """Fork the nodes into `children`. If one can't be had, the others are stopped again."""
    # No thread may run here before the last fork: the children would inherit its locks as they stand.
    on_terminal = log.is_terminal(sys.stderr)
    try:
        for number in range(1, processes + 1):
            with _held_back():
                child = fork(spider, number, on_terminal=on_terminal, lifeline=lifeline, close=children)
                children.append(child)
    except BaseException:
        for child in children:
            os.close(child.out)
            os.close(child.err)
            child.signal(signal.SIGTERM)
        for child in children:
            child.close()
        lifeline.close()
        raise


@contextmanager
def _held_back() -> Iterator[None]:
    """Stop signals wait meanwhile. A child begins with them blocked and lets them in once it handles them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _wait(children: Sequence[Child], spider: SharedSpider, signals: _Signals, watch: Watch) -> None:
    """Until every process has ended; reports deaths, and start errors that not all of them have."""
    living = list(children)
    errors: dict[str, float] = {}
    said: set[str] = set()
    while living:
        connection.wait([child.process.sentinel for child in living], _POLL_S)
        now = time.monotonic()
        ended = [child for child in living if not child.poll()]
        living = [child for child in living if child.alive]
        for child in ended:
            if child.report is not None and child.report.error:
                errors.setdefault(child.report.error, now)
            elif child.report is None and signals.count < 2:
                others = "the others take its requests over" if living else "no node is left"
                how = child.how_it_ended()
                spider.logger.error("node process {} died ({}); {}", child.number, how, others)
        # What keeps all of them from starting is said once, by whoever called.
        for error, since in errors.items():
            if error not in said and now - since > _START_TOGETHER_S and living:
                said.add(error)
                spider.logger.error("a node process could not start: {}", error)
        watch.stopping = bool(signals.count)
        if signals.kill_at is not None and now >= signals.kill_at:
            for child in living:
                child.signal(signal.SIGKILL)


def _end_state(children: Sequence[Child]) -> str:
    """What the panel says when it is over."""
    reports = [child.report.summary for child in children if child.report is not None]
    worst = next((one for one in reports if one.outcome not in {"finished", "nothing_to_do"}), None)
    if worst is not None:
        return worst.outcome.replace("_", " ")
    return "finished" if reports else "died"


def _summed(
    spider: SharedSpider,
    children: Sequence[Child],
    seen: dict[int, dict[str, int]],
    settings: Settings,
    started: datetime,
    *,
    forced: bool,
    rows_lost: bool,
) -> RunSummary:
    """One summary of all processes. A killed one counts with what its last heartbeat said."""
    now = datetime.now(UTC)
    parts = [child.report.summary for child in children if child.report is not None]
    dead = [child for child in children if child.report is None]
    for child in dead:
        counters = seen.get(child.pid, {})
        counted: Any = {name: counters.get(name, 0) for name in NAMES}
        user = {name: value for name, value in counters.items() if name not in NAMES}
        parts.append(RunSummary(spider=spider.name, kind=spider.kind, user=user, **counted))
    summary = summaries.merge(parts, fail_on_nothing_to_do=settings.FAIL_ON_NOTHING_TO_DO)
    reason = summary.reason
    if forced and (rows_lost or len(dead) == len(children)):
        summary = msgspec.structs.replace(summary, outcome="forced", exit_code=int(ExitCode.FORCED))
        reason = "a second signal"
    elif len(dead) == len(children):
        summary = msgspec.structs.replace(summary, outcome="failed", exit_code=int(ExitCode.INTERNAL))
        reason = "every node process died: " + ", ".join(child.how_it_ended() for child in dead)
    elif dead and not reason:
        which = ", ".join(f"node process {child.number} died ({child.how_it_ended()})" for child in dead)
        reason = (
            f"{which}; the others took its requests over "
            f"(what it did after its last heartbeat, every {settings.HEARTBEAT_INTERVAL:g} s, is not counted)"
        )
    elapsed = (now - started).total_seconds()
    return msgspec.structs.replace(
        summary,
        nodes=len(children),
        reason=reason,
        run_id=run_id_of(spider, settings),
        started=started.isoformat(timespec="milliseconds"),
        finished=now.isoformat(timespec="milliseconds"),
        elapsed=round(elapsed, 3),
        rate=round(summary.pages / elapsed, 3) if elapsed > 0 else 0.0,
    )


class _Signals:
    """Signals to the parent, passed on to the nodes."""

    def __init__(self, children: list[Child], exit_signals: ExitSignals | None) -> None:
        self.count = 0
        self.kill_at: float | None = None
        self._children = children
        self._exit_signals = exit_signals

    @contextmanager
    def passed_on(self) -> Iterator[_Signals]:
        """While the block runs; only the main thread can do this, elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._pass_on) for number in heeded()}
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
            before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._pause)
        try:
            yield self
        finally:
            for number, handler in before.items():
                if self._exit_signals is None or number not in STOP_SIGNALS:
                    signal.signal(number, handler)
            if self._exit_signals is not None:
                self._exit_signals.hold(bool(self.count))

    def _pass_on(self, number: int, _frame: Any) -> None:
        if self.count and not is_second(number):
            return
        self.count += 1
        if self.count == 2:
            self.kill_at = time.monotonic() + _FORCED_AFTER_S
        for child in self._children:
            child.signal(number if self.count < 3 else signal.SIGKILL)

    def _pause(self, _number: int, _frame: Any) -> None:
        """Ctrl-Z: the nodes stand still with their parent, and go on with it."""
        for child in self._children:
            child.signal(signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._pause)
        for child in self._children:
            child.signal(signal.SIGCONT)
