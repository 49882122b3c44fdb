"""`netspy batch`: whether a BatchSpider's set-up is right, and how far its batch is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from netspy.cli.job import ArgumentOption, SetOption, connect, job_of, spider_of_kind
from netspy.cli.output import facts, iso_time, json_line, local_time, say, things
from netspy.errors import ConfigError
from netspy.policy.batch import TaskCounts, overdue_seconds, progress_text

if TYPE_CHECKING:
    from netspy.cluster.status import Status
    from netspy.policy.batch import BatchRecord, Schedule
    from netspy.settings import Settings

HELP = """A BatchSpider's task table, its batches, its master and its workers.

\b
Examples
  netspy batch check crawl_task.py
  netspy batch status crawl_task.py
  netspy run crawl_task.py --monitor     # the master
  netspy run crawl_task.py               # a worker

\b
Exit codes
  0  all is well, or shown
  2  the command line can't be understood
  3  the task table, a column, a right, a setting or the spider is wrong: the error says what would do
  5  the database or Redis does not answer
"""

CHECK_HELP = """Look whether everything is there that master and workers need: database, table, columns, rights, index, Redis.

Makes the record and the fence table where they are missing, as a master does. Advice, such as an index that would make
a large table faster, is no error.

\b
Examples
  netspy batch check crawl_task.py
  netspy batch check crawl_task.py -s BATCH_STORE_URL=mysql://user:password@host/database
"""

STATUS_HELP = """How far the batch is, counted in the task table: done, failed, in process, to do; who works on it.

\b
Examples
  netspy batch status crawl_task.py
  netspy batch status crawl_task.py --json
"""

FAILED_SHOWN = 20
PATIENCE_S = 1.0  # somebody waits for the answer, and can ask again

Spider = Annotated[
    str, typer.Argument(metavar="SPIDER", help="FILE[:CLASS] or MODULE[:CLASS] of a BatchSpider.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help=HELP, no_args_is_help=False, rich_markup_mode=None)
    group.command("check", help=CHECK_HELP, short_help="Is the set-up right?")(check)
    group.command("status", help=STATUS_HELP, short_help="How far is the batch?")(status)
    app.add_typer(group, name="batch", short_help="A BatchSpider's set-up and its batch: check, status.")


class Seen(NamedTuple):
    """The task side, from the database at one instant. `now`: its clock."""

    shown: str
    latest: BatchRecord | None
    counts: TaskCounts
    now: datetime
    advice: list[str]
    failed: list[Any]


def _spider(spider: str, arguments: list[str] | None, values: list[str] | None) -> Any:
    from netspy.assembly.batch import in_process

    made = spider_of_kind("batch", spider, arguments, values, "netspy batch")
    if in_process(made):
        raise ConfigError(
            f"{made.name} keeps its tasks in a MemoryBatchStore, in its own process; there is nothing to see from outside"
        )
    return made


def _look(made: Any) -> Seen:
    """Ask the store. Raises ConfigError for a table that won't do, StoreUnavailableError."""
    store = made.store
    if hasattr(store, "patience"):
        store.patience = PATIENCE_S
    try:
        store.ensure_schema()
        counts = store.count_tasks()
        return Seen(
            getattr(store, "shown", type(store).__name__),
            store.latest_batch(),
            counts,
            store.now(),
            store.index_advice(),
            store.failed_tasks(FAILED_SHOWN) if counts.failed else [],
        )
    finally:
        store.close()


def check(*, spider: Spider, arguments: ArgumentOption = None, values: SetOption = None) -> int:
    """What was found goes to stdout, advice to stderr; what is wrong ends it."""
    from netspy.tasks.cron import batch_schedule

    made = _spider(spider, arguments, values)
    settings: Settings = made.load_settings().settings
    problem = made.problem()
    if problem:
        raise ConfigError(problem)
    schedule = batch_schedule(settings)
    seen = _look(made)
    rows = [
        ("database", seen.shown),
        ("task table", f"{made.task_table}: {_columns(made.store, settings)}"),
        ("tasks", _format_counts(seen.counts)),
        ("index", "missing" if seen.advice else "as it should be"),
        ("last batch", _batch(seen.latest)),
        ("next batch", _next(seen, schedule)),
    ]
    for line in facts(rows):
        print(line)
    for advice in seen.advice:
        say(f"advice: {advice}")
    if not seen.counts.total:
        say(f"advice: {made.task_table} has no task; a batch of it is over at once")
    for line in facts(_crew(_run(made))):
        print(line)
    return 0


def status(
    *, spider: Spider, as_json: AsJson = False, arguments: ArgumentOption = None, values: SetOption = None
) -> int:
    """Print to stdout: columns on a terminal, tabs elsewhere."""
    from netspy.tasks.cron import batch_schedule

    made = _spider(spider, arguments, values)
    schedule = batch_schedule(made.load_settings().settings)
    seen, run = _look(made), _run(made)
    told = run.batch
    same = told is not None and seen.latest is not None and told.batch == seen.latest.id
    left_s = told.left_s if told is not None and same and run.master else None
    late_s = overdue_seconds(seen.latest, seen.now, schedule) if seen.latest is not None else 0.0
    if as_json:
        print(json_line(_as_dict(seen, run, left_s, late_s)))
        return 0
    open_ = seen.latest is not None and not seen.latest.is_done
    rows = [
        ("tasks in", f"{made.task_table} of {seen.shown}"),
        (
            "batch",
            progress_text(seen.latest.id, seen.counts, left_s, late_s)
            if seen.latest is not None and open_
            else _batch(seen.latest),
        ),
        ("tasks", _format_counts(seen.counts)),
        ("failed ids", _ids(seen)),
        ("next batch", _next(seen, schedule)),
        *_crew(run),
    ]
    for line in facts([row for row in rows if row[1]]):
        print(line)
    if open_ and not run.master:
        say("no master lives, so the batch can't end; start one: netspy run SPIDER --monitor")
    return 0


def _run(made: Any) -> Status:
    from netspy.cluster.status import read_status

    job = job_of(made, None, None)
    with connect(job) as client:
        return read_status(client, job.scope, job.settings)


def _crew(run: Status) -> list[tuple[str, str]]:
    from netspy.cli.status import master_of

    return [
        ("job", run.namespace),
        ("master", master_of(run) or "none"),
        ("workers", f"{run.live_nodes:,}"),
        ("open tasks", f"{run.open_tasks:,}"),
    ]


def _columns(store: Any, settings: Settings) -> str:
    key = store.id_field or settings.BATCH_TASK_ID_FIELD
    state = getattr(store, "state_field", settings.BATCH_TASK_STATE_FIELD)
    return f"key {key}, state {state}, time {getattr(store, 'time_field', settings.BATCH_TASK_TIME_FIELD)}"


def _format_counts(counts: TaskCounts) -> str:
    text = f"{counts.total:,}: {counts.todo:,} to do, {counts.doing:,} in process, {counts.done:,} done, {counts.failed:,} failed"
    if counts.other:
        text += f"; {things(counts.other, 'row')} with a state of another number, left out"
    return text


def _batch(latest: BatchRecord | None) -> str:
    if latest is None:
        return "none yet"
    counts = TaskCounts(latest.total_count, 0, 0, latest.done_count, latest.fail_count)
    state = "over" if latest.is_done else "open"
    return f"{progress_text(latest.id, counts)}, {state}, due at {local_time(latest.batch_date.timestamp())}"


def _next(seen: Seen, schedule: Schedule) -> str:
    if seen.latest is None:
        due = schedule.first_due(seen.now)
        return "when a master starts" if due <= seen.now else local_time(due.timestamp())
    due = schedule.due_after(seen.latest.batch_date)
    return "now" if due <= seen.now else local_time(due.timestamp())


def _ids(seen: Seen) -> str:
    if not seen.failed:
        return ""
    more = seen.counts.failed - len(seen.failed)
    return ", ".join(map(repr, seen.failed)) + (f" and {more:,} more" if more > 0 else "")


def _as_dict(seen: Seen, run: Status, left_s: float | None, late_s: float) -> dict[str, Any]:
    from netspy.cli.status import master_of

    latest = seen.latest
    return {
        "database": seen.shown,
        "batch": None if latest is None else latest.id,
        "batch_date": None if latest is None else iso_time(latest.batch_date.astimezone(UTC).timestamp()),
        "is_done": None if latest is None else latest.is_done,
        "total": seen.counts.total,
        "todo": seen.counts.todo,
        "doing": seen.counts.doing,
        "done": seen.counts.done,
        "failed": seen.counts.failed,
        "other": seen.counts.other,
        "failed_ids": seen.failed,
        "left": left_s,
        "overdue": late_s,
        "job": run.namespace,
        "master": master_of(run) or None,
        "workers": run.live_nodes,
        "open_tasks": run.open_tasks,
    }
