"""The workers of a node: each takes a request that may start, and works on it to its last step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from netspy.engine.machine import Machine
from netspy.errors import SpiderError, StoreLostError
from netspy.messages.entry import Lease
from netspy.raised import failure


class Workers:
    """`number` tasks. `wake` is set when there is room for more requests, and when one has ended.

    A task that somebody else cancels (user code that cancels the task it runs in) is replaced, its request given up.
    """

    def __init__(
        self, machine: Machine, number: int, *, wake: asyncio.Event, on_store_lost: Callable[[str], None]
    ) -> None:
        self._machine = machine
        self._number = number
        self._low_water = number // 2
        self._wake = wake
        self._on_store_lost = on_store_lost
        self._leaving = False
        self.active = 0
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks. They end when the shelf is drained."""
        for number in range(self._number):
            self._add(f"netspy-worker-{number}")

    def cancel(self) -> None:
        """End the tasks in the middle of their work: the node leaves, and what they hold goes back."""
        self._leaving = True
        for task in self.tasks:
            task.cancel()

    def _add(self, name: str) -> None:
        task = asyncio.create_task(self._work(), name=name)
        task.add_done_callback(self._ended)
        self.tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self._leaving:
            self.tasks.remove(task)
            self._add(task.get_name())

    async def _work(self) -> None:
        shelf, crawl = self._machine.shelf, self._machine.crawl
        while True:
            lease = await shelf.take()
            if lease is None:
                return
            self.active += 1
            if shelf.waiting <= self._low_water:
                self._wake.set()
            try:
                await crawl.handle(lease)
            except StoreLostError as error:
                self._on_store_lost(str(error))
            except BaseException as caught:
                self._broke(lease, caught)
            finally:
                self.active -= 1
                self._wake.set()

    def _broke(self, lease: Lease, caught: BaseException) -> None:
        """Not the user's code (that is caught where it is called), unless it cancelled this task.

        Given back it would come again at once and for ever; in the failed list it is seen, and can be tried again.
        """
        try:
            error = failure(caught)
        except asyncio.CancelledError:
            if not self._leaving:
                told = SpiderError("the task that worked on it was cancelled, and not by netspy")
                self._machine.failures.broke(lease, told)
            raise
        self._machine.failures.broke(lease, error)
