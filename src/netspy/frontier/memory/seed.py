"""The seeding lock and mark of a run in memory. The time is the caller's."""

from __future__ import annotations

import secrets

from netspy.messages.entry import SeedGrant, SeedState


class SeedMark:
    """One node at a time seeds; a lock that was not renewed for `ttl_s` seconds may be taken over."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._at = 0.0
        self._token = ""
        self.state: SeedState = "none"
        self.error = ""

    def acquire(self, now: float) -> SeedGrant:
        """A token when the caller is to seed, else the state found."""
        if self.state == "none" or (self.state == "seeding" and now - self._at > self._ttl_s):
            self._token = secrets.token_hex(8)
            self.state, self._at = "seeding", now
            return SeedGrant(self._token, "seeding")
        return SeedGrant(None, self.state, self.error, now - self._at)

    def held_by(self, token: str) -> bool:
        """Whether the seeding is going on under this token."""
        return self.state == "seeding" and self._token == token

    def renew(self, token: str, now: float) -> bool:
        """False when the lock is somebody else's now."""
        if not self.held_by(token):
            return False
        self._at = now
        return True

    def finish(self, token: str, error: str | None, now: float) -> bool:
        """State *seeded*, or *failed* with the error. False when the lock is somebody else's now."""
        if not self.held_by(token):
            return False
        self.state, self.error, self._at = ("seeded", "", now) if error is None else ("failed", error, now)
        return True

    def age_s(self, now: float) -> float:
        """Seconds since the state was written; 0 while nobody has seeded."""
        return now - self._at if self.state != "none" else 0.0
