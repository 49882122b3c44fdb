"""Alerts: things that a person should know of now, said once per interval and kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from netspy.observe.faults import describe_error
from netspy.observe.log import get_logger, without_passwords

Send = Callable[[str, str], None]


class Alerts:
    """Logs each alert as a WARNING and hands it to `send(kind, message)`; never raises.

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
                self._send(kind, without_passwords(message))
            except Exception as error:
                # The alert is in the log already; a broken channel must not stop the crawl.
                self._logger.warning("sending alert {} failed: {}", kind, describe_error(error))
        return True
