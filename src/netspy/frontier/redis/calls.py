"""Script calls of the Redis frontier, built and read without doing any I/O.

The asyncio frontier and the keeper's thread share it, so that both speak the same protocol.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import StoreLostError
from netspy.frontier.redis.entry_format import BASE36, FORMAT_VERSION, MAX_SUSPICION, WireEntry, priority_text
from netspy.frontier.redis.liveness import this_process
from netspy.frontier.redis.membership import (
    NodeCall,
    NotRegisteredError,
    NotSeederError,
    Owner,
    Shared,
    StaleOperationError,
    WentBackError,
)
from netspy.frontier.redis.start_checks import Joined, check_joined
from netspy.policy.claiming import MAX_CLAIM_BYTES, suspicion_limit
from netspy.policy.lease import LeaseTimes
from netspy.redisio.keys import batch_types, failed_items
from netspy.redisio.scripts import Arg, Call, Script, load
from netspy.settings import without_passwords

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from netspy.messages.entry import BeatReport, SeedState
    from netspy.policy.bloom import BloomPlan
    from netspy.policy.run_scope import RunScope
    from netspy.redisio.keys import DedupKeys, RunKeys
    from netspy.settings import Settings

FOLDER = "netspy.frontier.redis.lua"
HEAD_WINDOW = 500
"""Entries at the head of the queue that every claim with sites to pass over looks at."""
FAR_WINDOW = 1000
"""Entries further back, at a place that moves on from claim to claim."""
DUE_PER_CLAIM = 500
SWEEP_LOOK = 1000
SWEEP_MOVE = 500


class DedupPlan(NamedTuple):
    """How request or item fingerprints are kept in Redis."""

    kind: str  # none, set or bloom
    keys: DedupKeys
    ttl_ms: int
    bloom: BloomPlan

    def script_keys(self) -> list[str]:
        """Layout, count, set, layers: the order that `dedup.lua` wants."""
        return [self.keys.layout, self.keys.count, self.keys.exact, *self.keys.bloom]

    def layout(self) -> str:
        """The line kept beside the bits, '' when there are none."""
        return self.bloom.layout if self.kind == "bloom" else ""


class Mark(NamedTuple):
    """What a put says of a task: see `TaskMark`. `closing`: its text, or b""; `history`: that of its first requests."""

    task: str
    fed: bool
    closing: bytes
    history: str


def script(name: str) -> Script:
    """A script of the frontier."""
    return load(FOLDER, name)


class Calls:
    """Builds the calls of one run. What the node adds to a `NodeCall` is in `Shared.sent`."""

    def __init__(
        self, settings: Settings, scope: RunScope, keys: RunKeys, dedup: DedupPlan, owner: Owner
    ) -> None:
        self.keys = keys
        self.scope = scope
        self.dedup = dedup
        self.settings = settings
        self.owner = owner
        # A mark that outlived the run's other keys would say of a run that is gone that it is seeded.
        self.lock_ms = min(settings.SPIDER_SEED_LOCK_TTL * 1000, scope.run_ttl_ms or sys.maxsize)
        self.lease = LeaseTimes.of(settings)
        self._lease_text = self.lease.wire
        self.stale_ms = round(settings.HEARTBEAT_STALE * 1000)
        # Half of `stale`, so that a node whose own beats count as unbroken cannot take a node for dead that
        # merely came back from the same outage a moment later.
        self.gap_ms = round(1000 * max(settings.HEARTBEAT_STALE / 2, 1.5 * settings.HEARTBEAT_INTERVAL))
        self.suspicion_limit = min(suspicion_limit(settings.SPIDER_MAX_DELIVERIES), MAX_SUSPICION)
        self.who = f"{socket.gethostname()}:{os.getpid()}".replace(" ", "_")
        k, known = keys, dedup.script_keys()
        self._layout = dedup.layout()
        self._dedup_args: list[Arg] = [dedup.kind, dedup.ttl_ms, self._layout]
        self._put_keys = self._node_keys(k.queued, k.lock, k.tasks, k.closing, *known)
        self._settle_keys = self._node_keys(k.queued, k.inflight, k.tasks, k.closing, *known)
        self._queue_keys = self._node_keys(k.queued, k.inflight, k.delayed, k.failed, k.tasks, k.closing)
        self._expiry_keys = self._node_keys(k.queued, k.inflight, k.failed, k.tasks, k.closing)

    def _node_keys(self, *more: str) -> list[str]:
        return [self.keys.meta, self.keys.nodes, self.keys.beats, *more]

    def join(self, shared: Shared, epoch: str) -> tuple[str, Call]:
        """Register; `epoch` is '' at start. The id, and the call; `joined` reads its answer."""
        k = self.keys
        dedup = self.dedup
        # What is made later in the run is looked at now: nobody's key is met, or deleted, in the middle of it.
        later = [
            (k.alerts, "zset"),
            (k.runs, "zset"),
            (failed_items(self.scope.job), "list"),
            *(batch_types(k.ns) if self.owner.kind == "batch" else ()),
        ]
        items = k.items.types()
        typed = [
            (k.queued, "zset"),
            (k.inflight, "zset"),
            (k.delayed, "zset"),
            (k.failed, "list"),
            (k.lock, "string"),
            (k.tasks, "hash"),
            (k.closing, "hash"),
            *later,
            *items,
            *dedup.keys.types(),
        ]
        owner = self.owner
        of_items = 11 + len(later)
        args: list[Arg] = [shared.now(), epoch, secrets.token_hex(8), self.scope.run_ttl_ms]
        args += [owner.name, owner.kind, FORMAT_VERSION, int(owner.take_over)]
        args += [report_json(None, shared.started), shared.run_id, self._layout]
        args += [of_items + len(items), of_items, 8]
        node = new_node_id()
        args += [node, shared.member.node, shared.member.writes_done]
        args += [wanted for _, wanted in typed]
        return node, Call(script("join"), self._node_keys(*(name for name, _ in typed)), args)

    def joined(self, reply: list[Any]) -> Joined:
        """The registration that `join` made. Raises ConfigError when the namespace isn't ours."""
        return check_joined(reply, self.keys.ns, self.owner, self._layout)

    def put(
        self,
        entries: Sequence[WireEntry],
        seed_token: str | None,
        marks: Sequence[Mark] = (),
    ) -> NodeCall:
        """Deduplicate and enqueue."""
        args: list[Arg] = [*self._dedup_args, seed_token or "", len(entries)]
        for entry in entries:
            args += [entry.id, entry.site, priority_text(entry.priority), entry.body]
        args.append(len(marks))
        for task, fed, closing, history in marks:
            args += [task, int(fed), closing, history]
        return NodeCall(script("put"), self._put_keys, args)

    def settle(
        self, plain: Sequence[bytes], others: Sequence[tuple[bytes, str, Sequence[WireEntry]]]
    ) -> NodeCall:
        """`plain`: leased members without children; `others`: (leased member, memory or '', children)."""
        args: list[Arg] = [*self._dedup_args, len(plain), *plain, len(others)]
        for leased, history, children in others:
            args += [leased, history, len(children)]
            for entry in children:
                args += [entry.id, entry.site, priority_text(entry.priority), entry.body]
        return NodeCall(script("settle"), self._settle_keys, args)

    def claim(
        self,
        limit: int,
        pass_over: Collection[str],
        room: tuple[int, int, int],
        rank: int,
        max_bytes: int = MAX_CLAIM_BYTES,
    ) -> NodeCall:
        """Lease entries."""
        args: list[Arg] = [limit, self._lease_text, *room, "".join(pass_over), rank]
        args += [max(HEAD_WINDOW, limit), FAR_WINDOW, DUE_PER_CLAIM, max_bytes]
        return NodeCall(script("claim"), self._queue_keys, args)

    def move(self, what: str, rows: Sequence[tuple[bytes, Arg, Arg]]) -> NodeCall:
        """Release, delay or give up: (leased member, ms or memory or '', text or '')."""
        args: list[Arg] = [what]
        for row in rows:
            args += row
        return NodeCall(script("move"), self._queue_keys, args)

    def renew(self, members: Sequence[bytes]) -> NodeCall:
        """Move deadlines."""
        return NodeCall(script("renew"), self._node_keys(self.keys.inflight), [self._lease_text, *members])

    def beat(self, info: bytes, *, lifetimes: bool) -> NodeCall:
        """The heartbeat; with `lifetimes` the run's keys get their lifetime anew."""
        k = self.keys
        more = [*self._queue_keys[3:], *k.items.all(0)]
        if self.dedup.ttl_ms:
            more += self.dedup.script_keys()
        if self.lock_ms == self.scope.run_ttl_ms:
            more.append(k.lock)
        if not (lifetimes and self.scope.run_ttl_ms):
            more = []
        return NodeCall(
            script("beat"), self._node_keys(*more), [info, self.stale_ms, self.gap_ms, int(lifetimes)]
        )

    def reclaim(self, limit: int) -> NodeCall:
        """Take back what ran out."""
        args: list[Arg] = [limit, self.stale_ms, self.gap_ms, self.suspicion_limit]
        return NodeCall(script("reclaim"), self._expiry_keys, args)

    def sweep(
        self,
        whose: str,
        cursor: bytes | str,
        mode: str,
        *,
        up_to: str = "",
        held: bytes = b"",
        gone: bool = False,
    ) -> NodeCall:
        """One step through the leases for those of `whose`. `gone`: its death is certain, whatever its heartbeat."""
        args: list[Arg] = [
            whose.encode("utf-8", "surrogateescape"),
            0 if gone else self.stale_ms,
            self.gap_ms,
            self.suspicion_limit,
        ]
        args += [int(self.lease.duration_s is None), cursor, SWEEP_LOOK, SWEEP_MOVE, mode, up_to, held]
        return NodeCall(script("sweep"), self._expiry_keys, args)

    def opened(self, tasks: Sequence[tuple[str, str | None]]) -> NodeCall:
        """Which tasks still have requests: (task, memory under which it was put or None)."""
        args: list[Arg] = []
        for task, history in tasks:
            args += [task, history or ""]
        return NodeCall(script("opened"), self._node_keys(self.keys.tasks), args)

    def adopt(self, earlier: RunKeys, gone: str, failed: Sequence[Arg]) -> NodeCall:
        """What an earlier run has left; `failed`: record, site, priority and JSON of each failed request."""
        k, e = self.keys, earlier
        keys = self._node_keys(k.queued, k.delayed, k.tasks, k.closing)
        keys += [e.beats, e.queued, e.inflight, e.delayed, e.failed, e.tasks, e.closing]
        args: list[Arg] = [self.stale_ms, 0 if failed else SWEEP_MOVE, self.suspicion_limit]
        args += [int(self.lease.duration_s is None), self.scope.run_ttl_ms, gone, *failed]
        return NodeCall(script("adopt"), keys, args)

    def forget(self, whose: str, *, own: bool, gone: bool = False) -> NodeCall:
        """Remove a node's record. `gone`: its death is certain, whatever its heartbeat."""
        args: list[Arg] = [whose.encode("utf-8", "surrogateescape")]
        args += [-1 if own else 0 if gone else self.stale_ms]
        return NodeCall(script("forget"), self._node_keys(), args)

    def counts(self) -> NodeCall:
        """Every collection at one instant."""
        k = self.keys
        keys = self._node_keys(k.queued, k.inflight, k.delayed, k.failed, k.lock, k.tasks)
        return NodeCall(script("counts"), keys, [self.stale_ms])

    def seed(
        self, what: str, token: str, *, error: str = "", again: bool = False, history: str = ""
    ) -> NodeCall:
        """Take, renew or finish the seeding lock."""
        args: list[Arg] = [what, token, self.who, round(self.settings.SPIDER_SEEDING_TTL * 1000)]
        args += [self.lock_ms, " ".join(without_passwords(error).split())[:500], int(again), self.stale_ms]
        args.append(history)
        return NodeCall(script("seed"), self._node_keys(self.keys.lock), args)


def check_reply(reply: Any, ns: str) -> Any:
    """The reply when it is an answer. Raises StoreLostError, NotRegisteredError, WentBackError, StaleOperationError or
    NotSeederError.
    """
    status = reply[0] if isinstance(reply, list) else None
    if status in (b"OK", b"AGAIN"):
        return reply
    if status == b"LOST":
        raise StoreLostError(
            f"Redis no longer holds the keys of {ns} (flushed, reset, another database, or a restart without "
            "persistence), so what was queued is lost; start the crawl again, and give Redis an append-only "
            "file"
        )
    if status == b"NOTREG":
        raise NotRegisteredError
    if status == b"BACK":
        raise WentBackError(int(reply[1]), reply[2])
    if status == b"STALEOP":
        raise StaleOperationError(int(reply[1]))
    if status == b"NOTSEEDER":
        raise NotSeederError
    return reply


def read_lock(text: str, left_ms: int, now_ms: float, lock_ttl_s: float) -> tuple[SeedState, str, float]:
    """State, detail and age in seconds of the seeding lock. `left_ms`: -1 no lifetime, -2 no lock."""
    if not text and left_ms == -2:
        return "none", "", 0.0
    state, _, rest = text.partition(" ")
    parts = rest.split(" ")
    try:
        if state == "seeding" and len(parts) >= 3:
            return "seeding", parts[2], max(0.0, (now_ms - int(parts[1])) / 1000)
        if state == "seeded" and len(parts) >= 2:
            return "seeded", parts[1], max(0.0, (now_ms - int(parts[0])) / 1000)
        if state == "failed" and len(parts) >= 2:
            detail = f"{parts[1]}: {' '.join(parts[2:])}"
            return "failed", detail, max(0.0, (now_ms - int(parts[0])) / 1000)
    except (ValueError, OverflowError):
        pass
    # A value of another program: its age follows from the lifetime it has left.
    age = float("inf") if left_ms < 0 else max(0.0, lock_ttl_s - left_ms / 1000)
    return "seeded", f"lock value {text[:40]!r}", age


def new_node_id() -> str:
    """Eight random letters and digits: never given twice, whatever the store has forgotten."""
    return "".join(secrets.choice(BASE36) for _ in range(8))


def report_json(report: BeatReport | None, started: float) -> bytes:
    """What a node says of itself, as JSON."""
    place = this_process()
    return json.dumps(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": package_version(),
            "started": round(started, 3),
            "in_flight": report.in_flight if report else 0,
            "unacked": report.unacked if report else 0,
            "counters": report.counters if report else {},
            **({"kernel": place.kernel, "born": place.born} if place else {}),
        },
        separators=(",", ":"),
    ).encode()


def run_id_of(info: object) -> str:
    """The server's run id in INFO's answer, or ''."""
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else str(info)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "run_id":
            return value.strip()
    return ""


@cache
def package_version() -> str:
    """Our version, for the node's record."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("netspy")
    except PackageNotFoundError:
        return "unknown"
