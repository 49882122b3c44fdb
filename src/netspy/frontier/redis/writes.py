"""Putting new entries and settling finished ones on Redis: what is sent, in which pieces, and what the
answers mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.frontier.contract import SeedLockLostError
from netspy.frontier.dedup import ConfirmedCache, FillWatch, RequestFilter, maybe_await
from netspy.frontier.redis.calls import Mark
from netspy.frontier.redis.entry_format import WireEntry
from netspy.frontier.redis.membership import NotSeederError
from netspy.messages.entry import NewEntry, Settled, Settlement, TaskMark, weight
from netspy.redisio.link import StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netspy.frontier.redis.session import Session

ENTRIES_PER_CALL = 500
PARENTS_PER_CALL = 500


class Writes:
    """`filter_` is a filter in the process, None when the scripts deduplicate; `pack` makes payloads
    bytes.
    """

    def __init__(
        self,
        session: Session,
        *,
        filter_: RequestFilter | None,
        fill: FillWatch,
        pack: Callable[[Any], bytes],
    ) -> None:
        self._session = session
        self._filter = filter_
        self._cache = ConfirmedCache()
        self._memory = ""  # under which the cache and the filter in the process know what they know
        self._fill = fill
        self._pack = pack

    def _packed(self, entry: NewEntry) -> WireEntry:
        payload = entry.payload
        if not isinstance(payload, bytes):
            payload = self._pack(payload)
        return WireEntry(entry.id, entry.site, entry.priority, payload, entry.task)

    async def _remembered(self) -> str:
        """The memory now. What was known under another one is forgotten: the store may have forgotten it too."""
        memory = self._session.shared.memory
        if memory != self._memory:
            before, self._memory = self._memory, memory
            self._cache.follow(memory)
            # A filter may be older than this process, so it forgets only when the store went back, not at the start.
            forget = getattr(self._filter, "forget", None)
            if before and forget is not None:
                await maybe_await(forget())
        return memory

    async def _fresh(self, entries: Sequence[NewEntry], *, cached: bool) -> list[bool]:
        """Which entries must be sent: those that neither the cache nor the in-process filter knows."""
        if self._filter is None:
            return [e.id not in self._cache for e in entries] if cached else [True] * len(entries)
        known = await maybe_await(self._filter.seen([e.id for e in entries]))
        batch: set[bytes] = set()
        fresh = []
        for entry, old in zip(entries, known, strict=True):
            fresh.append(not old and entry.id not in batch)
            batch.add(entry.id)
        return fresh

    async def _confirm(self, ids: list[bytes], under: str) -> None:
        """These were known to the store under that memory."""
        if await self._remembered() != under:
            return
        if self._filter is not None:
            await maybe_await(self._filter.mark(ids))
        else:
            self._cache.confirm(ids)

    async def put(
        self,
        entries: Sequence[NewEntry],
        seed_token: str | None = None,
        tasks: Sequence[TaskMark] = (),
    ) -> list[bool]:
        """See the contract. Sent in pieces of at most 500 entries and 4 MB. The tasks are marked in each of them: no
        task may look finished between two pieces.
        """
        session = self._session
        flags: list[bool] = []
        first = session.shared.memory
        sent = pieces(entries) or ([()] if tasks else [])
        for number, piece in enumerate(sent, 1):
            marks = self._marks(tasks, first, last=number == len(sent))
            memory = await self._remembered()
            fresh = await self._fresh(piece, cached=seed_token is None)
            chosen = [self._packed(e) for e, new in zip(piece, fresh, strict=True) if new]
            if not chosen and seed_token is None and not marks:
                flags += fresh
                continue
            try:
                call = session.calls.put(chosen, seed_token, marks)
                reply = await session.call(call, session.writes, grows=True)
            except NotSeederError:
                raise SeedLockLostError("another node holds the seeding lock now") from None
            if len(reply) > 3:
                self._fill.seen(int(reply[3]))
            await self._confirm([e.id for e in chosen], memory)
            answer = iter(reply[1])
            flags += [new and next(answer) == 49 for new in fresh]
        return flags

    def _marks(self, tasks: Sequence[TaskMark], memory: str, *, last: bool) -> list[Mark]:
        marks = []
        for mark in tasks:
            text = b""
            if mark.closing is not None:
                closing = self._packed(mark.closing)
                text = (b"f" if mark.only_failed else b"a") + closing.site.encode() + closing.payload
            marks.append(Mark(mark.task, mark.fed and last, text, mark.history or memory))
        return marks

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """See the contract. Sent in pieces; a parent with more children than one piece holds has the rest put
        first.
        """
        done = Settled([], [], [])
        piece: list[Settlement] = []
        size = 0
        for settlement in settlements:
            children = weight(settlement.children)
            if piece and (size + children > ENTRIES_PER_CALL or len(piece) >= PARENTS_PER_CALL):
                await self._settle_piece(piece, done)
                piece, size = [], 0
            if children > 2 * ENTRIES_PER_CALL and len(settlement.children) > 1:
                await self._settle_large(settlement, done)
                continue
            piece.append(settlement)
            size += children
        if piece:
            await self._settle_piece(piece, done)
        return done

    async def _settle_large(self, settlement: Settlement, done: Settled) -> None:
        *early, last = pieces(settlement.children)
        # The ack depends on these puts, so it names the memory before them.
        history = settlement.history or self._session.shared.memory
        flags = [flag for piece in early for flag in await self.put(piece)]
        part = Settled([], [], [])
        await self._settle_piece([Settlement(settlement.lease, last, history)], part)
        done.acked.extend(part.acked)
        done.stale.extend(part.stale)
        done.new.append([*flags, *part.new[0]] if part.acked[0] else [])

    async def _settle_piece(self, piece: Sequence[Settlement], done: Settled) -> None:
        plain: list[bytes] = []
        others: list[tuple[bytes, str, list[WireEntry]]] = []
        plan: list[list[bool] | None] = []
        memory = await self._remembered()
        fresh = await self._fresh([c for s in piece for c in s.children], cached=True)
        at = 0
        for lease, children, put_under in piece:
            if not children and not put_under:
                plain.append(lease.member)
                plan.append(None)
                continue
            flags = fresh[at : at + len(children)]
            at += len(children)
            chosen = [self._packed(c) for c, new in zip(children, flags, strict=True) if new]
            # A child left out because it is known here stands or falls with the memory in which it was confirmed.
            under = put_under or (memory if len(chosen) < len(flags) else "")
            others.append((lease.member, under, chosen))
            plan.append(flags)
        plain_states, other_states = await self._send_settle(plain, others)
        first, second = iter(plain_states), iter(zip(others, other_states, strict=True))
        confirmed: list[bytes] = []
        for flags_of in plan:
            if flags_of is None:
                done.acked.append(next(first) == "a")
                done.stale.append(False)
                done.new.append([])
                continue
            (_, _, chosen), (state, digits) = next(second)
            done.acked.append(state == "a")
            done.stale.append(state == "h")
            bits = iter(digits)
            done.new.append([new and next(bits) == "1" for new in flags_of] if state == "a" else [])
            if state == "a":
                confirmed += [c.id for c in chosen]
        if confirmed:
            await self._confirm(confirmed, memory)

    async def _send_settle(
        self, plain: list[bytes], others: list[tuple[bytes, str, list[WireEntry]]]
    ) -> tuple[str, list[tuple[str, str]]]:
        """States of the plain parents; state and child digits of the others.

        A call with children is refused whole when the server's memory is full. So the plain ones then go
        first, on their own: they make room.
        """
        session = self._session
        if plain and others and session.full:
            states, _ = await self._send_settle(plain, [])
            return states, (await self._send_settle([], others))[1]

        call = session.calls.settle(plain, others)
        try:
            reply = await session.call(call, session.writes, grows=bool(others), waits=not (plain and others))
        except StoreFullError:
            return await self._send_settle(plain, others)
        if len(reply) > 3 and others:
            self._fill.seen(int(reply[3]))
        text = reply[1].decode()
        at = len(plain)
        found: list[tuple[str, str]] = []
        for _, _, children in others:
            state = text[at]
            width = len(children) if state == "a" else 0
            found.append((state, text[at + 1 : at + 1 + width]))
            at += 1 + width
        return text[: len(plain)], found


def pieces(entries: Sequence[NewEntry]) -> list[Sequence[NewEntry]]:
    """`entries` in pieces that one call can carry: at most 500 entries, about 4 MB."""
    if len(entries) <= ENTRIES_PER_CALL and weight(entries) <= ENTRIES_PER_CALL:
        return [entries] if entries else []
    found: list[Sequence[NewEntry]] = []
    start = size = 0
    for at, entry in enumerate(entries):
        one = weight((entry,))
        if at > start and size + one > ENTRIES_PER_CALL:
            found.append(entries[start:at])
            start, size = at, 0
        size += one
    found.append(entries[start:])
    return found
