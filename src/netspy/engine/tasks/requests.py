"""What users write about tasks, called: `fetch_tasks` gives them, `task_requests` turns each into requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from netspy import forked
from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.leases.outbox import Outbox
from netspy.engine.page.actions import current
from netspy.engine.page.callbacks import kind_of
from netspy.engine.page.effects import Effects
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.output import CallbackOutput, OutputCollector, YieldSite, as_iterator, draw, is_async
from netspy.engine.page.page import TaskAtWork
from netspy.engine.page.threads import CallbackPool
from netspy.engine.parts import TaskParts
from netspy.errors import SerializationError, SpiderError, StoreLostError
from netspy.messages import codec
from netspy.messages.entry import NewEntry, TaskMark
from netspy.messages.request import Request
from netspy.observe.faults import MAX_TEXT
from netspy.raised import failure
from netspy.tasks.contract import Task

CHUNK = 500
_PAUSE_S = 0.05


class NothingTakenError(SpiderError):
    """A task yielded something, and nothing of it could be taken."""


class Drawn(NamedTuple):
    """The last requests of a task. `history`: the store's history under which the ones before them were put; None when
    these are all.
    """

    task: Task
    requests: list[NewEntry]
    history: str | None


class TaskRequests:
    """For the feeder of one node; called on the loop."""

    def __init__(
        self,
        env: Env,
        control: Control,
        gauge: NodeGauge,
        parts: TaskParts,
        outbox: Outbox,
        items: ItemBuffer,
        collector: OutputCollector,
        pool: CallbackPool,
        effects: Effects | None = None,
    ) -> None:
        """`effects`: who carries out what task_requests asks for besides, such as `update_task`."""
        self._ahead = (
            env.settings.SPIDER_SEED_AHEAD
        )  # while so many requests wait, a long task is not drawn on
        self._log = env.log
        self._control = control
        self._gauge = gauge
        self._parts = parts
        self._reusable = getattr(parts.source, "reusable", False)
        self._spider = parts.spider
        self.outbox = outbox
        self._items = items
        self._collector = collector
        self.pool = pool
        self._effects = effects
        self._said_nothing = False

    def at_work(self, task: Task) -> TaskAtWork:
        """To give to `requests_of`: who waits for the task's items."""
        return TaskAtWork(task.token, self._effects)

    async def requests_of(self, task: Task, work: TaskAtWork) -> Drawn:
        """The last requests of a task; all before them are in the frontier already, its items in the item buffer for
        `work`. Raises what the user's code raises, after all that it had yielded before was handed over;
        NothingTakenError.
        """
        identity = b"t" + task.token.encode()
        if self._reusable:
            # What an earlier round of the same row crawled is no repeat.
            identity += b"#" + secrets.token_bytes(8)
        origin = YieldSite(
            f"{self._spider.name}.task_requests",
            identity,
            str(task.value)[:MAX_TEXT],
            task=task.token,
            salt=self._parts.salt(task.token),
            bypass=True,
        )
        out = await self._drawn(task, origin, work)
        if origin.refused and not (out.size() or origin.handed_over):
            raise NothingTakenError(origin.refused)
        if self._parts.reported and not (out.children or origin.handed_over or work.reported):
            self._say_silent(task)
        return Drawn(task, out.children, origin.history)

    def _say_silent(self, task: Task) -> None:
        if not self._said_nothing:
            self._said_nothing = True
            self._log.warning(
                "{}.task_requests gave no request for a task and did not report it ({}): it stays in process and comes "
                "again after BATCH_LOST_TASK_STALE. Where there is nothing to crawl, call update_task there",
                self._spider.name, str(task.value)[:MAX_TEXT],
            )  # fmt: skip

    def mark(self, task: Task, *, fed: bool = True, history: str | None = None) -> TaskMark:
        """What the frontier is told of a task with its requests; `fed`: these were the last ones. `history`: as in Drawn."""
        closing, only_failed = self.closing(task)
        return TaskMark(task.token, fed, closing, only_failed, history)

    def closing(self, task: Task, failures: str = "") -> tuple[NewEntry | None, bool]:
        """The request that tells of a task's end (None: nobody wants to know), and whether only of a failure."""
        wanted = self._parts.closing(task.value)
        if wanted is None:
            return None, False
        request, only_failed = wanted
        request.cb_kwargs = {**(request.cb_kwargs or {}), "token": task.token}
        origin = YieldSite(
            f"{self._spider.name}.task_requests", b"e" + task.token.encode(), task=failures, bypass=True
        )
        return self._collector.entry(request, origin), only_failed

    async def _drawn(self, task: Task, origin: YieldSite, work: TaskAtWork) -> CallbackOutput:
        function = self._spider.task_requests
        adopt = self._spider.request_from_task
        collect = self._collector.take

        def take(out: CallbackOutput, value: Any) -> None:
            collect(out, adopt(value, task.value) if isinstance(value, str | Request) else value, origin)

        current.set(work)
        if kind_of(function) != "plain":
            return await self._drawn_async(task, function(task.value), origin, work, take)

        def first() -> tuple[CallbackOutput, Any]:
            current.set(work)
            result = function(task.value)
            if is_async(result):
                return CallbackOutput(), result
            origin.generator = as_iterator(result)
            return more(), None

        def more() -> CallbackOutput:
            out = CallbackOutput()
            current.set(work)
            if origin.generator is not None:
                iterator = origin.generator
                try:
                    out.more = draw(iterator, lambda value: take(out, value), out.size, CHUNK)
                except BaseException as caught:
                    out.error = failure(caught)
            return out

        out: CallbackOutput
        out, later = await self.pool.call(first)
        if later is not None:
            return await self._drawn_async(task, later, origin, work, take)
        while out.more or out.error is not None:
            await self._put_chunk(task, out, origin, work)
            if out.error is not None:
                raise out.error
            out = await self.pool.call(more)
        await self._keep_rows(out, work)
        return out

    async def _drawn_async(
        self,
        task: Task,
        result: Any,
        origin: YieldSite,
        work: TaskAtWork,
        take: Callable[[CallbackOutput, Any], None],
    ) -> CallbackOutput:
        out = CallbackOutput()
        try:
            if hasattr(result, "__aiter__"):
                origin.generator = result
                async for value in result:
                    take(out, value)
                    if out.size() >= CHUNK:
                        full, out = out, CallbackOutput()
                        await self._put_chunk(task, full, origin, work)
            else:
                for value in as_iterator(await result) or ():
                    take(out, value)
        except StoreLostError:
            raise
        except BaseException as caught:
            out.error = failure(caught)
        forked.leave()
        if out.error is not None:
            await self._put_chunk(task, out, origin, work)
            raise out.error
        await self._keep_rows(out, work)
        return out

    async def _put_chunk(self, task: Task, out: CallbackOutput, origin: YieldSite, work: TaskAtWork) -> None:
        """A part of what a task yields: the task stays open until the rest is there too."""
        await self._keep_rows(out, work)
        origin.handed_over |= out.size() > 0
        if not out.children:
            return
        history = await self.outbox.put(out.children, tasks=[self.mark(task, fed=False)])
        origin.history = origin.history or history
        self._gauge.fed += len(out.children)
        while not self._control.stopping and self._gauge.is_ahead(self._ahead):  # noqa: ASYNC110 - another task's number
            await asyncio.sleep(_PAUSE_S)

    async def _keep_rows(self, out: CallbackOutput, work: TaskAtWork) -> None:
        if out.rows:
            self._items.add(work, out.rows)
            await self._items.room()


async def fetch_tasks(fetch: Callable[[int], Any], limit: int, pool: CallbackPool) -> list[Any]:
    """The tasks. Plain functions and generators run on a worker thread, others on the loop. Raises what the user's code
    raises, and SpiderError when it gives no tasks.
    """

    def plain() -> Any:
        result = fetch(limit)
        return result if is_async(result) else _listed(result)

    result = await pool.call(plain) if kind_of(fetch) == "plain" else fetch(limit)
    if hasattr(result, "__aiter__"):
        return [task async for task in result]
    return result if isinstance(result, list) else _listed(await result)


def _listed(result: Any) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, str | bytes | dict) or not isinstance(result, Iterable):
        raise SpiderError(f"it returned {type(result).__name__} {result!r:.100}; return a list of tasks")
    return list(result)


def split_travelling(tasks: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Those that can be sent, and why others can't."""
    good: list[Any] = []
    trouble: list[str] = []
    for task in tasks:
        try:
            codec.encode(task, f"task {task!r:.80}")
        except SerializationError as error:
            trouble.append(str(error))
        else:
            good.append(task)
    return good, trouble
