"""A repeat filter of the user's own, for tests: its memory outlives the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_known: set[bytes] = set()


class KnownPages:
    """See `netspy.frontier.dedup.RequestFilter`."""

    def __init__(self, settings: Any) -> None:
        _known.clear() if settings.RUN_ID == "one" else None

    def seen(self, ids: Sequence[bytes]) -> list[bool]:
        """Which of these are known."""
        return [i in _known for i in ids]

    def mark(self, ids: Sequence[bytes]) -> None:
        """They are queued now."""
        _known.update(ids)
