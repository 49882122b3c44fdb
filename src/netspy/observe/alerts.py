"""Alerts: things that a person should know of now, said once per interval and kind."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from netspy.observe.faults import describe_error, user_line
from netspy.observe.log import get_logger, without_passwords
from netspy.raised import failure, run_loop

Send = Callable[[str, str], Any]


class Alerts:
    """Logs each alert as a WARNING and hands it to `send(kind, message)`, plain or async; never raises.

    An alert of the same kind within `interval_s` (WARNING_INTERVAL) is counted and left out; the next one
    that goes out says how many were. `send` None only logs.
    """

    def __init__(
        self,
        send: Send | None = None,
        interval_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[], object] | None = None,
    ) -> None:
        """`count` is called for each alert that is said."""
        self._send = send
        self._count = count
        self._interval_s = interval_s
        self._clock = clock
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()
        self._logger = get_logger("alert")
        self._sending: set[asyncio.Task[None]] = set()

    def raise_alert(self, kind: str, message: str, *, about: str = "", logged: bool = False) -> bool:
        """Say `message` unless this `kind` was alerted within the interval. True when it was said.

        `about` keeps apart alerts of one kind about different things (a few: pipelines, say). `logged`: the log has
        it already.
        """
        now = self._clock()
        key = f"{kind} {about}"
        with self._lock:
            last = self._last.get(key)
            if last is not None and now - last < self._interval_s:
                self._held[key] = self._held.get(key, 0) + 1
                return False
            self._last[key] = now
            held = self._held.pop(key, 0)
        if self._count is not None:
            self._count()
        if held:
            message = f"{message} ({held:,} more of this kind since the last alert)"
        if not logged:
            self._logger.warning("{}: {}", kind, message)
        if self._send is not None:
            try:
                sent = self._send(kind, without_passwords(message))
            except BaseException as caught:
                self._not_sent(kind, failure(caught))
            else:
                if inspect.isawaitable(sent):
                    self._on_a_loop(kind, sent)
        return True

    def _on_a_loop(self, kind: str, sent: Awaitable[Any]) -> None:
        async def sending() -> None:
            try:
                await sent
            except BaseException as caught:
                self._not_sent(kind, failure(caught))

        try:
            task = asyncio.get_running_loop().create_task(sending())
        except RuntimeError:  # a thread without a loop
            run_loop(sending())
        else:
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _not_sent(self, kind: str, error: Exception) -> None:
        """The alert is in the log already; a broken channel must not stop the crawl."""
        self._logger.warning(
            "sending alert {} failed ({}): {}", kind, user_line(error), describe_error(error)
        )
