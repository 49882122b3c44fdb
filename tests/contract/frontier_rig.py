"""What the frontier's contract tests share: a clock to turn, entries, and frontiers of each kind."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from netspy.frontier.memory.frontier import MemoryFrontier
from netspy.frontier.redis.frontier import RedisFrontier
from netspy.frontier.redis.membership import Clocks, NodeCall, Owner
from netspy.frontier.redis.session import Events
from netspy.messages.entry import BeatReport, NewEntry
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import sync_client
from netspy.redisio.scripts import Call
from netspy.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASE = 60.0
STALE = 15.0


class Clock:
    """Seconds for memory, milliseconds for the scripts; both move together."""

    def __init__(self) -> None:
        self.s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.s

    def ms(self) -> int:
        return round(self.s * 1000)

    def advance(self, seconds: float) -> None:
        self.s += seconds


def entry(
    name: Any,
    *,
    priority: float = 300.0,
    site: str = "0a0b0c0d",
    payload: bytes | None = None,
    task: str = "",
) -> NewEntry:
    fingerprint = hashlib.blake2b(str(name).encode(), digest_size=16).digest()
    text = payload if payload is not None else b'{"url":"https://example.com/%s"}' % str(name).encode()
    return NewEntry(text, fingerprint, priority, site, task)


def name_of(payload: bytes) -> str:
    return payload.decode().rpartition("/")[2].rstrip('"}')


def names(leases: list[Any]) -> list[str]:
    return [name_of(lease.payload) for lease in leases]


def refuse_broken(payload: bytes) -> bytes:
    if b"broken" in payload:
        raise ValueError("unknown version 9")
    return payload


class Rig:
    """One store and its nodes."""

    def __init__(self, kind: str, clock: Clock, url: str | None, **overrides: Any) -> None:
        self.kind, self.clock, self.url = kind, clock, url
        self.failed: list[bytes] = []
        self.nodes: list[Any] = []
        self.keepers: list[Any] = []
        self.overrides = {
            "SPIDER_TASK_LEASE": LEASE,
            "HEARTBEAT_STALE": STALE,
            "DEDUP_INITIAL_CAPACITY": 1000,
            **overrides,
        }

    @property
    def shared(self) -> bool:
        return self.kind != "memory"

    def settings(self, **more: Any) -> Settings:
        values = {"REDIS_URL": self.url, "DEDUP_FILTER": self.kind, **self.overrides, **more}
        return Settings(**{k: v for k, v in values.items() if v is not None})

    async def node(
        self,
        *,
        owner: str = "News",
        spider_kind: str = "Spider",
        take_over: bool = False,
        unpack: Any = refuse_broken,
        redis_key: str = "news",
        hooks: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        if not self.shared:
            made: Any = MemoryFrontier(
                lease_s=self.overrides["SPIDER_TASK_LEASE"],
                max_deliveries=self.overrides.get("SPIDER_MAX_DELIVERIES", 3),
                clock=self.clock,
                on_failed=self.failed.append,
                seeding_ttl_s=10.0,
            )
        else:
            settings = self.settings(**more)
            made = RedisFrontier(
                settings,
                run_scope(settings, owner, redis_key),
                Owner(owner, spider_kind, take_over),
                pack=bytes,
                unpack=unpack,
                events=Events(**(hooks or {})),
                clocks=Clocks(self.clock.ms, self.clock),
            )
        await made.open()
        self.nodes.append(made)
        return made

    def keeper(self, node: Any) -> Any:
        made = node.keeper()
        self.keepers.append(made)
        return made

    def steady(self, *keepers: Any) -> None:
        """Let the clock run while these nodes beat, until their beats count as unbroken."""
        for _ in range(7):
            for keeper in keepers:
                keeper.beat(REPORT)
            self.clock.advance(3)
        for keeper in keepers:
            keeper.beat(REPORT)

    def pass_time(self, seconds: float, *keepers: Any) -> None:
        """Let time pass with unbroken beats."""
        while seconds > 0:
            step = min(3.0, seconds)
            self.clock.advance(step)
            seconds -= step
            for keeper in keepers:
                keeper.beat(REPORT)

    async def close(self) -> None:
        for keeper in self.keepers:
            keeper.close()
        for node in self.nodes:
            await node.close()


class Backup:
    """The whole database as it is now. `restore` turns it back within the same server process: no connection is cut and
    no run id changes, as behind a proxy that hides a fail-over.
    """

    def __init__(self, url: str) -> None:
        self.client = sync_client(Settings(REDIS_URL=url))
        self._rows = [(key, self.client.pttl(key), self.client.dump(key)) for key in self.client.keys()]

    def restore(self) -> None:
        self.client.flushdb()
        for key, left_ms, value in self._rows:
            self.client.restore(key, max(left_ms, 0), value)
        self.client.close()


def another_server(client: Any, meta: str = "netspy:news:meta") -> None:
    """What the first connection to another server process writes, where nothing was lost."""
    client.hset(meta, "history", "0" * 40)


def sent(node: Any, call: NodeCall, kind: str = "writes") -> Call:
    """The call as the node sends it, under its next number: for tests to send it more than once."""
    shared, numbers = node._session.shared, getattr(node._session, kind)
    number = numbers.take(shared.member, shared.monotonic())
    numbers._open = False  # the next claim has a number of its own
    return shared.sent(call, shared.member, number)


REPORT = BeatReport(0, 0, {"pages": 1})


def rigs(*kinds: str) -> Any:
    """A fixture: a rig of each kind, `memory` or one behind the Redis it runs on (`7/redis`, `6.2/redis-set`)."""

    @pytest.fixture(params=kinds)
    async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
        server, _, kind = request.param.rpartition("/")
        urls = {"7": "redis_url", "6.2": "redis62_url"}
        made = Rig(kind, Clock(), request.getfixturevalue(urls[server]) if server else None)
        yield made
        await made.close()

    return rig
