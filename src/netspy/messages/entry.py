"""What travels between the engine and the frontier: entries, leases, settlements and counts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Literal, NamedTuple

SeedState = Literal["none", "seeding", "seeded", "failed"]


class NewEntry(NamedTuple):
    """A request on its way into the frontier.

    `payload` is what the frontier stores and gives back: JSON bytes (an object) on a shared frontier, the Request
    itself in memory. `id` is 16 bytes: the request's fingerprint, or, where the repeat filter is off, a stable id
    made of its origin and ordinal, so that a repeated put is harmless. `site` is 8 hex digits, the hash of the host.
    `task` names the task it belongs to: the frontier counts what is left of each (text without `{`, not beginning
    with `!`, at most 200 bytes; '' = none).
    """

    payload: Any
    id: bytes
    priority: float
    site: str
    task: str = ""


class TaskMark(NamedTuple):
    """What a put says of a task whose requests it brings.

    `fed`: these were its last ones; until then the task stays open even when all its requests so far are done.
    `closing` is a request that is queued when the task's last request is done, and counts for no task; None = nobody
    wants to be told. With `only_failed` it is queued only when a request of the task has failed for good. `history` is the
    store's history under which the task's first requests were put, None = these are the first ones.
    """

    task: str
    fed: bool = True
    closing: NewEntry | None = None
    only_failed: bool = False
    history: str | None = None


class TaskState(IntEnum):
    """What the frontier knows of a task."""

    ENDED = 0  # nothing is left of it, or it was never put
    OPEN = 1  # all its requests were put, and some are neither done nor failed
    FEEDING = 2  # not all of its requests are here yet
    LOST = 3  # it was put under another history, and nothing here tells whether it has ended


class OpenTasks(NamedTuple):
    """Answer to `open_tasks`, in the order asked. `history`: the store's when it answered; what it said to be OPEN is
    whole under it.
    """

    states: list[TaskState]
    history: str | None


class Lease:
    """Temporary ownership of one entry.

    `member` is the frontier's own handle, with the token inside; nobody else reads it. `valid_until` is on the
    node's monotonic clock: past it the node must not start work on the entry. `suspicion` counts the leases of this
    entry that ran out, `expired` those of them that did after a start: the first time nobody knows whether it was
    started. `deliveries` counts claims, this one included. `task` is the entry's task; for a task's closing request it
    is `!` and the number of requests that failed.
    """

    __slots__ = (
        "deliveries", "member", "payload", "priority", "seq", "site", "suspicion", "task", "valid_until",
    )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes of the entry; 0 where it is an object of this process."""
        return len(self.member) if type(self.member) is bytes else 0

    @property
    def is_task_end(self) -> bool:
        """Whether this is the last request of a task: nothing is fetched, it tells how the task ended."""
        return self.task[:1] == "!"

    def __init__(
        self,
        *,
        seq: int,
        payload: Any,
        priority: float,
        site: str,
        deliveries: int = 1,
        suspicion: int = 0,
        member: Any = None,
        valid_until: float = float("inf"),
        task: str = "",
    ) -> None:
        self.seq = seq
        self.payload = payload
        self.priority = priority
        self.site = site
        self.deliveries = deliveries
        self.suspicion = suspicion
        self.member = member
        self.valid_until = valid_until
        self.task = task

    @property
    def expired(self) -> int:
        """How many leases of this entry ran out after it had been started."""
        return max(0, self.suspicion - 1)

    def __repr__(self) -> str:
        return f"<Lease seq={self.seq} deliveries={self.deliveries} expired={self.expired}>"


class Settlement(NamedTuple):
    """One finished parent with the children that go to the store in the same step as its ack.

    `history` is the frontier's `history` under which children of this parent were put *earlier* (None when there were
    none): the ack is refused when it is another one now, as they may be gone.
    """

    lease: Lease
    children: Sequence[NewEntry] = ()
    history: str | None = None


class Settled(NamedTuple):
    """Answer to `settle`, in the order asked.

    `acked[i]` is False when the lease was not ours any more (its children were not put) or its history changed
    (`stale`). `new[i]` has one flag per child: True = queued, False = a repeat.
    """

    acked: list[bool]
    new: list[list[bool]]
    stale: list[bool]


class FinalFailure(NamedTuple):
    """A lease whose request failed for good, and its JSON record for the failed list. `history`: as in Settlement."""

    lease: Lease
    record: bytes
    history: str | None = None


class GivenUp(NamedTuple):
    """Answer to `give_up`, in the order asked. `failed[i]` is False when the lease was not ours any more or its history
    changed (`stale`).
    """

    failed: list[bool]
    stale: list[bool]


class Claimed(NamedTuple):
    """Answer to `claim`: the leases and, in the same atomic read, what is left."""

    leases: list[Lease]
    queued: int
    delayed: int
    leased: int
    next_due_s: float | None  # seconds until the earliest delayed entry is due; None when there is none


class Counts(NamedTuple):
    """One atomic read of the run's collections."""

    queued: int
    leased: int
    delayed: int
    failed: int
    seed: SeedState
    seed_detail: str = ""  # who and when; the error for "failed"
    seed_age_s: float = 0.0  # since the state was written, by the store's clock
    live_nodes: int = 1
    intact: bool = True  # False: the run's meta key is gone under a live node
    next_due_s: float | None = None
    tasks: int = 0  # tasks that have requests
    tasks_done: int = 0
    tasks_failed: int = 0  # ended, with at least one request that failed for good


class SeedGrant(NamedTuple):
    """Answer to `seed_acquire`: a token when this node is to seed, else the state found."""

    token: str | None
    state: SeedState
    detail: str = ""
    age_s: float = 0.0
    generation: str = ""  # which seeding this is: the same after a take-over, another after a re-seeding


class Adopted(NamedTuple):
    """Answer to `adopt`. `waits`: an earlier run may still have a live node; to be asked again after a while."""

    moved: int
    waits: bool


class BeatReport(NamedTuple):
    """What a node says of itself at each heartbeat. Counters are cumulative."""

    in_flight: int
    unacked: int
    counters: dict[str, int]


class BeatReply(NamedTuple):
    """`known` is False when the store has no record of this node (it must join again); `sweeping` tells whether
    this node's own beats have been unbroken long enough for it to take over others' leases; `stale_nodes` are the
    ids of nodes whose heartbeat is older than HEARTBEAT_STALE; `intact` as in Counts. `gone_nodes` are those of this
    machine whose process is gone, which is certain: their leases may be taken over at once.
    """

    known: bool
    sweeping: bool
    stale_nodes: list[str]
    intact: bool
    live_nodes: int
    gone_nodes: Sequence[str] = ()


class Reclaimed(NamedTuple):
    """What one reclaim call moved. `more` is True when the bound was reached and there may be more."""

    returned: int
    poisoned: int
    more: bool


BYTES_PER_ENTRY = 8192
"""A payload of n times this size counts as n entries more, wherever entries are bounded by number."""


def weight(entries: Sequence[NewEntry]) -> int:
    """How much of a call entries take: one each, and more for large payloads (8 kB counts as one more)."""
    return len(entries) + sum(
        len(e.payload) // BYTES_PER_ENTRY for e in entries if isinstance(e.payload, bytes)
    )
