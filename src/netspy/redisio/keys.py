"""The one page of all Redis keys: name, type, writer, reader, lifetime.

`ns` is `<REDIS_KEY_PREFIX>:<redis_key>`, plus `:run:<RUN_ID>` when a run id is set; `job` is the part without
the run; `dedup` is `ns`, or `job` under DEDUP_SCOPE=spider. In Redis Cluster the job is wrapped in braces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netspy.policy.run_scope import RunScope


class KeyDoc(NamedTuple):
    """One line of the page."""

    name: str
    type: str
    holds: str
    writer: str
    reader: str
    lifetime: str


_RUN = "RUN_TTL after the last write or heartbeat when RUN_ID is set, else permanent"
_REQUESTS = _RUN + "; with DEDUP_SCOPE=spider permanent until a later run has taken them over"

PAGE: tuple[KeyDoc, ...] = (
    KeyDoc(
        "ns:z_requests",
        "zset",
        "queued; score = priority, smaller first",
        "frontier",
        "frontier, status",
        _REQUESTS,
    ),
    KeyDoc(
        "ns:z_inflight",
        "zset",
        "leased; score = deadline, server ms",
        "frontier",
        "frontier, status",
        _REQUESTS,
    ),
    KeyDoc(
        "ns:z_delayed",
        "zset",
        "retry or back-off; score = due, server ms",
        "frontier",
        "frontier, status",
        _REQUESTS,
    ),
    KeyDoc(
        "ns:failed_requests", "list", "JSON records of failed requests", "frontier", "failed list", _REQUESTS
    ),
    KeyDoc(
        "ns:lock:seed",
        "string",
        "`seeding <token> <ms> <who>`, `seeded <ms> <who>` or `failed <ms> <who> <error>`",
        "seeding node",
        "all nodes",
        "SPIDER_SEED_LOCK_TTL, in a run at most RUN_TTL",
    ),
    KeyDoc(
        "ns:nodes",
        "hash",
        "per node: `<id>` JSON report, `<id>:s` beats unbroken since, `<id>:c` last claim, `<id>:p` last "
        "write, `<id>:f` number of the last write of a node that was taken for dead",
        "each node",
        "frontier, status",
        _RUN,
    ),
    KeyDoc(
        "ns:beats",
        "zset",
        "node ids; score = last heartbeat, server ms",
        "each node",
        "frontier, status",
        _RUN,
    ),
    KeyDoc(
        "ns:meta",
        "hash",
        "seq, class, kind, version, epoch, history (server run id, marks of goings back), gen (seeding generation)",
        "frontier",
        "frontier; absent under a live node = keys lost",
        _RUN,
    ),
    KeyDoc(
        "ns:open_tasks",
        "hash",
        "per task that has requests: how many are not done, how many failed, whether more are on their way",
        "frontier",
        "frontier, batch master, status",
        _REQUESTS,
    ),
    KeyDoc(
        "ns:open_tasks:closing",
        "hash",
        "per task: the request that tells the spider of its end, queued when the last one is done",
        "frontier",
        "frontier",
        _REQUESTS,
    ),
    KeyDoc(
        "job:runs",
        "zset",
        "run ids; score = start, server ms",
        "each node's start",
        "status, reset",
        "permanent",
    ),
    KeyDoc(
        "dedup:dedup:bloom[:1…]",
        "string",
        "request fingerprints, one layer each",
        "put",
        "put",
        _RUN + " (job scope: permanent)",
    ),
    KeyDoc(
        "dedup:dedup:bloom:count",
        "string",
        "request fingerprints in all layers",
        "put",
        "put, status",
        "as the bits",
    ),
    KeyDoc(
        "dedup:dedup:layout",
        "hash",
        "capacity, error and block layout of the bits",
        "put",
        "put, start check",
        "as the bits",
    ),
    KeyDoc("dedup:dedup:set", "set", "request fingerprints, exact", "put", "put", "as the bits"),
    KeyDoc(
        "ns:items:dedup:bloom[:1…] :bloom:count :layout :set",
        "as above",
        "item fingerprints of this seeding generation",
        "item filter",
        "item filter",
        _RUN,
    ),
    KeyDoc(
        "ns:alerts",
        "zset",
        "alerts sent for the whole cluster; score = when, ms",
        "any node",
        "any node",
        _RUN,
    ),
    KeyDoc(
        "job:failed_items",
        "list",
        "dead-lettered items as JSON (FAILED_ITEM_URL); `:lock` is a string, held by a running replay",
        "any node",
        "`netspy retry`",
        "permanent, also in a run",
    ),
    KeyDoc(
        "prefix:<task_key>:tasks",
        "list",
        "TaskSpider's tasks, outside the run scope; JSON, one element each",
        "push_tasks, anybody",
        "task source",
        "permanent",
    ),
    KeyDoc(
        "prefix:<task_key>:tasks:inflight",
        "zset",
        "tasks taken and not yet in the frontier; score = deadline, server ms",
        "task source",
        "task source",
        "permanent",
    ),
    KeyDoc(
        "prefix:<task_key>:tasks:meta",
        "hash",
        "epoch, seq (taken so far), added: together they name tasks and tell whether anything moved",
        "task source",
        "task source",
        "permanent",
    ),
    KeyDoc(
        "prefix:<task_key>:tasks:failed",
        "list",
        "tasks that can't be turned into requests, as JSON: error, time, deliveries, task",
        "task source",
        "`netspy tasks failed`",
        "permanent",
    ),
    KeyDoc(
        "prefix:<task_key>:tasks:call:<id>",
        "string",
        "makes a push that is repeated after a lost connection harmless",
        "task source",
        "task source",
        "an hour",
    ),
    KeyDoc(
        "prefix:items:<table>",
        "list, stream",
        "RedisPipeline's rows on their way to `netspy consume`; beside it `:inflight`, `:meta`, `:failed`, as for tasks",
        "RedisPipeline",
        "`netspy consume`",
        "permanent",
    ),
    KeyDoc(
        "job:batch_pending",
        "list",
        "BatchSpider's claimed tasks on their way to a worker, as JSON: batch, round, id, row",
        "batch master",
        "workers",
        "permanent",
    ),
    KeyDoc(
        "job:batch_pending:inflight :meta :failed",
        "as those of a task list",
        "taken by a worker and not yet in the frontier; counters; what is no task",
        "workers",
        "workers, batch master",
        "permanent",
    ),
    KeyDoc(
        "job:batch_done",
        "string",
        "the number of the batch that is over; absent while one is open",
        "batch master",
        "anybody",
        "a day",
    ),
    KeyDoc(
        "job:batch_progress",
        "string",
        "JSON: batch, done, failed, total, left_s, overdue_s, is_done, time",
        "batch master",
        "status, displays",
        "permanent",
    ),
    KeyDoc(
        "job:batch_monitor_lock",
        "string",
        "the master: `<token> <fence> <host>:<pid> <since>`",
        "batch master",
        "batch master, workers, status",
        "HEARTBEAT_STALE, renewed",
    ),
    KeyDoc(
        "job:batch_master",
        "hash",
        "fence: rises with every master, the task table refuses lower ones; round: rises when lost tasks are handed out again",
        "batch master",
        "batch master",
        "permanent",
    ),
    KeyDoc("prefix:throttle:<domain>", "string", "cluster-wide rate limit", "throttle", "throttle", "short"),
    KeyDoc(
        "<pool>:users:ready, <pool>:cookie:<user>",
        "zset, string",
        "shared accounts",
        "user pool",
        "user pool",
        "cookie lifetime",
    ),
)


@dataclass(frozen=True, slots=True)
class DedupKeys:
    """The keys of one fingerprint collection."""

    base: str
    max_layers: int

    @property
    def bloom(self) -> list[str]:
        """Layer 0 is `…:bloom`, the others `…:bloom:<n>`."""
        return [f"{self.base}:bloom"] + [f"{self.base}:bloom:{n}" for n in range(1, self.max_layers)]

    @property
    def count(self) -> str:
        """How many fingerprints are in all layers."""
        return f"{self.base}:bloom:count"

    @property
    def layout(self) -> str:
        """The mark that says how to read the bits."""
        return f"{self.base}:layout"

    @property
    def exact(self) -> str:
        """The exact set."""
        return f"{self.base}:set"

    def types(self) -> list[tuple[str, str]]:
        """Layout, count, set and layers, each with its type."""
        return [
            (self.layout, "hash"),
            (self.count, "string"),
            (self.exact, "set"),
            *((name, "string") for name in self.bloom),
        ]

    def all(self, known_layers: int = 16) -> list[str]:
        """Every key that can exist, also of layers that an earlier setting allowed."""
        layers = max(self.max_layers, known_layers)
        bits = [f"{self.base}:bloom"] + [f"{self.base}:bloom:{n}" for n in range(1, layers)]
        return [*bits, self.count, self.layout, self.exact]


def failed_items(job: str) -> str:
    """The list of dead-lettered items."""
    return f"{job}:failed_items"


def task_list(base: str) -> list[str]:
    """The keys of the task list `base`."""
    return [base, f"{base}:inflight", f"{base}:meta", f"{base}:failed"]


class BatchNames:
    """The keys of a BatchSpider's job beside those of its frontier."""

    __slots__ = ("done", "lock", "master", "pending", "progress")

    def __init__(self, ns: str) -> None:
        self.pending = f"{ns}:batch_pending"
        self.done = f"{ns}:batch_done"
        self.lock = f"{ns}:batch_monitor_lock"
        self.master = f"{ns}:batch_master"
        self.progress = f"{ns}:batch_progress"

    def all(self) -> list[str]:
        """Every one of them."""
        return [*task_list(self.pending), self.done, self.lock, self.master, self.progress]


def batch_types(ns: str) -> list[tuple[str, str]]:
    """The keys of BatchNames, each with its type."""
    names = BatchNames(ns)
    lists = zip(task_list(names.pending), ("list", "zset", "hash", "list"), strict=True)
    strings = ((name, "string") for name in (names.done, names.lock, names.progress))
    return [*lists, *strings, (names.master, "hash")]


class RunKeys:
    """The names of one run's keys."""

    __slots__ = (
        "alerts",
        "beats",
        "closing",
        "delayed",
        "failed",
        "inflight",
        "items",
        "lock",
        "meta",
        "nodes",
        "ns",
        "queued",
        "requests",
        "runs",
        "tasks",
    )

    def __init__(self, ns: str, dedup: str, job: str, *, max_layers: int = 4) -> None:
        """`ns`, `dedup` and `job` as in RunScope."""
        self.ns = ns
        self.queued = f"{ns}:z_requests"
        self.inflight = f"{ns}:z_inflight"
        self.delayed = f"{ns}:z_delayed"
        self.failed = f"{ns}:failed_requests"
        self.lock = f"{ns}:lock:seed"
        self.nodes = f"{ns}:nodes"
        self.beats = f"{ns}:beats"
        self.meta = f"{ns}:meta"
        self.alerts = f"{ns}:alerts"
        self.tasks = f"{ns}:open_tasks"
        self.closing = f"{ns}:open_tasks:closing"
        self.runs = f"{job}:runs"
        self.requests = DedupKeys(f"{dedup}:dedup", max_layers)
        self.items = DedupKeys(f"{ns}:items:dedup", max_layers)

    @classmethod
    def of(cls, scope: RunScope, *, max_layers: int = 4) -> RunKeys:
        """The keys of `scope`."""
        return cls(scope.ns, scope.dedup, scope.job, max_layers=max_layers)

    def all(self) -> list[str]:
        """Every key of the run itself, without the job's dedup and index."""
        return [
            self.queued,
            self.inflight,
            self.delayed,
            self.failed,
            self.lock,
            self.nodes,
            self.beats,
            self.meta,
            self.alerts,
            self.tasks,
            self.closing,
            *self.items.all(),
        ]
