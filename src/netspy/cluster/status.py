"""One look at a run: nodes, queue, what is in flight, delayed and failed; and alerts sent once for all
nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from netspy.cluster.nodes import NodeInfo, read_nodes, sum_counters
from netspy.policy.batch import TaskCounts, progress_text
from netspy.redisio.keys import BatchNames, RunKeys
from netspy.redisio.scripts import Call, load, run_async, run_sync

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from netspy.policy.run_scope import RunScope
    from netspy.settings import Settings

FOLDER = "netspy.cluster.lua"


class BatchProgress(msgspec.Struct, frozen=True):
    """What a batch's master tells of it. `left_s` None: can't be told yet; `overdue_s` > 0: the next batch is due;
    `time`: when, in seconds since 1970 by the master's clock.
    """

    batch: int = 0
    done: int = 0
    failed: int = 0
    total: int = 0
    left_s: float | None = None
    overdue_s: float = 0.0
    is_done: bool = False
    time: float = 0.0

    @property
    def text(self) -> str:
        """`batch 3: 812/1000, 4 failed, 37 s left`."""
        counts = TaskCounts(self.total, 0, 0, self.done, self.failed)
        return progress_text(self.batch, counts, self.left_s, self.overdue_s)


_progress = msgspec.json.Decoder(BatchProgress).decode


class Status(NamedTuple):
    """A run at one instant. `exists` is False when the namespace holds no run.

    `seed` is the seeding lock as it stands ("" = none); times are in seconds, `created` and `now` (the server's
    clock) since 1970.
    `counters` sums what all nodes reported, those that have left included.
    """

    namespace: str
    exists: bool
    owner: str
    kind: str
    created: float
    queued: int
    leased: int
    delayed: int
    failed: int
    next_due_s: float | None
    fingerprints: int
    seed: str
    seed_left_s: float | None
    nodes: list[NodeInfo]
    counters: dict[str, int]
    now: float
    open_tasks: int = 0
    """Tasks that have requests which are not done."""
    batch: BatchProgress | None = None
    master: str = ""
    """The lock of a live batch master as it stands; "" = there is none."""
    master_left_s: float = 0.0

    @property
    def live_nodes(self) -> int:
        """Nodes with a fresh heartbeat."""
        return sum(node.alive for node in self.nodes)

    @property
    def in_flight(self) -> int:
        """Requests that live nodes say they hold."""
        return sum(node.in_flight for node in self.nodes if node.alive)


def status_call(keys: RunKeys, stale_s: float, now: str = "") -> Call:
    """The call that `parse_status` reads."""
    names = [
        keys.meta,
        keys.nodes,
        keys.beats,
        keys.queued,
        keys.inflight,
        keys.delayed,
        keys.failed,
        keys.lock,
    ]
    batch = BatchNames(keys.ns)
    names += [keys.requests.count, keys.requests.exact, keys.tasks, batch.progress, batch.lock]
    return Call(load(FOLDER, "status"), names, [now, round(stale_s * 1000)])


def parse_status(reply: list[Any], namespace: str, stale_s: float) -> Status:
    """The reply of `status.lua`."""
    now, exists, queued, leased, delayed, failed, lock, left, known, owner, kind, created, due, gone, rows = (
        reply[:15]
    )
    open_tasks, progress, master, master_left = reply[15:]
    nodes = read_nodes(rows, float(now), stale_s)
    left_behind = {gone[i].decode("utf-8", "replace"): int_field(gone[i + 1]) for i in range(0, len(gone), 2)}
    return Status(
        namespace=namespace,
        exists=bool(exists),
        owner=owner.decode("utf-8", "replace"),
        kind=kind.decode("utf-8", "replace"),
        created=int_field(created) / 1000,
        queued=queued,
        leased=leased,
        delayed=delayed,
        failed=failed,
        next_due_s=None if due < 0 else due / 1000,
        fingerprints=known,
        seed=lock.decode("utf-8", "replace"),
        seed_left_s=None if left < 0 else left / 1000,
        nodes=nodes,
        counters=sum_counters(nodes, left_behind),
        now=float(now) / 1000,
        open_tasks=open_tasks,
        batch=read_progress(progress),
        master=master.decode("utf-8", "replace"),
        master_left_s=max(0, master_left) / 1000,
    )


def read_progress(text: bytes) -> BatchProgress | None:
    """What stands in batch_progress; None when nothing of ours does."""
    try:
        return _progress(text) if text else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def int_field(value: bytes | str | int) -> int:
    """The number in a field that our nodes write; 0 for what another program put there."""
    try:
        return int(value)
    except ValueError:
        return 0


def read_status(client: redis.Redis, scope: RunScope, settings: Settings, *, now: str = "") -> Status:
    """Look once, blocking. The client must give bytes (`redisio.client.sync_client`)."""
    keys = RunKeys.of(scope, max_layers=settings.DEDUP_MAX_LAYERS)
    stale = settings.HEARTBEAT_STALE
    return parse_status(run_sync(client, status_call(keys, stale, now)), scope.ns, stale)


async def read_status_async(
    client: redis.asyncio.Redis, scope: RunScope, settings: Settings, *, now: str = ""
) -> Status:
    """Look once, on the event loop."""
    keys = RunKeys.of(scope, max_layers=settings.DEDUP_MAX_LAYERS)
    stale = settings.HEARTBEAT_STALE
    return parse_status(await run_async(client, status_call(keys, stale, now)), scope.ns, stale)


def alert_call(keys: RunKeys, name: str, interval_s: float, run_ttl_ms: int, now: str = "") -> Call:
    """Answers 1 when the alert may be sent: once for the whole cluster within the interval."""
    return Call(load(FOLDER, "alert"), [keys.alerts], [now, name, round(interval_s * 1000), run_ttl_ms])


def may_alert(client: redis.Redis, scope: RunScope, name: str, interval_s: float, *, now: str = "") -> bool:
    """Whether this node is the one to send the alert `name`. Nobody else gets True within the interval."""
    return bool(run_sync(client, alert_call(RunKeys.of(scope), name, interval_s, scope.run_ttl_ms, now)))


async def may_alert_async(
    client: redis.asyncio.Redis, scope: RunScope, name: str, interval_s: float, *, now: str = ""
) -> bool:
    """`may_alert` on the event loop."""
    return bool(
        await run_async(client, alert_call(RunKeys.of(scope), name, interval_s, scope.run_ttl_ms, now))
    )
