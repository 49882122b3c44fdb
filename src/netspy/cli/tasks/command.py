"""`netspy tasks`: the tasks of a TaskSpider; push them, look at them, try failed ones again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspy.cli.job import ArgumentOption, SetOption, connect, serving
from netspy.cli.output import facts, json_line, say, things
from netspy.cli.tasks import failed as task_failed
from netspy.cli.tasks import push as task_push
from netspy.cli.tasks.source_list import Spider, Target, TaskKey, find_target, place_of

if TYPE_CHECKING:
    from netspy.tasks.contract import Backlog

HELP = """The tasks of a TaskSpider: push them, look at them, try failed ones again.

SPIDER is FILE[:CLASS] or MODULE[:CLASS]: its task list and settings. --task-key names the list in Redis without the
spider's code: it is the spider's task_key, else its redis_key, else its class name.

\b
Examples
  netspy tasks push products.jsonl --spider main.py
  netspy tasks status main.py
  netspy tasks failed main.py
  netspy tasks retry main.py

\b
Exit codes
  0  done, also when no task was concerned
  2  the command line can't be understood
  3  a line is no task; a spider, file or setting is wrong
  5  Redis, the broker or the database does not answer
"""

STATUS_HELP = """How many tasks wait, are in nodes' hands, failed, or have requests in the queue.

waiting: not taken yet. taken: a node is turning them into requests (with a broker: not done). failed: task_requests
raised, or it is no task. open: their requests are in the queue or in flight. done, ended badly: what task_done and
task_failed were told, where the spider has them.

\b
Examples
  netspy tasks status main.py
  netspy tasks status --task-key Products --json
"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help=HELP, no_args_is_help=False, rich_markup_mode=None)
    group.command("push", help=task_push.HELP, short_help="Push the tasks of a file.")(task_push.push)
    group.command("status", help=STATUS_HELP, short_help="How many there are, and where.")(status)
    group.command("failed", help=task_failed.FAILED_HELP, short_help="List those that failed.")(
        task_failed.failed
    )
    group.command("retry", help=task_failed.RETRY_HELP, short_help="Push those that failed again.")(
        task_failed.retry
    )
    app.add_typer(group, name="tasks", short_help="Tasks of a TaskSpider: push, status, failed, retry.")


def status(
    *,
    spider: Spider = None,
    task_key: TaskKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Print to stdout: columns on a terminal, tabs elsewhere."""
    from netspy.cluster.status import read_status

    target = find_target(spider, task_key, arguments, values)
    with connect(target.job) as client:
        run = read_status(client, target.job.scope, target.job.settings)
    backlog = _backlog(target)
    counters = run.counters
    shown: dict[str, int | None] = {
        "waiting": backlog.waiting,
        "taken": backlog.taken,
        "failed": backlog.failed,
        "open": run.open_tasks,
        "done": counters.get("tasks_done", 0),
        "ended_badly": counters.get("tasks_failed", 0),
        "nodes": run.live_nodes,
    }
    if as_json:
        print(json_line({"source": place_of(target), "job": run.namespace, **shown}))
        return 0
    rows = [("tasks in", place_of(target)), ("job", run.namespace)]
    rows += [
        (name.replace("_", " "), "unknown" if count is None else f"{count:,}")
        for name, count in shown.items()
    ]
    for line in facts(rows):
        print(line)
    if backlog.failed and not target.settings.TASK_SOURCE:
        say(
            f"{things(backlog.failed, 'task')} failed: netspy tasks failed shows why, netspy tasks retry pushes again"
        )
    return 0


def _backlog(target: Target) -> Backlog:
    """What the source has. Redis is asked on the command's own short patience."""
    from netspy.assembly.outside import OutsideSource
    from netspy.tasks.contract import Backlog

    if target.settings.TASK_SOURCE:
        with serving(target.settings) as settings, OutsideSource(settings, target.list_name) as source:
            return source.backlog()
    from netspy.redisio.scripts import Call, load, run_sync
    from netspy.tasks.redis.list import FOLDER, task_keys

    keys = task_keys(target.settings, target.list_name)
    with connect(target.job, key=keys.base) as client:
        return Backlog(*map(int, run_sync(client, Call(load(FOLDER, "backlog"), keys.all(), [""]))))
