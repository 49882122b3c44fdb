"""Item dedup on Redis: asked before a batch is written, told after it is stored.

An item's fingerprint is marked only once the item is safe, so a crash in between stores it again rather than
never. The fingerprints belong to the run and its seeding generation: seeding anew stores the rows
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.frontier.redis.calls import DedupPlan, script
from netspy.redisio.scripts import Arg, Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from netspy.redisio.keys import RunKeys

ITEMS_PER_CALL = 500


class RedisItemFilter:
    """A layered Bloom filter or an exact set on Redis, shared by all nodes of the run."""

    def __init__(
        self,
        keys: RunKeys,
        dedup: DedupPlan,
        run: Callable[[Call], Awaitable[Any]],
        *,
        on_count: Callable[[int], None] | None = None,
    ) -> None:
        """`run` runs a script and waits through outages; `on_count` is told how many fingerprints are
        known.
        """
        self._keys = [keys.meta, *dedup.script_keys()]
        self._head: list[Arg] = ["", dedup.kind, dedup.ttl_ms, dedup.layout()]
        self._run = run
        self._on_count = on_count

    async def seen(self, fingerprints: list[bytes]) -> list[bool]:
        """One flag per fingerprint. Raises StoreUnavailableError when waiting for Redis is over."""
        flags: list[bool] = []
        for at in range(0, len(fingerprints), ITEMS_PER_CALL):
            piece = fingerprints[at : at + ITEMS_PER_CALL]
            reply = await self._run(Call(script("item_seen"), self._keys, [*self._head, *piece]))
            flags += [digit == 49 for digit in reply]
        return flags

    async def mark(self, fingerprints: list[bytes]) -> None:
        """These are stored now. Raises StoreUnavailableError when waiting for Redis is over."""
        for at in range(0, len(fingerprints), ITEMS_PER_CALL):
            piece = fingerprints[at : at + ITEMS_PER_CALL]
            count = await self._run(Call(script("item_mark"), self._keys, [*self._head, *piece]))
            if self._on_count is not None:
                self._on_count(int(count))
