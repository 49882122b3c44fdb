"""Running what assembly has built: signals, progress, the summary, the exit code; one process or several."""

from __future__ import annotations

import sys
from collections.abc import Callable

from netspy.assembly.contract import AnySpider, TableSpider, is_shared
from netspy.errors import NetspyError
from netspy.launch.loops import refuse_running_loop
from netspy.launch.signals import ExitSignals, end_as_process_1
from netspy.launch.single import config_problem, failure_summary, run_single, write_line
from netspy.observe import summary as summaries
from netspy.observe.summary import RunSummary
from netspy.process import raise_limit
from netspy.stdio import open_missing, write_last

_FILES = 512
"""Open files that a run may need beside its connections."""


class SpiderExit(SystemExit):
    """Raised by `start` when a run did not end well; `.summary` tells how. A script that lets it pass exits with its code."""

    def __init__(self, summary: RunSummary) -> None:
        super().__init__(summary.exit_code)
        self.summary = summary


def start(spider: AnySpider, *, processes: int = 1) -> RunSummary:
    """Run to the end, print the human block (stderr) and the summary line, last (`write_line`). See BaseParser.start."""
    return _concluded(spider, lambda signals: _run(spider, processes, signals))


def start_monitor(spider: TableSpider, *, once: bool = False) -> RunSummary:
    """Be a batch's master to the end, and conclude like `start`. See BatchSpider.start_monitor."""
    from netspy.launch.monitor import run_monitor

    def run(signals: ExitSignals) -> tuple[RunSummary, bool, str]:
        try:
            summary, settings = run_monitor(spider, once=once, signals=signals)
        except NetspyError as error:
            return failure_summary(spider, error), True, str(error)
        return summary, settings.RUN_SUMMARY_ENABLE, ""

    return _concluded(spider, run)


def _concluded(spider: AnySpider, run: Callable[[ExitSignals], tuple[RunSummary, bool, str]]) -> RunSummary:
    open_missing()
    end_as_process_1()
    signals = ExitSignals()
    try:
        summary, wanted, problem = run(signals)
        if problem:
            # What the user has to mend gets one line, not a traceback.
            write_last(sys.stdout, "")
            write_last(sys.stderr, f"netspy: error: {problem}\n")
        else:
            write_last(sys.stderr, f"{summaries.human(summary)}\n")
        leaving = SpiderExit(summary) if summary.exit_code else None
        if leaving is not None:
            signals.on_last_line(leaving)
        if wanted:
            write_line(summary, pipelines=spider.pipelines or ())
    except BaseException:
        signals.restore()
        raise
    if leaving is None:
        signals.restore()
        return summary
    try:
        raise leaving
    finally:
        del leaving  # else it lives on in its own traceback, and `signals` can't tell that it was caught


def _run(spider: AnySpider, processes: int, signals: ExitSignals) -> tuple[RunSummary, bool, str]:
    """The run's summary, whether its line is wanted, and what kept it from starting."""
    try:
        config_problem(spider, processes)
        refuse_running_loop(f"{spider.name}.start")
        raise_limit(2 * spider.load_settings().settings.SPIDER_THREAD_COUNT + _FILES)
        if processes > 1 and is_shared(spider):  # `config_problem` has refused the others
            from netspy.launch.fleet import run_fleet

            summary, settings, problem = run_fleet(spider, processes, signals)
        else:
            (summary, settings), problem = run_single(spider, progress=True, signals=signals), ""
    except NetspyError as error:
        return failure_summary(spider, error), True, str(error)
    return summary, settings.RUN_SUMMARY_ENABLE, problem
