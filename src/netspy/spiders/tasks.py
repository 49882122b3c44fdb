"""TaskSpider: tasks from a list that anybody can push to, worked off by as many nodes as wished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from netspy.engine.page.actions import Action, current
from netspy.errors import SpiderError
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.spiders.base import BaseParser
from netspy.spiders.distributed import Spider

MEMORY = "memory"


class PushTasks:
    """`push_tasks` on a class goes by the class, on an object by that object's keys and settings."""

    def __get__(self, instance: TaskSpider | None, owner: type[TaskSpider]) -> Callable[..., int]:
        def push_tasks(*tasks: Any, task_key: str | None = None) -> int:
            """Append tasks (JSON-able values such as dicts, ids, URLs) to the spider's task source; returns how many.

            From any process. They are stored when it returns. `task_key` names another list than the spider's. Raises
            SerializationError for a value that can't travel, before any is pushed; ConfigError, StoreUnavailableError.
            """
            from netspy.assembly.tasks import push

            spider = instance
            if spider is None:  # what the class's own constructor may want doesn't matter here
                spider = owner.__new__(owner)
                TaskSpider.__init__(spider)
            return push(spider, tasks, task_key=task_key)

        return push_tasks


class TaskSpider(Spider):
    """A crawl whose work is tasks: ids, URLs, rows. `task_requests` turns each into requests.

    Tasks wait in the Redis list `<prefix>:<task_key>:tasks`, or wherever TASK_SOURCE says. A task that was taken is never
    lost: it comes back when its node dies before its requests are in the queue, and from there on they are the queue's.
    """

    kind: ClassVar[str] = "task"
    task_key: str | None = None

    def __init__(
        self,
        *,
        redis_key: str | None = None,
        task_key: str | None = None,
        task_source: Any = None,
        thread_count: int | None = None,
        keep_alive: bool | None = None,
        item_handler: Callable[[list[Any]], Any] | None = None,
        pipelines: Sequence[Any] | None = None,
        take_over: bool = False,
        **arguments: Any,
    ) -> None:
        """`task_key`: the name of the task list (default: `redis_key`, else the class name). `task_source`: an object
        that gives tasks (`netspy.tasks.contract.TaskSource`), or what TASK_SOURCE takes. Others: see Spider.
        """
        if isinstance(task_source, str):
            arguments["TASK_SOURCE"] = task_source
            task_source = None
        super().__init__(
            redis_key=redis_key,
            thread_count=thread_count,
            keep_alive=keep_alive,
            item_handler=item_handler,
            pipelines=pipelines,
            take_over=take_over,
            **arguments,
        )
        if task_key is not None:
            self.task_key = task_key
        self.task_source = task_source

    @property
    def in_memory(self) -> bool:
        """Tasks live in this process, so the queue does too, and no server is needed."""
        from netspy.tasks.memory import MemoryTaskSource

        if self.task_source is not None:
            return isinstance(self.task_source, MemoryTaskSource)
        return self.load_settings().settings.TASK_SOURCE == MEMORY

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Whether the queue is in Redis."""
        return not self.in_memory

    @property
    def list_name(self) -> str:
        """The name of the task list: task_key, else redis_key, else the class name."""
        return self.task_key or self.redis_key or self.job_name

    # -- hooks -----------------------------------------------------------------------------------------------

    def task_requests(self, task: Any) -> Any:
        """Yield the requests of one task. They pass the repeat filter: the task is their identity."""
        raise SpiderError(
            f"{self.name} has no task_requests(task): define it and yield the requests of a task (here {task!r:.100})"
        )

    def fetch_tasks(self, limit: int) -> Any:
        """Up to `limit` more tasks from elsewhere, such as rows of a database; an empty list when there are none now.

        Overridden, it is asked whenever the task list has fewer. What it returns is in the task list's leased part
        before `task_requests` sees it, so a node that dies loses none.
        """
        return None

    def task_done(self, task: Any) -> Any:
        """Called when all requests of a task, those found on its pages included, and their items are done.

        May yield like a callback. A node that dies in it has it called again.
        """
        return None

    def task_failed(self, task: Any) -> Any:
        """As `task_done`, for a task of which a request failed for good, or that task_requests raised for."""
        return None

    push_tasks = PushTasks()

    def add_tasks(self, *tasks: Any) -> None:
        """New tasks while the crawl runs. In a callback they are in the task source before the page is acked."""
        page = current.get()
        if page is None:
            self.push_tasks(*tasks)
            return
        from netspy.messages import codec

        for task in tasks:
            codec.encode(task, "task")  # an error belongs to the line that made it
        page.actions += [Action("add", task) for task in tasks]

    # -- for the engine --------------------------------------------------------------------------------------

    def start_requests(self) -> Any:
        """A TaskSpider's work are its tasks; override this only for pages to crawl besides."""
        return ()

    def request_from_task(self, value: Any, task: Any) -> Any:
        """What task_requests yielded, as a request of that task; a text is taken as a URL."""
        del task
        return self.request_from_seed(value) if isinstance(value, str) else value

    @property
    def own_fetch(self) -> Callable[[int], Any] | None:
        """fetch_tasks, where it is defined."""
        return self.fetch_tasks if type(self).fetch_tasks is not TaskSpider.fetch_tasks else None

    @property
    def hears_of_ends(self) -> bool:
        """Whether task_done or task_failed is defined."""
        mine = type(self)
        return mine.task_done is not TaskSpider.task_done or mine.task_failed is not TaskSpider.task_failed

    def closing_of(self, task: Any) -> tuple[Request, bool] | None:
        """The request that is queued at the end of a task, and whether only when it failed; None when nobody hears it."""
        if not self.hears_of_ends:
            return None
        only_failed = type(self).task_done is TaskSpider.task_done
        return Request("http://task.invalid/", auto_request=False, cb_kwargs={"task": task}), only_failed

    def task_ended(
        self, request: Request, response: Response | None, task: Any, failed: int, token: str = ""
    ) -> Any:
        """Where a task's last request goes."""
        del request, response, token
        return self.task_failed(task) if failed else self.task_done(task)

    def why_nothing(self) -> str | None:
        """Where tasks were looked for."""
        if self.task_source is not None or self.load_settings().settings.TASK_SOURCE:
            return "the task source had no tasks"
        return (
            f"no tasks in {self.load_settings().settings.REDIS_KEY_PREFIX}:{self.list_name}:tasks; push some with "
            f"{self.name}.push_tasks(…) or `netspy tasks push`"
        )

    def problem(self) -> str | None:
        """What is wrong with this spider's declaration; None when it can start."""
        if type(self).task_requests is TaskSpider.task_requests:
            return f"{self.name} has no task_requests(task): define it and yield the requests of a task"
        if type(self).user_pool is not BaseParser.user_pool:
            return super().problem()
        return None
