"""A batch master's calls on its task table, and its pauses: a stop ends the waiting in either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from netspy.blocking import SLOW_S, in_thread
from netspy.engine.control import Control
from netspy.engine.env import Env
from netspy.errors import NetspyError, StoreLostError, UserCodeError
from netspy.observe.faults import user_line
from netspy.policy.retry import Backoff
from netspy.raised import failure
from netspy.tasks.master_lock import NotMasterError

MasterOutcome = Literal["finished", "nothing_to_do", "stopped", "not_master", "failed", "store_lost"]


class MasterExit(Exception):  # noqa: N818 - leaves the loop, as SystemExit does, and is no error
    """The master's work is over."""

    def __init__(self, outcome: MasterOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome: MasterOutcome = outcome
        self.reason = reason


def asked(call: Callable[[], Any]) -> Any:
    """What a call on a store gives that users may have written. Raises NetspyErrors and NotMasterError as they are.

    Whatever else it raises is the store's fault: UserCodeError, with its line.
    """
    try:
        return call()
    except (NetspyError, NotMasterError):
        raise
    except BaseException as caught:
        failure(caught)
        raise UserCodeError(caught, f"the batch store ({user_line(caught)})") from caught


class StoreCalls:
    """On the loop."""

    def __init__(self, env: Env, control: Control) -> None:
        self._env = env
        self._control = control
        self._away = False

    def check_stop(self) -> None:
        """Raises MasterExit once told to stop."""
        if self._control.ended is not None:
            raise MasterExit("stopped", self._control.ended.reason)

    async def pause(self, seconds: float) -> None:
        """Raises MasterExit as soon as told to stop."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._control.stopped()
        except TimeoutError:
            pass
        self.check_stop()

    async def call(self, function: Callable[[], Any], *, retry_forever: bool = True) -> Any:
        """What `function` gives, in a thread; while the database is away it is tried again and again, until stopped.

        Without `retry_forever` the store's own patience must do. Raises StoreLostError then, and whatever else `function` raises.
        """
        backoff = Backoff()
        while True:
            try:
                result = await in_thread(lambda: asked(function), slow=self._say_slow)
            except StoreLostError as error:
                if not retry_forever:
                    raise
                if not self._away:
                    self._away = True
                    self._env.alert("batch_store_away", f"{error}; the master tries again until it answers")
                await self.pause(backoff.next_s())
            else:
                if self._away:
                    self._away = False
                    self._env.log.info("the task table answers again")
                return result

    def _say_slow(self) -> None:
        self._env.log.warning(
            "the task table has been asked for {:.0f} s and has not answered; the master waits", SLOW_S
        )
