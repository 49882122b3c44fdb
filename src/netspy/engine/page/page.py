"""One request at work: its lease, what became of it so far, and the last step once its items are stored; and the same
last step of what yields items without being a request: the seeding, a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from netspy.engine.page.actions import Action
from netspy.engine.page.effects import Effects
from netspy.engine.page.output import YieldSite
from netspy.messages.entry import Lease
from netspy.messages.request import Request
from netspy.messages.response import Response


class LastStep:
    """Who yields items, and must not be over before they are stored.

    `pending` counts items not stored yet. `finish` names the last step (ack, another try, give up): it is taken at
    once when nothing is pending, else when the item buffer says that the last item is stored. `actions` are what the
    user's code asked for besides: `effects` carries them out before the last step.
    """

    __slots__ = ("actions", "effects", "final", "pending")

    def __init__(self, effects: Effects | None = None) -> None:
        self.pending = 0
        self.final: Callable[[], None] | None = None
        self.actions: list[Action] = []
        self.effects = effects

    def finish(self, final: Callable[[], None]) -> None:
        """Take the last step, now or when the last item is stored."""
        if self.pending:
            self.final = final
        else:
            self._end(final)

    def _end(self, final: Callable[[], None]) -> None:
        if self.actions and self.effects is not None:
            actions, self.actions = self.actions, []
            self.effects.do(actions, final)
        else:
            final()

    def stored(self) -> None:
        """One of its items is stored or dead-lettered."""
        self.pending -= 1
        if not self.pending and self.final is not None:
            final, self.final = self.final, None
            self._end(final)

    async def ended(self) -> None:
        """Wait until its items are stored and its actions carried out."""
        over = asyncio.Event()
        self.finish(over.set)
        await over.wait()


class TaskAtWork(LastStep):
    """A task while `task_requests` draws it. `reported`: it has said what became of the task, named `task`."""

    __slots__ = ("reported", "task")

    def __init__(self, task: str, effects: Effects | None) -> None:
        super().__init__(effects)
        self.task = task
        self.reported = False


class Page(LastStep):
    """A claimed request from its start to its last step."""

    __slots__ = (
        "function", "history", "iterator", "job", "lease", "origin", "put_early", "reported", "request", "response",
        "started", "timed_out", "worker",
    )  # fmt: skip

    def __init__(self, lease: Lease, request: Request, origin: YieldSite, started: float) -> None:
        super().__init__()
        self.lease = lease
        self.request = request
        self.origin = origin
        self.started = started
        self.response: Response | None = None
        self.function: Callable[..., Any] | None = None
        self.iterator: Any = None
        self.history: str | None = None
        self.put_early = False
        self.job: asyncio.Future[Any] | None = None
        self.worker: asyncio.Task[None] | None = None  # the task that works on it
        self.timed_out = False
        self.reported = False  # the callback has said what became of its task

    @property
    def task(self) -> str:
        """The task that it belongs to; '' for none."""
        return self.origin.task

    def served(self) -> None:
        """The callback has ended well: drop the tree on the thread that has built it, which parses the next page into its memory.

        Not when the page's time is over: what is told of that has the response.
        """
        self.iterator = self.origin.generator = None
        if not self.timed_out:
            self.response = None

    def let_go(self) -> None:
        """Drop what only the callback needed: a page may wait long for its items, its body and tree need not."""
        self.response = None
        self.iterator = None
        self.function = None
        self.job = None
        self.origin.generator = None
