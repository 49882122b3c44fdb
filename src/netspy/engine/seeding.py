"""Seeding: one node at a time draws start_requests lazily and hands the seeds over while it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from netspy import crash
from netspy.engine.callbacks import kind_of
from netspy.engine.contract import LoggerLike
from netspy.engine.item_buffer import ItemBuffer
from netspy.engine.outbox import Outbox
from netspy.engine.yields import Origin, Sorter, Yielded, as_iterator
from netspy.errors import SpiderError
from netspy.frontier.contract import Frontier, SeedLockLostError, SeedsLostError
from netspy.messages.entry import NewEntry, SeedGrant
from netspy.observe.faults import user_line, what
from netspy.raised import failure

_CHUNK = 500
_BUFFERED = 2000
_PAUSE_S = 0.05


class _Stopped(Exception):  # noqa: N818 - leaves the generator, not an error
    """The node stops, or the lock is somebody else's."""


async def _each(values: Iterator[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


class Seeder:
    """Draws the seeds of one run under the seeding lock.

    A plain generator runs in a thread of its own, so that a slow one holds nobody up: what it has yielded is handed
    over every few hundredths of a second, and it pauses while more than SPIDER_SEED_AHEAD requests are queued.
    """

    def __init__(
        self,
        spider: Any,
        *,
        name: str,
        frontier: Frontier,
        outbox: Outbox,
        items: ItemBuffer,
        sorter: Sorter,
        logger: LoggerLike,
        ahead: int,
        queued: Callable[[], int],
        renew_every_s: float,
        context: Any,
    ) -> None:
        self._spider = spider
        self._name = name
        self._frontier = frontier
        self._outbox = outbox
        self._items = items
        self._sorter = sorter
        self._log = logger
        self._ahead = ahead
        self._queued = queued
        self._renew_every_s = renew_every_s
        self._context = context
        self._stop = False
        self._drawn: deque[Yielded] = deque()
        self._size = 0
        self._condition = threading.Condition()
        self._drawing_done = False
        self._drawing = False  # a thread is in start_requests
        self._error: Exception | None = None
        self.seeds = 0  # handed over so far
        self.error: str | None = None  # why start_requests failed

    def stop(self) -> None:
        """Draw no more; what has been drawn is still handed over."""
        self._stop = True
        with self._condition:
            self._condition.notify_all()

    async def run(self, grant: SeedGrant) -> bool:
        """Seed under `grant.token`. True when start_requests came to its end.

        A raising start_requests sets the state *failed*, after everything it had yielded was handed over. A node
        that stops in the middle leaves the lock to run out: the next one draws again, under dedup. Raises
        SeedsLostError, when start_requests has come to rest: acquire the lock again and start over.
        """
        assert grant.token is not None  # noqa: S101 - the caller checked
        token = grant.token
        origin = Origin(f"{self._name}.start_requests", f"s{grant.generation}".encode())
        renewer = asyncio.create_task(self._renew(token), name="netspy-seed-lock")
        try:
            return await self._seed(origin, token)
        except SeedLockLostError:
            self._log.warning("another node took over the seeding; this one stops seeding")
            return False
        except SeedsLostError:
            await self._come_to_rest()
            raise
        finally:
            renewer.cancel()
            self.stop()

    async def _seed(self, origin: Origin, token: str) -> bool:
        if kind_of(self._spider.start_requests) != "plain":
            await self._run_async(origin, token)
        else:
            await self._run_thread(origin, token)
        stopped_early = self._stop
        self.stop()
        if self._error is not None:
            error = self._error
            if isinstance(error, SpiderError):
                self.error = str(error)
            else:
                self.error = f"start_requests ({user_line(error)}) raised {what(error)}"
            self._log.error(
                "{}: {} after {} seed(s); what was yielded is crawled", self._name, self.error, self.seeds
            )
            await self._frontier.seed_finish(token, error=self.error)
            return False
        if stopped_early:
            return False
        if not await self._frontier.seed_finish(token):
            self._log.warning("the seeding lock was taken over while the last seeds were handed over")
        return True

    async def _come_to_rest(self) -> None:
        """Wait for the thread, so that start_requests never runs twice at a time; the lock is renewed meanwhile."""
        stopped_by_node = self._stop
        self.stop()
        while self._drawing and not stopped_by_node:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(_PAUSE_S)

    async def _renew(self, token: str) -> None:
        while True:
            await asyncio.sleep(self._renew_every_s)
            if not await self._frontier.seed_renew(token):
                self.stop()
                return

    async def _hand_over(self, out: Yielded, token: str) -> None:
        if out.rows:
            self._items.add(None, out.rows)
            await self._items.room()
        entries: list[NewEntry] = out.children
        for at in range(0, len(entries), _CHUNK):
            await self._outbox.put(entries[at : at + _CHUNK], seed_token=token)
            if crash.armed:
                crash.reached("seed_put")
        self.seeds += len(entries)

    async def _pause_if_ahead(self) -> None:
        while not self._stop and self._queued() >= self._ahead:  # noqa: ASYNC110 - the number is another task's
            await asyncio.sleep(_PAUSE_S)

    async def _run_async(self, origin: Origin, token: str) -> None:
        out = Yielded()
        last = asyncio.get_running_loop().time()
        try:
            generator = self._spider.start_requests()
            if not hasattr(generator, "__aiter__"):
                generator = _each(self._seeds_of(await generator))
            else:
                origin.generator = generator
            async for value in generator:
                self._sorter.sort(out, self._as_request(value), origin)
                now = asyncio.get_running_loop().time()
                if len(out) >= _CHUNK or now - last > _PAUSE_S:
                    await self._hand_over(out, token)
                    out, last = Yielded(), now
                    await self._pause_if_ahead()
                if self._stop:
                    break
        except (SeedLockLostError, SeedsLostError):
            raise
        except BaseException as caught:
            self._error = failure(caught)
        await self._hand_over(out, token)

    def _seeds_of(self, result: Any) -> Iterator[Any]:
        iterator: Iterator[Any] | None = as_iterator(result)
        if iterator is None:
            raise SpiderError(
                f"{self._name}.start_requests returned None; yield requests from it, or return a list of them"
            )
        return iterator

    # -- plain generators ------------------------------------------------------------------------------------

    def _as_request(self, value: Any) -> Any:
        return self._spider.request_from_seed(value) if isinstance(value, str) else value

    def _draw(self, origin: Origin) -> None:
        """In the seeding thread."""
        try:
            origin.generator = iterator = self._seeds_of(self._spider.start_requests())
            for value in iterator:
                out = Yielded()
                self._sorter.sort(out, self._as_request(value), origin)
                with self._condition:
                    while self._size >= _BUFFERED and not self._stop:
                        self._condition.wait(0.5)
                    if self._stop:
                        raise _Stopped
                    self._drawn.append(out)
                    self._size += len(out)
        except _Stopped:
            pass
        except BaseException as caught:
            self._error = failure(caught)
        finally:
            self._drawing_done = True
            self._drawing = False

    async def _run_thread(self, origin: Origin, token: str) -> None:
        thread = threading.Thread(
            target=lambda: self._context.copy().run(self._draw, origin), name="netspy-seeding", daemon=True
        )
        self._drawing = True
        thread.start()
        wait_s = 0.001
        while True:
            done = self._drawing_done
            gathered = Yielded()
            with self._condition:
                while self._drawn and len(gathered) < _CHUNK:
                    out = self._drawn.popleft()
                    gathered.children.extend(out.children)
                    gathered.rows.extend(out.rows)
                    self._size -= len(out)
                self._condition.notify_all()
            if len(gathered):
                await self._hand_over(gathered, token)
                wait_s = 0.001
                await self._pause_if_ahead()
            elif done or self._stop:
                return
            else:
                # Quick at first for the seeds of a list, then easy on a generator that takes its time.
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _PAUSE_S)
