"""One node's session with the shared store: its registration, its numbered writes, and waiting for the
server.

A write (put, settle, release, delay, give up) carries a number that rises from write to write, and only one
is outstanding. So a write repeated after a cut connection is answered from the store's memory instead of
being done twice.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.frontier import calls
from netspy.frontier.membership import Member, NotRegisteredError, Shared, StaleOperationError
from netspy.frontier.start_checks import check_joined, server_facts
from netspy.policy.backoff import Backoff
from netspy.redisio.link import AsyncLink, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.frontier.calls import Calls
    from netspy.redisio.scripts import Call
    from netspy.settings import Settings

FULL_FIRST_S, FULL_CAP_S = 0.2, 5.0
OLD_RUNS_PER_START = 20


class Session:
    """See the module. `owner` is (class name, kind, take over)."""

    def __init__(
        self,
        settings: Settings,
        made: Calls,
        *,
        url: str | None,
        owner: tuple[str, str, bool],
        on_history: Callable[[str], None],
        on_outage: Callable[[bool, float], None] | None,
        on_full: Callable[[bool], None] | None,
        clock_ms: Callable[[], int] | None,
        monotonic: Callable[[], float],
    ) -> None:
        """`on_history` is told the store's history with every answer that carries it."""
        self.settings = settings
        self.calls = made
        self.shared = Shared()
        self.owner = owner
        self.warnings: list[str] = []
        self.full = False
        self.started = time.time()
        self.link = AsyncLink(settings, url=url, key=made.keys.meta, hello=self._hello, on_outage=on_outage)
        self.clock_ms = clock_ms
        self.monotonic = monotonic
        self._on_history = on_history
        self._on_full = on_full
        self._writer = asyncio.Lock()
        self._joining = asyncio.Lock()
        self._open = False
        self._stop = asyncio.Event()

    @property
    def ns(self) -> str:
        """The run's namespace."""
        return self.calls.keys.ns

    def now(self) -> str:
        """The time handed to scripts: '' for the server's own clock."""
        return "" if self.clock_ms is None else str(self.clock_ms())

    def follow(self, history: bytes | str) -> None:
        """The store's history, as an answer gave it."""
        text = history.decode("utf-8", "replace") if isinstance(history, bytes) else history
        if text != self.shared.history:
            self.shared.history = text
            self._on_history(text)

    # -- life

    async def open(self) -> None:
        """Connect, look at the server, join. Raises ConfigError, StoreUnavailableError."""
        try:
            await self._start(max(0.05, self.settings.REDIS_START_TIMEOUT))
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
        now = int(self.now() or 0) or round(time.time() * 1000)
        oldest: Any = await client.zrangebyscore(
            keys.runs, "-inf", now - scope.run_ttl_ms, start=0, num=OLD_RUNS_PER_START
        )
        for name in oldest:
            run = name.decode("utf-8", "replace")
            if run != scope.run_id and not await client.exists(f"{scope.job}:run:{run}:meta"):
                await client.zrem(keys.runs, name)
        await client.zadd(keys.runs, {scope.run_id: now}, nx=True)

    async def _join(self, epoch: str, timeout_s: float | None = None) -> None:
        async with self._joining:
            old = self.shared.member
            owner, kind, take_over = self.owner
            call = self.calls.join(
                now=self.now(),
                epoch=epoch,
                new_epoch=secrets.token_hex(8),
                owner=owner,
                kind=kind,
                take_over=take_over,
                info=calls.report_json(None, self.started, package_version()),
                run_id=self.shared.run_id,
            )
            answer = calls.checked(await self.link.run(call, timeout_s=timeout_s), self.ns)
            reply = check_joined(answer, self.ns, owner, kind, self.calls.dedup.bloom.layout)
            self.shared.epoch = reply.epoch
            self.shared.joined(old, reply.node)
            self.follow(reply.history)

    async def rejoin(self, old: Member) -> None:
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
            call = self.calls.sweep(self.shared, member, self.now(), member.node, cursor, "leave")
            cursor = calls.checked(await self.link.run(call), self.ns)[1]
            if not cursor:
                break
        await self.link.run(self.calls.forget(self.shared, member, self.now(), member.node, own=True))

    # -- calls

    async def write(self, build: Callable[[Member, int], Call], *, grows: bool) -> list[Any]:
        """A numbered write; waits while the server's memory is full, leaving the lane to others meanwhile.

        `grows`: a full server refuses it, so its success tells that there is room again.
        """
        started = self.monotonic()
        backoff = Backoff(FULL_FIRST_S, FULL_CAP_S)
        while True:
            try:
                return await self.write_once(build, grows=grows)
            except StoreFullError as error:
                limit = self.settings.REDIS_OUTAGE_TIMEOUT
                await self.wait_for_memory(
                    error, backoff.next_s(), over=bool(limit) and self.monotonic() - started > limit
                )

    async def write_once(self, build: Callable[[Member, int], Call], *, grows: bool) -> list[Any]:
        """`write` that raises StoreFullError instead of waiting; nothing was done then."""
        async with self._writer:
            try:
                reply = await self._numbered(build)
            except StoreFullError:
                self.note_full(full=True)
                raise
        if grows:
            self.note_full(full=False)
        return reply

    async def _numbered(self, build: Callable[[Member, int], Call]) -> list[Any]:
        while True:
            member = self.shared.member
            member.write_op += 1
            try:
                reply = calls.checked(await self.link.run(build(member, member.write_op)), self.ns)
            except NotRegisteredError:
                await self.rejoin(member)
            except StaleOperationError as stale:
                member.write_op = max(member.write_op, stale.last)
            else:
                self.follow(reply[2])
                return reply

    async def ask(self, build: Callable[[Member], Call]) -> list[Any]:
        """A call that is safe to repeat by itself; waits for the server, its memory, and a new
        registration.
        """
        while True:
            member = self.shared.member
            try:
                return calls.checked(await self.link.run(build(member)), self.ns)
            except NotRegisteredError:
                await self.rejoin(member)
            except StoreFullError as error:
                self.note_full(full=True)
                await self.wait_for_memory(error, FULL_FIRST_S)

    async def wait_for_memory(self, error: StoreFullError, seconds: float, *, over: bool = False) -> None:
        """Wait a while for a server at maxmemory. Raises StoreUnavailableError when stopping, or `over`."""
        if self._stop.is_set() or over:
            raise StoreUnavailableError(
                f"Redis has no memory left (maxmemory) and took nothing new: {error}"
            ) from None
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    def note_full(self, *, full: bool) -> None:
        """Report a change between full and not."""
        if full != self.full:
            self.full = full
            if self._on_full is not None:
                self._on_full(full)


def package_version() -> str:
    """Our version, for the node's record."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("netspy")
    except PackageNotFoundError:
        return "unknown"
