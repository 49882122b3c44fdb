"""The shared frontier: one Redis, any number of nodes. Every transition is one script in `lua/`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from netspy.frontier import calls
from netspy.frontier.calls import Calls, DedupPlan
from netspy.frontier.dedup import (
    IN_PROCESS,
    SHARED,
    ConfirmedCache,
    FillWatch,
    RequestFilter,
    bloom_plan,
    in_process_filter,
)
from netspy.frontier.entry_format import read_member
from netspy.frontier.item_filter import ItemFilter, MemoryItemFilter, RedisItemFilter
from netspy.frontier.keeper import RedisKeeper
from netspy.frontier.membership import NotRegisteredError, StaleOperationError
from netspy.frontier.seed_lock import SeedLock
from netspy.frontier.session import Session, package_version
from netspy.frontier.writes import ENTRIES_PER_CALL, Writes
from netspy.messages.entry import (
    Claimed,
    Counts,
    Lease,
    NewEntry,
    OpenTasks,
    SeedGrant,
    Settled,
    Settlement,
    TaskMark,
    TaskState,
)
from netspy.policy.bloom import MAX_LAYER_BYTES
from netspy.policy.failed_record import pack_failed
from netspy.redisio.keys import RunKeys
from netspy.redisio.link import StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from netspy.frontier.membership import Member
    from netspy.policy.run_scope import RunScope
    from netspy.redisio.scripts import Call
    from netspy.settings import Settings

CLAIM_LIMIT = 1000


class RedisFrontier:
    """The frontier on Redis. See `contract.Frontier` for what each call promises.

    `pack` turns a payload that isn't bytes into JSON bytes (an object); `unpack` turns them back, and what it
    refuses is moved to the failed list. `on_fill(rate)` reports a filling Bloom filter, `on_outage(away,
    seconds)` the server's absence, `on_full(full)` a server at maxmemory, `on_unreadable(count)` entries
    moved aside. `take_over` lets a renamed class have another's redis_key. `clock_ms` replaces the server's
    clock, for tests.
    """

    def __init__(
        self,
        settings: Settings,
        scope: RunScope,
        *,
        owner_class: str,
        kind: str,
        pack: Callable[[Any], bytes],
        unpack: Callable[[bytes], Any],
        url: str | None = None,
        request_filter: RequestFilter | None = None,
        on_fill: Callable[[float], None] | None = None,
        on_outage: Callable[[bool, float], None] | None = None,
        on_full: Callable[[bool], None] | None = None,
        on_unreadable: Callable[[int], None] | None = None,
        take_over: bool = False,
        clock_ms: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is connected yet. Raises ConfigError for a wrong URL, dedup filter or Bloom size."""
        self.scope = scope
        self.keys = RunKeys.of(scope, max_layers=settings.DEDUP_MAX_LAYERS)
        dedup = _dedup_plan(settings, scope, self.keys)
        self._filter: RequestFilter | None = request_filter
        if request_filter is None and settings.DEDUP_FILTER not in SHARED:
            self._filter = in_process_filter(settings, on_fill=on_fill)
        if self._filter is not None:
            dedup = dedup._replace(kind="none")
        self.settings = settings
        self._calls = Calls(settings, scope, self.keys, dedup)
        self._cache = ConfirmedCache()
        self._session = Session(
            settings,
            self._calls,
            url=url,
            owner=(owner_class, kind, take_over),
            on_history=self._cache.follow,
            on_outage=on_outage,
            on_full=on_full,
            clock_ms=clock_ms,
            monotonic=monotonic,
        )
        self._seed = SeedLock(self._session)
        self._pack, self._unpack = pack, unpack
        lease = settings.SPIDER_TASK_LEASE
        # A node stops trusting a lease a little before the store does.
        self._lease_s = lease - min(2.0, lease * 0.1) if lease else float("inf")
        self._on_unreadable = on_unreadable
        self._on_fill = on_fill
        self._writes = Writes(
            self._session,
            self._calls,
            filter_=self._filter,
            cache=self._cache,
            fill=FillWatch(
                dedup.bloom.capacity,
                settings.DEDUP_WARN_FILL_RATE,
                on_fill if dedup.kind == "bloom" else None,
            ),
            pack=pack,
        )
        self._claimer = asyncio.Lock()
        self._rank = 0

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
        if self.settings.SPIDER_TASK_LEASE == 0:
            self.warnings.append(
                "SPIDER_TASK_LEASE=0: nothing runs twice; what a dead node held goes to failed_requests "
                "instead of "
                "being crawled by another"
            )

    async def close(self) -> None:
        """Give back what is still leased to this node, remove its record, drop the connections. Safe to call
        twice.

        When Redis is away the record stays, grows stale, and another node does this.
        """
        await self._session.close()

    def give_up_waiting(self) -> None:
        """Calls that wait for a server that is away, or full, raise StoreUnavailableError now; later ones at
        once.
        """
        self._session.give_up_waiting()

    @property
    def node(self) -> str:
        """The id of this node: eight digits."""
        return self._session.shared.member.node

    @property
    def history(self) -> str | None:
        """Server run id and seeding generation, `<id>:<n>`."""
        return self._session.shared.history or None

    def keeper(self) -> RedisKeeper:
        """A keeper with its own blocking connection, for the keeper's thread."""
        session = self._session
        return RedisKeeper(
            self._calls,
            session.shared,
            self.settings,
            url=session.link.url,
            owner=session.owner,
            lease_s=self._lease_s,
            started=session.started,
            version=package_version(),
            clock_ms=session.clock_ms,
            monotonic=session.monotonic,
        )

    # -- put and settle

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

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """See the contract. Sent in pieces; a parent with more children than one piece holds has the rest put
        first.
        """
        return await self._writes.settle(settlements)

    # -- claim

    async def claim(
        self, limit: int, *, pass_over: Collection[str] = (), suspect_room: tuple[int, int, int] = (64, 8, 1)
    ) -> Claimed:
        """See the contract. A claim that was cancelled is asked for again by the next one, so nothing is
        orphaned.
        """
        async with self._claimer:
            reply, sent = await self._claim_reply(min(limit, CLAIM_LIMIT), pass_over, suspect_room)
            self._session.follow(reply[1])
            self._rank = int(reply[6])
            if int(reply[7]) and self._on_unreadable is not None:
                self._on_unreadable(int(reply[7]))
            valid_until = sent + self._lease_s
            leases: list[Lease] = []
            broken: list[tuple[Lease, bytes]] = []
            for text in reply[8:]:
                self._take(text, valid_until, leases, broken)
        if broken:
            await self.give_up(broken)
            if self._on_unreadable is not None:
                self._on_unreadable(len(broken))
        due = int(reply[5])
        return Claimed(
            leases, int(reply[2]), int(reply[3]), int(reply[4]) - len(broken), None if due < 0 else due / 1000
        )

    async def _claim_reply(
        self, limit: int, pass_over: Collection[str], room: tuple[int, int, int]
    ) -> tuple[list[Any], float]:
        session = self._session
        while True:
            member = session.shared.member
            if not member.claim_open:
                member.claim_op += 1
                member.claim_open = True
                member.claim_sent = session.monotonic()
            call = self._calls.claim(
                session.shared, member, session.now(), limit, pass_over, room, self._rank
            )
            try:
                reply = calls.checked(await session.link.run(call), self.keys.ns)
            except NotRegisteredError:
                await session.rejoin(member)
            except StaleOperationError as stale:
                member.claim_op = max(member.claim_op, stale.last)
                member.claim_open = False
            except StoreFullError as error:
                session.note_full(full=True)
                await session.wait_for_memory(error, 1.0)
            else:
                member.claim_open = False
                member.claims_done = member.claim_op
                return reply, member.claim_sent

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

    async def _move(self, what: str, rows: Sequence[tuple[bytes, Any, Any]]) -> list[bool]:
        flags: list[bool] = []
        for start in range(0, len(rows), ENTRIES_PER_CALL):
            piece = rows[start : start + ENTRIES_PER_CALL]
            reply = await self._session.write(self._moving(what, piece), grows=False)
            flags += [digit == 49 for digit in reply[1]]
        return flags

    def _moving(self, what: str, piece: Sequence[tuple[bytes, Any, Any]]) -> Callable[[Member, int], Call]:
        session = self._session

        def build(member: Member, op: int) -> Call:
            return self._calls.move(session.shared, member, session.now(), op, what, piece)

        return build

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        """See the contract."""
        return await self._move("release", [(lease.member, "", "") for lease in leases])

    async def delay(self, items: Sequence[tuple[Lease, float, Any]]) -> list[bool]:
        """See the contract. A payload of None keeps the stored one."""
        rows = []
        for lease, seconds, payload in items:
            text = b"" if payload is None else payload if isinstance(payload, bytes) else self._pack(payload)
            rows.append((lease.member, max(0, round(seconds * 1000)), text))
        return await self._move("delay", rows)

    async def give_up(self, items: Sequence[tuple[Lease, bytes]]) -> list[bool]:
        """See the contract; `policy.failed_record.pack_failed` makes the record."""
        return await self._move("give_up", [(lease.member, "", record) for lease, record in items])

    # -- counts and seeding

    async def counts(self) -> Counts:
        """See the contract. A node that once saw *seeded* or *failed* keeps it when the lock's lifetime is
        over.
        """
        session = self._session
        reply = await session.link.run(
            self._calls.counts(session.shared, session.shared.member, session.now())
        )
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
        session = self._session
        if not tasks:
            return OpenTasks([], self.history)
        reply = await session.ask(lambda member: self._calls.opened(session.shared, member, tasks))
        session.follow(reply[2])
        return OpenTasks([TaskState(digit - 48) for digit in reply[1]], reply[2].decode())

    async def seed_acquire(self) -> SeedGrant:
        """See the contract. *failed* is tried again only by a node's first call, when no other node lives."""
        return await self._seed.acquire()

    async def seed_renew(self, token: str) -> bool:
        """See the contract."""
        return await self._seed.renew(token)

    async def seed_finish(self, token: str, *, error: str | None = None) -> bool:
        """See the contract."""
        return await self._seed.finish(token, error)

    # -- items

    def item_filter(self) -> ItemFilter:
        """The filter of stored items: shared like the request filter, or in the process when that one is.

        With a request filter by class path, items are filtered on Redis.
        """
        if self.settings.DEDUP_FILTER in IN_PROCESS:
            return MemoryItemFilter()
        kind = "set" if self.settings.DEDUP_FILTER == "redis-set" else "bloom"
        bloom = self._calls.dedup.bloom
        watch = FillWatch(
            bloom.capacity, self.settings.DEDUP_WARN_FILL_RATE, self._on_fill if kind == "bloom" else None
        )
        plan = DedupPlan(kind, self.keys.items, self.scope.run_ttl_ms, bloom)
        return RedisItemFilter(self.keys, plan, self._run_waiting, on_count=watch.seen)

    async def _run_waiting(self, call: Call) -> Any:
        """Run a script that is safe to repeat, waiting through outages and for memory."""
        while True:
            try:
                return await self._session.link.run(call)
            except StoreFullError as error:
                self._session.note_full(full=True)
                await self._session.wait_for_memory(error, 1.0)


def _dedup_plan(settings: Settings, scope: RunScope, keys: RunKeys) -> DedupPlan:
    """What DEDUP_FILTER says. Raises ConfigError for a Bloom filter that Redis can't hold."""
    kinds = {"auto": "bloom", "redis": "bloom", "redis-bloom": "bloom", "redis-set": "set"}
    bloom = bloom_plan(
        settings, limit=None if settings.DEDUP_FILTER in IN_PROCESS | {"redis-set"} else MAX_LAYER_BYTES
    )
    return DedupPlan(kinds.get(settings.DEDUP_FILTER, "none"), keys.requests, scope.dedup_ttl_ms, bloom)
