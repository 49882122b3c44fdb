"""Script calls of the Redis frontier, built and read without doing any I/O.

The asyncio frontier and the keeper's thread share it, so that both speak the same protocol.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import StoreLostError
from netspy.frontier.entry_format import FORMAT_VERSION, MAX_SUSPICION, Packed, base36, priority_text
from netspy.frontier.liveness import here
from netspy.frontier.membership import Member, NotRegisteredError, NotSeederError, Shared, StaleOperationError
from netspy.policy.claiming import suspicion_limit
from netspy.redisio.scripts import Arg, Call, Script, load
from netspy.settings import without_passwords

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from netspy.messages.entry import BeatReport, SeedState
    from netspy.policy.bloom import BloomPlan
    from netspy.policy.run_scope import RunScope
    from netspy.redisio.keys import DedupKeys, RunKeys
    from netspy.settings import Settings

FOLDER = "netspy.frontier.lua"
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
    """Builds the calls of one run."""

    def __init__(self, settings: Settings, scope: RunScope, keys: RunKeys, dedup: DedupPlan) -> None:
        self.keys = keys
        self.scope = scope
        self.dedup = dedup
        self.settings = settings
        self.ttl = str(scope.run_ttl_ms)
        # A mark that outlived the run's other keys would say of a run that is gone that it is seeded.
        self.lock_ms = min(settings.SPIDER_SEED_LOCK_TTL * 1000, scope.run_ttl_ms or sys.maxsize)
        self.lease: str = (
            "+inf" if settings.SPIDER_TASK_LEASE == 0 else str(round(settings.SPIDER_TASK_LEASE * 1000))
        )
        self.lease_off = settings.SPIDER_TASK_LEASE == 0
        self.stale_ms = round(settings.HEARTBEAT_STALE * 1000)
        # Half of `stale`, so that a node whose own beats count as unbroken cannot take a node for dead that
        # merely came back from the same outage a moment later.
        self.gap_ms = round(1000 * max(settings.HEARTBEAT_STALE / 2, 1.5 * settings.HEARTBEAT_INTERVAL))
        self.suspicion_limit = min(suspicion_limit(settings.SPIDER_MAX_DELIVERIES), MAX_SUSPICION)
        self.who = f"{socket.gethostname()}:{os.getpid()}".replace(" ", "_")

    def _node_keys(self, *more: str) -> list[str]:
        return [self.keys.meta, self.keys.nodes, self.keys.beats, *more]

    def join(
        self,
        *,
        now: str,
        epoch: str,
        new_epoch: str,
        owner: str,
        kind: str,
        take_over: bool,
        info: bytes,
        run_id: str,
    ) -> Call:
        """Register; `epoch` is '' at start."""
        k = self.keys
        dedup = self.dedup
        typed = [
            (k.queued, "zset"),
            (k.inflight, "zset"),
            (k.delayed, "zset"),
            (k.failed, "list"),
            (k.lock, "string"),
            (k.tasks, "hash"),
            (k.closing, "hash"),
            (dedup.keys.layout, "hash"),
            (dedup.keys.count, "string"),
            (dedup.keys.exact, "set"),
            *((name, "string") for name in dedup.keys.bloom),
        ]
        layout = dedup.bloom.layout if dedup.kind == "bloom" else ""
        args: list[Arg] = [
            now,
            epoch,
            new_epoch,
            self.ttl,
            owner,
            kind,
            FORMAT_VERSION,
            int(take_over),
            info,
            run_id,
        ]
        args += [layout, 11, *(wanted for _, wanted in typed)]
        return Call(script("join"), self._node_keys(*(name for name, _ in typed)), args)

    def _head(self, shared: Shared, member: Member, now: str) -> list[Arg]:
        return [now, shared.epoch, member.node, self.ttl]

    def _dedup_args(self) -> list[Arg]:
        d = self.dedup
        return [d.kind, d.ttl_ms, d.bloom.layout if d.kind == "bloom" else ""]

    def put(  # noqa: PLR0917  # one caller each, in the order of the script
        self,
        shared: Shared,
        member: Member,
        now: str,
        op: int,
        entries: Sequence[Packed],
        seed_token: str | None,
        marks: Sequence[Mark] = (),
    ) -> Call:
        """Deduplicate and enqueue."""
        args = self._head(shared, member, now)
        args += [op, *self._dedup_args(), seed_token or "", len(entries)]
        for entry in entries:
            args += [entry.id, entry.site, priority_text(entry.priority), entry.body]
        args.append(len(marks))
        for task, fed, closing, history in marks:
            args += [task, int(fed), closing, history]
        k = self.keys
        return Call(
            script("put"),
            self._node_keys(k.queued, k.lock, k.tasks, k.closing, *self.dedup.script_keys()),
            args,
        )

    def settle(  # noqa: PLR0917  # as above
        self,
        shared: Shared,
        member: Member,
        now: str,
        op: int,
        plain: Sequence[bytes],
        others: Sequence[tuple[bytes, str, Sequence[Packed]]],
    ) -> Call:
        """`plain`: leased members without children; `others`: (leased member, history or '', children)."""
        args = self._head(shared, member, now)
        args += [op, *self._dedup_args(), len(plain), *plain, len(others)]
        for leased, history, children in others:
            args += [leased, history, len(children)]
            for entry in children:
                args += [entry.id, entry.site, priority_text(entry.priority), entry.body]
        k = self.keys
        return Call(
            script("settle"),
            self._node_keys(k.queued, k.inflight, k.tasks, k.closing, *self.dedup.script_keys()),
            args,
        )

    def claim(  # noqa: PLR0917  # one caller each, in the order of the script
        self,
        shared: Shared,
        member: Member,
        now: str,
        limit: int,
        pass_over: Collection[str],
        room: tuple[int, int, int],
        rank: int,
    ) -> Call:
        """Lease entries under the member's current claim number."""
        args = self._head(shared, member, now)
        args += [member.claim_op, base36(member.claim_op), limit, self.lease, *room]
        args += ["".join(pass_over), rank, max(HEAD_WINDOW, limit), FAR_WINDOW, DUE_PER_CLAIM]
        k = self.keys
        return Call(
            script("claim"),
            self._node_keys(k.queued, k.inflight, k.delayed, k.failed, k.tasks, k.closing),
            args,
        )

    def move(  # noqa: PLR0917  # one caller each, in the order of the script
        self,
        shared: Shared,
        member: Member,
        now: str,
        op: int,
        what: str,
        rows: Sequence[tuple[bytes, Arg, Arg]],
    ) -> Call:
        """Release, delay or give up: (leased member, ms or '', text or '')."""
        args = self._head(shared, member, now)
        args += [op, what]
        for row in rows:
            args += row
        k = self.keys
        return Call(
            script("move"),
            self._node_keys(k.queued, k.inflight, k.delayed, k.failed, k.tasks, k.closing),
            args,
        )

    def renew(self, shared: Shared, member: Member, now: str, members: Sequence[bytes]) -> Call:
        """Move deadlines."""
        return Call(
            script("renew"),
            self._node_keys(self.keys.inflight),
            [*self._head(shared, member, now), self.lease, *members],
        )

    def beat(self, shared: Shared, member: Member, now: str, info: bytes, *, lifetimes: bool) -> Call:
        """The heartbeat; with `lifetimes` the run's keys get their lifetime anew."""
        k = self.keys
        more = [k.queued, k.inflight, k.delayed, k.failed, k.tasks, k.closing, *k.items.all(0)]
        if self.dedup.ttl_ms:
            more += self.dedup.script_keys()
        if self.lock_ms == self.scope.run_ttl_ms:
            more.append(k.lock)
        args: list[Arg] = [*self._head(shared, member, now), info, self.stale_ms, self.gap_ms, int(lifetimes)]
        return Call(script("beat"), self._node_keys(*(more if lifetimes and self.ttl != "0" else [])), args)

    def reclaim(self, shared: Shared, member: Member, now: str, limit: int) -> Call:
        """Take back what ran out."""
        k = self.keys
        args: list[Arg] = [
            *self._head(shared, member, now),
            limit,
            self.stale_ms,
            self.gap_ms,
            self.suspicion_limit,
        ]
        return Call(
            script("reclaim"), self._node_keys(k.queued, k.inflight, k.failed, k.tasks, k.closing), args
        )

    def sweep(  # noqa: PLR0917  # one caller each, in the order of the script
        self,
        shared: Shared,
        member: Member,
        now: str,
        whose: str,
        cursor: bytes | str,
        mode: str,
        *,
        up_to: str = "",
        held: bytes = b"",
        gone: bool = False,
    ) -> Call:
        """One step through the leases for those of `whose`. `gone`: its death is certain, whatever its heartbeat."""
        k = self.keys
        args: list[Arg] = [
            *self._head(shared, member, now),
            whose.encode("utf-8", "surrogateescape"),
            0 if gone else self.stale_ms,
            self.gap_ms,
            self.suspicion_limit,
        ]
        args += [int(self.lease_off), cursor, SWEEP_LOOK, SWEEP_MOVE, mode, up_to, held]
        return Call(
            script("sweep"), self._node_keys(k.queued, k.inflight, k.failed, k.tasks, k.closing), args
        )

    def opened(self, shared: Shared, member: Member, tasks: Sequence[tuple[str, str | None]]) -> Call:
        """Which tasks still have requests: (task, history under which it was put or None)."""
        args = self._head(shared, member, "")
        for task, history in tasks:
            args += [task, history or ""]
        return Call(script("opened"), self._node_keys(self.keys.tasks), args)

    def forget(
        self, shared: Shared, member: Member, now: str, whose: str, *, own: bool, gone: bool = False
    ) -> Call:
        """Remove a node's record. `gone`: its death is certain, whatever its heartbeat."""
        args: list[Arg] = [*self._head(shared, member, now), whose.encode("utf-8", "surrogateescape")]
        args += [-1 if own else 0 if gone else self.stale_ms]
        return Call(script("forget"), self._node_keys(), args)

    def counts(self, shared: Shared, member: Member, now: str) -> Call:
        """Every collection at one instant."""
        k = self.keys
        return Call(
            script("counts"),
            self._node_keys(k.queued, k.inflight, k.delayed, k.failed, k.lock, k.tasks),
            [*self._head(shared, member, now), self.stale_ms],
        )

    def seed(
        self,
        shared: Shared,
        member: Member,
        now: str,
        what: str,
        token: str,
        *,
        error: str = "",
        again: bool = False,
        history: str = "",
    ) -> Call:
        """Take, renew or finish the seeding lock."""
        s = self.settings
        args: list[Arg] = [
            *self._head(shared, member, now),
            what,
            token,
            self.who,
            round(s.SPIDER_SEEDING_TTL * 1000),
        ]
        args += [self.lock_ms, " ".join(without_passwords(error).split())[:500], int(again), self.stale_ms]
        args.append(history)
        return Call(script("seed"), self._node_keys(self.keys.lock), args)


def checked(reply: list[Any], ns: str) -> list[Any]:
    """The reply when it is an answer. Raises StoreLostError, NotRegisteredError, StaleOperationError or
    NotSeederError.
    """
    status = reply[0]
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


def report_json(report: BeatReport | None, started: float, version: str) -> bytes:
    """What a node says of itself, as JSON."""
    place = here()
    return json.dumps(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version,
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
