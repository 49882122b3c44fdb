"""One node's session with the shared store: its registration, its numbered calls, and waiting for the server.

A write (put, settle, release, delay, give up) carries a number that rises from write to write, and only one
is outstanding. So a write repeated after a cut connection is answered from the store's memory instead of
being done twice. Claims have numbers of their own.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.frontier.redis import calls
from netspy.frontier.redis.membership import (
    Clocks,
    Member,
    NodeCall,
    NotRegisteredError,
    Numbers,
    Shared,
    StaleOperationError,
    WentBackError,
)
from netspy.frontier.redis.start_checks import server_facts
from netspy.policy.retry import Backoff
from netspy.redisio.link import AsyncLink, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.frontier.redis.calls import Calls
    from netspy.frontier.redis.membership import Member
    from netspy.redisio.scripts import Call

FULL_FIRST_S, FULL_CAP_S = 0.2, 5.0
OLD_RUNS_PER_START = 20
RUN_PARTS = ("meta", "z_requests", "z_inflight", "z_delayed", "failed_requests")


class Events(NamedTuple):
    """What the frontier reports, on the loop; None = nobody wants to know.

    `on_fill(rate)`: a Bloom filter is filling. `on_outage(away, seconds)`: the server went away, or is back after so long.
    `on_full(full)`: the server is at maxmemory, or no longer. `on_unreadable(count)`: entries went to the failed list unread.
    """

    on_fill: Callable[[float], None] | None = None
    on_outage: Callable[[bool, float], None] | None = None
    on_full: Callable[[bool], None] | None = None
    on_unreadable: Callable[[int], None] | None = None


class Session:
    """See the module."""

    def __init__(self, made: Calls, clocks: Clocks, events: Events) -> None:
        self.calls = made
        self.shared = Shared(made.scope.run_ttl_ms, clocks, keeps_queue=made.scope.incremental)
        self.writes = Numbers()
        self.claims = Numbers(claims=True)
        self.warnings: list[str] = []
        self.full = False
        self.link = AsyncLink(
            made.settings, key=made.keys.meta, hello=self._hello, on_outage=events.on_outage
        )
        self._on_full = events.on_full
        self._joining = asyncio.Lock()
        self._open = False
        self._stop = asyncio.Event()

    @property
    def ns(self) -> str:
        """The run's namespace."""
        return self.calls.keys.ns

    def follow(self, history: bytes | str) -> None:
        """The store's history, as an answer gave it."""
        self.shared.history = history.decode("utf-8", "replace") if isinstance(history, bytes) else history

    # -- life

    async def open(self) -> None:
        """Connect, look at the server, join. Raises ConfigError, StoreUnavailableError."""
        try:
            await self._start(max(0.05, self.calls.settings.REDIS_START_TIMEOUT))
        except BaseException:
            await self.link.close()
            raise

    async def _start(self, timeout_s: float) -> None:
        facts = await self.link.ask(lambda: server_facts(self.link.client), timeout_s=timeout_s)
        self.warnings += facts.warnings
        await self._join("", timeout_s)
        self._open = True
        if self.calls.scope.run_id:
            await self.link.ask(self._enter_run, timeout_s=timeout_s)

    async def _enter_run(self) -> None:
        """Write the run into the index, and drop old runs of which nothing is left."""
        client, keys, scope = self.link.client, self.calls.keys, self.calls.scope
        now = int(self.shared.now() or 0) or round(time.time() * 1000)
        oldest: Any = await client.zrangebyscore(
            keys.runs, "-inf", now - scope.run_ttl_ms, start=0, num=OLD_RUNS_PER_START
        )
        for name in oldest:
            run = name.decode("utf-8", "replace")
            keys_of = (f"{scope.job}:run:{run}:{part}" for part in RUN_PARTS)
            if run != scope.run_id and not await client.exists(*keys_of):
                await client.zrem(keys.runs, name)
        await client.zadd(keys.runs, {scope.run_id: now}, nx=True)

    async def _join(self, epoch: str, timeout_s: float | None = None) -> None:
        async with self._joining:
            old = self.shared.member
            node, call = self.calls.join(self.shared, epoch)
            answer = await self.link.run(call, timeout_s=timeout_s)
            reply = self.calls.joined(calls.check_reply(answer, self.ns))
            self.shared.epoch = reply.epoch
            self.shared.joined(old, node, kept=reply.kept)
            self.follow(reply.history)

    async def _rejoin(self, old: Member) -> None:
        """Join again under a new id, unless somebody already did. Raises StoreLostError when the keys are
        gone.
        """
        if self.shared.member is old:
            await self._join(self.shared.epoch)

    async def _hello(self, connection: Any) -> None:
        """The first words on each connection: which server process is this? In the store before any ack can
        arrive.
        """
        from redis.exceptions import ResponseError

        await connection.send_command("INFO", "server")
        try:
            run_id = calls.run_id_of(await connection.read_response())
        except ResponseError:
            run_id = ""
        await connection.send_command("EVAL", calls.script("hello").text, 1, self.calls.keys.meta, run_id)
        history = (await connection.read_response()).decode("utf-8", "replace")
        self.shared.run_id = run_id
        if history:
            self.follow(history)

    def give_up_waiting(self) -> None:
        """Calls that wait for a server that is away or full raise StoreUnavailableError now, later ones at
        once.
        """
        self._stop.set()
        self.link.give_up_waiting()

    async def close(self) -> None:
        """Give back what is leased to this node, remove its record, drop the connections. Safe to call twice.

        When Redis is away the record stays, grows stale, and another node does this.
        """
        was_open, self._open = self._open, False
        self.give_up_waiting()
        try:
            if was_open:
                await self._leave()
        except (StoreLostError, ConfigError, NotRegisteredError, StoreFullError):
            pass
        finally:
            await self.link.close()

    async def _leave(self) -> None:
        member, cursor = self.shared.member, b""
        while True:
            call = self.shared.sent(self.calls.sweep(member.node, cursor, "leave"), member)
            try:
                cursor = calls.check_reply(await self.link.run(call), self.ns)[1]
            except WentBackError as back:
                self.shared.went_back(call, member, back.last)
                continue
            if not cursor:
                break
        await self.link.run(self.shared.sent(self.calls.forget(member.node, own=True), member))

    # -- calls

    async def call(
        self,
        call: Call | NodeCall,
        numbers: Numbers | None = None,
        *,
        grows: bool = False,
        waits: bool = True,
    ) -> Any:
        """The answer of a script that is safe to repeat. Waits for a server that is away or full, and joins anew when the
        store has forgotten this node.

        With `numbers` the call is the only one of its kind under way; while it waits for memory, others go first. `grows`: a
        full server refuses it, so its success tells that there is room again.

        Raises StoreLostError, ConfigError, NotSeederError; StoreUnavailableError when waiting is over; StoreFullError at once
        when it isn't to wait for memory (`waits`), and nothing was done then.
        """
        shared = self.shared
        full_since: float | None = None
        backoff: Backoff | None = None
        while True:
            try:
                async with nullcontext() if numbers is None else numbers.lane:
                    member = shared.member
                    number = () if numbers is None else numbers.take(member, shared.monotonic())
                    sent = shared.sent(call, member, number)
                    reply = calls.check_reply(await self.link.run(sent), self.ns)
                    if numbers is not None:
                        numbers.answered()
            except NotRegisteredError:
                await self._rejoin(member)
            except WentBackError as back:
                shared.went_back(sent, member, back.last)
                self.follow(back.history)
            except StaleOperationError as stale:
                if numbers is None:
                    raise
                numbers.refused(stale.last)
            except StoreFullError as error:
                self._note_full(full=True)
                if not waits:
                    raise
                now = shared.monotonic()
                full_since = now if full_since is None else full_since
                backoff = backoff or Backoff(FULL_FIRST_S, FULL_CAP_S)
                await self._wait_for_memory(error, backoff.next_s(), now - full_since)
            else:
                if numbers is self.writes:
                    self.follow(reply[2])
                if grows:
                    self._note_full(full=False)
                return reply

    async def _wait_for_memory(self, error: StoreFullError, seconds: float, waited_s: float) -> None:
        """Wait a while for a server at maxmemory. Raises StoreUnavailableError when stopping, or after REDIS_OUTAGE_TIMEOUT."""
        limit = self.calls.settings.REDIS_OUTAGE_TIMEOUT
        if self._stop.is_set() or (limit and waited_s > limit):
            raise StoreUnavailableError(
                f"Redis has no memory left (maxmemory) and took nothing new: {error}"
            ) from None
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    def _note_full(self, *, full: bool) -> None:
        """Report a change between full and not."""
        if full != self.full:
            self.full = full
            if self._on_full is not None:
                self._on_full(full)
