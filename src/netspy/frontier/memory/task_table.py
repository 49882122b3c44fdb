"""What is left of each task, for the frontier in memory; the scripts' side is `lua/tasks.lua`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netspy.messages.entry import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspy.messages.entry import NewEntry, TaskMark


class _Open:
    __slots__ = ("closing", "failed", "fed", "left", "only_failed")

    def __init__(self) -> None:
        self.left = 0
        self.failed = 0
        self.fed = True
        self.closing: NewEntry | None = None
        self.only_failed = False


class TaskTable:
    """Counts the requests of each task. Entries are named by their sequence numbers."""

    def __init__(self) -> None:
        self._task_of: dict[int, str] = {}
        self._open: dict[str, _Open] = {}
        self._touched: set[str] = set()
        self.done = 0
        self.failed = 0

    def __len__(self) -> int:
        return len(self._open)

    def state(self, task: str) -> TaskState:
        """What is left of a task."""
        known = self._open.get(task)
        return TaskState.ENDED if known is None else TaskState.OPEN if known.fed else TaskState.FEEDING

    def of(self, seq: int) -> str:
        """The task of an entry, ''  when it has none."""
        return self._task_of.get(seq, "")

    def arrived(self, seq: int, task: str) -> None:
        """A new entry of this task; one whose task begins with `!` counts for none."""
        self._task_of[seq] = task
        if task[0] == "!":
            return
        self._open.setdefault(task, _Open()).left += 1

    def mark(self, marks: Sequence[TaskMark]) -> None:
        """What a put says of its tasks."""
        for mark in marks:
            known = self._open.setdefault(mark.task, _Open())
            known.fed = mark.fed
            self._touched.add(mark.task)
            if mark.closing is not None:
                known.closing, known.only_failed = mark.closing, mark.only_failed

    def ended(self, seq: int, *, failed: bool = False) -> None:
        """An entry is done, or failed for good."""
        if self._task_of and (task := self._task_of.pop(seq, None)) is not None:
            known = self._open.get(task)
            if known is not None:
                known.left -= 1
                known.failed += failed
                if known.left <= 0:
                    self._touched.add(task)

    def closed(self) -> list[tuple[NewEntry, int]]:
        """Close tasks that have nothing left: (closing request, number of failures) for those that want to be told."""
        told: list[tuple[NewEntry, int]] = []
        touched, self._touched = self._touched, set()
        for task in touched:
            known = self._open[task]
            if known.left > 0 or not known.fed:
                continue
            del self._open[task]
            if known.failed:
                self.failed += 1
            else:
                self.done += 1
            if known.closing is not None and (known.failed or not known.only_failed):
                told.append((known.closing, known.failed))
        return told
