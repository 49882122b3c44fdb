"""One request at work: its lease, what became of it so far, and the last step once its items are stored."""

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


class Page:
    """A claimed request from its start to its last step.

    `pending` counts items not stored yet. `finish` names the last step (ack, another try, give up): it is taken at
    once when nothing is pending, else when the item buffer says that the last item is stored. `actions` are what the
    callback asked for besides: `effects` carries them out before the last step.
    """

    __slots__ = (
        "actions", "effects", "final", "function", "history", "iterator", "job", "lease", "origin", "pending", "put_early",
        "reported", "request", "response", "started", "timed_out", "worker",
    )  # fmt: skip

    def __init__(self, lease: Lease, request: Request, origin: YieldSite, started: float) -> None:
        self.lease = lease
        self.request = request
        self.origin = origin
        self.started = started
        self.response: Response | None = None
        self.function: Callable[..., Any] | None = None
        self.iterator: Any = None
        self.history: str | None = None
        self.put_early = False
        self.pending = 0
        self.final: Callable[[], None] | None = None
        self.job: asyncio.Future[Any] | None = None
        self.worker: asyncio.Task[None] | None = None  # the task that works on it
        self.timed_out = False
        self.actions: list[Action] = []
        self.effects: Effects | None = None
        self.reported = False  # the callback has said what became of its task

    @property
    def task(self) -> str:
        """The task that it belongs to; '' for none."""
        return self.origin.task

    def let_go(self) -> None:
        """Drop what only the callback needed: a page may wait long for its items, its body and tree need not."""
        self.response = None
        self.iterator = None
        self.function = None
        self.job = None
        self.origin.generator = None

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
        """One item of this page is stored or dead-lettered."""
        self.pending -= 1
        if not self.pending and self.final is not None:
            final, self.final = self.final, None
            self._end(final)
