"""What requests complain of, in the log: a bounded number of lines, however many requests fail."""

from __future__ import annotations

from netspy.engine.contract import LoggerLike
from netspy.observe.throttle import Throttled

LINES = 20
INTERVAL_S = 10.0


class Complaints:
    """At most LINES lines for each kind in INTERVAL_S seconds; the others are counted and told of in one line.

    A kind is a failure's reason, or the place in the user's code. Thread-safe.
    """

    def __init__(self, logger: LoggerLike) -> None:
        def throttled(level: str) -> Throttled:
            return Throttled(
                lambda line: getattr(logger, level)("{}", line), limit=LINES, interval_s=INTERVAL_S
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
