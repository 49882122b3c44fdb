"""What a node is made of, and what it says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from netspy.downloader.contract import Downloader
from netspy.engine.contract import Alert, CountersLike, ItemFilter, ItemWriter, LoggerLike
from netspy.frontier.contract import Frontier, Keeper
from netspy.messages.entry import Counts
from netspy.settings import Settings

Outcome = Literal["finished", "nothing_to_do", "stopped", "limit", "seeding_failed", "store_lost", "failed"]


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


class NodeState(NamedTuple):
    """What the node shows of itself to the progress display."""

    state: str
    elapsed_s: float
    active: int
    held: int
    counts: Counts | None


class Ended(NamedTuple):
    """How a node's run ended."""

    outcome: Outcome
    reason: str
    signal: int | None = None
