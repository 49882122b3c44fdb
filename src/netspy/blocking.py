"""Blocking calls beside an event loop, in daemon threads: a call that never returns keeps no process from ending."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from netspy import forked
from netspy.raised import failure


def _job(call: Callable[[], Any]) -> tuple[asyncio.Future[Any], Callable[[], None]]:
    """A future of the running loop, and what a thread is to run so that it gets the call's result or exception."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def job() -> None:
        result: Any = None
        failed: Exception | None = None
        try:
            result = call()
        except StopIteration as error:  # a future can't hold it
            failed = RuntimeError(f"StopIteration out of {call!r}: {error}")
        except BaseException as error:
            failed = failure(error)
        forked.leave()
        with suppress(RuntimeError):  # the loop has ended; nobody waits
            loop.call_soon_threadsafe(settle, result, failed)

    return future, job


SLOW_S = 10.0


async def in_thread(call: Callable[[], Any], *, slow: Callable[[], None] | None = None) -> Any:
    """Its result or its exception, from a thread of its own, in this task's context.

    `slow` is called on the loop, once, when it takes longer than ten seconds.
    """
    context = copy_context()
    future, job = _job(lambda: context.run(call))
    threading.Thread(target=job, name="netspy-blocking", daemon=True).start()
    timer = asyncio.get_running_loop().call_later(SLOW_S, slow) if slow is not None else None
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


class SerialThread:
    """One thread that makes calls in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False

    def submit(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run `call(*args)` in the thread; to be called on the event loop, where the future lives."""
        future, job = _job(lambda: call(*args))
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._jobs.put(job)
        return future

    def close(self) -> None:
        """End the thread once its calls are done; doesn't wait."""
        if self._started:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # else the thread would hold the last batch until the next one


class Threads:
    """A few threads for calls that don't depend on each other."""

    def __init__(self, name: str, number: int) -> None:
        self._threads = [SerialThread(f"{name}-{n}") for n in range(number)]
        self._busy = [0] * number

    async def call(self, call: Callable[..., Any], *args: Any) -> Any:
        """`call(*args)`, in the thread that has the fewest calls."""
        chosen = self._busy.index(min(self._busy))
        self._busy[chosen] += 1
        future = self._threads[chosen].submit(call, *args)
        future.add_done_callback(lambda _: self._done(chosen))
        return await future

    def _done(self, chosen: int) -> None:
        self._busy[chosen] -= 1

    def close(self) -> None:
        """End the threads once their calls are done; doesn't wait."""
        for thread in self._threads:
            thread.close()
