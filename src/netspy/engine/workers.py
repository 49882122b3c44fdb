"""The workers of a node: each takes a request that may start, and works on it to its last step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from netspy.engine.components import Machine
from netspy.errors import StoreLostError


class Workers:
    """`number` tasks. `wake` is set when there is room for more requests, and when one has ended."""

    def __init__(
        self, machine: Machine, number: int, *, wake: asyncio.Event, on_store_lost: Callable[[str], None]
    ) -> None:
        self._machine = machine
        self._number = number
        self._low_water = number // 2
        self._wake = wake
        self._on_store_lost = on_store_lost
        self.active = 0
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks. They end when the shelf is drained."""
        self.tasks += [
            asyncio.create_task(self._work(), name=f"netspy-worker-{n}") for n in range(self._number)
        ]

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
            except asyncio.CancelledError:
                raise
            except StoreLostError as error:
                self._on_store_lost(str(error))
            except Exception as error:
                # Not the user's code (that is caught where it is called). Given back it would come again at once
                # and for ever; in the failed list it is seen, and can be tried again.
                self._machine.failures.broke(lease, error)
            finally:
                self.active -= 1
                self._wake.set()
