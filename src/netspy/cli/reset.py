"""`netspy reset`: clear a job, one of its runs, or its dedup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspy.cli.job import (
    ArgumentOption,
    Job,
    KeyOption,
    SetOption,
    SpiderArgument,
    connect,
    find_job,
    find_spider_object,
    job_of,
)
from netspy.cli.output import ask, say, table, things
from netspy.errors import ConfigError
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from netspy.cluster.reset import What
    from netspy.cluster.status import Status

HELP = """Clear a job in Redis completely, one of its runs, or what it remembers of crawled pages and stored rows.

A TaskSpider's task list stays, unless --tasks says so. A BatchSpider's task table is never touched: tasks that were
with a worker come back when they have been in process for BATCH_LOST_TASK_STALE.

Without --run: the job with all its runs. --run RUN_ID: that run. --dedup: fingerprints only, of requests and of
rows; the queue, the failed requests and the mark that it was seeded stay. What was stored is never touched.

It shows what goes, and asks. While nodes or a batch master are alive it refuses: they would lose their keys and end with code 5;
stop them first, or add --force.

\b
Examples
  netspy reset main.py
  netspy reset main.py --run 2026-03-01 --yes
  netspy reset main.py --dedup
  netspy reset products.py --tasks
  netspy reset --key NewsSpider -s REDIS_URL=redis://10.0.0.5:6379/0

\b
Exit codes
  0  cleared, or there was nothing
  2  the command line can't be understood, or there is nobody to ask
  3  nodes are alive; a setting is wrong; the spider is an AirSpider
  5  Redis does not answer
  130  the answer was no
"""

RUNS_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reset", help=HELP, short_help="Clear a job, a run or its dedup; asks first.")(reset)


def reset(
    *,
    spider: SpiderArgument = None,
    key: KeyOption = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN_ID", help="Only this run.")] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Only fingerprints: of the job, and of the run with --run.")
    ] = False,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="With the job: a TaskSpider's list of tasks in Redis too.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while nodes are alive.")] = False,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Show, ask, remove, and say on stdout what was removed."""
    from netspy.cluster.reset import reset as clear
    from netspy.cluster.reset import reset_tasks

    if run == "":
        raise typer.BadParameter("--run is empty; leave it out to clear the job with all its runs")
    if tasks and (dedup or run is not None):
        raise typer.BadParameter("--tasks goes with the whole job; leave out --run and --dedup")
    job, base = _job_and_list(spider, key, run, arguments, values)
    if tasks and base is None:
        raise ConfigError("--tasks: this spider has no task list in Redis; leave it out")
    what: What = "dedup" if dedup else "run" if run is not None else "job"
    with connect(job) as client:
        found = [part for part in parts(client, job, what) if part.keys]
        waiting = _tasks_of(job, base) if what == "job" and base is not None else None
        if waiting is not None and waiting.keys and tasks:
            found.append(waiting)
        place = hide_password(job.settings.REDIS_URL)
        if not found:
            print(
                f"nothing to remove: Redis at {place} has no {'fingerprints' if dedup else 'keys'} of {_name(job, what)}"
            )
            return 0
        if not force:
            _refuse_while_alive(job, _name(job, what), found)
        for line in _format_runs(found):
            print(line)
        ask(f"Remove {'the fingerprints' if dedup else 'all'} of {_name(job, what)} from {place}?", yes=yes)
        done = clear(client, job.scope, job.settings, what=what, force=force)
        runs = f" and {things(done.runs, 'run')}" if what == "job" and done.runs else ""
        if done.keys or not tasks:
            print(f"removed {_name(job, what)}: {things(done.keys, 'key')}{runs}")
        if tasks and waiting is not None and waiting.keys:
            with connect(job, key=waiting.name) as other:
                print(f"removed {waiting.name}: {things(reset_tasks(other, waiting.name), 'key')}")
        _say_what_stays(client, job, what, None if tasks else waiting)
    return 0


def _refuse_while_alive(job: Job, name: str, found: Sequence[Part]) -> None:
    """Raises ConfigError while somebody works with these keys."""
    master = next((part.status.master for part in found if part.status and part.status.master), "")
    if master:
        from netspy.tasks.master_lock import read_holder

        raise ConfigError(
            f"the batch master of {name} is alive ({read_holder(master)}) and would lose its keys; stop it "
            f"first, wait {job.settings.HEARTBEAT_STALE:g} s if it was killed, or add --force"
        )
    alive = sum(part.status.live_nodes for part in found if part.status is not None)
    if alive:
        raise ConfigError(
            f"{things(alive, 'live node')} of {name} would lose keys; stop them first, wait "
            f"{job.settings.HEARTBEAT_STALE:g} s if they were killed, or add --force"
        )


def _say_what_stays(client: redis.Redis, job: Job, what: What, waiting: Part | None) -> None:
    """`waiting`: the list of tasks that was left where it is."""
    from netspy.redisio.keys import failed_items

    if what == "job" and (letters := client.llen(failed_items(job.scope.job))):
        say(
            f"{things(letters, 'dead-lettered item')} of {job.scope.job} stay; netspy retry --items writes them again"
        )
    if waiting is not None and waiting.queued:
        say(f"{waiting.name} keeps its {things(waiting.queued, 'task')}; --tasks removes them too")
    if what == "run" and job.scope.incremental:
        say(
            f"DEDUP_SCOPE=spider: the pages this run crawled are remembered in {job.scope.job}; "
            "--dedup forgets them"
        )


class Part:
    """One namespace that is to go: how many keys exist, and what they hold. A task list has no status."""

    def __init__(
        self, name: str, keys: int, status: Status | None, figures: tuple[int, int, int, int, int]
    ) -> None:
        """`figures`: queued, in flight, delayed, failed, fingerprints."""
        self.name = name
        self.keys = keys
        self.status = status
        self.figures = figures

    @property
    def queued(self) -> int:
        """What waits there."""
        return self.figures[0]


def _job_and_list(
    spider: str | None,
    key: str | None,
    run: str | None,
    arguments: list[str] | None,
    values: list[str] | None,
) -> tuple[Job, str | None]:
    """The job, and the key of the task list that belongs to it; None where there can't be one."""
    from netspy.tasks.redis.list import task_keys

    if spider is None:
        job = find_job(spider, key, run, arguments, values)
        return job, task_keys(job.settings, job.scope.redis_key).base
    made = find_spider_object(spider, run, arguments, values)
    job = job_of(made, key, run)
    if made.kind != "task" or made.task_source is not None or job.settings.TASK_SOURCE:
        return job, None
    return job, task_keys(job.settings, made.list_name).base


def _tasks_of(job: Job, base: str) -> Part:
    """A task list as a part: waiting, in nodes' hands, failed."""
    from netspy.redisio.keys import task_list

    names = task_list(base)
    with connect(job, key=base) as client:
        waiting, taken, failed = client.llen(names[0]), client.zcard(names[1]), client.llen(names[3])
        return Part(base, int(client.exists(*names)), None, (waiting, taken, 0, failed, 0))


def parts(client: redis.Redis, job: Job, what: What) -> list[Part]:
    """The namespaces of the job, the run or the dedup."""
    from netspy.cluster.runs import all_run_ids, run_keys
    from netspy.cluster.status import parse_status, status_call
    from netspy.redisio.keys import BatchNames
    from netspy.redisio.scripts import run_sync

    settings, scope = job.settings, job.scope
    layers = max(16, settings.DEDUP_MAX_LAYERS)
    if what == "run":
        runs = [scope.run_id]
    elif what == "dedup":
        runs = list(dict.fromkeys(("", scope.run_id)))
    else:
        runs = ["", *all_run_ids(client, scope)]
    found = []
    for run_id in runs:
        keys = run_keys(scope, run_id, max_layers=layers)
        dedup = [*keys.requests.all(layers), *keys.items.all(layers)]
        names = dedup if what == "dedup" else [*keys.all(), *keys.requests.all(layers)]
        if what == "job" and not run_id:
            names += [keys.runs, *BatchNames(keys.ns).all()]
        status = parse_status(
            run_sync(client, status_call(keys, settings.HEARTBEAT_STALE)), keys.ns, settings.HEARTBEAT_STALE
        )
        figures = (status.queued, status.leased, status.delayed, status.failed, status.fingerprints)
        found.append(Part(keys.ns, int(client.exists(*set(names))), status, figures))
    return found


def _name(job: Job, what: What) -> str:
    return job.scope.job if what == "job" else job.scope.ns


def _format_runs(found: list[Part]) -> list[str]:
    head = ("namespace", "keys", "queued", "in flight", "delayed", "failed", "fingerprints")

    def row(name: str, some: list[Part]) -> tuple[str, ...]:
        numbers = (
            sum(part.keys for part in some),
            *(sum(part.figures[at] for part in some) for at in range(5)),
        )
        return name, *(f"{number:,}" for number in numbers)

    rows = [row(part.name, [part]) for part in found[:RUNS_SHOWN]]
    if rest := found[RUNS_SHOWN:]:
        rows.append(row(f"{len(rest):,} more runs", rest))
    return table(head, rows, right=head[1:])
