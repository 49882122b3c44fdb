"""A queue that can pass over sites: one heap per site, and one heap of the sites' first entries.

Sites to pass over cost their own number only, however many of their requests are queued, and order is exact:
priority first, then first in first out.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

Entry = tuple[Any, ...]
"""(priority, seq, payload) for one never claimed, else (priority, seq, payload, deliveries, suspicion).

Suspicion is 0 when no lease ever ran out, 1 when one did that may not have started, n + 1 when n ran out
after a start.
"""


class SiteQueue:
    """Entries by site; `size` counts them."""

    __slots__ = ("_heads", "_sites", "size")

    def __init__(self) -> None:
        self.size = 0
        self._sites: dict[str, list[Entry]] = {}
        # A row stands for its site's first entry; rows that no longer do are dropped when they come up.
        self._heads: list[tuple[float, int, str]] = []

    def push(self, site: str, entry: Entry) -> None:
        """Add an entry at the place its priority and sequence number give it."""
        bucket = self._sites.get(site)
        if bucket is None:
            self._sites[site] = [entry]
            heappush(self._heads, (entry[0], entry[1], site))
        else:
            heappush(bucket, entry)
            if bucket[0] is entry:
                heappush(self._heads, (entry[0], entry[1], site))
        self.size += 1

    def take(self, limit: int, pass_over: Collection[str], room: list[int]) -> list[tuple[str, Entry]]:
        """Remove up to `limit` entries of other sites than `pass_over`, in order.

        `room[k]` bounds the entries with suspicion k + 1 (the third: 3 or more), and is counted down. What
        finds no room stays in its place.
        """
        heads, sites = self._heads, self._sites
        taken: list[tuple[str, Entry]] = []
        passed: list[tuple[float, int, str]] = []
        held_back: list[tuple[str, Entry]] = []
        while heads and len(taken) < limit:
            head = heappop(heads)
            site = head[2]
            bucket = sites.get(site)
            if not bucket or bucket[0][1] != head[1]:
                continue
            if site in pass_over:
                passed.append(head)
                continue
            after = heads[0] if heads else None
            while bucket and len(taken) < limit:
                entry = bucket[0]
                if after is not None and (entry[0], entry[1]) > (after[0], after[1]):
                    break
                heappop(bucket)
                if len(entry) == 5 and entry[4]:
                    kind = min(entry[4], len(room)) - 1
                    if room[kind] <= 0:
                        held_back.append((site, entry))
                        continue
                    room[kind] -= 1
                    # One at its last chance is with no other suspect.
                    room[:] = [0, 0, 0] if kind == 2 else [room[0], room[1], 0]
                taken.append((site, entry))
            if bucket:
                heappush(heads, (bucket[0][0], bucket[0][1], site))
            else:
                del sites[site]
        for head in passed:
            heappush(heads, head)
        self.size -= len(taken) + len(held_back)
        for site, entry in held_back:
            self.push(site, entry)
        return taken

    def in_order(self) -> list[Entry]:
        """All entries as they would be taken; nothing is removed."""
        return sorted((e for bucket in self._sites.values() for e in bucket), key=lambda e: (e[0], e[1]))
