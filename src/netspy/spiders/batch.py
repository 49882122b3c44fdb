"""BatchSpider: all rows of a task table, again and again, in batches: one master, any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from netspy.engine.page.actions import Action, current
from netspy.errors import SpiderError
from netspy.messages.item import snake_case
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.spiders.base import BaseParser
from netspy.spiders.distributed import Spider
from netspy.spiders.loading import may_start

if TYPE_CHECKING:
    from netspy.engine.page.actions import CurrentPage
    from netspy.observe.summary import RunSummary
    from netspy.tasks.batch_store import BatchStore


class BatchSpider(Spider):
    """A crawl of a task table that begins anew every BATCH_INTERVAL.

    The master (`start_monitor`) opens batches, hands tasks to the workers and takes back lost ones; a worker (`start`)
    turns tasks into requests and reports with `update_task`. A task is marked done after its items are stored.
    """

    kind: ClassVar[str] = "batch"
    __task_table__: ClassVar[str] = ""
    hears_of_ends = True
    crawls_itself = True

    def __init__(
        self,
        *,
        redis_key: str | None = None,
        task_table: str | None = None,
        batch_store: BatchStore | None = None,
        batch_interval: float | None = None,
        thread_count: int | None = None,
        keep_alive: bool | None = None,
        item_handler: Callable[[list[Any]], Any] | None = None,
        pipelines: Sequence[Any] | None = None,
        take_over: bool = False,
        **arguments: Any,
    ) -> None:
        """`task_table`: default `__task_table__`, else the job's name in snake case. `batch_store`: where the table is, in
        the place of BATCH_STORE_URL or MYSQL_*. `batch_interval`: BATCH_INTERVAL. Others: see Spider.
        """
        super().__init__(
            redis_key=redis_key,
            thread_count=thread_count,
            keep_alive=keep_alive,
            item_handler=item_handler,
            pipelines=pipelines,
            take_over=take_over,
            **arguments,
        )
        if batch_interval is not None:
            self._overrides["BATCH_INTERVAL"] = batch_interval
        self.task_table = (
            task_table or type(self).__task_table__ or snake_case(self.redis_key or self.job_name)
        )
        self._store = batch_store

    @property
    def store(self) -> BatchStore:
        """The task table and its batch records. Raises ConfigError for a wrong database URL."""
        if self._store is None:
            from netspy.assembly.batch import make_store

            self._store = make_store(self.load_settings().settings, self.task_table)
        return self._store

    @property
    def id_field(self) -> str:
        """The column of a row that `update_task` takes: the store's, else BATCH_TASK_ID_FIELD."""
        from netspy.assembly.batch import id_field_of

        return id_field_of(self)

    # -- hooks -----------------------------------------------------------------------------------------------

    def task_requests(self, task: dict[str, Any]) -> Any:
        """Yield the requests of one row. Each carries the row as `cb_kwargs["task"]`."""
        raise SpiderError(
            f"{self.name} has no task_requests(task): define it and yield the requests of a row (here {task!r:.100})"
        )

    def update_task(self, task_id: Any, *, ok: bool = True) -> None:
        """Report a task's end: done, or with `ok=False` failed for good.

        In a callback, or in task_requests: done is written when all items that it yields are stored, failed at once.
        Elsewhere at once, in the calling thread. Raises SpiderError there for an id that the task table doesn't have.
        """
        page = current.get()
        if page is None:
            from netspy.assembly.batch import mark_now

            mark_now(self, task_id, ok=ok)
            return
        page.reported = True
        self._report(page, page.task, task_id, ok=ok)

    def _report(self, page: CurrentPage, token: str, task_id: Any, *, ok: bool) -> None:
        """`token` names the batch that this is about: in another one it changes nothing."""
        action = Action("mark", (token, task_id, ok), on_success=ok)
        # Done wins over failed, so of a page that has said both the failure waits: it must not close the batch before.
        both = any(kind == "mark" and value[1:] == (task_id, True) for kind, value, _ in page.actions)
        if ok or both or page.effects is None:
            page.actions.append(action)
        else:
            page.effects.do_soon(action)

    def failed_request(self, request: Request, response: Response | None) -> Any:
        """A request failed for good: its task is marked failed. Overriding it, call super()."""
        del response
        task = (request.cb_kwargs or {}).get("task")
        id_field = self.id_field
        if isinstance(task, dict) and id_field in task:
            self.update_task(task[id_field], ok=False)

    # -- for the engine --------------------------------------------------------------------------------------

    def start_requests(self) -> Any:
        """A BatchSpider's work are its tasks; override this only for pages to crawl besides."""
        return ()

    def request_from_task(self, value: Any, task: Any) -> Any:
        """What task_requests yielded, as a request that carries its task; a text is taken as a URL."""
        request = self.request_from_seed(value) if isinstance(value, str) else value
        kwargs = dict(request.cb_kwargs or {})
        kwargs.setdefault("task", task)
        request.cb_kwargs = kwargs
        return request

    def closing_of(self, task: Any) -> tuple[Request, bool] | None:
        """A task of which a request failed without telling anybody (its process died of it) must not go on for ever."""
        return Request("http://task.invalid/", auto_request=False, cb_kwargs={"task": task}), True

    def task_ended(
        self, request: Request, response: Response | None, task: Any, failed: int, token: str = ""
    ) -> Any:
        """Where the last request of a task with failed requests goes."""
        del request, response
        id_field = self.id_field
        page = current.get()
        if failed and page is not None and isinstance(task, dict) and id_field in task:
            self._report(page, token, task[id_field], ok=False)

    own_fetch = None
    task_source = None

    def why_nothing(self) -> str | None:
        """Where tasks come from."""
        return (
            f"the master has handed out no task of {self.task_table!r}; start one with {self.name}().start_monitor(), "
            "or wait for the next batch"
        )

    def problem(self) -> str | None:
        """What is wrong with this spider's declaration; None when it can start."""
        if type(self).task_requests is BatchSpider.task_requests:
            return f"{self.name} has no task_requests(task): define it and yield the requests of a row"
        if hasattr(self, "fetch_tasks"):
            return (
                f"{self.name} defines fetch_tasks(limit), and a BatchSpider's tasks are the rows of {self.task_table!r}: "
                "leave it out; rows from elsewhere come from a BatchStore of your own (claim_tasks), or with a TaskSpider"
            )
        if type(self).user_pool is not BaseParser.user_pool:
            return super().problem()
        return None

    # -- running ---------------------------------------------------------------------------------------------

    def start_monitor(self, *, once: bool = False) -> RunSummary:
        """Be the master: open batches when they are due, hand out tasks, take back lost ones, close batches. Blocks.

        `once`: bring one batch to its end and return (for cron). With a MemoryBatchStore a worker runs in this process
        too. Returns the summary when the exit code is 0, else raises SystemExit with the code, as `start` does.
        """
        from netspy.launch import start_monitor

        may_start(self)
        return start_monitor(self, once=once)
