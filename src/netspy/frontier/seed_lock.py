"""The seeding lock on Redis: one node at a time draws `start_requests`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from netspy.frontier import calls
from netspy.messages.entry import SeedGrant

if TYPE_CHECKING:
    from netspy.frontier.session import Session
    from netspy.messages.entry import SeedState


class SeedLock:
    """The lock as one node sees it.

    A node that once saw *seeded* or *failed* keeps it for its life: the lock's lifetime running out in
    mid-run must not seed again.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: SeedState | None = None
        self._asked = False

    def remember(self, state: SeedState) -> SeedState:
        """The state to go by when the store says `state`."""
        if state in ("seeded", "failed"):
            self._last = state
        elif state == "none" and self._last is not None:
            return self._last
        return state

    def read(self, text: bytes, left_ms: int, now_ms: float) -> tuple[SeedState, str, float]:
        """State, detail and age in seconds of a lock value."""
        ttl = self._session.settings.SPIDER_SEED_LOCK_TTL
        state, detail, age = calls.read_lock(text.decode("utf-8", "replace"), left_ms, now_ms, ttl)
        return self.remember(state), detail, age

    async def _call(self, what: str, token: str, *, error: str = "", again: bool = False) -> list[Any]:
        s = self._session
        return await s.ask(
            lambda member: s.calls.seed(s.shared, member, s.now(), what, token, error=error, again=again)
        )

    async def acquire(self) -> SeedGrant:
        """Try to become the seeder. *failed* is tried again only by a node's first try, when no other node
        lives.
        """
        if self._last is not None:
            return SeedGrant(None, self._last)
        again, self._asked = not self._asked, True
        token = secrets.token_hex(8)
        reply = await self._call("acquire", token, again=again)
        if reply[1] == b"mine":
            self._session.follow(reply[2])
            return SeedGrant(token, "seeding")
        self._session.follow(reply[5])
        state, detail, age = self.read(reply[2], int(reply[3]), float(reply[4]))
        return SeedGrant(None, state, detail, age)

    async def renew(self, token: str) -> bool:
        """False when the lock is somebody else's now."""
        return bool((await self._call("renew", token))[1])

    async def finish(self, token: str, error: str | None) -> bool:
        """*seeded*, or *failed* with the error. False when the lock is somebody else's now."""
        state: SeedState = "seeded" if error is None else "failed"
        mine = bool((await self._call(state, token, error=error or ""))[1])
        if mine:
            self.remember(state)
        return mine
