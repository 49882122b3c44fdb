"""`netspy failed`: look at the requests that failed for good; queue them again, or forget them."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.cli.failed.choice import choose, has_reason, matching, records, split
from netspy.cli.failed.records import UNFINISHED, RedisRecords, with_fresh_budget
from netspy.cli.failed.shown import as_dict, print_whole, row_of
from netspy.cli.job import ArgumentOption, KeyOption, RunOption, SetOption
from netspy.cli.output import ask, json_line, say, table, things
from netspy.errors import ConfigError
from netspy.observe.log import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.policy.failed_record import FailedRecord

HELP = """Look at requests that failed for good; queue them again, or forget them.

SPIDER is FILE[:CLASS] or MODULE[:CLASS]; --key names a job in Redis without its code. An AirSpider's records are in
FAILED_REQUEST_PATH: give the spider, or the file with --file. Without --run or RUN_ID, a job that has only runs
means its newest one. A record's number is its place in the list, so it changes when others are retried or dropped.

\b
Examples
  netspy failed list main.py
  netspy failed show main.py 3
  netspy failed retry main.py --reason timeout
  netspy failed drop --key NewsSpider 1 2 7

\b
Exit codes
  0  done, also when no record was concerned
  2  the command line can't be understood, or there is nobody to ask
  3  there is no such job, run, file or record; a setting is wrong
  5  Redis does not answer
  130  the answer was no
"""

LIST_HELP = """List the failed requests, oldest first: number, time, attempts, reason, URL.

\b
Examples
  netspy failed list main.py
  netspy failed list main.py --reason "HTTP 404" --limit 20
  netspy failed list --key NewsSpider --json > failed.jsonl
  netspy failed list --file failed_requests.jsonl
"""

SHOW_HELP = """Show records whole, with the request as it was queued. Secrets are masked unless --reveal says so.

\b
Examples
  netspy failed show main.py 3
  netspy failed show --key NewsSpider 3 4 --json
"""

RETRY_HELP = """Move failed requests back to the queue, with their retries given back: all, or some.

A running node takes them, or the next one to start. They are not asked whether they were crawled before. An
AirSpider has no queue to put them into; it takes them up at a start with RETRY_FAILED_ON_START=True.

\b
Examples
  netspy failed retry main.py
  netspy failed retry main.py --reason "HTTP 503"
  netspy failed retry main.py 3 4
"""

DROP_HELP = """Remove failed requests for good: all, or some. Asks first. Not while an AirSpider runs.

\b
Examples
  netspy failed drop main.py
  netspy failed drop main.py --reason "HTTP 404" --yes
  netspy failed drop main.py 3 4
"""

SHOWN = 50

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SPIDER] [N]...", help="The spider, and numbers as `list` shows them."),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Those whose reason contains this; capitals don't matter."),
]
Reveal = Annotated[
    bool, typer.Option("--reveal", help="Show cookies, credentials and the like instead of ***.")
]
File = Annotated[str | None, typer.Option("--file", metavar="PATH", help="The records of an AirSpider.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help=HELP, no_args_is_help=False, rich_markup_mode=None)
    group.command("list", help=LIST_HELP, short_help="List them.")(list_)
    group.command("show", help=SHOW_HELP, short_help="Show records whole.")(show)
    group.command("retry", help=RETRY_HELP, short_help="Queue them again.")(retry)
    group.command("drop", help=DROP_HELP, short_help="Remove them.")(drop)
    app.add_typer(group, name="failed", short_help="Failed requests: list, show, retry, drop.")


def list_(
    *,
    words: Words = None,
    reason: Reason = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, help="At most N; 0 = all (default: 50 on a terminal)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    reveal: Reveal = False,
    file: File = None,
    key: KeyOption = None,
    run: RunOption = None,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Print to stdout; what is left out is said on stderr."""
    spider, numbers = split(words)
    if limit is None:
        limit = SHOWN if is_terminal(sys.stdout) and not as_json else 0
    with records(spider, file=file, key=key, run=run, arguments=arguments, values=values) as kept:
        chosen = choose(kept, numbers, reason) if numbers else matching(kept, reason)
        if as_json:
            for one in islice(chosen, limit or None):
                print(json_line(as_dict(one, reveal=reveal)))
            return 0
        found = list(islice(chosen, limit or None))
        if not found:
            say(f"no failed request{f' with {reason!r} in its reason' if reason else ''} in {kept.name}")
            return 0
        for line in table(
            ("number", "time", "attempts", "reason", "url"), map(row_of, found), right=("number", "attempts")
        ):
            print(line)
        if more := sum(1 for _ in chosen):
            say(f"{more:,} more; --limit 0 shows all")
    return 0


def show(
    *,
    words: Words = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per record.")] = False,
    reveal: Reveal = False,
    file: File = None,
    key: KeyOption = None,
    run: RunOption = None,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Print to stdout."""
    spider, numbers = split(words)
    if not numbers:
        raise typer.BadParameter("say which: a number that `netspy failed list` shows")
    with records(spider, file=file, key=key, run=run, arguments=arguments, values=values) as kept:
        for at, one in enumerate(choose(kept, numbers, None)):
            if as_json:
                print(json_line(as_dict(one, reveal=reveal)))
                continue
            if at:
                print()
            print_whole(one, reveal=reveal)
    return 0


def retry(
    *,
    words: Words = None,
    reason: Reason = None,
    key: KeyOption = None,
    run: RunOption = None,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Say on stdout how many were queued."""
    from netspy.cluster.failed import retry_failed
    from netspy.cluster.status import read_status

    spider, numbers = split(words)
    with records(spider, file=None, key=key, run=run, arguments=arguments, values=values) as kept:
        if not isinstance(kept, RedisRecords):
            raise ConfigError(
                f"an AirSpider has no queue outside its process: netspy retry {spider} --requests crawls what {kept.name} "
                f"holds, as does its next start with netspy run {spider} -s RETRY_FAILED_ON_START=1"
            )
        wanted: Callable[[FailedRecord], bool] = lambda record: has_reason(record, reason)  # noqa: E731
        if numbers:
            named = {_identity(one.record) for one in choose(kept, numbers, reason)}
            wanted = lambda record: _identity(record) in named  # noqa: E731
        done = retry_failed(kept.client, kept.job.scope, wanted=wanted, edit=with_fresh_budget)
        line = f"{things(done.queued, 'failed request')} queued again in {kept.name}"
        if done.queued:
            live = read_status(kept.client, kept.job.scope, kept.job.settings).live_nodes
            line += (
                f"; {things(live, 'running node')} will take them"
                if live
                else "; the next node to start takes them"
            )
        print(line)
        if done.unreadable:
            say(f"{things(done.unreadable, 'record')} can't be read as requests and stay in the list")
    return 0


def drop(
    *,
    words: Words = None,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")] = False,
    file: File = None,
    key: KeyOption = None,
    run: RunOption = None,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Ask, remove, and say on stdout how many."""
    spider, numbers = split(words)
    with records(spider, file=file, key=key, run=run, arguments=arguments, values=values) as kept:
        total = kept.count()
        chosen = list(choose(kept, numbers, reason)) if numbers or reason else None
        count = total if chosen is None else len(chosen)
        if count:
            going = kept.read() if chosen is None else chosen
            unfinished = (
                0 if isinstance(kept, RedisRecords) else sum(one.record.reason == UNFINISHED for one in going)
            )
            note = f" ({unfinished:,} of them are what a stopped run has left to do)" if unfinished else ""
            ask(f"Remove {count:,} of {things(total, 'failed request')} of {kept.name}{note}?", yes=yes)
        removed = kept.drop(chosen) if count else 0
        print(f"{things(removed, 'failed request')} removed from {kept.name}")
    return 0


def _identity(record: FailedRecord) -> tuple[Any, ...]:
    return record.time, record.reason, record.attempts, bytes(record.request), record.raw
