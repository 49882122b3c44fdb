"""`netspy tasks`: the tasks of a TaskSpider; push them, look at them, try failed ones again."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from netspy.cli.failed import split
from netspy.cli.job import ArgumentOption, Job, SetOption, connected, job_of, spider_of_kind
from netspy.cli.output import facts, iso_time, json_line, local_time, say, table, things, visible
from netspy.errors import ConfigError, NetspyError, SerializationError
from netspy.observe.log import is_terminal
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from netspy.cli.task_lines import Format, Line
    from netspy.settings import Settings
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

PUSH_HELP = """Push the tasks of a file, or of standard input (-), to the end of the list. Any process may push at any time.

\b
Formats, by the file's ending (--format for others; standard input is JSON lines)
  .jsonl  one JSON value per line: an object, a number, a text …
  .csv    with a heading line: each record is an object of texts
  .txt    each line is a text, such as a URL

Empty lines are left out. A file is checked before the first task is pushed; standard input is checked and pushed in
pieces of 1,000. A line that is no task ends it with nothing of its piece pushed, unless --skip-bad leaves it out.

\b
Examples
  netspy tasks push products.csv --spider main.py
  netspy tasks push urls.txt --task-key Products -s REDIS_URL=redis://10.0.0.5:6379/0
  mysql -N -e "SELECT JSON_OBJECT('id', id) FROM product" | netspy tasks push - --spider main.py
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

FAILED_HELP = """List tasks that could not be turned into requests, oldest first: number, time, deliveries, error, task.

\b
Examples
  netspy tasks failed main.py
  netspy tasks failed --task-key Products --json > failed.jsonl
"""

RETRY_HELP = """Move failed tasks back to the end of the list: all, some by number, or those whose error contains a text.

\b
Examples
  netspy tasks retry main.py
  netspy tasks retry main.py 3 4
  netspy tasks retry main.py --error TimeoutError
"""

PIECE = 1000
PIECE_BYTES = 8_000_000
SHOWN = 50
_PAGE = 500

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SPIDER] [N]...", help="The spider, and numbers as `failed` shows them."),
]
Spider = Annotated[
    str | None, typer.Argument(metavar="[SPIDER]", help="FILE[:CLASS] or MODULE[:CLASS] of a TaskSpider.")
]
TaskKey = Annotated[
    str | None, typer.Option("--task-key", metavar="NAME", help="The task list's name, without its prefix.")
]
ErrorText = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Those whose error contains this; capitals don't matter."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help=HELP, no_args_is_help=False, rich_markup_mode=None)
    group.command("push", help=PUSH_HELP, short_help="Push the tasks of a file.")(push)
    group.command("status", help=STATUS_HELP, short_help="How many there are, and where.")(status)
    group.command("failed", help=FAILED_HELP, short_help="List those that failed.")(failed)
    group.command("retry", help=RETRY_HELP, short_help="Push those that failed again.")(retry)
    app.add_typer(group, name="tasks", short_help="Tasks of a TaskSpider: push, status, failed, retry.")


class Target(NamedTuple):
    """What the command line names. `job`: where the spider's requests are; None for a queue in memory."""

    settings: Settings
    list_name: str
    job: Job


def find_target(
    spider: str | None, task_key: str | None, arguments: list[str] | None, values: list[str] | None
) -> Target:
    """The list. Raises ConfigError, also where tasks are in memory, and a usage error when nothing is named."""
    from netspy import settings as settings_module
    from netspy.cli.target import setting_values
    from netspy.policy.run_scope import run_scope

    if spider is not None:
        made = spider_of_kind("task", spider, arguments, values, "netspy tasks")
        settings = made.load_settings().settings
        if made.in_memory:
            raise ConfigError(
                f"{made.name}: TASK_SOURCE='memory' has no tasks outside the crawl's own process; leave it out for the "
                "list in Redis"
            )
        if made.task_source is not None:
            raise ConfigError(
                f"{made.name} was made with a task_source of its own, which can't be reached from outside; name it with "
                "TASK_SOURCE"
            )
        return Target(settings, task_key or made.list_name, job_of(made, None, None))
    if task_key is None:
        raise typer.BadParameter("name the list: a spider (main.py:Products), or --task-key NAME")
    if arguments:
        raise typer.BadParameter("-a goes with a spider")
    settings = settings_module.load(overrides=setting_values(values or ()), override_origin="-s").settings
    return Target(settings, task_key, Job(settings, run_scope(settings, "", task_key), False))


# -- push ------------------------------------------------------------------------------------------------------


def push(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where the tasks are; - is standard input.")],
    spider: Annotated[
        str | None,
        typer.Option("--spider", metavar="FILE[:CLASS]", help="The TaskSpider that they are for."),
    ] = None,
    task_key: TaskKey = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="jsonl|csv|text", help="What the file's ending can't say."),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave lines out that are no task.")] = False,
    from_line: Annotated[
        int, typer.Option("--from-line", metavar="N", min=1, help="Push lines N and later only.")
    ] = 1,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Say on stdout how many were pushed, and where to."""
    from netspy.assembly.outside import OutsideSource

    target = find_target(spider, task_key, arguments, values)
    source_file = _File(file, _format(file, form), from_line)
    pushed = _Pushed(skip_bad=skip_bad, total=source_file.check(skip_bad=skip_bad))
    with _serving(target.settings) as settings:
        try:
            with (
                OutsideSource(settings, target.list_name, on_outage=_say_outage) as source,
                source_file.lines() as lines,
            ):
                while piece := pushed.piece(lines):
                    source.add(piece)
                    pushed.add(len(piece))
        except SerializationError as error:
            pushed.end_line()
            raise ConfigError(
                f"lines {pushed.next_line} to {pushed.read_to}: {error}; none of them was pushed"
            ) from None
        except BaseException as error:
            pushed.end_line()
            if not isinstance(error, NetspyError | KeyboardInterrupt):
                raise
            if pushed.count or isinstance(error, KeyboardInterrupt):
                say(
                    f"{things(pushed.count, 'task')} pushed before that; go on with --from-line {pushed.next_line}"
                )
            raise
    pushed.end_line()
    if pushed.left_out:
        say(f"{things(pushed.left_out, 'line')} left out")
    print(f"pushed {things(pushed.count, 'task')} to {_place(target)}")
    return 0


def _format(file: str, form: str | None) -> Format:
    from netspy.cli.task_lines import format_of

    if form is not None:
        if form not in {"jsonl", "csv", "text"}:
            raise typer.BadParameter(f"--format {form!r} is none of jsonl, csv, text")
        return form  # type: ignore[return-value]
    return "jsonl" if file == "-" else format_of(Path(file))


class _File:
    """The file or standard input, as lines."""

    def __init__(self, name: str, form: Format, from_line: int) -> None:
        self._name = name
        self._form = form
        self._from = from_line

    @contextmanager
    def lines(self) -> Iterator[Iterator[Line]]:
        """Its lines from the first one wanted on. Raises ConfigError for a file that can't be read."""
        from netspy.cli.task_lines import MAX_LINE, read_lines

        try:
            if self._name == "-":
                if sys.stdin is None:  # its descriptor was closed before we started
                    raise ConfigError(
                        "standard input is closed; pipe the tasks into the command, or name a file"
                    )
                stdin = sys.stdin.buffer
                yield self._wanted(read_lines(iter(lambda: stdin.readline(MAX_LINE), b""), self._form))
                return
            with Path(self._name).open("rb") as file:
                yield self._wanted(read_lines(iter(lambda: file.readline(MAX_LINE), b""), self._form))
        except OSError as error:
            raise ConfigError(f"{self._name} can't be read: {error.strerror or error}") from None

    def _wanted(self, lines: Iterator[Line]) -> Iterator[Line]:
        return (line for line in lines if line.number >= self._from)

    def check(self, *, skip_bad: bool) -> int | None:
        """Read a file through, so that nothing is pushed of one with a bad line; the number of its tasks. None for what
        can be read only once. Raises ConfigError.
        """
        if self._name == "-" or not Path(self._name).is_file():
            return None
        count = 0
        with self.lines() as lines:
            for line in lines:
                if not line.trouble:
                    count += 1
                elif not skip_bad:
                    raise bad_line(line)
        return count


def bad_line(line: Line) -> ConfigError:
    """The error for a line that is no task."""
    return ConfigError(
        f"line {line.number}: {line.trouble}; mend it, or leave such lines out with --skip-bad"
    )


class _Pushed:
    """How far it is: on a terminal one line that is written anew."""

    def __init__(self, *, skip_bad: bool, total: int | None) -> None:
        from netspy.observe.progress import RateMeter

        self.count = 0
        self.next_line = 1
        self._skip_bad = skip_bad
        self._total = total
        self.read_to = 0
        self.left_out = 0
        self._rate = RateMeter()
        self._shows = is_terminal(sys.stderr)
        self._shown = False

    def piece(self, lines: Iterator[Line]) -> list[Any]:
        """The next tasks, [] at the end. Raises ConfigError for a line that is none, unless they are to be left out."""
        values: list[Any] = []
        size = 0
        for line in lines:
            if line.trouble:
                if not self._skip_bad:
                    raise bad_line(line)
                self.left_out += 1
                if self.left_out <= 20:
                    self.end_line()
                    say(f"line {line.number} is left out: {line.trouble}")
                continue
            self.read_to = line.number
            values.append(line.value)
            size += line.size
            if len(values) >= PIECE or size >= PIECE_BYTES:
                break
        return values

    def add(self, count: int) -> None:
        """A piece has been pushed."""
        from netspy.observe.progress import rate_text

        self.count += count
        self.next_line = self.read_to + 1
        rate = self._rate.update(self.count)
        if self._shows:
            of = f" of {self._total:,}" if self._total is not None else ""
            sys.stderr.write(f"\r\x1b[Kpushed {self.count:,}{of}  {rate_text(rate)}")
            sys.stderr.flush()
            self._shown = True

    def end_line(self) -> None:
        """Give the terminal's line back."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False


@contextmanager
def _serving(settings: Settings) -> Iterator[Settings]:
    """As `serving`, but tasks may come before the first crawl: an embedded server is made where there is none. One that
    doesn't answer is not waited for long.
    """
    from netspy.assembly import EMBEDDED
    from netspy.redisio.client import CLI_PATIENCE_S

    if settings.TASK_SOURCE:
        yield settings
        return
    patience = min(settings.REDIS_START_TIMEOUT, CLI_PATIENCE_S)
    settings = msgspec.structs.replace(settings, REDIS_START_TIMEOUT=patience)
    if settings.REDIS_URL != EMBEDDED:
        yield settings
        return
    from netspy.redisio.embedded import EmbeddedRedis

    with EmbeddedRedis(settings.EMBEDDED_DATA_DIR) as url:
        yield msgspec.structs.replace(settings, REDIS_URL=url)


def _say_outage(away: bool, seconds: float) -> None:
    say("the store is away; waiting for it" if away else f"the store is back after {seconds:.1f} s")


def _place(target: Target) -> str:
    if target.settings.TASK_SOURCE:
        return hide_password(target.settings.TASK_SOURCE)
    return base_of(target)


def base_of(target: Target) -> str:
    """The list's key in Redis."""
    from netspy.tasks.redis_list import task_keys

    return task_keys(target.settings, target.list_name).base


# -- status ----------------------------------------------------------------------------------------------------


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
    with connected(target.job) as client:
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
        print(json_line({"source": _place(target), "job": run.namespace, **shown}))
        return 0
    rows = [("tasks in", _place(target)), ("job", run.namespace)]
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
        with OutsideSource(target.settings, target.list_name) as source:
            return source.backlog()
    from netspy.redisio.scripts import Call, load, run_sync
    from netspy.tasks.redis_list import FOLDER, task_keys

    keys = task_keys(target.settings, target.list_name)
    with connected(target.job, key=keys.base) as client:
        return Backlog(*map(int, run_sync(client, Call(load(FOLDER, "backlog"), keys.all(), [""]))))


# -- failed tasks ----------------------------------------------------------------------------------------------


class FailedTask(NamedTuple):
    """One record of the failed list. `number` is its place, from 1; `task` the text as it was pushed."""

    number: int
    error: str
    time: float
    deliveries: int
    task: str
    text: bytes


class _Record(msgspec.Struct):
    error: str = ""
    time: float = 0.0
    deliveries: int = 0
    task: str = ""


_read_record = msgspec.json.Decoder(_Record).decode


def failed_tasks(client: redis.Redis, key: str) -> Iterator[FailedTask]:
    """The failed list, oldest first, read in pages. What another program put there comes with an error of that name."""
    at = 0
    while True:
        texts: Any = client.lrange(key, at, at + _PAGE - 1)
        for offset, text in enumerate(texts, at + 1):
            try:
                record = _read_record(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                record = _Record("not a record of netspy", 0.0, 0, text.decode("utf-8", "replace"))
            yield FailedTask(offset, record.error, record.time, record.deliveries, record.task, text)
        if len(texts) < _PAGE:
            return
        at += _PAGE


def _chosen(client: redis.Redis, key: str, numbers: list[int], error: str | None) -> Iterator[FailedTask]:
    """The records with these numbers, and with this in their error. Raises ConfigError for a number that isn't there."""
    if numbers:
        length = int(client.llen(key))
        if numbers[-1] > length:
            raise ConfigError(f"there is no failed task {numbers[-1]}; there are {length:,}")
    wanted = set(numbers)
    for one in failed_tasks(client, key):
        if wanted and one.number not in wanted:
            continue
        if error is None or error.lower() in one.error.lower():
            yield one


@contextmanager
def _failed_list(
    words: list[str] | None, task_key: str | None, arguments: list[str] | None, values: list[str] | None
) -> Iterator[tuple[redis.Redis, Target, list[int]]]:
    from netspy.tasks.redis_list import task_keys

    spider, numbers = split(words)
    target = find_target(spider, task_key, arguments, values)
    if target.settings.TASK_SOURCE:
        raise ConfigError(
            f"tasks of {_place(target)} fail into that source (a queue or topic NAME.failed, the rows' state), where its "
            "own tools show them; this command is for the list in Redis"
        )
    with connected(target.job, key=task_keys(target.settings, target.list_name).base) as client:
        yield client, target, numbers


def failed(
    *,
    words: Words = None,
    task_key: TaskKey = None,
    error: ErrorText = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, help="At most N; 0 = all (default: 50 on a terminal)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Print to stdout; what is left out is said on stderr."""
    if limit is None:
        limit = SHOWN if is_terminal(sys.stdout) and not as_json else 0
    with _failed_list(words, task_key, arguments, values) as (client, target, numbers):
        key = f"{base_of(target)}:failed"
        chosen = _chosen(client, key, numbers, error)
        if as_json:
            for one in islice(chosen, limit or None):
                print(json_line(_as_dict(one)))
            return 0
        rows = [
            (str(one.number), local_time(one.time), str(one.deliveries), one.error[:200], one.task[:200])
            for one in islice(chosen, limit or None)
        ]
        if not rows:
            say(f"no failed task{' matches' if numbers or error else ''} in {key}")
            return 0
        for line in table(("n", "time", "deliveries", "error", "task"), rows, right=("n", "deliveries")):
            print(line)
        more = sum(1 for _ in chosen)
        if more:
            say(f"{things(more, 'more failed task')}; --limit 0 shows all")
    return 0


def _as_dict(one: FailedTask) -> dict[str, Any]:
    try:
        task = json.loads(one.task)
    except ValueError:
        task = one.task
    return {
        "number": one.number,
        "time": iso_time(one.time),
        "deliveries": one.deliveries,
        "error": one.error,
        "task": task,
    }


def retry(
    *,
    words: Words = None,
    task_key: TaskKey = None,
    error: ErrorText = None,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Move them, piece by piece; each record is in one place at any time."""
    from netspy.redisio.scripts import Call, load, run_sync
    from netspy.tasks.redis_list import FOLDER, task_keys

    with _failed_list(words, task_key, arguments, values) as (client, target, numbers):
        keys = task_keys(target.settings, target.list_name)
        chosen = [one for one in _chosen(client, keys.failed, numbers, error) if one.task]
        moved = 0
        for at in range(0, len(chosen), _PAGE):
            pairs = [word for one in chosen[at : at + _PAGE] for word in (one.text, one.task)]
            moved += int(run_sync(client, Call(load(FOLDER, "retry"), keys.all(), ["", *pairs])))
        print(f"pushed {things(moved, 'failed task')} again to {visible(keys.base)}")
    return 0
