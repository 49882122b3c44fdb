"""Bounds on how often the same line is said, so that an outage does not fill a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

Clock = Callable[[], float]

OTHER = "(other)"


class Once:
    """True the first time a key is asked for. After `max_keys` different keys every new one is False."""

    def __init__(self, *, max_keys: int = 1000) -> None:
        self._seen: set[str] = set()
        self._max_keys = max_keys
        self._lock = threading.Lock()

    def __call__(self, key: str) -> bool:
        """Whether this is the first time that `key` is seen. Thread-safe."""
        with self._lock:
            if key in self._seen or len(self._seen) >= self._max_keys:
                return False
            self._seen.add(key)
            return True


class _Window:
    """What was said and held back for one key since `start`."""

    __slots__ = ("held", "last", "said", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.said = 0
        self.held = 0
        self.last = ""


class Throttled:
    """Says at most `limit` lines per key and interval; the rest are counted and reported as one line.

    `emit` is called with the line, e.g. `logger.warning`. Keys beyond `max_keys` share one allowance, so at
    most (max_keys + 1) × (limit + 1) lines come out per interval, whatever happens. Thread-safe.
    """

    def __init__(
        self,
        emit: Callable[[str], None],
        *,
        limit: int = 5,
        interval_s: float = 60.0,
        max_keys: int = 100,
        clock: Clock = time.monotonic,
    ) -> None:
        self._emit = emit
        self._limit = limit
        self._interval_s = interval_s
        self._max_keys = max_keys
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()

    def __call__(self, key: str, message: str) -> bool:
        """Say `message` unless `key` has used up its lines. True when it was said."""
        now = self._clock()
        lines: list[str] = []
        with self._lock:
            window = self._windows.get(key)
            if window is None:
                if len(self._windows) >= self._max_keys:
                    lines += self._expire(now)
                if len(self._windows) >= self._max_keys:
                    key = OTHER
                window = self._windows.setdefault(key, _Window(now))
            if now - window.start >= self._interval_s:
                lines += _report(window)
                window = self._windows[key] = _Window(now)
            said = window.said < self._limit
            if said:
                window.said += 1
                lines.append(message)
            else:
                window.held += 1
                window.last = message
        for line in lines:
            self._emit(line)
        return said

    def flush(self, *, everything: bool = False) -> None:
        """Report what past intervals have held back; `everything`: the running ones too, for the end."""
        with self._lock:
            lines = self._expire(self._clock(), everything=everything)
        for line in lines:
            self._emit(line)

    def _expire(self, now: float, *, everything: bool = False) -> list[str]:
        over = [
            key
            for key, window in self._windows.items()
            if everything or now - window.start >= self._interval_s
        ]
        return [line for key in over for line in _report(self._windows.pop(key))]


def _report(window: _Window) -> list[str]:
    return [f"… {window.held:,} more like this; the last: {window.last}"] if window.held else []


class LoggerLike(Protocol):
    """A brace-style logger."""

    def debug(self, message: str, *args: Any) -> None: ...  # noqa: D102 - as any logger's
    def info(self, message: str, *args: Any) -> None: ...  # noqa: D102
    def warning(self, message: str, *args: Any) -> None: ...  # noqa: D102
    def error(self, message: str, *args: Any) -> None: ...  # noqa: D102


LOG_LINES = 20
LOG_INTERVAL_S = 10.0


class ThrottledLog:
    """At most LOG_LINES lines for each kind in LOG_INTERVAL_S seconds; the others are counted and told of in one line.

    A kind is a failure's reason, or the place in the user's code. Thread-safe.
    """

    def __init__(self, logger: LoggerLike) -> None:
        def throttled(level: str) -> Throttled:
            return Throttled(
                lambda line: getattr(logger, level)("{}", line), limit=LOG_LINES, interval_s=LOG_INTERVAL_S
            )

        self._levels = {level: throttled(level) for level in ("info", "warning", "error")}

    def info(self, kind: str, text: str) -> None:
        """Something that the user's code decided."""
        self._levels["info"](kind, text)

    def warning(self, kind: str, text: str) -> None:
        """A request that failed."""
        self._levels["warning"](kind, text)

    def error(self, kind: str, text: str) -> None:
        """A mistake in the user's code."""
        self._levels["error"](kind, text)

    def flush(self, *, everything: bool = False) -> None:
        """Tell of what past intervals have held back; `everything`: of the running ones too, for the end."""
        for level in self._levels.values():
            level.flush(everything=everything)
