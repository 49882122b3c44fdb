"""The consumer side of items that travel through a queue: read in bulk, cleaned, stored, and only then acknowledged.

    take ─▶ rows ─▶ clean ─▶ pipelines or dead letters ─▶ settled
             └─▶ what is no row goes to the source's failed list

A consumer that is killed has acknowledged nothing that isn't stored: its messages come again, to another or the next
one. So delivery is at least once, and rows with a unique key are stored once.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from netspy import crash
from netspy.blocking import SerialThread
from netspy.errors import ItemError, PipelineError, StoreLostError, message_of
from netspy.messages.envelope import row_of
from netspy.messages.row import DeadRow, Row
from netspy.policy.retry import Backoff
from netspy.raised import failure

if TYPE_CHECKING:
    from netspy.engine.contract import DeadLettersLike, ItemWriter
    from netspy.engine.env import Env
    from netspy.tasks.contract import Backlog, Task, TaskSource

T = TypeVar("T")
Clean = Callable[[Row], Any]

_IDLE_FIRST_S, _IDLE_MOST_S = 0.05, 1.0
_ANSWER_S = 0.5  # for the queue to hear what became of the last batch, and for its goodbye
_EMPTY_LOOKS = 2  # in a row, so that nothing which is on its way is taken for nothing


class Sorted(NamedTuple):
    """What became of the rows of a batch before storing: to store, dead by `clean`, left out by `clean`."""

    rows: list[Row]
    bad: list[DeadRow]
    dropped: int


class Consumer:
    """One source, one writer, one loop. `letters` is where the writer dead-letters."""

    def __init__(
        self,
        env: Env,
        source: TaskSource,
        writer: ItemWriter,
        letters: DeadLettersLike,
        *,
        table: str,
        clean: Clean | None = None,
        once: bool = False,
    ) -> None:
        """`table` is that of rows which name none. `once`: end when nothing is left."""
        self._clock = env.clock
        self._settings = env.settings
        self._counters = env.counters
        self._log = env.log
        self._source = source
        self._writer = writer
        self._letters = letters
        self._table = table
        self._clean = clean
        self._once = once
        self._stop = asyncio.Event()
        self._over_at = float("inf")  # once told to stop
        self._said = self._clock()
        self._cleaning = SerialThread("netspy-clean")
        self._unreadable = 0  # that the source has told of by now
        self._stuck = False
        self.opened = False
        """The source has answered."""

    def stop(self) -> None:
        """Finish the batch that is being written, within SPIDER_STOP_TIMEOUT, and leave. A batch that takes longer is
        given back: the queue keeps rows better than this machine's dead letters do.
        """
        if not self._stop.is_set():
            self._over_at = self._clock() + self._settings.SPIDER_STOP_TIMEOUT
        self._stop.set()
        self._source.give_up_waiting()

    def _left_s(self) -> float | None:
        """For the goodbye; None when nobody waits for the end."""
        return max(self._over_at - self._clock(), _ANSWER_S) if self._stop.is_set() else None

    async def run(self) -> None:
        """Until it is stopped, or with `once` nothing is left. Raises ConfigError, StoreLostError."""
        working = asyncio.create_task(self._consume())
        stopping = asyncio.create_task(self._time_is_over(_ANSWER_S))
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            else:
                self._log.warning("the queue did not answer in time; what was in hand is delivered again")
        except StoreLostError as error:
            if not self._stop.is_set():
                raise
            self._log.warning("{}; what was in hand is delivered again", error)
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
            self._cleaning.close()
            await self._writer.close()
            with suppress(TimeoutError):  # a silent queue needs no goodbye
                async with asyncio.timeout(self._left_s()):
                    await self._source.close()

    async def _consume(self) -> None:
        await self._source.open()
        self.opened = True
        idle, empty = Backoff(_IDLE_FIRST_S, _IDLE_MOST_S), 0
        while not self._stop.is_set():
            tasks = await self._source.take(self._settings.ITEM_BATCH_SIZE)
            self._count_unreadable()
            if tasks:
                idle.reset()
                empty = 0
                await self._handle(tasks)
                await self._progress()
                continue
            if self._once:
                backlog = await self._source.backlog()
                empty = 0 if backlog.waiting or backlog.taken else empty + 1
                if empty >= _EMPTY_LOOKS:
                    return
            await self._progress()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), idle.next_s())

    def _count_unreadable(self) -> None:
        """Messages that the source itself could not read, and moved to its failed list."""
        told: int = getattr(self._source, "unreadable", 0)
        new, self._unreadable = told - self._unreadable, told
        if new:
            self._counters.inc_user("unreadable", new)
            self._log.warning(
                "{} message(s) can't be read and are in the source's failed list, with the reason", new
            )

    async def _handle(self, tasks: Sequence[Task]) -> None:
        """Everything in `tasks` is stored, dead-lettered, dropped or failed when this returns, or given back."""
        readable: list[Task] = []
        rows: list[Row] = []
        unreadable: list[tuple[Task, str]] = []
        for task in tasks:
            try:
                rows.append(row_of(task.value, self._table))
            except ItemError as error:
                unreadable.append((task, str(error)))
            else:
                readable.append(task)
        if unreadable:
            self._counters.inc_user("unreadable", len(unreadable))
            self._log.warning(
                "{} message(s) are no rows and go to the source's failed list: {}",
                len(unreadable),
                unreadable[0][1],
            )
            await self._source.failed(unreadable)
        keeping = asyncio.create_task(self._keep(readable))
        try:
            cleaned = await self._in_time(self._cleaned(rows), len(rows))
            stored = cleaned is not None and await self._store(cleaned)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        if crash.armed:
            crash.reached("before_ack")
        if stored:
            await self._source.settled(readable)
        else:
            await self._source.release(readable)

    async def _keep(self, tasks: Sequence[Task]) -> None:
        while True:
            await asyncio.sleep(self._settings.HEARTBEAT_INTERVAL)
            await self._source.keep(tasks)

    # cleaning

    async def _cleaned(self, rows: list[Row]) -> Sorted:
        if self._clean is None:
            return Sorted(rows, [], 0)
        if inspect.iscoroutinefunction(self._clean):
            results = [await _awaited(self._clean, row) for row in rows]
        else:
            # Not one of the loop's own threads: a call that never returns must not keep the process from leaving.
            results = await self._cleaning.submit(_each, self._clean, rows)
        kept, bad, dropped = [], [], 0
        for row, result in zip(rows, results, strict=True):
            if result is None:
                dropped += 1
            elif isinstance(result, Row):
                kept.append(result)
            elif isinstance(result, dict):
                kept.append(row._replace(data=result))
            else:
                why = (
                    result
                    if isinstance(result, Exception)
                    else ItemError(f"it must return a row, a dict or None, not {type(result).__name__}")
                )
                bad.append(DeadRow(row, f"clean(): {type(why).__name__}: {message_of(why)}", time.time()))
        if dropped:
            self._counters.inc_user("dropped_by_clean", dropped)
        return Sorted(kept, bad, dropped)

    # storing

    async def _store(self, batch: Sorted) -> bool:
        """False when the rows were not stored before the stop, nor dead-lettered."""
        backoff = Backoff()
        bad = batch.bad
        while True:
            try:
                if bad:
                    await asyncio.to_thread(self._letters.append, bad)
                    self._counters.inc("item_failed", len(bad))
                    self._log.warning("{} row(s) are dead-lettered: {}", len(bad), bad[0].error)
                    bad = []
                if batch.rows:
                    result = await self._in_time(self._writer.write(batch.rows), len(batch.rows))
                    if result is None:
                        return False
                    self._counters.inc("items", result.stored)
                    self._counters.inc("item_failed", result.failed)
            except (PipelineError, OSError) as error:
                if not self._stuck:
                    self._stuck = True
                    self._log.error(
                        "rows can be neither stored nor dead-lettered: {}; nothing is acknowledged", error
                    )
                if self._stop.is_set():
                    return False
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), backoff.next_s())
            else:
                self._stuck = False
                return True

    async def _in_time(self, work: Coroutine[Any, Any, T], rows: int) -> T | None:
        """What `work` on so many rows gives; None when the time to stop was over before."""
        writing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._time_is_over())
        both: set[asyncio.Future[Any]] = {writing, stopping}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                return writing.result()
            self._log.warning("{} row(s) could not be stored in time and stay in the queue", rows)
            return None
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _time_is_over(self, more_s: float = 0.0) -> None:
        await self._stop.wait()
        await asyncio.sleep(self._settings.SPIDER_STOP_TIMEOUT + more_s)

    async def _progress(self) -> None:
        every_s = self._settings.METRICS_LOG_INTERVAL
        if not every_s or self._clock() - self._said < every_s:
            return
        self._said = self._clock()
        left: Backlog = await self._source.backlog()
        counts = self._counters.own()
        self._log.info(
            "{:,} row(s) stored, {:,} dead-lettered, {} waiting",
            counts["items"],
            counts["item_failed"],
            "an unknown number" if left.waiting is None else f"{left.waiting:,}",
        )


def _each(clean: Clean, rows: Sequence[Row]) -> list[Any]:
    results: list[Any] = []
    for row in rows:
        try:
            results.append(clean(row))
        except BaseException as caught:
            results.append(failure(caught))
    return results


async def _awaited(clean: Callable[[Row], Awaitable[Any]], row: Row) -> Any:
    try:
        return await clean(row)
    except BaseException as caught:
        return failure(caught)
