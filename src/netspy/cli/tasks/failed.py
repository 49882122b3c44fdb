"""`netspy tasks failed` and `netspy tasks retry`: the failed tasks of the list in Redis."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from netspy.cli.failed.choice import split
from netspy.cli.job import ArgumentOption, SetOption, connect
from netspy.cli.output import iso_time, json_line, local_time, say, table, things, visible
from netspy.cli.tasks.source_list import Target, TaskKey, base_of, find_target, place_of
from netspy.errors import ConfigError
from netspy.observe.log import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

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

SHOWN = 50
_PAGE = 500

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SPIDER] [N]...", help="The spider, and numbers as `failed` shows them."),
]
ErrorText = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Those whose error contains this; capitals don't matter."),
]


class FailedTask(NamedTuple):
    """One record of the failed list. `number` is its place, from 1; `task` the text as it was pushed."""

    number: int
    error: str
    time: float
    deliveries: int
    task: str
    text: bytes
    again: bool  # whether the task can be pushed again


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
                again = bool(record.task)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                record = _Record("not a record of netspy", 0.0, 0, text.decode("utf-8", "replace"))
                again = False
            yield FailedTask(offset, record.error, record.time, record.deliveries, record.task, text, again)
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
    from netspy.tasks.redis.list import task_keys

    spider, numbers = split(words)
    target = find_target(spider, task_key, arguments, values)
    if target.settings.TASK_SOURCE:
        raise ConfigError(
            f"tasks of {place_of(target)} fail into that source (a queue or topic NAME.failed, a stream KEY:failed, the rows' "
            "state), where its own tools show them; this command is for the list in Redis"
        )
    with connect(target.job, key=task_keys(target.settings, target.list_name).base) as client:
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
    from netspy.tasks.redis.list import FOLDER, task_keys

    with _failed_list(words, task_key, arguments, values) as (client, target, numbers):
        keys = task_keys(target.settings, target.list_name)
        found = list(_chosen(client, keys.failed, numbers, error))
        chosen = [one for one in found if one.again]
        moved = 0
        for at in range(0, len(chosen), _PAGE):
            pairs = [word for one in chosen[at : at + _PAGE] for word in (one.text, one.task)]
            moved += int(run_sync(client, Call(load(FOLDER, "retry"), keys.all(), ["", *pairs])))
        print(f"pushed {things(moved, 'failed task')} again to {visible(keys.base)}")
        if len(chosen) < len(found):
            say(
                f"{things(len(found) - len(chosen), 'record')} can't be read as tasks and stay in {keys.failed}"
            )
    return 0
