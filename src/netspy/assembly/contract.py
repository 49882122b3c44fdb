"""What assembly and launch ask of a spider, by its kind. The classes themselves are in `spiders`, above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

from netspy.engine.contract import ItemFilter, SpiderLike, TaskSpiderLike
from netspy.frontier.contract import Frontier, Keeper
from netspy.messages.request import Request
from netspy.observe.counters import Counters
from netspy.observe.log import Logger
from netspy.settings.loading import Loaded
from netspy.tasks.batch_store import BatchStore


class Stoppable(Protocol):
    """A run that can be stopped from any thread."""

    def stop(self, reason: str) -> None: ...


class AnySpider(SpiderLike, Protocol):
    """What every spider brings to its start."""

    item_handler: Callable[[list[Any]], Any] | None
    pipelines: Sequence[Any] | None
    logger: Logger
    _running: Stoppable | None  # the handle for the spider's own `stop`, set while it runs

    @property
    def job_name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def shared(self) -> bool: ...
    @property
    def counters(self) -> Counters: ...
    def load_settings(self) -> Loaded: ...
    def override_settings(self, values: dict[str, Any], origin: str = "keyword") -> None: ...
    def begin_run(self) -> None: ...
    def problem(self) -> str | None: ...
    def why_nothing(self) -> str | None: ...


class SharedSpider(AnySpider, Protocol):
    """A spider whose queue is in Redis."""

    redis_key: str | None
    take_over: bool


class _HearsOfTasks(TaskSpiderLike, Protocol):
    """The end of a task, see `TaskParts.closing` and `TaskParts.ended`."""

    def closing_of(self, task: Any) -> tuple[Request, bool] | None: ...
    @property
    def task_ended(self) -> Callable[..., Any]: ...


class ListSpider(SharedSpider, _HearsOfTasks, Protocol):
    """A TaskSpider: its tasks come from a list or another source."""

    task_source: Any

    @property
    def in_memory(self) -> bool: ...
    @property
    def list_name(self) -> str: ...
    @property
    def own_fetch(self) -> Callable[[int], Any] | None: ...


class TableSpider(SharedSpider, _HearsOfTasks, Protocol):
    """A BatchSpider: its tasks are the rows of a table."""

    task_table: str

    @property
    def store(self) -> BatchStore: ...
    @property
    def crawls_itself(self) -> bool: ...


def is_shared(spider: AnySpider) -> TypeGuard[SharedSpider]:
    """Whether its queue is in Redis."""
    return spider.shared


def is_list(spider: AnySpider) -> TypeGuard[ListSpider]:
    """Whether it is a TaskSpider."""
    return spider.kind == "task"


def is_table(spider: AnySpider) -> TypeGuard[TableSpider]:
    """Whether it is a BatchSpider."""
    return spider.kind == "batch"


class StoreParts(NamedTuple):
    """What depends on where the queue is: in this process or in Redis."""

    #: The queue.
    frontier: Frontier
    #: Renews leases and sweeps dead nodes; None where nothing can expire.
    keeper: Keeper | None
    #: Item dedup; None when ITEM_FILTER_ENABLE is off.
    item_filter: ItemFilter | None
    #: The queue was restored from a dump that had all seeds: don't seed.
    resumed: bool
