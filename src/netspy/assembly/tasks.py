"""A TaskSpider's parts, and pushing to its task source from outside a run."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from netspy.assembly import Built
from netspy.assembly.contract import ListSpider
from netspy.assembly.sources import check_source, make_source
from netspy.engine.parts import TaskParts
from netspy.errors import ConfigError
from netspy.raised import run_loop
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netspy.settings import Settings


def build_tasks(built: Built, spider: ListSpider, settings: Settings) -> TaskParts:
    """The task side of a TaskSpider's node. Raises ConfigError."""
    source = spider.task_source
    if source is None:
        source = make_source(settings, spider.list_name, on_outage=built.outage)
        if spider.in_memory:
            spider.task_source = source  # nobody else has it: this is where add_tasks and push_tasks must go
    else:
        check_source(source, f"task_source={type(source).__name__}")
    fetch = spider.own_fetch
    adopt = getattr(source, "adopt", None)
    if fetch is not None and adopt is None:
        raise ConfigError(
            f"{spider.name} defines fetch_tasks, and its tasks come from {_describe_source(source, settings)}: choose one of them"
        )
    built.waiters.append(source.give_up_waiting)
    if spider.in_memory:

        def tell_of_the_rest() -> None:
            if left := len(source.left()):
                spider.logger.warning(
                    "{} task(s) of the in-memory source are not done; they are still in it, and end with this process",
                    left,
                )

        built.closers.append(tell_of_the_rest)
    return TaskParts(
        spider=spider,
        source=source,
        adopt=adopt,
        fetch=fetch,
        closing=spider.closing_of,
        ended=spider.task_ended,
        salt=lambda _token: b"",
        doers={},
    )


def _describe_source(source: Any, settings: Settings) -> str:
    return (
        f"TASK_SOURCE={hide_password(settings.TASK_SOURCE)!r}"
        if settings.TASK_SOURCE
        else type(source).__name__
    )


def push(spider: ListSpider, tasks: Sequence[Any], *, task_key: str | None = None) -> int:
    """Append tasks to a spider's source, from outside a run. Returns how many."""
    from netspy.assembly import embedded_store
    from netspy.assembly.outside import OutsideSource

    if not tasks:
        return 0
    source = spider.task_source
    if source is None and spider.in_memory:
        raise ConfigError(
            f"{spider.name}.push_tasks: TASK_SOURCE='memory' has no tasks outside the crawl's own process; give the "
            "spider a task_source=MemoryTaskSource([...]), or leave TASK_SOURCE out for the list in Redis"
        )
    if source is not None:
        blocking(lambda: source.add(list(tasks)))
        return len(tasks)
    with (
        embedded_store(spider, spider.load_settings().settings) as settings,
        OutsideSource(settings, task_key or spider.list_name) as outside,
    ):
        outside.add(list(tasks))
    return len(tasks)


def blocking(make: Callable[[], Any]) -> Any:
    """Run a coroutine to its end from plain code, also where a loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_loop(_awaited(make))
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((run_loop(_awaited(make)), None))
        except BaseException as error:  # handed to the caller below
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="netspy-push")
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


async def _awaited(make: Callable[[], Any]) -> Any:
    return await make()
