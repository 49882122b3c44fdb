"""The user's code, run for one page: the callback, `validate`, hooks; and what they yield, handed over as it comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from netspy import crash, forked
from netspy.engine.env import Env
from netspy.engine.leases.outbox import Outbox
from netspy.engine.page.actions import current
from netspy.engine.page.callbacks import Callbacks, Hooks
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.output import CallbackOutput, OutputCollector, YieldSite, as_iterator, draw, is_async
from netspy.engine.page.page import Page
from netspy.engine.page.threads import CallbackPool
from netspy.observe.faults import describe_error, user_line
from netspy.raised import apart, awaited, failure


class UserCode:
    """Plain functions run on worker threads, `async def` on the loop. Its methods are called on the loop."""

    def __init__(
        self,
        env: Env,
        pool: CallbackPool,
        callbacks: Callbacks,
        hooks: Hooks,
        collector: OutputCollector,
        outbox: Outbox,
        items: ItemBuffer,
    ) -> None:
        self._name = env.name
        self._chunk = env.settings.CALLBACK_CHUNK  # after so many values a callback's yields are handed over
        self.pool = pool
        self.callbacks = callbacks
        self.hooks = hooks
        self._collector = collector
        self._outbox = outbox
        self._items = items
        self._counters = env.counters
        self._throttled = env.throttled
        self._clock = env.clock

    # -- callbacks -------------------------------------------------------------------------------------------

    async def run_plain(self, page: Page) -> CallbackOutput:
        """The callback on worker threads: the last values it yielded, and how it ended; others are handed over.

        Raises CallbackTimeoutError when it was waited for no longer.
        """
        out: CallbackOutput = CallbackOutput()
        if self.hooks.validate_awaited is not None and not await self._validated(page, out):
            return out
        page.job = self.pool.call(lambda: self._draw_first(page))
        while True:
            out = await page.job
            if out.later is not None:
                await apart(self._drain(page, out, out.later))
                return out
            if out.verdict is False or out.error is not None or not out.more:
                return out
            await self.hand_over(page, out)
            page.job = self.pool.call(lambda: self._draw(page))

    async def run_async(self, page: Page) -> CallbackOutput:
        """The callback on the loop: the last values it yielded, and how it ended; others are handed over."""
        out = CallbackOutput()
        assert page.function is not None  # noqa: S101 - set when the page's work began
        if await self._validated(page, out):
            try:
                result = page.function(page.request, page.response, **(page.request.cb_kwargs or {}))
            except BaseException as caught:
                out.error = failure(caught)
            else:
                await self._drain(page, out, result)
        return out

    def _draw_first(self, page: Page) -> CallbackOutput:
        """On a worker thread: validate, call, draw the first values."""
        out = CallbackOutput()
        current.set(page)
        try:
            if self.hooks.validate is not None and page.response is not None:
                out.verdict = self.hooks.validate(page.request, page.response)
                if out.verdict is False:
                    return out
            assert page.function is not None  # noqa: S101 - set when the page's work began
            result = page.function(page.request, page.response, **(page.request.cb_kwargs or {}))
            if is_async(result):
                out.later = result
                return out
            page.iterator = as_iterator(result)
            del result
        except BaseException as caught:
            out.error = failure(caught)
            return out
        if page.iterator is not None:
            return self._draw(page, out)
        page.served()
        return out

    def _draw(self, page: Page, out: CallbackOutput | None = None) -> CallbackOutput:
        """On a worker thread: draw up to a chunk of values."""
        if out is None:
            out = CallbackOutput()
        origin = page.origin
        origin.generator = page.iterator
        current.set(page)
        take = self._collector.take
        try:
            out.more = draw(page.iterator, lambda value: take(out, value, origin), out.size, self._chunk)
        except BaseException as caught:
            out.error = failure(caught)
        else:
            if not out.more:
                page.served()
        return out

    async def _drain(self, page: Page, out: CallbackOutput, result: Any) -> None:
        """On the loop: gather what an awaitable returns or an async generator yields."""
        origin = page.origin
        try:
            if hasattr(result, "__aiter__"):
                origin.generator = result
                async for value in result:
                    self._collector.take(out, value, origin)
                    if out.size() >= self._chunk:
                        await self.hand_over(page, out)
                        out.children, out.rows, out.heavy = [], [], 0
            else:
                for one in as_iterator(await result) or ():
                    self._collector.take(out, one, origin)
        except BaseException as caught:
            out.error = failure(caught)
        forked.leave()

    # -- hooks -----------------------------------------------------------------------------------------------

    async def _validated(self, page: Page, out: CallbackOutput) -> bool:
        """Ask `validate` from the loop; False when the callback is not to run (`out` tells why)."""
        validate = self.hooks.validate or self.hooks.validate_awaited
        if validate is None or page.response is None:
            return True
        try:
            if self.callbacks.kind(validate) == "coroutine":
                out.verdict = await apart(awaited(validate(page.request, page.response)))
            else:
                out.verdict = await self.pool.call(lambda: validate(page.request, page.response))
        except BaseException as caught:
            out.error = failure(caught)
            return False
        forked.leave()
        return out.verdict is not False

    async def run_hook(self, page: Page, name: str, function: Callable[..., Any], *args: Any) -> None:
        """A hook that may yield like a callback; its own error is reported and costs only itself."""
        origin = YieldSite(
            f"{self._name}.{getattr(function, '__name__', name)}",
            b"h%d.%s.%d" % (page.lease.seq, name.encode(), page.request.retry_times),
            page.request.url,
            task=page.origin.task,
            salt=page.origin.salt,
        )
        out = CallbackOutput()

        def plain() -> Any:
            current.set(page)
            result = function(*args)
            if is_async(result):
                return result
            origin.generator = iterator = as_iterator(result)
            for value in iterator or ():
                self._collector.take(out, value, origin)
            return None

        try:
            kind = self.callbacks.kind(function)
            later = await self.pool.call(plain) if kind == "plain" else function(*args)
            if later is not None:
                await apart(self._gather(out, origin, later))
        except BaseException as caught:
            error = failure(caught)
            self._counters.inc("callback_error")
            place = f"{origin.label} ({user_line(error)})"
            self._throttled.error(place, f"{place} raised {describe_error(error)}")
        forked.leave()
        await self.hand_over(page, out)

    async def _gather(self, out: CallbackOutput, origin: YieldSite, later: Any) -> None:
        try:
            if hasattr(later, "__aiter__"):
                async for value in later:
                    self._collector.take(out, value, origin)
            else:
                for value in as_iterator(await later) or ():
                    self._collector.take(out, value, origin)
        except BaseException as caught:
            raise failure(caught) from caught

    # -- what was yielded ------------------------------------------------------------------------------------

    async def hand_over(self, page: Page, out: CallbackOutput) -> None:
        """What was yielded so far: items to the buffer, children to the store, before the parent's ack."""
        if out.rows:
            self._items.add(page, out.rows)
        if out.children:
            page.put_early = True
            if crash.armed:
                crash.reached("after_callback")
            history = await self._outbox.put(out.children)
            # Of several puts the first one's history counts: the ack must not outlive any of them.
            page.history = page.history or history
            if crash.armed:
                crash.reached("after_children")
        await self.room(page)

    async def room(self, page: Page) -> None:
        """Wait for room in the buffers. It may take as long as a store is away, and is no time of the callback's own."""
        if self._items.full or self._outbox.full:
            page.started = math.inf
            await self._items.room()
            await self._outbox.room()
            page.started = self._clock()
