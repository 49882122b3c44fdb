"""One task turned into requests: `task_requests` called, what it yields gathered, long tasks handed over in parts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from netspy.engine.leases.outbox import Outbox
from netspy.engine.page.actions import current, reports
from netspy.engine.page.callbacks import kind_of
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.output import Origin, Sorter, Yielded, as_iterator, draw, is_async
from netspy.engine.page.threads import CallbackPool
from netspy.engine.parts import TaskParts
from netspy.engine.standing import Standing
from netspy.errors import SpiderError
from netspy.messages.entry import NewEntry, TaskMark
from netspy.messages.request import Request
from netspy.observe.faults import MAX_TEXT
from netspy.tasks.contract import Task

CHUNK = 500
_PAUSE_S = 0.05


class NothingTakenError(SpiderError):
    """A task yielded something, and nothing of it could be taken."""


class TaskDrawing:
    """For the feeder of one node; called on the loop."""

    def __init__(
        self,
        parts: TaskParts,
        *,
        ahead: int,
        standing: Standing,
        outbox: Outbox,
        items: ItemBuffer,
        sorter: Sorter,
        pool: CallbackPool,
        stopping: Callable[[], bool],
        on_silent: Callable[[Task], None],
    ) -> None:
        """`ahead`: while so many requests are queued, a long task is not drawn on. `on_silent` hears of a task that gave no
        request and of which nothing was reported, where that is expected.
        """
        self._parts = parts
        self._reusable = getattr(parts.source, "reusable", False)
        self._spider = parts.spider
        self._ahead = ahead
        self._standing = standing
        self._outbox = outbox
        self._items = items
        self._sorter = sorter
        self._pool = pool
        self._stopping = stopping
        self._on_silent = on_silent

    async def requests_of(self, task: Task) -> list[NewEntry]:
        """The last requests of a task; all before them are in the frontier already. Raises what the user's code raises,
        NothingTakenError.
        """
        identity = b"t" + task.token.encode()
        if self._reusable:
            # What an earlier round of the same row crawled is no repeat.
            identity += b"#" + secrets.token_bytes(8)
        origin = Origin(
            f"{self._spider.name}.task_requests",
            identity,
            str(task.value)[:MAX_TEXT],
            task=task.token,
            salt=self._parts.salt(task.token),
            bypass=True,
        )
        reported: list[Any] = []
        out = await self._drawn(task, origin, reported)
        if origin.refused and not (out or origin.handed_over):
            raise NothingTakenError(origin.refused)
        if self._parts.reported and not (out.children or origin.handed_over or reported):
            self._on_silent(task)
        return out.children

    def mark(self, task: Task, *, fed: bool = True) -> TaskMark:
        """What the frontier is told of a task with its requests; `fed`: these were the last ones."""
        closing, only_failed = self.closing(task)
        return TaskMark(task.token, fed, closing, only_failed)

    def closing(self, task: Task, failures: str = "") -> tuple[NewEntry | None, bool]:
        """The request that tells of a task's end (None: nobody wants to know), and whether only of a failure."""
        wanted = self._parts.closing(task.value)
        if wanted is None:
            return None, False
        request, only_failed = wanted
        request.cb_kwargs = {**(request.cb_kwargs or {}), "token": task.token}
        origin = Origin(
            f"{self._spider.name}.task_requests", b"e" + task.token.encode(), task=failures, bypass=True
        )
        return self._sorter.entry(request, origin), only_failed

    async def _drawn(self, task: Task, origin: Origin, reported: list[Any]) -> Yielded:
        function = self._spider.task_requests
        adopt = self._spider.request_from_task
        sort = self._sorter.sort

        def take(out: Yielded, value: Any) -> None:
            sort(out, adopt(value, task.value) if isinstance(value, str | Request) else value, origin)

        reports.set(reported)
        if kind_of(function) != "plain":
            return await self._drawn_async(task, function(task.value), origin, take)

        def first() -> tuple[Yielded, Any]:
            current.set(None)
            reports.set(reported)
            result = function(task.value)
            if is_async(result):
                return Yielded(), result
            origin.generator = as_iterator(result)
            return more(), None

        def more() -> Yielded:
            out = Yielded()
            reports.set(reported)
            if origin.generator is not None:
                iterator = origin.generator
                out.more = draw(iterator, lambda value: take(out, value), out.__len__, CHUNK)
            return out

        out: Yielded
        out, later = await self._pool.call(first)
        if later is not None:
            return await self._drawn_async(task, later, origin, take)
        while out.more:
            await self._put_chunk(task, out, origin)
            out = await self._pool.call(more)
        self._keep_rows(out)
        return out

    async def _drawn_async(
        self, task: Task, result: Any, origin: Origin, take: Callable[[Yielded, Any], None]
    ) -> Yielded:
        out = Yielded()
        if hasattr(result, "__aiter__"):
            origin.generator = result
            async for value in result:
                take(out, value)
                if len(out) >= CHUNK:
                    await self._put_chunk(task, out, origin)
                    out = Yielded()
        else:
            for value in as_iterator(await result) or ():
                take(out, value)
        self._keep_rows(out)
        return out

    async def _put_chunk(self, task: Task, out: Yielded, origin: Origin) -> None:
        """A part of a task's requests: the task stays open until the rest is there too."""
        origin.handed_over = True
        self._keep_rows(out)
        await self._outbox.put(out.children, tasks=[self.mark(task, fed=False)])
        self._standing.fed += len(out.children)
        while not self._stopping() and self._standing.ahead(self._ahead):  # noqa: ASYNC110 - another task's number
            await asyncio.sleep(_PAUSE_S)

    def _keep_rows(self, out: Yielded) -> None:
        if out.rows:
            self._items.add(None, out.rows)
