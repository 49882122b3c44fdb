"""Running what assembly has built: signals, progress, the summary, the exit code; one process or several."""

from __future__ import annotations

import sys
from typing import Any

from netspy.errors import NetspyError
from netspy.launch.single import config_problem, failure_summary, run_single, write_line
from netspy.observe import summary as summaries
from netspy.observe.summary import RunSummary


class SpiderExit(SystemExit):
    """Raised by `start` when a run did not end well; `.summary` tells how. A script that lets it pass exits with its code."""

    def __init__(self, summary: RunSummary) -> None:
        super().__init__(summary.exit_code)
        self.summary = summary


def start(spider: Any, *, processes: int = 1) -> RunSummary:
    """Run to the end, print the human block (stderr) and the summary line (stdout, last). See BaseParser.start."""
    try:
        config_problem(spider, processes)
        if processes > 1:
            from netspy.launch.fleet import run_fleet

            summary, settings, problem = run_fleet(spider, processes)
        else:
            (summary, settings), problem = run_single(spider, progress=True), ""
        wanted = settings.RUN_SUMMARY_ENABLE
    except NetspyError as error:
        summary, wanted, problem = failure_summary(spider, error), True, str(error)
    if problem:
        # What the user has to mend gets one line, not a traceback.
        sys.stdout.flush()
        print(f"netspy: error: {problem}", file=sys.stderr, flush=True)  # noqa: T201 - the one line promised
    say(summary, wanted=wanted, human=not problem)
    if summary.exit_code:
        raise SpiderExit(summary)
    return summary


def say(summary: RunSummary, *, wanted: bool, human: bool) -> None:
    """The block for people on stderr, then the line for programs as the last one on stdout."""
    if human:
        print(summaries.human(summary), file=sys.stderr, flush=True)  # noqa: T201 - the run's result
    if wanted:
        write_line(summary)
