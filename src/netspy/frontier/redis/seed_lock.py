"""The seeding lock on Redis: one node at a time draws `start_requests`."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from netspy.frontier.contract import SeedsLostError
from netspy.frontier.redis import calls
from netspy.messages.entry import SeedGrant

if TYPE_CHECKING:
    from netspy.frontier.redis.session import Session
    from netspy.messages.entry import SeedState


_LOST = "the store went back to an earlier state during the seeding"


class SeedLock:
    """The lock as one node sees it.

    A node that once saw *seeded* or *failed* keeps it for its life: the lock's lifetime running out in
    mid-run must not seed again. It believes the store again when the server is another one since (a fail-over,
    a restart) and the lock's lifetime can't have run out: then the store went back to before the mark, and
    perhaps before some of the seeds.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: SeedState | None = None
        self._last_server = ""
        self._last_at = 0.0
        self._token = ""
        self._granted = ""  # the memory under which the token was granted
        self._asked = False

    def remember(self, state: SeedState) -> SeedState:
        """The state to go by when the store says `state`."""
        if state in ("seeded", "failed"):
            if self._last is None:
                self._last_at = time.monotonic()
            self._last, self._last_server = state, self._server()
        elif state == "none" and self._last is not None and not self._went_back():
            return self._last
        return state

    def _server(self) -> str:
        return self._session.shared.history.rpartition(":")[0]

    def _went_back(self) -> bool:
        """Whether the store may be in a state from before the mark that this node remembers."""
        lifetime_s = self._session.calls.lock_ms / 1000
        return self._server() != self._last_server and time.monotonic() - self._last_at < lifetime_s

    def check_seeds(self) -> None:
        """Raises SeedsLostError when what was put under the lock may be gone."""
        if self._session.shared.memory != self._granted:
            raise SeedsLostError(_LOST)

    def read(self, text: bytes, left_ms: int, now_ms: float) -> tuple[SeedState, str, float]:
        """State, detail and age in seconds of a lock value."""
        ttl = self._session.calls.settings.SPIDER_SEED_LOCK_TTL
        state, detail, age = calls.read_lock(text.decode("utf-8", "replace"), left_ms, now_ms, ttl)
        return self.remember(state), detail, age

    async def _call(
        self, what: str, token: str, *, error: str = "", again: bool = False, history: str = ""
    ) -> list[Any]:
        s = self._session
        reply: list[Any] = await s.call(s.calls.seed(what, token, error=error, again=again, history=history))
        return reply

    async def acquire(self) -> SeedGrant:
        """Try to become the seeder. *failed* is tried again only by a node's first try, when no other node
        lives.
        """
        if self._last is not None and not self._went_back():
            return SeedGrant(None, self._last)
        again, self._asked = not self._asked, True
        # The same one for the node's life: a lock that is still ours, after SeedsLostError, is ours at once.
        self._token = token = self._token or secrets.token_hex(8)
        reply = await self._call("acquire", token, again=again)
        if reply[1] == b"mine":
            self._session.follow(reply[2])
            self._granted = self._session.shared.memory
            return SeedGrant(token, "seeding")
        self._session.follow(reply[5])
        state, detail, age = self.read(reply[2], int(reply[3]), float(reply[4]))
        return SeedGrant(None, state, detail, age)

    async def renew(self, token: str) -> bool:
        """False when the lock is somebody else's now."""
        return bool((await self._call("renew", token))[1])

    async def finish(self, token: str, *, error: str | None = None) -> bool:
        """*seeded*, or *failed* with the error. False when the lock is somebody else's now.

        Raises SeedsLostError.
        """
        state: SeedState = "seeded" if error is None else "failed"
        reply = await self._call(state, token, error=error or "", history=self._granted)
        if reply[1] == 2:
            self._session.follow(reply[2])
            raise SeedsLostError(_LOST)
        if reply[1] == 1:
            self.remember(state)
        return bool(reply[1])
