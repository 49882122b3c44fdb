"""What a node is made of, and what it says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from netspy.downloader.contract import Downloader
from netspy.engine.contract import (
    Alert,
    CountersLike,
    Doer,
    ItemFilter,
    ItemWriter,
    SpiderLike,
    TaskSpiderLike,
)
from netspy.frontier.contract import Frontier, Keeper
from netspy.messages.entry import Counts
from netspy.messages.request import Request
from netspy.messages.urls import Ignore
from netspy.observe.throttle import LoggerLike
from netspy.settings import Settings
from netspy.tasks.contract import Task, TaskSource


class TaskParts(NamedTuple):
    """What a spider that works on tasks has besides. Assembly writes it; the task feeder reads it, if nothing else is said."""

    #: Whose `task_requests` turns a task into requests.
    spider: TaskSpiderLike
    #: Where tasks come from. Opened, closed and asked whether it is at its end by the node; taken from by the feeder.
    source: TaskSource
    #: Makes rows of the spider's own `fetch_tasks` this node's tasks, in one step; None where the source can't.
    adopt: Callable[[Sequence[Any]], Awaitable[list[Task]]] | None
    #: The spider's `fetch_tasks(limit)`, plain or async; None when it isn't overridden.
    fetch: Callable[[int], Any] | None
    #: `closing(task value)` gives the request that is queued at the task's end, and whether only after a failure; None
    #: when nobody wants to know of the end.
    closing: Callable[[Any], tuple[Request, bool] | None]
    #: The hook that a closing request goes to, in the place of a download. Read by the page handler.
    ended: Callable[..., Any] | None
    #: `salt(task token)` keeps this task's pages and items apart from equal ones of other tasks (batches); b"" = no need.
    salt: Callable[[str], bytes]
    #: By the kind of action ("mark" …): who carries out what callbacks ask for before their page is acked. Read by the
    #: node, which adds the kind "add" (new tasks).
    doers: Mapping[str, Doer]
    #: Callbacks are expected to say what became of a task; silence is warned of.
    reported: bool = False
    #: Another reason why more tasks may come, asked when the source is at its end; None = the source's own word counts.
    open_because: Callable[[], Awaitable[str | None]] | None = None


class Parts(NamedTuple):
    """What a node is put together from. Assembly writes it; the node and its components read it."""

    #: The user's spider: its seeds, callbacks and hooks.
    spider: SpiderLike
    #: The framework's class that the spider inherits from; what the spider has from there counts as not overridden.
    base: type
    #: All settings of the run.
    settings: Settings
    #: The queue. Used on the event loop only.
    frontier: Frontier
    #: Renews leases and sweeps dead nodes, in the lease keeper's thread; None where nothing can expire (in memory).
    keeper: Keeper | None
    #: Makes the downloader, once, on the event loop; the node closes it.
    make_downloader: Callable[[], Downloader]
    #: Objects with the hooks of `DownloaderMiddleware`, the outermost first.
    middlewares: Sequence[Any]
    #: Stores batches of items. Used by the item buffer; closed at the node's end.
    writer: ItemWriter
    #: Item dedup; None = every item is written.
    item_filter: ItemFilter | None
    #: The run's counters in this process. Written by nearly all parts, from any thread.
    counters: CountersLike
    #: The spider's logger.
    logger: LoggerLike
    #: `alert(kind, message)`, from any thread: what a person should know of.
    alert: Alert
    #: Requests leave the process, so they have to be serialisable.
    shared: bool
    #: URL_IGNORE_PARAMS as one test, part of a request's fingerprint; None = every parameter counts.
    ignore: Ignore | None
    #: An empty queue doesn't end the run (SPIDER_KEEP_ALIVE, on Redis only).
    keep_alive: bool
    #: The progress display, called every `observe_every_s` seconds; written by launch; None = no display.
    observe: Callable[[NodeState], Awaitable[None]] | None
    #: Seconds between two calls of `observe`.
    observe_every_s: float
    #: The frontier was restored from a dump that had all seeds: don't seed.
    resumed: bool = False
    #: Called once when the frontier is open, in a thread: it may block.
    on_open: Callable[[], None] | None = None
    #: The task side; None for a spider without tasks.
    tasks: TaskParts | None = None


class NodeState(NamedTuple):
    """What the node shows of itself to the progress display."""

    state: str
    elapsed_s: float
    active: int
    held: int
    counts: Counts | None
