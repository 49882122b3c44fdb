"""What a node is made of, and what it says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from netspy.downloader.contract import Downloader
from netspy.engine.contract import Alert, CountersLike, Doer, ItemFilter, ItemWriter
from netspy.frontier.contract import Frontier, Keeper
from netspy.messages.entry import Counts
from netspy.observe.throttle import LoggerLike
from netspy.settings import Settings
from netspy.tasks.contract import Task, TaskSource


class TaskParts(NamedTuple):
    """What a spider that works on tasks has besides.

    `source`: where they come from. `adopt`, where the source can: rows of the spider's own `fetch_tasks` become this
    node's tasks in one step. `fetch`: that method, None when it isn't overridden. `closing`: the request that tells of a
    task's end, and whether only of a failure; None when nobody wants to know. `ended`: the hook that it goes to.
    `salt`: what keeps this task's pages and items apart from equal ones of other tasks (batches). `doers`: who carries
    out what callbacks ask for before their page is acked, beside adding tasks. `reported`: callbacks are expected to
    say what became of a task. `open_because`: another reason why more tasks may come; None = the source's own word.
    """

    source: TaskSource
    adopt: Callable[[Sequence[Any]], Awaitable[list[Task]]] | None
    fetch: Callable[[int], Any] | None
    closing: Callable[[Any], tuple[Any, bool] | None]
    ended: Callable[..., Any] | None
    salt: Callable[[str], bytes]
    doers: Mapping[str, Doer]
    reported: bool = False
    open_because: Callable[[], Awaitable[str | None]] | None = None
    closers: Sequence[Callable[[], Awaitable[None]]] = ()


class Parts(NamedTuple):
    """What assembly puts into a node. `keeper` is None where nothing can expire (one process, in memory)."""

    spider: Any
    base: type
    settings: Settings
    frontier: Frontier
    keeper: Keeper | None
    make_downloader: Callable[[], Downloader]
    middlewares: Sequence[Any]
    writer: ItemWriter
    item_filter: ItemFilter | None
    counters: CountersLike
    logger: LoggerLike
    alert: Alert
    shared: bool
    ignore: Any
    keep_alive: bool
    observe: Callable[[NodeState], Awaitable[None]] | None
    observe_every_s: float
    resumed: bool = False  # the frontier was restored from a dump: don't seed
    on_open: Callable[[], None] | None = None  # once the frontier is open, in a thread
    tasks: TaskParts | None = None


class NodeState(NamedTuple):
    """What the node shows of itself to the progress display."""

    state: str
    elapsed_s: float
    active: int
    held: int
    counts: Counts | None
