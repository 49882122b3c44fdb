"""The waiting room of items: batches for the pipelines, and the owner of the last step of whoever yielded items.

A page's request stays leased, a task stays taken and a seeding stays open until every item of it is stored or
dead-lettered.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from netspy import crash
from netspy.engine.contract import ItemFilter, ItemWriter
from netspy.engine.control import Control, Waiters, wait_for_event
from netspy.engine.env import Env
from netspy.engine.page.output import ItemRow
from netspy.engine.page.page import LastStep
from netspy.errors import PipelineError
from netspy.messages.row import DeadRow
from netspy.policy.retry import Backoff

_T = TypeVar("_T")


class ItemBuffer:
    """All methods but `flush_all` and `room` return at once; called on the loop."""

    def __init__(
        self,
        env: Env,
        control: Control,
        writer: ItemWriter,
        item_filter: ItemFilter | None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`sleep`: between two tries, when nothing can be kept, not even as dead letters."""
        self._sleep = sleep
        self._writer = writer
        self._filter = item_filter
        self._batch_size = env.settings.ITEM_BATCH_SIZE
        self._interval_s = env.settings.BUFFER_FLUSH_INTERVAL
        self._bound = env.settings.ITEM_MAX_CACHED_COUNT
        self._counters = env.counters
        self._log = env.log
        self._alert = env.alert
        self._control = control
        self._items: deque[tuple[LastStep, ItemRow]] = deque()
        self._oldest = 0.0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._writing: list[tuple[LastStep, ItemRow]] = []
        self._urgent = False
        self._idle = Waiters()
        self._task: asyncio.Task[None] | None = None
        self.stuck: str | None = None  # why nothing can be stored at all, not even as a dead letter

    def start(self) -> None:
        """Start the flushing task."""
        self._task = self._control.spawn(self._run(), "netspy-items")

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The flushing task."""
        return self._task

    @property
    def empty(self) -> bool:
        """Nothing waits and nothing is being written."""
        return not self._items and not self._writing

    def __len__(self) -> int:
        return len(self._items) + len(self._writing)

    def add(self, owner: LastStep, rows: Sequence[ItemRow]) -> None:
        """Items of a page, a task or the seeding."""
        if not self._items:
            self._oldest = time.monotonic()
            self._wake.set()
        for out in rows:
            self._items.append((owner, out))
        owner.pending += len(rows)
        if len(self._items) >= self._batch_size:
            self._wake.set()
        if len(self) >= self._bound:
            self._room.clear()

    @property
    def waiting(self) -> str | None:
        """The pipeline whose store is away, so that items wait for it; None when none is."""
        waited_for = self._writer.waited_for
        return next(iter(waited_for)) if waited_for else None

    @property
    def full(self) -> bool:
        """Whether `room` would wait."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until the buffer is below ITEM_MAX_CACHED_COUNT again."""
        await self._room.wait()

    async def flush_all(self) -> None:
        """Wait until everything in the buffer is stored or dead-lettered; not when the flushing task has broken."""
        self._urgent = True
        self._wake.set()
        if self.empty or self._task is None or self._task.done():
            return
        await self._idle.wait()

    async def _run(self) -> None:
        try:
            await self._flush()
        finally:
            self._idle.wake()  # broken or cancelled: nobody will flush any more

    async def _flush(self) -> None:
        while True:
            if not self._items:
                self._idle.wake()
                self._wake.clear()
                await self._wake.wait()
            while len(self._items) < self._batch_size and not self._urgent:
                left = self._oldest + self._interval_s - time.monotonic()
                if left <= 0:
                    break
                self._wake.clear()
                if not await wait_for_event(self._wake, left):
                    break
            take = min(self._batch_size, len(self._items))
            self._writing = [self._items.popleft() for _ in range(take)]
            self._oldest = time.monotonic()
            await self._store(self._writing)
            done, self._writing = self._writing, []
            if len(self._items) < self._bound:
                self._room.set()
            if crash.armed:
                crash.reached("before_ack")
            for owner, _ in done:
                owner.stored()
            self._control.progressed()

    async def _store(self, batch: list[tuple[LastStep, ItemRow]]) -> None:
        outs = [out for _, out in batch]
        refused = [out for out in outs if out.error]
        if refused:
            now = time.time()
            dead = [DeadRow(out.row, out.error, now, out.item) for out in refused]
            await self._insist(lambda: self._writer.refuse(dead))
            self._counters.inc("item_failed", len(dead))
            outs = [out for out in outs if not out.error]
        keep, duplicates = await self._unseen(outs)
        while keep:
            stored = await self._write(keep)
            keep, duplicates = self._wanted(duplicates, known=stored)

    async def _write(self, keep: list[ItemRow]) -> set[bytes]:
        """Store or dead-letter; returns the fingerprints of what is stored."""
        rows = [out.row for out in keep]
        if crash.armed:
            crash.reached("before_store")
        result = await self._insist(lambda: self._writer.write(rows))
        if crash.armed:
            crash.reached("after_store")
        self._counters.inc("items", result.stored)
        failed = set(result.failed_at)
        if failed:
            self._counters.inc("item_failed", result.failed)
            keep = [out for at, out in enumerate(keep) if at not in failed]
            rows = [out.row for out in keep]
        self._counters.cover(rows)
        stored = [out.fingerprint for out in keep if out.fingerprint is not None]
        await self._mark(stored)
        return set(stored)

    async def _insist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Again and again while nothing can be kept, not even as dead letters: nothing is acked meanwhile."""
        backoff = Backoff()
        while True:
            try:
                result = await call()
            except PipelineError as error:
                if self.stuck is None:
                    self._alert(
                        "items_stuck",
                        f"items can't be stored, not even as dead letters: {error}; nothing is acked",
                    )
                self.stuck = str(error)
                await self._sleep(backoff.next_s())
            else:
                self.stuck = None
                return result

    async def _unseen(self, outs: list[ItemRow]) -> tuple[list[ItemRow], list[ItemRow]]:
        """What is to be stored now, and its duplicates in this batch; without the items that were stored before."""
        asked = [out.fingerprint for out in outs if out.fingerprint is not None]
        if self._filter is None or not asked:
            return outs, []
        try:
            flags = await self._filter.seen(asked)
        except Exception as error:
            # Storing a row twice is visible and mendable, dropping it is not: without the filter, items pass.
            self._counters.inc("dedup_degraded", len(asked))
            self._log.warning("item dedup is not available, items pass unchecked: {}", error)
            flags = [False] * len(asked)
        return self._wanted(outs, known={mark for mark, seen in zip(asked, flags, strict=True) if seen})

    def _wanted(self, outs: list[ItemRow], *, known: set[bytes]) -> tuple[list[ItemRow], list[ItemRow]]:
        """Those that aren't known, each fingerprint once, and the others of it, which wait for how that one ends."""
        keep: list[ItemRow] = []
        duplicates: list[ItemRow] = []
        taken: set[bytes] = set()
        for out in outs:
            if out.fingerprint is None:
                keep.append(out)
            elif out.fingerprint in known:
                self._counters.inc("item_dedup_dropped")
            elif out.fingerprint in taken:
                duplicates.append(out)
            else:
                taken.add(out.fingerprint)
                keep.append(out)
        return keep, duplicates

    async def _mark(self, fingerprints: list[bytes]) -> None:
        if self._filter is None or not fingerprints:
            return
        try:
            await self._filter.mark(fingerprints)
        except Exception as error:
            self._counters.inc("dedup_degraded", len(fingerprints))
            self._log.warning(
                "item dedup could not be told of {} stored item(s): {}", len(fingerprints), error
            )

    async def stop(self) -> None:
        """End the flushing task. Items still here belong to pages that are not acked: they will be crawled again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
