"""The queue `<queue>.failed`: whole copies of messages that can't be used, with the reason.

A message is acked when its copy is confirmed. Until then it stays in this node's hands: a failed queue that is full, or
a broker that takes nothing in, holds up none of the others.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from netspy.brokers.amqp_properties import Properties, of_a_copy
from netspy.brokers.rabbit import MessageRefusedError, RabbitLink, Session, ensure_queue
from netspy.brokers.rabbit_publish import (
    Outgoing,
    largest_body,
    publish,
    refusal,
    room_for_properties,
    say_full,
)
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.policy.retry import Backoff
from netspy.settings import without_passwords

if TYPE_CHECKING:
    from netspy.tasks.contract import Task

_WAIT_S = 2.0  # for the copies of now; longer than that they are made beside the work


class FailedQueue:
    """Of one task source. `link` publishes; `still_ours` says whether a task's message can be acked, or comes to us
    again under its name; `settled` acks.
    """

    def __init__(
        self,
        link: RabbitLink,
        queue: str,
        *,
        still_ours: Callable[[Task], bool],
        settled: Callable[[list[Task]], Awaitable[None]],
    ) -> None:
        self.queue = queue
        self.name = f"{queue}.failed"
        self._link = link
        self._user = unquote(urlsplit(link.address.url).username or "")
        self._still_ours = still_ours
        self._settled = settled
        self._left: deque[tuple[Task, str]] = deque()
        self._working: asyncio.Task[None] | None = None
        self._stuck = False

    def put(self, task: Task, error: str) -> None:
        """Keep it apart; `work` does it."""
        self._left.append((task, error))

    async def work(self) -> None:
        """Copy what was put. Waits until that is done, unless it gets stuck. Raises what makes it impossible."""
        self._see_end()
        if self._left and self._working is None:
            self._working = asyncio.create_task(self._work())
        if self._working is not None and not self._stuck:
            done, _ = await asyncio.wait({self._working}, timeout=_WAIT_S)
            self._stuck = not done
            self._see_end()

    def _see_end(self) -> None:
        if self._working is not None and self._working.done():
            ended, self._working = self._working, None
            ended.result()

    async def _work(self) -> None:
        pauses, said = Backoff(0.2, 5.0), False
        while self._left:
            task, error = self._left[0]
            refused = await self._copy(task, error) if self._still_ours(task) else None
            if refused is None:
                self._left.popleft()
                await self._settled([task])
                pauses.reset()
                said = self._stuck = False
                continue
            self._stuck = True
            if refusal(refused) == "missing":
                await self._link.ask(lambda session: ensure_queue(session, self.name))
            elif not said:
                said = True
                say_full(self._link, self.name, refused)
            if self._link.stopping:
                return
            await self._link.pause(pauses.next_s())

    async def _copy(self, task: Task, error: str) -> BaseException | None:
        """Why the broker doesn't take a copy now; None when it has one. What it never takes whole, it gets in part."""
        original, body = task.receipt.properties, task.receipt.message.body
        refused: MessageRefusedError | None = None
        for step in ("whole", "without properties", "with a cut body"):
            said = error if refused is None else f"{error} (put aside {step}: {refused})"
            if step == "without properties":
                original = Properties()
            elif step == "with a cut body" and refused is not None:
                body = body[: largest_body(refused) or 0]
            notes = {
                "x-error": without_passwords(said)[:MAX_ERROR_CHARS],
                "x-failed-at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "x-queue": self.queue,
            }
            try:
                answer = await self._link.ask(partial(self._send, original, body, notes))
            except MessageRefusedError as why:
                refused = why
            else:
                return answer
        return refused

    async def _send(
        self, original: Properties, body: bytes, notes: dict[str, str], session: Session
    ) -> BaseException | None:
        properties = of_a_copy(
            original, notes, name=uuid.uuid4().hex, user=self._user, room=room_for_properties(session)
        )
        return (await publish(session, self.name, {0: Outgoing(body, properties)})).get(0)

    async def close(self) -> None:
        """What isn't copied by now is still in the broker's hands."""
        working, self._working = self._working, None
        if working is not None:
            working.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await working
        self._left.clear()
