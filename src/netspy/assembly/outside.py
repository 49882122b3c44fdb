"""A task source from outside a run: pushing to it and looking at it, in plain code, without taking part in the work."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from netspy.assembly.sources import make_source

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from netspy.settings import Settings
    from netspy.tasks.contract import Backlog

_CLOSE_S = 10.0
_LAST_S = 1.0  # for what is under way at Ctrl-C, so that it is known how it ended


class OutsideSource:
    """A source that is open while the block runs. Its loop has a thread of its own, so that a caller who waits for more
    input keeps no connection from its heartbeats, and Ctrl-C ends the wait.

        with OutsideSource(settings, "Products") as source:
            source.add([{"id": 1}])
    """

    def __init__(
        self,
        settings: Settings,
        list_name: str,
        *,
        on_outage: Callable[[bool, float], None] | None = None,
    ) -> None:
        """What TASK_SOURCE names, for the task list of that name. Raises ConfigError, MissingExtraError."""
        self._settings = settings
        self._list_name = list_name
        self._on_outage = on_outage
        self._opened = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="netspy-outside", daemon=True)
        self.source: Any = None
        self.added = 0  # values that are stored

    def __enter__(self) -> Self:
        """Connect. Raises ConfigError, StoreUnavailableError."""
        self._thread.start()
        try:
            self._call(self._open())
        except BaseException:
            self._leave()
            raise
        return self

    async def _open(self) -> None:
        # Made on its loop: sources keep events of it.
        self.source = make_source(self._settings, self._list_name, on_outage=self._tell)
        if hasattr(self.source, "consumes"):
            self.source.consumes = False  # we take no part in the work
        await self.source.open()
        self._opened = True

    def _tell(self, away: bool, seconds: float) -> None:
        if self._on_outage is not None and self._opened:  # an opening that fails says so itself
            self._on_outage(away, seconds)

    def add(self, values: Sequence[Any]) -> None:
        """Push; they are stored when this returns. Raises SerializationError with none of them pushed. After Ctrl-C
        `added` tells whether they are.
        """
        self._call(self._add(values))

    async def _add(self, values: Sequence[Any]) -> None:
        await self.source.add(values)
        self.added += len(values)

    def backlog(self) -> Backlog:
        """What the source says of itself."""
        found: Backlog = self._call(self.source.backlog())
        return found

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return call.result()
        except KeyboardInterrupt:
            with suppress(Exception):  # whatever it came to: it was given up
                call.result(_LAST_S)
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        try:
            if self.source is not None:
                asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_CLOSE_S)
        finally:
            asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result(_CLOSE_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_S)
            if not self._thread.is_alive():
                self._loop.close()

    async def _close(self) -> None:
        self.source.give_up_waiting()
        await self.source.close()


async def _end_all() -> None:
    """Cancel what a call that was given up has left running."""
    mine = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not mine]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
