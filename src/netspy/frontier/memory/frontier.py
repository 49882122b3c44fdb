"""The frontier inside one process: AirSpider's, and the fast side of the contract suite."""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from netspy.frontier.contract import SeedLockLostError
from netspy.frontier.dedup import BloomFilter, ExactFilter, RequestFilter, maybe_await
from netspy.frontier.memory.site_queue import Entry, SiteQueue
from netspy.frontier.memory.task_table import TaskTable
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
    SeedState,
    Settled,
    Settlement,
    TaskMark,
)
from netspy.policy.claiming import MAX_CLAIM_BYTES, suspicion_limit

_FIRST = -1_000_000.0
"""The last requests of tasks come before all others."""

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


class MemoryFrontier:
    """See `contract.Frontier`. Payloads are kept as they are, never packed.

    `lease_s` is None (leases never run out) for one process: nobody could take over. `filter_` is the fingerprint filter, an
    exact set unless another is given. `on_failed` gets each record that goes to the failed list.
    """

    def __init__(
        self,
        *,
        lease_s: float | None = None,
        max_deliveries: int = 3,
        clock: Callable[[], float] = time.monotonic,
        on_failed: Callable[[bytes], None] | None = None,
        on_poison: Callable[[Lease], bytes] | None = None,
        dedup: ExactFilter | BloomFilter | RequestFilter | None = None,
        seeding_ttl_s: float = float("inf"),
    ) -> None:
        """`on_poison` makes the record of an entry whose leases ran out too often; `seeding_ttl_s`: a seeding
        lock not renewed for this long may be taken over.
        """
        self._lease_s = math.inf if lease_s is None else lease_s
        self._limit = suspicion_limit(max_deliveries)
        self._clock = clock
        self._on_failed = on_failed
        self._on_poison = on_poison or _bare_record
        # A class of the user's is asked and told; ours know in one step whether a fingerprint is new.
        self._own = dedup if dedup is not None and not isinstance(dedup, ExactFilter | BloomFilter) else None
        self._filter = dedup if isinstance(dedup, ExactFilter | BloomFilter) else ExactFilter()
        self._asking = asyncio.Lock()
        self._lock = threading.Lock()
        self._seq = 0
        self._queue = SiteQueue()
        self._delayed: list[tuple[float, int, str, Entry]] = []
        self._leased: dict[int, Lease] = {}
        self._failed = 0
        self._tasks = TaskTable()
        self._seed = SeedMark(seeding_ttl_s)
        self.warnings: list[str] = []

    async def open(self) -> None:
        """Nothing to connect."""

    async def close(self) -> None:
        """Nothing to drop; what is not done stays readable through `snapshot`."""

    def give_up_waiting(self) -> None:
        """No call ever waits."""

    @property
    def node(self) -> str:
        """The only node."""
        return "00000001"

    @property
    def history(self) -> str | None:
        """None: memory has one history."""
        return None

    def keeper(self) -> MemoryKeeper:
        """The keeper's side."""
        return MemoryKeeper(self)

    # -- queue

    def _put(self, entries: Sequence[NewEntry]) -> list[bool]:
        for entry in entries:
            if entry.priority - entry.priority != 0:
                raise ValueError(f"priority {entry.priority!r} is not a finite number")
        add, push = self._filter.add, self._queue.push
        flags = []
        seq = self._seq
        for payload, id_, priority, site, task in entries:
            new = add(id_)
            flags.append(new)
            if new:
                seq += 1
                push(site, (priority, seq, payload))
                if task:
                    self._tasks.arrived(seq, task)
        self._seq = seq
        return flags

    async def put(
        self,
        entries: Sequence[NewEntry],
        *,
        seed_token: str | None = None,
        tasks: Sequence[TaskMark] = (),
    ) -> list[bool]:
        """See the contract."""
        if self._own is not None:
            return await self._put_asking(entries, seed_token, None, tasks)
        with self._lock:
            self._check_seeder(seed_token)
            flags = self._put(entries)
            if tasks:
                self._tasks.mark(tasks)
                self._close_tasks()
            return flags

    def _close_tasks(self) -> None:
        for closing, failures in self._tasks.closed():
            self._seq += 1
            self._queue.push(closing.site, (_FIRST, self._seq, closing.payload))
            self._tasks.arrived(self._seq, f"!{failures}")

    async def open_tasks(self, tasks: Sequence[tuple[str, str | None]]) -> OpenTasks:
        """See the contract. Nothing is ever lost."""
        with self._lock:
            return OpenTasks([self._tasks.state(task) for task, _ in tasks], None)

    def _check_seeder(self, seed_token: str | None) -> None:
        if seed_token is not None and not self._seed.held_by(seed_token):
            raise SeedLockLostError("another one holds the seeding lock now")

    async def _put_asking(
        self,
        entries: Sequence[NewEntry],
        seed_token: str | None,
        parent: Lease | None,
        tasks: Sequence[TaskMark] = (),
    ) -> list[bool]:
        """Put under a filter class of the user's: ask it, queue, and only then tell it. With `parent`, ack
        that too.
        """
        own = self._own
        if own is None:
            return []
        async with self._asking:
            ids = [entry.id for entry in entries]
            fresh: list[NewEntry] = []
            flags: list[bool] = []
            batch: set[bytes] = set()
            for entry, known in zip(entries, await maybe_await(own.seen(ids)) if ids else [], strict=True):
                flags.append(not known and entry.id not in batch)
                batch.add(entry.id)
                if flags[-1]:
                    fresh.append(entry)
            with self._lock:
                self._check_seeder(seed_token)
                if parent is not None:
                    if self._leased.pop(parent.seq, None) is not parent:
                        return []
                    self._tasks.ended(parent.seq)
                for payload, _, priority, site, task in fresh:
                    self._seq += 1
                    self._queue.push(site, (priority, self._seq, payload))
                    if task:
                        self._tasks.arrived(self._seq, task)
                self._tasks.mark(tasks)
                if self._tasks.open:
                    self._close_tasks()
            if fresh:
                await maybe_await(own.mark([entry.id for entry in fresh]))
            return flags

    async def claim(
        self,
        limit: int,
        *,
        pass_over: Collection[str] = (),
        suspect_room: tuple[int, int, int] = (64, 8, 1),
        max_bytes: int = MAX_CLAIM_BYTES,
    ) -> Claimed:
        """See the contract. Entries are objects here, which a claim doesn't copy."""
        del max_bytes
        now = self._clock()
        with self._lock:
            while self._delayed and self._delayed[0][0] <= now:
                _, _, site, entry = heappop(self._delayed)
                self._queue.push(site, entry)
            leases = self._claim(limit, pass_over, list(suspect_room), now + self._lease_s)
            due = self._delayed[0][0] - now if self._delayed else None
            return Claimed(leases, self._queue.size, len(self._delayed), len(self._leased), due)

    def _claim(self, limit: int, pass_over: Collection[str], room: list[int], deadline: float) -> list[Lease]:
        leased = self._leased
        leases: list[Lease] = []
        for site, entry in self._queue.take(limit, pass_over, room):
            claimed_before = len(entry) == 5
            suspicion = entry[4] if claimed_before else 0
            lease = Lease(
                seq=entry[1],
                payload=entry[2],
                priority=entry[0],
                site=site,
                deliveries=entry[3] + 1 if claimed_before else 1,
                suspicion=suspicion,
                member=(deadline, suspicion),
                valid_until=deadline,
                task=self._tasks.task_of.get(entry[1], ""),
            )
            leased[entry[1]] = lease
            leases.append(lease)
        return leases

    # -- leases

    def _owned(self, lease: Lease) -> bool:
        return self._leased.get(lease.seq) is lease

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """See the contract. `history` means nothing here."""
        acked: list[bool] = []
        new: list[list[bool]] = []
        if self._own is not None:
            for lease, children, _ in settlements:
                acked.append(self._owned(lease))
                new.append(await self._put_asking(children, None, lease) if acked[-1] else [])
            return Settled(acked, new, [False] * len(acked))
        with self._lock:
            leased = self._leased
            for settlement in settlements:
                lease = settlement.lease
                if leased.get(lease.seq) is not lease:
                    acked.append(False)
                    new.append([])
                    continue
                new.append(self._put(settlement.children) if settlement.children else [])
                del leased[lease.seq]
                acked.append(True)
                if lease.task:
                    self._tasks.ended(lease.seq)
            if self._tasks.open:
                self._close_tasks()
        return Settled(acked, new, [False] * len(acked))

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        """See the contract."""
        flags = []
        with self._lock:
            for lease in leases:
                mine = self._owned(lease)
                flags.append(mine)
                if mine:
                    del self._leased[lease.seq]
                    self._queue.push(lease.site, _entry(lease, lease.deliveries - 1, lease.member[1]))
        return flags

    async def delay(self, items: Sequence[tuple[Lease, float, Any]]) -> list[bool]:
        """See the contract. A payload of None keeps the stored one."""
        flags = []
        now = self._clock()
        with self._lock:
            for lease, seconds, payload in items:
                if seconds - seconds != 0:
                    raise ValueError(f"a delay of {seconds!r} s is not a finite time")
                mine = self._owned(lease)
                flags.append(mine)
                if mine:
                    del self._leased[lease.seq]
                    kept = lease.payload if payload is None else payload
                    entry = (lease.priority, lease.seq, kept, lease.deliveries, lease.member[1])
                    heappush(self._delayed, (now + max(0.0, seconds), lease.seq, lease.site, entry))
        return flags

    async def give_up(self, items: Sequence[FinalFailure]) -> GivenUp:
        """See the contract. `history` means nothing here."""
        flags = []
        with self._lock:
            for lease, record, _ in items:
                mine = self._owned(lease)
                flags.append(mine)
                if mine:
                    del self._leased[lease.seq]
                    self._fail(record)
                    self._tasks.ended(lease.seq, failed=True)
            if self._tasks.open:
                self._close_tasks()
        return GivenUp(flags, [False] * len(flags))

    def _fail(self, record: bytes) -> None:
        self._failed += 1
        if self._on_failed is not None:
            self._on_failed(record)

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        """See `contract.Keeper`."""
        deadline = self._clock() + self._lease_s
        flags = []
        with self._lock:
            for lease in leases:
                mine = self._owned(lease)
                flags.append(mine)
                if mine:
                    lease.member = (deadline, lease.member[1])
                    lease.valid_until = deadline
        return flags

    def reclaim(self, limit: int = 500) -> Reclaimed:
        """See `contract.Keeper`."""
        if self._lease_s == math.inf:
            return Reclaimed(0, 0, more=False)
        now = self._clock()
        with self._lock:
            out = sorted(
                (lease for lease in self._leased.values() if lease.member[0] <= now),
                key=lambda lease: lease.member[0],
            )
            poisoned = 0
            for lease in out[:limit]:
                del self._leased[lease.seq]
                suspicion = lease.member[1] + 1
                if suspicion > self._limit:
                    poisoned += 1
                    self._fail(self._on_poison(lease))
                    self._tasks.ended(lease.seq, failed=True)
                else:
                    self._queue.push(lease.site, _entry(lease, lease.deliveries, suspicion))
            if self._tasks.open:
                self._close_tasks()
        moved = min(limit, len(out))
        return Reclaimed(moved - poisoned, poisoned, more=len(out) > limit)

    def reconcile(self, held: Sequence[Lease]) -> int:
        """See `contract.Keeper`. Only a caller's fault can leave a lease that nobody holds."""
        marks = {id(lease) for lease in held}
        with self._lock:
            lost = [lease for lease in self._leased.values() if id(lease) not in marks]
            for lease in lost:
                del self._leased[lease.seq]
                self._queue.push(lease.site, _entry(lease, lease.deliveries, lease.member[1]))
        return len(lost)

    # -- counts and seeding

    async def counts(self) -> Counts:
        """See the contract."""
        now = self._clock()
        with self._lock:
            return Counts(
                queued=self._queue.size,
                leased=len(self._leased),
                delayed=len(self._delayed),
                failed=self._failed,
                seed=self._seed.state,
                seed_detail=self._seed.error,
                seed_age_s=self._seed.age_s(now),
                next_due_s=max(0.0, self._delayed[0][0] - now) if self._delayed else None,
                tasks=len(self._tasks.open),
                tasks_done=self._tasks.done,
                tasks_failed=self._tasks.failed,
            )

    async def adopt(self) -> Adopted:
        """See the contract: memory has no earlier runs."""
        return Adopted(0, waits=False)

    async def seed_acquire(self) -> SeedGrant:
        """See the contract."""
        with self._lock:
            return self._seed.acquire(self._clock())

    async def seed_renew(self, token: str) -> bool:
        """See the contract."""
        with self._lock:
            return self._seed.renew(token, self._clock())

    async def seed_finish(self, token: str, *, error: str | None = None) -> bool:
        """See the contract."""
        with self._lock:
            return self._seed.finish(token, error, self._clock())

    # -- unfinished work

    def snapshot(self) -> Iterator[tuple[Any, float]]:
        """(payload, priority) of everything not done: queued in order, then delayed, then leased."""
        with self._lock:
            queued = self._queue.in_order()
            rest = [e for _, _, _, e in sorted(self._delayed, key=lambda row: row[:2])]
            leased = [(lease.payload, lease.priority) for lease in self._leased.values()]
        for entry in (*queued, *rest):
            yield entry[2], entry[0]
        yield from leased

    def restore(self, entries: Iterable[tuple[Any, float]], *, seen: Iterable[bytes] = ()) -> int:
        """Queue what an earlier process left, as (payload, priority), though its fingerprints are known.

        `seen` is what `seen()` gave in that process. Returns how many were queued. Raises ConfigError when
        the filter has another layout now.
        """
        self.load_seen(seen)
        count = 0
        with self._lock:
            for payload, priority in entries:
                self._seq += 1
                self._queue.push(getattr(payload, "site", "00000000"), (priority, self._seq, payload))
                count += 1
        return count

    def seen(self) -> Iterator[bytes]:
        """The filter's content in pieces (16-byte fingerprints, or a Bloom filter's bits), for
        `load_seen`.
        """
        return self._filter.dump()

    def load_seen(self, chunks: Iterable[bytes]) -> None:
        """Take in what `seen` gave. Raises ConfigError when the filter's layout has changed since."""
        self._filter.load(chunks)


class MemoryKeeper:
    """See `contract.Keeper`. There are no other nodes."""

    def __init__(self, frontier: MemoryFrontier) -> None:
        self._frontier = frontier
        self.taken_over = 0

    def beat(self, report: BeatReport) -> BeatReply:  # noqa: ARG002  # nobody else reads it
        """Always known, never anybody stale."""
        return BeatReply(known=True, sweeping=True, stale_nodes=[], intact=True, live_nodes=1)

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        """See the contract."""
        return self._frontier.renew(leases)

    def reclaim(self, limit: int = 500) -> Reclaimed:
        """See the contract."""
        moved = self._frontier.reclaim(limit)
        self.taken_over += moved.returned
        return moved

    def sweep(self, node: str) -> bool:  # noqa: ARG002  # there is no other node
        """Nothing to find."""
        return True

    def reconcile(self, held: Sequence[Lease]) -> int:
        """See the contract."""
        return self._frontier.reconcile(held)

    def rejoin(self) -> None:
        """Nothing to do: memory forgets nobody."""

    def close(self) -> None:
        """Nothing to drop."""


class SeedMark:
    """The seeding lock: one node at a time seeds; one that did not renew it for `ttl_s` seconds may be followed by another."""

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


def _entry(lease: Lease, deliveries: int, suspicion: int) -> Entry:
    return (lease.priority, lease.seq, lease.payload, deliveries, suspicion)


def _bare_record(lease: Lease) -> bytes:
    from netspy.policy.failed_record import pack_failed

    payload = lease.payload if isinstance(lease.payload, bytes) else None
    return pack_failed(
        payload,
        reason="poison",
        error=f"its lease ran out {lease.member[1]} times after a start",
        attempts=lease.deliveries,
        time=time.time(),
        priority=lease.priority,
        site=lease.site,
        raw=None if payload is not None else repr(lease.payload),
    )
