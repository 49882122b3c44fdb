"""Who the master of a batch job is, as the lock's text tells it."""

from __future__ import annotations

from typing import NamedTuple


class NotMasterError(Exception):
    """The lock is somebody else's, or nobody's: nothing was written. `.holder` is the lock's text, `.left_s` its time."""

    def __init__(self, holder: str, left_s: float = 0.0) -> None:
        super().__init__(holder)
        self.holder = holder
        self.left_s = left_s


class Holder(NamedTuple):
    """Who holds the master lock: `host:pid`, since when, and for how many seconds without another word."""

    who: str
    since: str
    left_s: float

    def __str__(self) -> str:
        return f"{self.who} since {self.since}" if self.who else "nobody"


def read_holder(text: str, left_s: float = 0.0) -> Holder:
    """What the lock's text says: token, fencing number, host:pid, since."""
    parts = text.split(" ", 3)
    return Holder(parts[2] if len(parts) > 2 else text, parts[3] if len(parts) > 3 else "?", max(left_s, 0.0))
