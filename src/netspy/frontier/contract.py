"""The frontier's contract: all requests of a run and their states.

    queued ──claim──▶ leased ──ack──▶ done
      ▲  ▲              │ │ └──give_up──▶ failed
      │  └──release─────┘ ├──delay──▶ delayed ──(due)──▶ queued
      └──────expire───────┘

Every accepted entry is, at every instant visible in the store, in exactly one place. Back ends: `memory/`
(one process) and `redis/` (shared); both pass `tests/contract/`. Every call may be repeated by a transport
that lost a reply without changing the outcome.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from netspy.policy.claiming import MAX_CLAIM_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from netspy.messages.entry import (
        Adopted,
        BeatReply,
        BeatReport,
        Claimed,
        Counts,
        FinalFailure,
        GivenUp,
        Lease,
        NewEntry,
        OpenTasks,
        Reclaimed,
        SeedGrant,
        Settled,
        Settlement,
        TaskMark,
    )


class State(StrEnum):
    """Where an entry is."""

    QUEUED = "queued"
    LEASED = "leased"
    DELAYED = "delayed"
    DONE = "done"
    FAILED = "failed"


TRANSITIONS: dict[tuple[State, str], State] = {
    (State.QUEUED, "claim"): State.LEASED,
    (State.LEASED, "renew"): State.LEASED,
    (State.LEASED, "ack"): State.DONE,
    (State.LEASED, "release"): State.QUEUED,
    (State.LEASED, "delay"): State.DELAYED,
    (State.LEASED, "give_up"): State.FAILED,
    (State.LEASED, "expire"): State.QUEUED,
    (State.LEASED, "expire_poison"): State.FAILED,
    (State.DELAYED, "due"): State.QUEUED,
}
"""What is not in the table is an error. The docs' picture and the tests' model come from it."""


class Frontier(Protocol):
    """Called on the event loop. One put and one claim are outstanding per node; back ends serialise them."""

    @property
    def warnings(self) -> list[str]:
        """What to say at start, filled by `open`."""

    async def open(self) -> None:
        """Connect, check owners and key types, and join as a node. Raises ConfigError,
        StoreUnavailableError.
        """

    async def close(self) -> None:
        """Leave: deregister the node when it holds nothing, and drop connections. Safe to call twice."""

    @property
    def node(self) -> str:
        """The id of this node, never given twice; changes after a forced re-join."""

    @property
    def history(self) -> str | None:
        """The name of what this node was told of the store: as long as it stays the same, all of that is true. It changes
        when the store has gone back to an earlier state (a lagging replica, a snapshot), and when a new seeding begins; not
        when the server was restarted and lost nothing of this node's. None in memory.
        """

    async def put(
        self,
        entries: Sequence[NewEntry],
        *,
        seed_token: str | None = None,
        tasks: Sequence[TaskMark] = (),
    ) -> list[bool]:
        """Deduplicate and enqueue in one step; one flag per entry, False = a repeat.

        `tasks` tells, in the same step, which tasks these entries belong to and whether they were their last ones. A
        task without entries, whose mark says `fed`, is closed at once. One whose first entries were put under another history
        stays open, whatever its mark says: some of them may be gone.

        With `seed_token` nothing is put unless the seeding lock still holds that token (raises SeedLockLostError).
        Raises SeedsLostError when seeds put earlier under this token may be gone.
        """

    async def claim(
        self,
        limit: int,
        *,
        pass_over: Collection[str] = (),
        suspect_room: tuple[int, int, int] = (64, 8, 1),
        max_bytes: int = MAX_CLAIM_BYTES,
    ) -> Claimed:
        """Lease up to `limit` entries: smallest priority first, first in first out within a priority.

        Due delayed entries are queued first. Entries of the sites in `pass_over` are left in the queue, in
        place (a bounded stretch of the queue is looked at). `suspect_room[e]` bounds how many suspects with e
        expired starts (2 = two or more) are handed out; one of the last kind comes with no other suspect, and what it was
        lost with alone too often is poison. They come back already marked as started. On a shared
        store no more than `max_bytes` come, or one entry that is larger.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """For each parent still owned: put its children, then ack it, in one step."""

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        """Back to the queue at the old place, without counting the delivery. False = not ours any more."""

    async def delay(self, items: Sequence[tuple[Lease, float, Any]]) -> list[bool]:
        """(lease, seconds from now, payload to store): due later, by the store's clock. False = not ours."""

    async def give_up(self, items: Sequence[FinalFailure]) -> GivenUp:
        """To the failed list."""

    async def counts(self) -> Counts:
        """One atomic read of every collection of the run."""

    async def open_tasks(self, tasks: Sequence[tuple[str, str | None]]) -> OpenTasks:
        """What is left of each task, given the history under which it was put (None = not put by this node). Children
        count as their parent's task.

        Raises StoreLostError when the run's keys are gone: of a store that is empty nobody can tell what was done.
        """

    async def adopt(self) -> Adopted:
        """Queue again what earlier runs had queued and never crawled, where their fingerprints are this run's too. By the
        seeding node, before it seeds. A run with a live node is left alone.
        """

    async def seed_acquire(self) -> SeedGrant:
        """Try to become the seeding node. A lock whose owner stopped renewing it is taken over."""

    async def seed_renew(self, token: str) -> bool:
        """False when the lock is somebody else's now."""

    async def seed_finish(self, token: str, *, error: str | None = None) -> bool:
        """State *seeded*, or *failed* with the error. False when the lock is somebody else's now.

        Raises SeedsLostError when seeds put under this token may be gone; the state stays *seeding* then.
        """


class Keeper(Protocol):
    """Called from the lease keeper's own thread with its own connection, so a blocked loop doesn't stop
    it.
    """

    def beat(self, report: BeatReport) -> BeatReply:
        """Write this node's heartbeat, renew the run's key lifetimes now and then."""

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        """Extend to now + lease and move each lease's `valid_until`. False = not ours any more."""

    taken_over: int
    """How many leases `reclaim` and `sweep` have returned to the queue so far."""

    def reclaim(self, limit: int = 500) -> Reclaimed:
        """Return expired leases to the queue, oldest first; poison goes to the failed list."""

    def sweep(self, node: str) -> bool:
        """One bounded step of taking back a dead node's leases. True when a full pass found none (record
        removed).
        """

    def reconcile(self, held: Sequence[Lease]) -> int:
        """Return leases that nobody holds: in this node's name, and in that of a node without a record. Send no claim
        while it runs.
        """

    def rejoin(self) -> None:
        """Join again under a new id, after the store forgot this node; all leases held are void."""

    def close(self) -> None:
        """Drop the connection."""


class SeedLockLostError(Exception):
    """A seed put was refused: another node holds the seeding lock now."""


class SeedsLostError(Exception):
    """The store went back to an earlier state while this node seeded (a fail-over to a replica that lagged, a restart
    that lost the last second), and with it perhaps some of its seeds: acquire the lock again and start over.
    """
