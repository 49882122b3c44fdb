"""One node in this process: event loop, signals, progress, outcome."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from netspy import assembly, process
from netspy.assembly.contract import AnySpider
from netspy.engine.node import Node, force_exit
from netspy.errors import ConfigError, NetspyError
from netspy.launch.loops import loop_factory
from netspy.launch.observer import Observer, run_id_of
from netspy.launch.signals import ExitSignals, install_stop_handlers
from netspy.observe import log
from netspy.observe import summary as summaries
from netspy.observe.counters import Counters
from netspy.observe.faults import describe_error, user_line
from netspy.observe.outcome import ExitCode, crash_of, exit_code_of, outcome_of
from netspy.observe.panel import NoProgress, Progress, make_progress
from netspy.observe.summary import RunSummary
from netspy.pipelines.stdout import STDOUT, check_stdout, writes_stdout
from netspy.raised import run_loop
from netspy.settings import Loaded, Settings, in_use
from netspy.stdio import write_last

_NO_REASON = {"finished", "nothing to do"}
"""Ends that their outcome says all about."""


class Done(NamedTuple):
    """A run's end in this process."""

    summary: RunSummary
    settings: Settings


class Running:
    """A node at work, as its spider sees it."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop

    def stop(self, reason: str) -> None:
        """Begin a graceful stop from any thread."""
        self._loop.call_soon_threadsafe(lambda: self._node.stop(reason))


def config_problem(spider: AnySpider, processes: int) -> None:
    """What is wrong with the spider's declaration. Raises ConfigError."""
    if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:
        raise ConfigError(f"processes={processes!r}: give a whole number, 1 or more")
    if processes > 1 and not spider.shared and spider.kind == "task":
        raise ConfigError(
            f"processes={processes}: the tasks of {spider.name} are in the memory of one process; leave TASK_SOURCE and "
            "task_source out to take them from a list in Redis, or raise SPIDER_THREAD_COUNT"
        )
    if processes > 1 and not spider.shared:
        raise ConfigError(
            f"processes={processes}: {spider.name} is an AirSpider, whose queue is in the memory of one process; "
            'change its base class to netspy.Spider (REDIS_URL="embedded" needs no server), or raise SPIDER_THREAD_COUNT'
        )
    problem = spider.problem()
    if problem:
        raise ConfigError(problem)


def say_settings(spider: AnySpider, loaded: Loaded) -> None:
    """Log which file the settings were read from, and what is wrong with them though the run goes on."""
    if loaded.project:
        spider.logger.info("settings: {}", loaded.project)
    for warning in loaded.warnings:
        spider.logger.warning("{}", warning)


def write_line(summary: RunSummary, *, pipelines: Iterable[Any] = ()) -> None:
    """The documented last line on stdout, in one write: another thread's output must not get into it.

    On stderr when stdout is for the rows alone: the run had StdoutPipeline, or was to have it (`pipelines`).
    Who can't be told any more changes nothing: the exit code is the run's.
    """
    out = sys.stderr if STDOUT in summary.outputs or writes_stdout(pipelines) else sys.stdout
    error = write_last(out, f"{summaries.line(summary)}\n")
    if error is not None and not isinstance(error, BrokenPipeError):
        write_last(sys.stderr, f"netspy: the summary's line can't be written: {describe_error(error)}\n")


def strays(logger: Any, counters: Counters | None = None) -> Callable[[Exception], None]:
    """Reports what tasks and callbacks that user code has put on the loop raised to end it."""

    def told(error: Exception) -> None:
        if counters is not None:
            counters.inc("callback_error")
        logger.error(
            "a task or callback that your code has put on the event loop ({}) raised {}; the run goes on",
            user_line(error), describe_error(error),
        )  # fmt: skip

    return told


def failure_summary(spider: AnySpider, error: NetspyError) -> RunSummary:
    """The summary of a run that could not start."""
    now = datetime.now(UTC)
    crash = crash_of(error)
    outcome = outcome_of(crash=crash, ok=0, failed=0)
    return summaries.build(
        spider.counters, spider=spider.name, kind=spider.kind, outcome=outcome, code=exit_code_of(error),
        started=now, finished=now, elapsed_s=0.0, reason=str(error),
    )  # fmt: skip


def run_single(
    spider: AnySpider,
    *,
    progress: bool = False,
    setup_log: bool = True,
    on_forced: Callable[[RunSummary], None] | None = None,
    signals: ExitSignals | None = None,
) -> Done:
    """Crawl in this process until the end. Raises ConfigError, StoreUnavailableError for a start that can't be.

    Without `setup_log` the caller has set up the log and said the warnings about settings. `on_forced` is called at
    a second signal, in the place of printing the summary line; it has to end the process. `signals` handles those
    after the end; without it, the handlers from before are in place again.
    """
    config_problem(spider, 1)
    loaded = spider.load_settings()
    settings = loaded.settings
    if setup_log:
        log.setup(settings, spider=spider.name)
        say_settings(spider, loaded)
    check_stdout(spider.pipelines or settings.ITEM_PIPELINES)
    spider.begin_run()
    before = ExitSignals()
    shown: Progress = make_progress(settings) if progress else NoProgress()
    try:
        with (
            in_use(spider.name, loaded),
            assembly.embedded_store(spider, settings) as settings,
        ):
            main = _run(spider, settings, shown, on_forced or _say_and_leave, before, signals)
            return run_loop(main, strayed=strays(spider.logger, spider.counters), factory=loop_factory())
    finally:
        process.run_ended()
        shown.close()


async def _run(
    spider: AnySpider,
    settings: Settings,
    shown: Progress,
    on_forced: Callable[[RunSummary], None],
    before: ExitSignals,
    signals: ExitSignals | None,
) -> Done:
    loop = asyncio.get_running_loop()
    started = datetime.now(UTC)
    built = assembly.build(spider, settings)
    observer = Observer(spider, built, shown)
    node = Node(built.parts._replace(observe=observer.look, observe_every_s=observer.every_s))
    spider._running = Running(node, loop)  # noqa: SLF001 - the spider's own handle for stop()
    built.on_outage(node.outage)

    def forced() -> None:
        on_forced(_forced(spider, built, started, shown))

    def stop(name: str, number: int) -> None:
        spider.logger.info("{}: finishing what runs; once more to leave at once", name)
        observer.stopping()
        node.stop(name, signal=number)
        built.give_up_waiting()

    seen, uninstall = install_stop_handlers(stop, forced)
    try:
        try:
            ended = await node.run()
            finished = datetime.now(UTC)
            await observer.look_last((finished - started).total_seconds())
        finally:
            spider._running = None  # noqa: SLF001
            built.close()
        await built.after(node, ended)
    except BaseException:
        uninstall()
        before.restore()
        raise
    uninstall()
    if signals is None:
        before.restore()
    else:
        signals.hold(bool(seen), forced)
    totals = observer.totals() if built.parts.shared else spider.counters.own()
    outcome, code = summaries.judge_run(
        ended.outcome, totals, signal=ended.signal, fail_on_nothing_to_do=settings.FAIL_ON_NOTHING_TO_DO
    )
    if outcome in {"nothing_to_do", "all_failed"} and not (totals["request_failed"] or totals["item_failed"]):
        own = spider.why_nothing() or (ended.reason if ended.reason not in _NO_REASON else None)
        spider.logger.warning("nothing was crawled: {}", _why_nothing(totals, own))
    summary = summaries.build(
        spider.counters, spider=spider.name, kind=spider.kind, outcome=outcome, code=code, started=started,
        finished=finished, elapsed_s=(finished - started).total_seconds(),
        reason="" if ended.reason in _NO_REASON else ended.reason,
        redis_key=built.redis_key, run_id=run_id_of(spider, settings) if built.parts.shared else "", namespace=built.namespace,
        outputs=built.outputs(),
    )  # fmt: skip
    observer.end(ended.reason)
    return Done(summary, settings)


def _why_nothing(totals: dict[str, int], own: str | None) -> str:
    if totals["tasks_taken"]:
        return f"task_requests yielded no request for {totals['tasks_taken']} task(s)"
    if own:
        return own
    if totals["dedup_dropped"]:
        return f"all {totals['dedup_dropped']} request(s) were known from before"
    if totals["invalid_url"] or totals["parse_error"]:
        return "no seed could be taken (see the messages above)"
    return "the queue was empty and there were no seeds"


def _forced(spider: AnySpider, built: assembly.Built, started: datetime, shown: Progress) -> RunSummary:
    """A second signal: what there is to say by then. Leases run out or are taken over."""
    now = datetime.now(UTC)
    shown.close()
    return summaries.build(
        spider.counters, spider=spider.name, kind=spider.kind, outcome="forced", code=ExitCode.FORCED, started=started,
        finished=now, elapsed_s=(now - started).total_seconds(), reason="a second signal", redis_key=built.redis_key,
        namespace=built.namespace, outputs=built.outputs(),
    )  # fmt: skip


def _say_and_leave(summary: RunSummary) -> None:
    assembly.leave_embedded(0.5)
    write_line(summary)  # with nothing after it: other threads still print
    force_exit(int(ExitCode.FORCED))


def leave_at_once() -> None:
    """The end of a forced stop. Within half a second."""
    assembly.leave_embedded(0.5)
    force_exit(int(ExitCode.FORCED))
