"""Clear a job, one run of it, or its dedup, so that it can be crawled anew and nothing stale remains.

No key is searched for: all names are known, and the job's runs are in its index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from netspy.cluster.runs import all_run_ids, run_keys
from netspy.cluster.status import parse_status, status_call
from netspy.errors import ConfigError
from netspy.redisio.keys import BatchNames, DedupKeys, RunKeys, task_list
from netspy.redisio.scripts import run_sync

if TYPE_CHECKING:
    import redis

    from netspy.policy.run_scope import RunScope
    from netspy.settings import Settings

What = Literal["job", "run", "dedup"]


class Reset(NamedTuple):
    """What was removed."""

    keys: int
    runs: int


def reset(
    client: redis.Redis,
    scope: RunScope,
    settings: Settings,
    *,
    what: What = "job",
    force: bool = False,
    now: str = "",
) -> Reset:
    """Remove keys.

    job: everything of the redis_key, all its runs, request and item dedup, what a batch's master and workers share,
    and the index. run: the run that `scope` names, with its dedup unless that is the job's. dedup: only fingerprints of
    requests and items, of the scope's run and of the job. A TaskSpider's task list stays. Each namespace goes in one step.

    Raises ConfigError while nodes of the run or its batch master are alive, unless `force`: they would find their keys
    gone and stop with an error.
    """
    runs = all_run_ids(client, scope) if what == "job" else []
    if not force:
        _refuse_alive(client, scope, settings, runs, now)
    removed = 0
    layers = max(16, settings.DEDUP_MAX_LAYERS)
    job_dedup = DedupKeys(f"{scope.job}:dedup", layers).all(layers)
    own = RunKeys(scope.ns, scope.ns, scope.job, max_layers=layers)
    if what == "dedup":
        names = {*own.requests.all(layers), *own.items.all(layers), *job_dedup}
        names |= set(DedupKeys(f"{scope.job}:items:dedup", layers).all(layers))
        return Reset(_unlink(client, sorted(names)), 0)
    if what == "run":
        removed += _unlink(client, [*own.all(), *own.requests.all(layers)])
        if scope.run_id:
            client.zrem(own.runs, scope.run_id)
        return Reset(removed, 1)
    for run_id in runs:
        keys = run_keys(scope, run_id, max_layers=layers)
        removed += _unlink(client, [*keys.all(), *keys.requests.all(layers)])
    job = run_keys(scope, "", max_layers=layers)
    removed += _unlink(client, [*job.all(), *job_dedup, *BatchNames(scope.job).all(), job.runs])
    return Reset(removed, len(runs))


def reset_tasks(client: redis.Redis, base: str) -> int:
    """Remove the task list whose key is `base`, and what belongs to it; how many keys. In Redis Cluster a list of another
    name than the job's may be on another server: `client` must be made for that key.
    """
    return _unlink(client, task_list(base))


def _unlink(client: redis.Redis, names: list[str]) -> int:
    return client.unlink(*names)


def _refuse_alive(
    client: redis.Redis, scope: RunScope, settings: Settings, runs: list[str], now: str
) -> None:
    stale = settings.HEARTBEAT_STALE
    namespaces = [
        RunKeys.of(scope),
        *(run_keys(scope, run_id) for run_id in ("", *runs) if run_id != scope.run_id),
    ]
    # Without an index only the scope's own namespace is about to be touched.
    for keys in namespaces if runs or scope.run_id == "" else namespaces[:1]:
        seen = parse_status(run_sync(client, status_call(keys, stale, now)), keys.ns, stale)
        if seen.master:
            raise ConfigError(
                f"the batch master of {keys.ns} is alive and would lose its keys; stop it first, wait "
                f"{seen.master_left_s:.0f} s if it was killed, or force the reset"
            )
        alive = seen.live_nodes
        if alive:
            raise ConfigError(
                f"{alive} node(s) of {keys.ns} are alive and would lose their keys; stop them first, wait "
                f"{stale:g} s if they were killed, or force the reset"
            )
