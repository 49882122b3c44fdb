"""`netspy failed`: look at the requests that failed for good; queue them again, or forget them."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspy.cli.failed_records import FileRecords, Numbered, Records, RedisRecords
from netspy.cli.job import (
    ArgumentOption,
    KeyOption,
    RunOption,
    SetOption,
    connected,
    find_job,
    find_run,
    find_spider_object,
    job_of,
)
from netspy.cli.output import ask, facts, iso_time, json_line, local_time, say, table, things, visible
from netspy.errors import ConfigError, SerializationError
from netspy.observe.log import is_terminal
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.policy.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

UNFINISHED = "unfinished"
"""The reason of an AirSpider's records of what it had not come to (assembly.resume)."""

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
            ("number", "time", "attempts", "reason", "url"), map(_row, found), right=("number", "attempts")
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
            _print_whole(one, reveal=reveal)
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


def split(words: list[str] | None) -> tuple[str | None, list[int]]:
    """The spider and the numbers among the arguments. Raises a usage error."""
    names = [word for word in words or () if not word.isdigit()]
    numbers = [int(word) for word in words or () if word.isdigit()]
    if len(names) > 1:
        raise typer.BadParameter(
            f"{names[1]!r} is no number; give one spider, then numbers as `list` shows them"
        )
    if 0 in numbers:
        raise typer.BadParameter("0 is no number of a record; they begin at 1")
    return (names[0] if names else None), sorted(set(numbers))


@contextmanager
def records(
    spider: str | None,
    *,
    file: str | None,
    key: str | None,
    run: str | None,
    arguments: list[str] | None,
    values: list[str] | None,
) -> Iterator[Records]:
    """Where the records are that the command line names. Raises ConfigError and usage errors."""
    if file is not None:
        if spider is not None or key is not None:
            raise typer.BadParameter("--file names the records; leave out the spider and --key")
        yield _file(file, must=True)
        return
    if spider is None and key is None:
        raise typer.BadParameter("name the job: a spider (main.py:News), --key REDIS_KEY or --file PATH")
    if spider is None:
        job = find_job(None, key, run, arguments, values)
    else:
        made = find_spider_object(spider, run, arguments, values)
        if not made.shared and key is None:
            from netspy.assembly.resume import path_for

            wanted = Path(made.load_settings().settings.FAILED_REQUEST_PATH)
            yield _file(str(path_for(wanted, made.name)), must=False)
            return
        job = job_of(made, key, run)
    with connected(job) as client:
        job, _ = find_run(client, job)
        yield RedisRecords(client, job)


def _file(path: str, *, must: bool) -> FileRecords:
    kept = FileRecords(path)
    if must and not kept.path.exists():
        raise ConfigError(
            f"--file {path!r}: there is no such file; an AirSpider writes to FAILED_REQUEST_PATH"
        )
    taken_up = kept.path.with_name(kept.path.name + ".replaying")
    if taken_up.exists():
        say(f"{taken_up} holds records that a run has taken up; they are not among these")
    return kept


def matching(kept: Records, reason: str | None) -> Iterator[Numbered]:
    """The records with that reason, or all."""
    return (one for one in kept.read() if has_reason(one.record, reason))


def choose(kept: Records, numbers: list[int], reason: str | None) -> Iterator[Numbered]:
    """The records of these numbers (none: of all) that have the reason. Raises ConfigError for a number that isn't there."""
    if not numbers:
        yield from matching(kept, reason)
        return
    for number in numbers:
        one = next(iter(kept.read(number)), None)
        if one is None:
            raise ConfigError(f"{kept.name} has no failed request {number}; it has {kept.count():,}")
        if has_reason(one.record, reason):
            yield one


def has_reason(record: FailedRecord, reason: str | None) -> bool:
    """Whether the record's reason contains the text."""
    return reason is None or reason.casefold() in record.reason.casefold()


def _identity(record: FailedRecord) -> tuple[Any, ...]:
    return record.time, record.reason, record.attempts, bytes(record.request), record.raw


def with_fresh_budget(payload: bytes) -> bytes:
    """The request with its retries given back; itself when it can't be read."""
    from netspy.assembly.shared import fresh_budget

    try:
        return fresh_budget(payload)
    except SerializationError:
        return payload  # the node that claims it says what is wrong with it


def request_of(record: FailedRecord) -> dict[str, Any] | None:
    """The request's fields by their documented names; as stored when this version can't read it; None for no request."""
    from netspy.messages.request import Request

    if record.payload is None:
        return None
    try:
        return Request.unpack(record.payload).to_dict()
    except SerializationError:
        try:
            stored: dict[str, Any] = json.loads(record.payload)
        except RecursionError:
            return {"unreadable": record.payload[:MAX_ERROR_CHARS].decode("utf-8", "replace")}
        return stored


def as_dict(one: Numbered, *, reveal: bool = False) -> dict[str, Any]:
    """What --json shows: the whole record with its number, secrets masked unless `reveal`."""
    record = one.record
    shown: dict[str, Any] = {
        "number": one.number,
        "time": iso_time(record.time),
        "reason": record.reason,
        "error": record.error,
        "attempts": record.attempts,
        "priority": record.priority,
        "url": record.url,
    }
    request = request_of(record)
    shown |= {"raw": record.raw} if request is None else {"request": request}
    return shown if reveal else masked(shown)


def _row(one: Numbered) -> tuple[str, ...]:
    record = one.record
    url = record.url or record.raw or ""
    return str(one.number), local_time(record.time), str(record.attempts), record.reason, url


def _print_whole(one: Numbered, *, reveal: bool) -> None:
    record = one.record
    rows = [
        ("number", str(one.number)),
        ("time", local_time(record.time)),
        ("reason", record.reason),
        ("error", record.error),
        ("attempts", str(record.attempts)),
        ("priority", f"{record.priority:g}"),
    ]
    for line in facts(rows):
        print(line)
    request = request_of(record)
    if request is None:
        raw = record.raw or ""
        print(f"stored as: {visible(raw if reveal else masked(raw))}")
        return
    print("request")
    given = {name: value for name, value in request.items() if value not in (None, {}, "")}
    safe = masked(given)
    shown = given if reveal else safe
    for line in json.dumps(shown, indent=2, ensure_ascii=False, default=repr).splitlines():
        print(line if reveal and line.isprintable() else visible(line))
    if not reveal and safe != given:
        say("*** hides cookies, credentials and the like; --reveal shows them")
