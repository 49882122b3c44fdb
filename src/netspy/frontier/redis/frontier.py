"""The shared frontier: one Redis, any number of nodes. Every transition is one script in `lua/`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from netspy.frontier.dedup import (
    IN_PROCESS,
    SHARED,
    FillWatch,
    MemoryItemFilter,
    RequestFilter,
    bloom_plan,
    in_process_filter,
)
from netspy.frontier.redis.calls import Calls, DedupPlan
from netspy.frontier.redis.entry_format import read_member
from netspy.frontier.redis.item_filter import RedisItemFilter
from netspy.frontier.redis.keeper import RedisKeeper
from netspy.frontier.redis.leftovers import Leftovers
from netspy.frontier.redis.membership import Clocks
from netspy.frontier.redis.seed_lock import SeedLock
from netspy.frontier.redis.session import Events, Session
from netspy.frontier.redis.writes import ENTRIES_PER_CALL, Writes
from netspy.messages.entry import (
    Adopted,
    Claimed,
    Counts,
    FinalFailure,
    GivenUp,
    Lease,
    NewEntry,
    OpenTasks,
    TaskMark,
    TaskState,
)
from netspy.policy.bloom import MAX_LAYER_BYTES
from netspy.policy.claiming import MAX_CLAIM_BYTES
from netspy.policy.failed_record import pack_failed
from netspy.redisio.keys import RunKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from netspy.frontier.redis.membership import Owner
    from netspy.policy.run_scope import RunScope
    from netspy.settings import Settings

CLAIM_LIMIT = 1000


class RedisFrontier:
    """The frontier on Redis. See `contract.Frontier` for what each call promises.

    `pack` turns a payload that isn't bytes into JSON bytes (an object); `unpack` turns them back, and what it
    refuses is moved to the failed list.
    """

    def __init__(
        self,
        settings: Settings,
        scope: RunScope,
        owner: Owner,
        *,
        pack: Callable[[Any], bytes],
        unpack: Callable[[bytes], Any],
        renewed: Callable[[bytes], bytes] = bytes,
        events: Events | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Nothing is connected yet. `renewed`: a failed request's payload with a new retry budget.

        Raises ConfigError for a wrong URL, dedup filter or Bloom size.
        """
        events, clocks = events or Events(), clocks or Clocks()
        self.scope = scope
        self.keys = RunKeys.of(scope, max_layers=settings.DEDUP_MAX_LAYERS)
        dedup = _dedup_plan(settings, scope, self.keys)
        own_filter: RequestFilter | None = None
        if settings.DEDUP_FILTER not in SHARED:
            own_filter = in_process_filter(settings, on_fill=events.on_fill)
            dedup = dedup._replace(kind="none")
        self.settings = settings
        self._calls = Calls(settings, scope, self.keys, dedup, owner)
        self._session = session = Session(self._calls, clocks, events)
        self._seed = seed = SeedLock(session)
        self._leftovers = (
            Leftovers(session, renewed)
            if scope.incremental and settings.DEDUP_FILTER not in IN_PROCESS
            else None
        )
        self._pack, self._unpack = pack, unpack
        self._events = events
        self._writes = Writes(session, filter_=own_filter, fill=self._fill_watch(dedup), pack=pack)
        self._rank = 0
        # What one part answers by itself; the contract says what each promises.
        self.settle = self._writes.settle
        self.seed_acquire, self.seed_renew, self.seed_finish = seed.acquire, seed.renew, seed.finish
        self.close, self.give_up_waiting = session.close, session.give_up_waiting

    def _fill_watch(self, dedup: DedupPlan) -> FillWatch:
        report = self._events.on_fill if dedup.kind == "bloom" else None
        return FillWatch(dedup.bloom.capacity, self.settings.DEDUP_WARN_FILL_RATE, report)

    # -- life

    @property
    def warnings(self) -> list[str]:
        """What to say after `open`: no persistence, evicting policy, leases off."""
        return self._session.warnings

    async def open(self) -> None:
        """Connect, check the server, owners and key types, and join as a node.

        Raises ConfigError (wrong password or database, foreign keys, another owner) or StoreUnavailableError
        after REDIS_START_TIMEOUT.
        """
        await self._session.open()
        if self._calls.lease.duration_s is None:
            self.warnings.append(
                "SPIDER_TASK_LEASE=0: nothing runs twice; what a dead node held goes to failed_requests instead of "
                "being crawled by another"
            )

    @property
    def node(self) -> str:
        """The id of this node: eight letters and digits."""
        return self._session.shared.member.node

    @property
    def history(self) -> str | None:
        """See the contract: the name of this node's memory, and the seeding generation."""
        return self._session.shared.memory or None

    def keeper(self) -> RedisKeeper:
        """A keeper with its own blocking connection, for the keeper's thread."""
        return RedisKeeper(self._calls, self._session.shared)

    # -- put

    async def put(
        self,
        entries: Sequence[NewEntry],
        *,
        seed_token: str | None = None,
        tasks: Sequence[TaskMark] = (),
    ) -> list[bool]:
        """See the contract. Sent in pieces of at most 500 entries and 4 MB."""
        flags = await self._writes.put(entries, seed_token, tasks)
        if seed_token is not None:
            self._seed.check_seeds()
        return flags

    # -- claim

    async def claim(
        self,
        limit: int,
        *,
        pass_over: Collection[str] = (),
        suspect_room: tuple[int, int, int] = (64, 8, 1),
        max_bytes: int = MAX_CLAIM_BYTES,
    ) -> Claimed:
        """See the contract. A claim that was cancelled is asked for again by the next one, so nothing is
        orphaned.
        """
        session = self._session
        call = self._calls.claim(min(limit, CLAIM_LIMIT), pass_over, suspect_room, self._rank, max_bytes)
        reply = await session.call(call, session.claims)
        session.follow(reply[1])
        self._rank = int(reply[6])
        self._report_unreadable(int(reply[7]))
        valid_until = session.claims.sent + self._calls.lease.trusted_s
        leases: list[Lease] = []
        broken: list[tuple[Lease, bytes]] = []
        for text in reply[8:]:
            self._take(text, valid_until, leases, broken)
        if broken:
            await self.give_up([FinalFailure(lease, record) for lease, record in broken])
            self._report_unreadable(len(broken))
        due = int(reply[5])
        return Claimed(
            leases, int(reply[2]), int(reply[3]), int(reply[4]) - len(broken), None if due < 0 else due / 1000
        )

    def _report_unreadable(self, count: int) -> None:
        if count and self._events.on_unreadable is not None:
            self._events.on_unreadable(count)

    def _take(
        self, text: bytes, valid_until: float, leases: list[Lease], broken: list[tuple[Lease, bytes]]
    ) -> None:
        parts = read_member(text)
        lease = Lease(
            seq=parts.seq,
            payload=parts.payload,
            priority=parts.priority,
            site=parts.site,
            deliveries=parts.deliveries,
            suspicion=parts.suspicion,
            member=text,
            valid_until=valid_until,
            task=parts.task,
        )
        try:
            lease.payload = self._unpack(parts.payload)
        except Exception as error:
            record = pack_failed(
                None,
                reason="unreadable",
                error=f"{type(error).__name__}: {error}",
                attempts=parts.deliveries,
                time=time.time(),
                priority=parts.priority,
                site=parts.site,
                raw=parts.payload.decode("utf-8", "replace"),
            )
            broken.append((lease, record))
        else:
            leases.append(lease)

    # -- release, delay, give up

    async def _move(self, what: str, rows: Sequence[tuple[bytes, Any, Any]]) -> bytes:
        session = self._session
        flags = b""
        for start in range(0, len(rows), ENTRIES_PER_CALL):
            piece = rows[start : start + ENTRIES_PER_CALL]
            reply = await session.call(self._calls.move(what, piece), session.writes)
            flags += reply[1]
        return flags

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        """See the contract."""
        return _yes(await self._move("release", [(lease.member, "", "") for lease in leases]))

    async def delay(self, items: Sequence[tuple[Lease, float, Any]]) -> list[bool]:
        """See the contract. A payload of None keeps the stored one."""
        rows = []
        for lease, seconds, payload in items:
            text = b"" if payload is None else payload if isinstance(payload, bytes) else self._pack(payload)
            rows.append((lease.member, max(0, round(seconds * 1000)), text))
        return _yes(await self._move("delay", rows))

    async def give_up(self, items: Sequence[FinalFailure]) -> GivenUp:
        """See the contract; `policy.failed_record.pack_failed` makes the record."""
        flags = await self._move(
            "give_up", [(lease.member, history or "", record) for lease, record, history in items]
        )
        return GivenUp(_yes(flags), [digit == 50 for digit in flags])

    async def adopt(self) -> Adopted:
        """See the contract."""
        return await self._leftovers.adopt() if self._leftovers is not None else Adopted(0, waits=False)

    # -- counts

    async def counts(self) -> Counts:
        """See the contract. A node that once saw *seeded* or *failed* keeps it when the lock's lifetime is
        over.
        """
        session = self._session
        shared = session.shared
        reply = await session.link.run(shared.sent(self._calls.counts(), shared.member))
        if reply[0]:
            session.follow(reply[11])
        state, detail, age = self._seed.read(reply[7], int(reply[8]), float(reply[9]))
        due = int(reply[6])
        return Counts(
            queued=int(reply[1]),
            leased=int(reply[2]),
            delayed=int(reply[3]),
            failed=int(reply[4]),
            seed=state,
            seed_detail=detail,
            seed_age_s=age,
            live_nodes=int(reply[5]),
            intact=bool(reply[0]),
            next_due_s=None if due < 0 else due / 1000,
            tasks=int(reply[12]),
            tasks_done=int(reply[13]),
            tasks_failed=int(reply[14]),
        )

    async def open_tasks(self, tasks: Sequence[tuple[str, str | None]]) -> OpenTasks:
        """See the contract."""
        if not tasks:
            return OpenTasks([], self.history)
        session, history = self._session, self.history
        reply = await session.call(self._calls.opened(tasks), session.writes)
        return OpenTasks([TaskState(digit - 48) for digit in reply[1]], history)

    # -- items

    def item_filter(self) -> MemoryItemFilter | RedisItemFilter:
        """The filter of stored items: shared like the request filter, or in the process when that one is.

        With a request filter by class path, items are filtered on Redis.
        """
        if self.settings.DEDUP_FILTER in IN_PROCESS:
            return MemoryItemFilter()
        kind = "set" if self.settings.DEDUP_FILTER == "redis-set" else "bloom"
        plan = DedupPlan(kind, self.keys.items, self.scope.run_ttl_ms, self._calls.dedup.bloom)
        return RedisItemFilter(self.keys, plan, self._session.call, on_count=self._fill_watch(plan).seen)


def _yes(flags: bytes) -> list[bool]:
    return [digit == 49 for digit in flags]


def _dedup_plan(settings: Settings, scope: RunScope, keys: RunKeys) -> DedupPlan:
    """What DEDUP_FILTER says. Raises ConfigError for a Bloom filter that Redis can't hold."""
    kinds = {"auto": "bloom", "redis": "bloom", "redis-bloom": "bloom", "redis-set": "set"}
    bloom = bloom_plan(
        settings, limit=None if settings.DEDUP_FILTER in IN_PROCESS | {"redis-set"} else MAX_LAYER_BYTES
    )
    return DedupPlan(kinds.get(settings.DEDUP_FILTER, "none"), keys.requests, scope.dedup_ttl_ms, bloom)
