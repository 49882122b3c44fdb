"""What a page asks for that must come after its items are stored and before its ack: task states, new tasks.

`update_task` and `add_tasks` in a callback are remembered with the page. When the page's items are stored they are
carried out, many pages in one step, and only then is the page acked: a node that dies in between crawls it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netspy import crash
from netspy.engine.contract import Doer
from netspy.engine.control import Control
from netspy.engine.env import Env
from netspy.engine.page.actions import Action
from netspy.errors import ConfigError, SpiderError
from netspy.observe.faults import describe_error
from netspy.policy.retry import Backoff
from netspy.raised import failure

_PER_STEP = 500


class Effects:
    """One task carries out what pages ask for, in order. `do` is called on the loop, `do_soon` from any thread."""

    def __init__(
        self, env: Env, control: Control, doers: Mapping[str, Doer], *, first_pause_s: float = 0.5
    ) -> None:
        """`doers`: who carries out which kind of action. `first_pause_s`: before the first of its further tries."""
        self._first_pause_s = first_pause_s
        self._doers = doers
        self._log = env.log
        self._alert = env.alert
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Sequence[Action], Callable[[], None] | None]] = deque()
        self._busy = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.stuck: str | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self.task = self._control.spawn(self._run(), "netspy-effects")

    @property
    def empty(self) -> bool:
        """Nothing waits and nothing is being done."""
        return not self._waiting and not self._busy

    def do(self, actions: Sequence[Action], final: Callable[[], None] | None = None) -> None:
        """Carry these out, then call `final`."""
        self._waiting.append((actions, final))
        self._idle.clear()
        self._wake.set()

    def do_soon(self, action: Action) -> None:
        """Carry this out without waiting for anything."""
        try:
            self._loop.call_soon_threadsafe(self.do, (action,))
        except RuntimeError:
            raise SpiderError("the node has ended; this comes too late") from None

    async def drained(self) -> None:
        """Wait until everything asked for so far is done; not when the task has ended."""
        if self.task is not None and not self.task.done():
            waiter = asyncio.ensure_future(self._idle.wait())
            await asyncio.wait({waiter, self.task}, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()

    async def _run(self) -> None:
        while True:
            if not self._waiting:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
            self._busy = True
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _PER_STEP))]
            by_kind: dict[str, list[Any]] = {}
            for actions, _ in taken:
                for action in actions:
                    by_kind.setdefault(action.kind, []).append(action.value)
            for kind, values in by_kind.items():
                await self._insist(kind, values)
            if crash.armed:
                crash.reached("after_actions")
            for _, final in taken:
                if final is not None:
                    final()
            self._busy = False
            self._control.wake()

    async def _insist(self, kind: str, values: list[Any]) -> None:
        backoff = Backoff(self._first_pause_s)
        while True:
            try:
                await self._doers[kind](values)
            except (ConfigError, SpiderError) as refused:
                self._log.error("{}", refused)
                break
            except BaseException as caught:  # also of a batch store that users wrote
                error = failure(caught)
                if self.stuck is None:
                    self._alert(
                        "after_store",
                        f"{describe_error(error)}; pages wait for it unacked, and it is tried again",
                    )
                self.stuck = describe_error(error)
                await asyncio.sleep(backoff.next_s())
            else:
                break
        self.stuck = None

    async def stop(self) -> None:
        """End the task. What was not done belongs to pages that are not acked: they will be crawled again."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
