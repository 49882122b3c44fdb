"""What a node has counted since it started."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from netspy.observe.coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspy.messages.row import Row

NAMES: dict[str, str] = {
    # The documented run summary.
    "request_ok": "requests whose page was fetched and handled",
    "request_failed": "requests given up for good",
    "retry": "further tries",
    "dropped": "requests or pages dropped by user code (middleware, validate, NotRetryError)",
    "robots_dropped": "requests refused by robots.txt",
    "content_type_dropped": "answers whose content type is not allowed",
    "dedup_dropped": "repeats of a known request",
    "parse_error": "callbacks that raised or yielded something unusable",
    "items": "items stored",
    "item_dedup_dropped": "items stored before",
    "item_failed": "items refused or not stored; they are dead-lettered",
    "dedup_degraded": "requests let through because the dedup filter did not answer",
    # Ours.
    "pages": "answers received",
    "bytes": "body bytes received, decoded",
    "queued": "requests put into the frontier",
    "delivered": "requests claimed",
    "released": "requests given back",
    "lease_lost": "requests finished here after another node had taken them over",
    "reclaimed": "requests taken over from dead or stuck nodes",
    "poisoned": "requests given up because their lease ran out too often",
    "invalid_url": "URLs that can't be fetched",
    "callback_error": "other hooks that raised (errback, failed_request, start_callback …)",
    "pipeline_retry": "item batches tried again",
    "alerts": "alerts raised",
    "tasks_taken": "tasks taken from the task source",
    "tasks_done": "ends of tasks this node was told of: task_done called, update_task(ok=True) written",
    "tasks_failed": "failed ends of tasks: task_failed called, update_task(ok=False) written",
}
"""Every counter of netspy's own, with its meaning."""

MAX_USER_NAMES = 1000
MAX_REASONS = 200
OTHER = "(other)"
"""Where counts go once there are too many names: memory and the summary line stay bounded."""


class UserStats:
    """The counters of a spider's own, as `self.stats`; reads netspy's too."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def inc(self, name: str, n: int = 1) -> None:
        """Add `n` to a counter of your own. Raises ValueError for a name that netspy itself counts."""
        if name in NAMES:
            raise ValueError(
                f"self.stats.inc({name!r}): netspy itself counts {name!r} ({NAMES[name]}); "
                "choose another name"
            )
        self._counters.inc_user(name, n)

    def get(self, name: str) -> int:
        """The value of any counter; 0 when it was never counted."""
        return self._counters.get(name)

    def as_dict(self) -> dict[str, int]:
        """All counters, netspy's and your own."""
        return self._counters.as_dict()


class Counters:
    """Counts of one node. Exact from any thread.

    `reasons` maps why a request failed for good to how often. `user` holds the spider's own counters.
    """

    def __init__(self) -> None:
        self._values = dict.fromkeys(NAMES, 0)
        self._lock = threading.Lock()
        self.user: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.stats = UserStats(self)
        self.coverage = Coverage()

    def inc(self, name: str, n: int = 1) -> None:
        """Add `n` to one of netspy's counters. Raises KeyError for an unknown name."""
        # += on a dict entry is a read and a write; another thread may run between them.
        with self._lock:
            self._values[name] += n

    def inc_user(self, name: str, n: int = 1) -> None:
        """Add `n` to a counter of the spider's own; names beyond MAX_USER_NAMES are counted together."""
        with self._lock:
            _bounded_add(self.user, str(name), n, MAX_USER_NAMES)

    def fail(self, reason: str) -> None:
        """Count a request that failed for good by its reason: short and without a URL, e.g. `HTTP 404`."""
        with self._lock:
            self._values["request_failed"] += 1
            _bounded_add(self.reasons, reason, 1, MAX_REASONS)

    def cover(self, rows: Sequence[Row]) -> None:
        """Count the fields of rows that were stored. From one thread only."""
        self.coverage.add(rows)

    def get(self, name: str) -> int:
        """The value of a counter, netspy's or the spider's own; 0 when it was never counted."""
        value = self._values.get(name)
        return self.user.get(name, 0) if value is None else value

    def own(self) -> dict[str, int]:
        """The counters of netspy itself."""
        with self._lock:
            return dict(self._values)

    def as_dict(self) -> dict[str, int]:
        """All counters: netspy's, then the spider's own."""
        with self._lock:
            return {**self._values, **self.user}


def _bounded_add(values: dict[str, int], name: str, n: int, most: int) -> None:
    if name not in values and len(values) >= most:
        name = OTHER
    values[name] = values.get(name, 0) + n
