"""Tasks in this process's memory: for an AirSpider-like use, and for tests."""

from __future__ import annotations

import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from netspy.messages import codec
from netspy.tasks.contract import Backlog, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class MemoryTaskSource:
    """Tasks end with the process. Values are the objects that were added; they must be able to travel, as elsewhere."""

    holds = False
    reusable = False

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._waiting: deque[Task] = deque()
        self._taken: dict[str, Task] = {}
        self._moved = 0
        self.failures: list[tuple[Any, str]] = []
        """(value, error) of the failed tasks."""
        self._put(list(values))

    async def open(self) -> None:
        """Nothing to connect to."""

    def _put(self, values: Sequence[Any]) -> None:
        for value in values:
            codec.encode(value, "task")
        # A source is made anew for each process, so a number alone would come twice in a frontier that outlives it.
        self._waiting.extend(Task(uuid.uuid4().hex, value) for value in values)
        self._moved += len(values)

    async def take(self, limit: int) -> list[Task]:
        """The oldest ones."""
        tasks = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        for task in tasks:
            self._taken[task.token] = task
        self._moved += len(tasks)
        return tasks

    async def adopt(self, values: Sequence[Any]) -> list[Task]:
        """New tasks that are this node's at once."""
        for value in values:
            codec.encode(value, "task")
        tasks = [Task(uuid.uuid4().hex, value) for value in values]
        self._taken.update((task.token, task) for task in tasks)
        self._moved += len(tasks)
        return tasks

    def left(self) -> list[Any]:
        """The tasks that are not done with: waiting ones, then those in hand."""
        return [task.value for task in (*self._waiting, *self._taken.values())]

    async def keep(self, tasks: Sequence[Task]) -> None:
        """There is nobody else."""

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Forget them."""
        for task in tasks:
            self._taken.pop(task.token, None)

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """Kept in `failures`."""
        for task, error in failures:
            if self._taken.pop(task.token, None) is not None:
                self.failures.append((task.value, error))

    async def release(self, tasks: Sequence[Task]) -> None:
        """Back to the front, in their order."""
        back = [self._taken.pop(task.token) for task in tasks if task.token in self._taken]
        self._waiting.extendleft(task._replace(deliveries=task.deliveries + 1) for task in reversed(back))
        self._moved += len(back)

    async def add(self, values: Sequence[Any]) -> None:
        """New tasks at the end. Raises SerializationError, with none added."""
        self._put(values)

    async def backlog(self) -> Backlog:
        """Exact."""
        return Backlog(len(self._waiting), len(self._taken), self._moved, len(self.failures))

    def give_up_waiting(self) -> None:
        """Nothing here waits."""

    async def close(self) -> None:
        """What was in hand comes first when the source is opened again."""
        await self.release(list(self._taken.values()))
