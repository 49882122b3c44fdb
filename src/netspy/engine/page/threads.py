"""Threads for what users write in plain `def`: one queue in, results posted back with one wake-up per burst.

The pool starts with one thread, which costs almost nothing over calling inline, and doubles when callbacks are seen
to block, i.e. when a job has been running for a while without using its processor time.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from netspy import forked
from netspy.errors import message_of
from netspy.raised import failure

_BLOCKED_AFTER_S = 0.03
_TICK_S = 0.02


def _thread_cpu_s(ident: int) -> float | None:
    """CPU seconds used by a thread of this process; None where the system can't tell."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None


def is_blocked(ran_s: float, cpu_s: float | None) -> bool:
    """Whether a job that has run for `ran_s` seconds waits for something: it used under a fifth of them.

    `cpu_s` is None where a thread's processor time can't be told; then running for a while is enough.
    """
    return ran_s >= _BLOCKED_AFTER_S and (cpu_s is None or cpu_s < 0.2 * ran_s)


class _Worker(threading.Thread):
    def __init__(self, pool: CallbackPool, number: int) -> None:
        super().__init__(name=f"netspy-callback-{number}", daemon=True)
        self.pool = pool
        self.since: float | None = None  # when the current job began; None when idle
        self.cpu_at_start = 0.0
        self.job: asyncio.Future[Any] | None = None
        self.abandoned = False

    def run(self) -> None:
        self.pool.context.copy().run(self._loop)

    def _loop(self) -> None:
        pool = self.pool
        take = pool.jobs.get
        done = pool.done
        while True:
            job = take()
            if job is None:
                return
            future, function = job
            if future.cancelled():
                continue
            self.job = future
            self.cpu_at_start = time.thread_time()
            self.since = time.monotonic()
            result: Any = None
            error: Exception | None = None
            try:
                result = function()
            except BaseException as caught:
                error = failure(caught)
            forked.leave()
            self.since = self.job = None
            done.append((future, result, error))
            if not pool.posted:
                pool.posted = True
                try:
                    pool.loop.call_soon_threadsafe(pool.deliver)
                except RuntimeError:  # the loop is closed: the process is on its way out
                    return
            del job, future, function, result, error  # hold nothing while waiting
            if self.abandoned:
                return


class CallbackPool:
    """Runs functions on worker threads; results come back on the loop that made the pool."""

    def __init__(self, *, maximum: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.context: Context = copy_context()
        self.jobs: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self.done: deque[tuple[asyncio.Future[Any], Any, Exception | None]] = deque()
        self.posted = False
        self._maximum = max(maximum, 1)
        self._workers: list[_Worker] = []
        self._made = 0
        self._waiting = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._closed = False
        self._add(1)

    @property
    def size(self) -> int:
        """How many threads there are."""
        return len(self._workers)

    @property
    def busy(self) -> int:
        """Jobs handed in and not delivered yet."""
        return self._waiting

    def _add(self, n: int) -> None:
        for _ in range(n):
            worker = _Worker(self, self._made)
            self._made += 1
            self._workers.append(worker)
            worker.start()

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` on a thread; the future gives its result or its `failure`."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self._waiting += 1
        self.jobs.put((future, function))
        if self._ticker is None and len(self._workers) < self._maximum and not self._closed:
            self._ticker = self.loop.call_later(_TICK_S, self._grow)
        return future

    def runs(self, future: asyncio.Future[Any]) -> bool:
        """Whether a thread is at work on this job; False while it waits for one."""
        return any(worker.job is future for worker in self._workers)

    def abandon(self, future: asyncio.Future[Any], error: Exception) -> None:
        """Wait no longer for a running job: `error` is its result, and another thread takes its thread's place."""
        if not future.done():
            future.set_exception(error)
        for worker in self._workers:
            if worker.job is future:
                worker.abandoned = True
                self._workers.remove(worker)
                self._add(1)
                return

    def deliver(self) -> None:
        """Give back what the threads have finished (on the loop)."""
        self.posted = False
        done = self.done
        while done:
            future, result, error = done.popleft()
            self._waiting -= 1
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):
                future.set_exception(RuntimeError(f"StopIteration left a callback: {message_of(error)}"))
            else:
                future.set_exception(error)

    def _grow(self) -> None:
        """Double the threads when all of them are blocked and jobs wait."""
        self._ticker = None
        if self._closed or not self._waiting:
            return
        size = len(self._workers)
        queued = self.jobs.qsize()
        if queued and size < self._maximum:
            now = time.monotonic()
            if all(self._blocked(worker, now) for worker in self._workers):
                self._add(min(size, queued, self._maximum - size))
        if len(self._workers) < self._maximum:
            self._ticker = self.loop.call_later(_TICK_S, self._grow)

    @staticmethod
    def _blocked(worker: _Worker, now: float) -> bool:
        since = worker.since
        if since is None or worker.ident is None:
            return False
        cpu = _thread_cpu_s(worker.ident)
        return is_blocked(now - since, None if cpu is None else cpu - worker.cpu_at_start)

    def close(self) -> None:
        """Let the threads end when their jobs do; a thread that hangs is a daemon and dies with the process."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for _ in self._workers:
            self.jobs.put(None)
