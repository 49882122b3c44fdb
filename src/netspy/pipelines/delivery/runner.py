"""One pipeline as the writer drives it: opened late, told of its tables, never called twice at a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, NamedTuple

from netspy.blocking import SerialThread
from netspy.errors import PipelineError, message_of
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnavailableError, store_away
from netspy.policy.retry import Backoff
from netspy.raised import awaited, failure


class Group(NamedTuple):
    """Rows of one table that go to a pipeline in one call; `indexes` are their places in the batch.

    `prepared` is set when the rows are to be prepared, not stored: what they become goes there, by place.
    """

    table: str
    update_keys: tuple[str, ...] | None
    unique_key: tuple[str, ...]
    indexes: list[int]
    items: list[dict[str, Any]]
    prepared: dict[int, dict[str, Any] | Exception] | None = None

    def halves(self) -> list[Group]:
        """The second half of the rows and the first, as a stack takes them."""
        half = len(self.items) // 2
        return [
            self._replace(indexes=self.indexes[half:], items=self.items[half:]),
            self._replace(indexes=self.indexes[:half], items=self.items[:half]),
        ]

    def only(self, places: set[int]) -> Group:
        """Those of the rows that stand at these places of the batch."""
        kept = [at for at, place in enumerate(self.indexes) if place in places]
        return self._replace(indexes=[self.indexes[at] for at in kept], items=[self.items[at] for at in kept])


class Runner:
    """Calls one pipeline.

    `label` is its name for people; `lock` is held by whoever is writing to it. The writer's notes: `down` = nothing
    could be stored, which was told; `away_since` = when (time.monotonic) the outage began that is waited for, with
    `pauses` that grow; `gave_up` = it was waited for long enough.
    """

    def __init__(self, name: str, pipeline: BasePipeline) -> None:
        self.name = name
        self.pipeline = pipeline
        self.label = name.rpartition(".")[2]
        self.lock = asyncio.Lock()
        self.down = False
        self.away_since: float | None = None
        self.pauses = Backoff()
        self.gave_up = False
        self._opened = False
        self._described: dict[str, tuple[str, ...]] = {}
        self._thread = SerialThread(f"netspy-{self.label}")
        self._running: asyncio.Future[Any] | None = None
        self._since = 0.0

    async def deliver(self, group: Group) -> None:
        """Store the group. Raises what the pipeline raises, or UnavailableError when no row is at fault."""
        await self._prepare(group)
        if group.prepared is not None:
            await self._complete(group, group.prepared)
            return
        if group.update_keys is None:
            method, result = "save_items", await self._call("save_items", group.table, group.items)
        else:
            method = "update_items"
            if not hasattr(self.pipeline, method):
                raise NotImplementedError(f"{self.name} can't take UpdateItem: it has no update_items")
            result = await self._call(method, group.table, group.items, group.update_keys)
        if result is False:
            raise PipelineError(f"{method} returned False")

    @property
    def prepares(self) -> bool:
        """Whether the pipeline completes rows before they are stored."""
        found = getattr(type(self.pipeline), "prepare_items", None)
        return found is not None and found is not BasePipeline.prepare_items

    async def _complete(self, group: Group, into: dict[int, dict[str, Any] | Exception]) -> None:
        made = await self._call("prepare_items", group.table, group.items)
        if not isinstance(made, list | tuple) or len(made) != len(group.items):
            raise PipelineError(
                f"prepare_items must return a list with a row, or an exception, for each of the "
                f"{len(group.items)} rows that it was given; it returned {made!r:.100}"
            )
        into.update(zip(group.indexes, made, strict=True))

    async def _prepare(self, group: Group) -> None:
        try:
            if not self._opened:
                await self._call("open")
                self._opened = True
            known = self._described.get(group.table)
            if known is None or (group.unique_key and group.unique_key != known):
                await self._call("describe", group.table, group.unique_key)
                self._described[group.table] = group.unique_key
        except UnavailableError:
            raise
        except Exception as error:
            step = "open" if not self._opened else "describe"
            raise UnavailableError(f"{step}() failed: {type(error).__name__}: {message_of(error)}") from error

    def away(self, error: Exception) -> bool:
        """Whether the error says that the store is away: by the pipeline's own word (`is_away`), or the usual signs."""
        own = getattr(self.pipeline, "is_away", None)
        said = None
        if own is not None:
            try:
                said = own(error)
            except BaseException as caught:  # no answer: the store's own error is what is told
                failure(caught)
        return store_away(error) if said is None else bool(said)

    async def close(self) -> None:
        """Close the pipeline when it was opened, and end its thread. Raises what the pipeline raises."""
        try:
            if not self._opened and self._running is None and getattr(self.pipeline, "recovers", False):
                await self._call("open")
                self._opened = True
            if self._opened:
                self._opened = False
                await self._call("close")
        finally:
            self._thread.close()

    async def _call(self, method: str, *args: Any) -> Any:
        call = getattr(self.pipeline, method, None)
        if call is None:
            return None
        if self._running is not None and not self._running.done():
            raise UnavailableError(
                f"still busy with a call of {time.monotonic() - self._since:.0f} s ago, which was given up"
            )
        self._since = time.monotonic()
        if inspect.iscoroutinefunction(call):
            return await self._watch(asyncio.ensure_future(awaited(call(*args))), cancel=True)
        result = await self._watch(self._thread.submit(call, *args), cancel=False)
        if inspect.isawaitable(result):
            return await self._watch(asyncio.ensure_future(awaited(result)), cancel=True)
        return result

    async def _watch(self, future: asyncio.Future[Any], *, cancel: bool) -> Any:
        """The result. When we are cancelled (timed out), the call is remembered until it really ends."""
        self._running = future
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if cancel:
                future.cancel()
            future.add_done_callback(_retrieve)
            raise


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
