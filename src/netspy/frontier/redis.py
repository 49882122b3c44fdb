"""The shared frontier: one Redis, any number of nodes. Every transition is one script in `lua/`.

One put-like call (put, settle, release, delay, give up) and one claim are outstanding at a time; both carry a
rising number, so that a call repeated after a cut connection is answered from memory instead of being done
twice.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.frontier import calls
from netspy.frontier.calls import (
    Calls,
    DedupPlan,
    Member,
    NotRegisteredError,
    NotSeederError,
    Packed,
    Shared,
    StaleOperationError,
)
from netspy.frontier.contract import SeedLockLostError
from netspy.frontier.dedup import (
    IN_PROCESS,
    SHARED,
    ConfirmedCache,
    FillWatch,
    RequestFilter,
    asked,
    bloom_plan,
    in_process_filter,
    load_filter,
    told,
)
from netspy.frontier.keeper import RedisKeeper
from netspy.frontier.start_checks import check_joined, server_facts
from netspy.messages.entry import Claimed, Counts, Lease, NewEntry, SeedGrant, SeedState, Settled, Settlement
from netspy.policy.bloom import MAX_LAYER_BYTES
from netspy.policy.failed_record import pack_failed
from netspy.redisio.keys import RunKeys
from netspy.redisio.link import AsyncLink, StoreFullError
from netspy.redisio.scripts import Call, run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from netspy.policy.run_scope import RunScope
    from netspy.settings import Settings

ENTRIES_PER_CALL = 500
PARENTS_PER_CALL = 500
CLAIM_LIMIT = 1000
FULL_BACKOFF_FIRST_S = 0.2
FULL_BACKOFF_CAP_S = 5.0


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
        kinds = {"auto": "bloom", "redis": "bloom", "redis-bloom": "bloom", "redis-set": "set"}
        dedup_kind = kinds.get(settings.DEDUP_FILTER, "none")
        self.scope = scope
        self.keys = RunKeys.of(scope, max_layers=settings.DEDUP_MAX_LAYERS)
        bloom = bloom_plan(settings, limit=MAX_LAYER_BYTES if dedup_kind == "bloom" else None)
        dedup = DedupPlan(dedup_kind, self.keys.requests, scope.dedup_ttl_ms, bloom)
        self._filter: RequestFilter | None = request_filter
        if request_filter is None and settings.DEDUP_FILTER in IN_PROCESS:
            self._filter = in_process_filter(settings)
        elif request_filter is None and settings.DEDUP_FILTER not in SHARED:
            self._filter = load_filter(settings)
        if self._filter is not None:
            dedup = dedup._replace(kind="none")
        self.settings = settings
        self.warnings: list[str] = []
        """What to say at start: no persistence, evicting policy, leases off."""
        self._calls = Calls(settings, scope, self.keys, dedup)
        self._shared = Shared()
        self._owner = (owner_class, kind, take_over)
        self._pack, self._unpack = pack, unpack
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        lease = settings.SPIDER_TASK_LEASE
        self._lease_s = lease - min(2.0, lease * 0.1) if lease else float("inf")
        self._link = AsyncLink(settings, url=url, hello=self._hello, on_outage=on_outage)
        self._on_full, self._full = on_full, False
        self._on_unreadable = on_unreadable
        self._fill = FillWatch(
            bloom.capacity, settings.DEDUP_WARN_FILL_RATE, on_fill if dedup.kind == "bloom" else None
        )
        self._cache = ConfirmedCache()
        self._writer = asyncio.Lock()
        self._claimer = asyncio.Lock()
        self._joining = asyncio.Lock()
        self._rank = 0
        self._settled_state: SeedState | None = None
        self._seed_calls = 0
        self._open = False
        self._stopping = False
        self._started = time.time()

    # -- life
    # ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, check the server, owners and key types, and join as a node.

        Raises ConfigError (wrong password or database, foreign keys, another owner) or StoreUnavailableError
        after REDIS_START_TIMEOUT.
        """
        timeout = max(0.05, self.settings.REDIS_START_TIMEOUT)
        facts = await self._link.ask(lambda: server_facts(self._link.client), timeout_s=timeout)
        self.warnings += facts.warnings
        if self.settings.SPIDER_TASK_LEASE == 0:
            self.warnings.append(
                "SPIDER_TASK_LEASE=0: nothing runs twice; what a dead node held goes to failed_requests "
                "instead of "
                "being crawled by another"
            )
        await self._join("", timeout)
        if self.scope.run_id:
            await self._link.ask(self._enter_run, timeout_s=timeout)
        self._open = True

    async def _enter_run(self) -> None:
        """Write the run into the index, and drop old runs of which nothing is left."""
        client = self._link.client
        now = int(self._now() or 0) or round(time.time() * 1000)
        oldest: Any = await client.zrangebyscore(
            self.keys.runs, "-inf", now - self.scope.run_ttl_ms, start=0, num=20
        )
        for name in oldest:
            run = name.decode("utf-8", "replace")
            if run != self.scope.run_id and not await client.exists(f"{self.scope.job}:run:{run}:meta"):
                await client.zrem(self.keys.runs, name)
        await client.zadd(self.keys.runs, {self.scope.run_id: now}, nx=True)

    async def _join(self, epoch: str, timeout_s: float | None = None) -> None:
        async with self._joining:
            old = self._shared.member
            owner, kind, take_over = self._owner
            call = self._calls.join(
                now=self._now(),
                epoch=epoch,
                new_epoch=secrets.token_hex(8),
                owner=owner,
                kind=kind,
                take_over=take_over or bool(epoch),
                info=calls.report_json(None, self._started, package_version()),
                run_id=self._shared.run_id,
            )
            reply = check_joined(
                calls.checked(await self._link.run(call, timeout_s=timeout_s), self.keys.ns),
                self.keys.ns,
                owner,
                kind,
                self._calls.dedup.bloom.layout,
            )
            self._shared.epoch = reply.epoch
            self._shared.joined(old, reply.node)
            self._follow(reply.history)

    async def _rejoin(self, old: Member) -> None:
        if self._shared.member is old:
            await self._join(self._shared.epoch)

    async def _hello(self, connection: Any) -> None:
        """The first words on each connection: which server process is this? Kept in the store before any
        ack.
        """
        from redis.exceptions import ResponseError

        await connection.send_command("INFO", "server")
        try:
            run_id = run_id_of(await connection.read_response())
        except ResponseError:
            run_id = ""
        script = calls.script("hello")
        await connection.send_command("EVAL", script.text, 1, self.keys.meta, run_id)
        history = (await connection.read_response()).decode()
        self._shared.run_id = run_id
        if history:
            self._follow(history)

    def _follow(self, history: bytes | str) -> None:
        text = history.decode() if isinstance(history, bytes) else history
        self._shared.history = text
        self._cache.follow(text)

    async def close(self) -> None:
        """Give back what is still leased to this node, remove its record, drop the connections. Safe to call
        twice.

        When Redis is away the record stays, grows stale, and another node does this.
        """
        was_open, self._open = self._open, False
        self._link.give_up_waiting()
        try:
            if was_open:
                await self._leave()
        except (StoreLostError, ConfigError, NotRegisteredError, StoreFullError):
            pass
        finally:
            await self._link.close()

    async def _leave(self) -> None:
        member, cursor = self._shared.member, b""
        for _ in range(10000):
            call = self._calls.sweep(self._shared, member, self._now(), member.node, cursor, "leave")
            reply = calls.checked(await self._link.run(call), self.keys.ns)
            cursor = reply[1]
            if not cursor:
                break
        await self._link.run(self._calls.forget(self._shared, member, self._now(), member.node, own=True))

    def give_up_waiting(self) -> None:
        """Calls that wait for a server that is away, or full, raise StoreUnavailableError now; later ones at
        once.
        """
        self._stopping = True
        self._link.give_up_waiting()

    @property
    def node(self) -> str:
        """The id of this node: eight digits."""
        return self._shared.member.node

    @property
    def history(self) -> str | None:
        """Server run id and seeding generation, `<id>:<n>`."""
        return self._shared.history or None

    def keeper(self) -> RedisKeeper:
        """A keeper with its own blocking connection, for the keeper's thread."""
        return RedisKeeper(
            self._calls,
            self._shared,
            self.settings,
            url=self._link.url,
            owner=self._owner,
            lease_s=self._lease_s,
            started=self._started,
            version=package_version(),
            clock_ms=self._clock_ms,
            monotonic=self._monotonic,
        )

    def _now(self) -> str:
        return "" if self._clock_ms is None else str(self._clock_ms())

    # -- the two numbered lanes
    # ---------------------------------------------------------------------------------------

    async def _write(self, build: Callable[[Member, int], Call]) -> list[Any]:
        """Run a numbered write; waits while the server's memory is full. One at a time."""
        backoff = FULL_BACKOFF_FIRST_S
        started = self._monotonic()
        while True:
            try:
                async with self._writer:
                    reply = await self._numbered(build)
            except StoreFullError as error:
                # The lane is free meanwhile, so that acks can go through and make room.
                self._note_full(full=True)
                limit = self.settings.REDIS_OUTAGE_TIMEOUT
                if self._stopping or (limit and self._monotonic() - started > limit):
                    raise StoreUnavailableError(
                        f"Redis has no memory left (maxmemory) and took no new requests: {error}"
                    ) from None
                await asyncio.sleep(backoff)
                backoff = min(FULL_BACKOFF_CAP_S, backoff * 2)
            else:
                self._note_full(full=False)
                return reply

    async def _numbered(self, build: Callable[[Member, int], Call]) -> list[Any]:
        while True:
            member = self._shared.member
            member.write_op += 1
            try:
                reply = calls.checked(await self._link.run(build(member, member.write_op)), self.keys.ns)
            except NotRegisteredError:
                await self._rejoin(member)
            except StaleOperationError as stale:
                member.write_op = max(member.write_op, stale.last)
            else:
                self._follow(reply[2])
                if len(reply) > 3:
                    self._fill.seen(int(reply[3]))
                return reply

    def _note_full(self, *, full: bool) -> None:
        if full != self._full:
            self._full = full
            if self._on_full is not None:
                self._on_full(full)

    # -- put and settle
    # -----------------------------------------------------------------------------------------------

    def _packed(self, entry: NewEntry) -> Packed:
        payload = entry.payload
        if not isinstance(payload, bytes):
            payload = self._pack(payload)
        return Packed(entry.id, entry.site, entry.priority, payload)

    async def _fresh(self, entries: Sequence[NewEntry], *, cached: bool) -> list[bool]:
        """Which entries must be sent: those that neither the cache nor the in-process filter knows."""
        if self._filter is None:
            return [e.id not in self._cache for e in entries] if cached else [True] * len(entries)
        known = await asked(self._filter.seen([e.id for e in entries]))
        batch: set[bytes] = set()
        fresh = []
        for entry, old in zip(entries, known, strict=True):
            fresh.append(not old and entry.id not in batch)
            batch.add(entry.id)
        return fresh

    async def _confirm(self, ids: list[bytes]) -> None:
        if self._filter is not None:
            await told(self._filter.mark(ids))
        else:
            self._cache.confirm(ids)

    async def put(self, entries: Sequence[NewEntry], *, seed_token: str | None = None) -> list[bool]:
        """See the contract. Sent in pieces of 500."""
        flags: list[bool] = []
        for start in range(0, len(entries), ENTRIES_PER_CALL):
            piece = entries[start : start + ENTRIES_PER_CALL]
            fresh = await self._fresh(piece, cached=seed_token is None)
            chosen = [self._packed(e) for e, new in zip(piece, fresh, strict=True) if new]
            if not chosen and seed_token is None:
                flags += fresh
                continue
            try:
                reply = await self._write(
                    lambda member, op, chosen=chosen: self._calls.put(  # type: ignore[misc]
                        self._shared, member, self._now(), op, chosen, seed_token
                    )
                )
            except NotSeederError:
                raise SeedLockLostError("another node holds the seeding lock now") from None
            await self._confirm([e.id for e in chosen])
            answer = iter(reply[1])
            flags += [new and next(answer) == 49 for new in fresh]
        return flags

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """See the contract. Sent in pieces; a parent with more children than one piece holds has the rest put
        first.
        """
        done = Settled([], [], [])
        piece: list[Settlement] = []
        size = 0
        for settlement in settlements:
            children = len(settlement.children)
            if piece and (size + children > ENTRIES_PER_CALL or len(piece) >= PARENTS_PER_CALL):
                await self._settle_piece(piece, done)
                piece, size = [], 0
            if children > 2 * ENTRIES_PER_CALL:
                await self._settle_large(settlement, done)
                continue
            piece.append(settlement)
            size += children
        if piece:
            await self._settle_piece(piece, done)
        return done

    async def _settle_large(self, settlement: Settlement, done: Settled) -> None:
        early = settlement.children[:-ENTRIES_PER_CALL]
        # The ack depends on this put, so it names the history before it.
        history = settlement.history or self._shared.history
        flags = await self.put(early)
        part = Settled([], [], [])
        rest = settlement.children[-ENTRIES_PER_CALL:]
        await self._settle_piece([Settlement(settlement.lease, rest, history)], part)
        done.acked.extend(part.acked)
        done.stale.extend(part.stale)
        done.new.append([*flags, *(part.new[0] or [False] * len(rest))] if part.acked[0] else [])

    async def _settle_piece(self, piece: Sequence[Settlement], done: Settled) -> None:
        history = self._shared.history
        fresh = await self._fresh([c for s in piece for c in s.children], cached=True)
        parents: list[tuple[bytes, str, list[Packed]]] = []
        plan: list[list[bool]] = []
        at = 0
        batch: list[bytes] = []
        for s in piece:
            flags = fresh[at : at + len(s.children)]
            at += len(s.children)
            chosen = [self._packed(c) for c, new in zip(s.children, flags, strict=True) if new]
            batch += [c.id for c in chosen]
            # A child left out because the cache knows it stands or falls with the history it was confirmed
            # in.
            put_under = s.history or (history if self._filter is None and len(chosen) < len(flags) else "")
            parents.append((s.lease.member, put_under, chosen))
            plan.append(flags)
        answer = await self._send_settle(parents)
        confirmed: list[bytes] = []
        for (_, _, chosen), flags, (state, digits) in zip(parents, plan, answer, strict=True):
            done.acked.append(state == "a")
            done.stale.append(state == "h")
            if state == "a":
                bits = iter(digits)
                done.new.append([new and next(bits) == "1" for new in flags])
                confirmed += [c.id for c in chosen]
            else:
                done.new.append([])
        if confirmed:
            await self._confirm(confirmed)

    async def _send_settle(self, parents: list[tuple[bytes, str, list[Packed]]]) -> list[tuple[str, str]]:
        """State and child digits for each parent. When memory is full, those without children go first."""
        plain = [p for p in parents if not p[2]]
        if plain and len(plain) < len(parents) and self._full:
            rest = [p for p in parents if p[2]]
            first = iter(await self._send_settle(plain))
            second = iter(await self._send_settle(rest))
            return [next(second) if p[2] else next(first) for p in parents]
        if plain and len(plain) < len(parents):
            try:
                async with self._writer:
                    reply = await self._numbered(
                        lambda member, op: self._calls.settle(self._shared, member, self._now(), op, parents)
                    )
            except StoreFullError:
                self._note_full(full=True)
                return await self._send_settle(parents)
        else:
            reply = await self._write(
                lambda member, op: self._calls.settle(self._shared, member, self._now(), op, parents)
            )
        text = reply[1].decode()
        states: list[tuple[str, str]] = []
        at = 0
        for _, _, children in parents:
            state = text[at]
            width = len(children) if state == "a" else 0
            states.append((state, text[at + 1 : at + 1 + width]))
            at += 1 + width
        return states

    # -- claim
    # --------------------------------------------------------------------------------------------------------

    async def claim(
        self, limit: int, *, pass_over: Collection[str] = (), suspect_room: tuple[int, int, int] = (64, 8, 1)
    ) -> Claimed:
        """See the contract. A claim that was cancelled is asked for again by the next one, so nothing is
        orphaned.
        """
        async with self._claimer:
            reply, sent = await self._claim_reply(min(limit, CLAIM_LIMIT), pass_over, suspect_room)
            self._follow(reply[1])
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
        while True:
            member = self._shared.member
            if not member.claim_open:
                member.claim_op += 1
                member.claim_open = True
                member.claim_sent = self._monotonic()
            call = self._calls.claim(self._shared, member, self._now(), limit, pass_over, room, self._rank)
            try:
                reply = calls.checked(await self._link.run(call), self.keys.ns)
            except NotRegisteredError:
                await self._rejoin(member)
            except StaleOperationError as stale:
                member.claim_op = max(member.claim_op, stale.last)
                member.claim_open = False
            else:
                member.claim_open = False
                member.claims_done = member.claim_op
                return reply, member.claim_sent

    def _take(
        self, text: bytes, valid_until: float, leases: list[Lease], broken: list[tuple[Lease, bytes]]
    ) -> None:
        parts = calls.read_member(text)
        lease = Lease(
            seq=parts.seq,
            payload=parts.payload,
            priority=parts.priority,
            site=parts.site,
            deliveries=parts.deliveries,
            expired=max(0, parts.suspicion - 1),
            member=text,
            valid_until=valid_until,
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
    # --------------------------------------------------------------------------------------

    async def _move(self, what: str, rows: Sequence[tuple[bytes, Any, Any]]) -> list[bool]:
        flags: list[bool] = []
        for start in range(0, len(rows), ENTRIES_PER_CALL):
            piece = rows[start : start + ENTRIES_PER_CALL]
            reply = await self._write(
                lambda member, op, piece=piece: self._calls.move(  # type: ignore[misc]
                    self._shared, member, self._now(), op, what, piece
                )
            )
            flags += [digit == 49 for digit in reply[1]]
        return flags

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
    # -------------------------------------------------------------------------------------------

    async def counts(self) -> Counts:
        """See the contract. A node that once saw *seeded* or *failed* keeps it when the lock's lifetime is
        over.
        """
        reply = await self._link.run(self._calls.counts(self._shared, self._shared.member, self._now()))
        state, detail, age = calls.read_lock(
            reply[7].decode("utf-8", "replace"),
            int(reply[8]),
            float(reply[9]),
            self.settings.SPIDER_SEED_LOCK_TTL,
        )
        self._follow(reply[11])
        state = self._remember(state)
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
        )

    def _remember(self, state: SeedState) -> SeedState:
        if state in ("seeded", "failed"):
            self._settled_state = state
        elif state == "none" and self._settled_state is not None:
            return self._settled_state
        return state

    async def _seed(self, what: str, token: str, *, error: str = "", again: bool = False) -> list[Any]:
        while True:
            member = self._shared.member
            call = self._calls.seed(self._shared, member, self._now(), what, token, error=error, again=again)
            try:
                return calls.checked(await self._link.run(call), self.keys.ns)
            except NotRegisteredError:
                await self._rejoin(member)
            except StoreFullError:
                self._note_full(full=True)
                if self._stopping:
                    raise StoreUnavailableError(
                        "Redis has no memory left (maxmemory) for the seeding lock"
                    ) from None
                await asyncio.sleep(FULL_BACKOFF_FIRST_S)

    async def seed_acquire(self) -> SeedGrant:
        """See the contract. *failed* is tried again only by a node's first call, when no other node lives."""
        if self._settled_state is not None:
            return SeedGrant(None, self._settled_state)
        again = self._seed_calls == 0
        self._seed_calls += 1
        token = secrets.token_hex(8)
        reply = await self._seed("acquire", token, again=again)
        if reply[1] == b"mine":
            self._follow(reply[2])
            return SeedGrant(token, "seeding")
        self._follow(reply[5])
        state, detail, age = calls.read_lock(
            reply[2].decode("utf-8", "replace"),
            int(reply[3]),
            float(reply[4]),
            self.settings.SPIDER_SEED_LOCK_TTL,
        )
        return SeedGrant(None, self._remember(state), detail, age)

    async def seed_renew(self, token: str) -> bool:
        """See the contract."""
        return bool((await self._seed("renew", token))[1])

    async def seed_finish(self, token: str, *, error: str | None = None) -> bool:
        """See the contract."""
        reply = await self._seed("seeded" if error is None else "failed", token, error=error or "")
        if reply[1]:
            self._remember("seeded" if error is None else "failed")
        return bool(reply[1])

    async def run_script(self, call: Call) -> Any:
        """Run another room's script on this frontier's connections, waiting through outages."""
        return await self._link.ask(lambda: run_async(self._link.client, call))


def run_id_of(info: Any) -> str:
    """The server's run id in INFO's answer, or ''."""
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else str(info)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "run_id":
            return value.strip()
    return ""


def package_version() -> str:
    """Our version, for the node's record."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("netspy")
    except PackageNotFoundError:
        return "unknown"
