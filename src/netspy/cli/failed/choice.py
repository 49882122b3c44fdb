"""Which failed requests a command line names: where they are kept, their numbers, their reason."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from netspy.cli.failed.records import FileRecords, Numbered, Records, RedisRecords
from netspy.cli.job import connect, find_job, find_run, find_spider_object, job_of
from netspy.cli.output import say
from netspy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netspy.policy.failed_record import FailedRecord


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
    with connect(job) as client:
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
