"""The requests of `netspy retry`: back to a Spider's queue, or crawled now where there is none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from netspy.cli.failed.records import UNFINISHED, FileRecords, RedisRecords, with_fresh_budget
from netspy.cli.job import connect, find_job, find_run, job_of
from netspy.cli.output import say, table, things

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from netspy.policy.failed_record import FailedRecord


def retry_requests(
    spider: str | None,
    since: float | None,
    *,
    output: str | None,
    key: str | None,
    run: str | None,
    arguments: list[str] | None,
    values: list[str] | None,
    dry_run: bool,
) -> int:
    """The exit code: an AirSpider's run has its own. Raises NetspyError and usage errors."""
    from netspy.cli.run import make_spider

    if spider is None and key is None:
        raise typer.BadParameter("name the spider whose requests failed: netspy retry main.py --requests")

    def wanted(record: FailedRecord) -> bool:
        return since is None or record.time >= since

    made: Any = None
    if spider is not None:
        made = make_spider(spider, arguments or (), values or (), output)
        if run is not None:
            made.override_settings({"RUN_ID": run}, "--run")
    if made is not None and not made.shared and key is None:
        return _crawl(made, wanted, dry_run=dry_run)
    job = job_of(made, key, run) if made is not None else find_job(None, key, run, arguments, values)
    with connect(job) as client:
        job, status = find_run(client, job)
        kept = RedisRecords(client, job)
        if dry_run:
            _show((one.record for one in kept.read() if wanted(one.record)), kept.name)
            return 0
        from netspy.cluster.failed import retry_failed

        done = retry_failed(client, job.scope, wanted=wanted, edit=with_fresh_budget)
        line = f"{things(done.queued, 'failed request')} queued again in {kept.name}"
        if done.queued:
            nodes = things(status.live_nodes, "running node")
            line += (
                f"; {nodes} will take them" if status.live_nodes else "; the next node to start takes them"
            )
        print(line)
        if done.unreadable:
            say(
                f"{things(done.unreadable, 'record')} can't be read as requests and stay in the list (the first: {done.why})"
            )
    return 0


def _crawl(made: Any, wanted: Callable[[FailedRecord], bool], *, dry_run: bool) -> int:
    """Run an AirSpider on what failed; nothing is seeded."""
    from netspy.assembly import resume

    path = resume.path_for(Path(made.load_settings().settings.FAILED_REQUEST_PATH), made.name)
    found = [
        one.record
        for file in (resume.replaying_path(path), path)
        for one in FileRecords(file).read()
        if one.record.reason == UNFINISHED or wanted(one.record)
    ]
    if dry_run:
        _show(found, str(path))
        return 0
    if not found:
        say(f"no failed request in {path}")
        return 0
    unfinished = sum(record.reason == UNFINISHED for record in found)
    if unfinished:
        say(
            f"{things(unfinished, 'request')} of them are what a stopped run had left to do; it goes on with them"
        )
    made.override_settings({"RETRY_FAILED_ON_START": True}, "netspy retry")
    made.retry_wanted = wanted
    try:
        made.start()
    except SystemExit as end:
        return int(end.code or 0) if not isinstance(end.code, str) else 1
    return 0


def _show(found: Iterable[FailedRecord], name: str) -> None:
    """Counts by reason, to stdout."""
    reasons = Counter(record.reason for record in found)
    if not reasons:
        say(f"no failed request to crawl again in {name}")
        return
    rows = [(reason, f"{n:,}") for reason, n in reasons.most_common()]
    for line in table(("reason", "requests"), rows, right=("requests",)):
        print(line)
