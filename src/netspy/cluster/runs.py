"""The index of a job's runs (`<prefix>:<redis_key>:runs`), kept by runs that have a RUN_ID."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from netspy.redisio.keys import RunKeys

if TYPE_CHECKING:
    import redis

    from netspy.policy.run_scope import RunScope


class RunInfo(NamedTuple):
    """One run. `started` is in seconds since 1970; `exists` is False when its keys have run out or were
    reset.
    """

    run_id: str
    started: float
    exists: bool
    queued: int
    failed: int


def run_keys(scope: RunScope, run_id: str, *, max_layers: int = 4) -> RunKeys:
    """The keys of another run of the same job."""
    ns = f"{scope.job}:run:{run_id}" if run_id else scope.job
    return RunKeys(ns, ns, scope.job, max_layers=max_layers)


def list_runs(client: redis.Redis, scope: RunScope, *, limit: int = 100) -> list[RunInfo]:
    """The newest runs first."""
    index = RunKeys.of(scope).runs
    rows = cast("list[tuple[bytes, float]]", client.zrevrange(index, 0, limit - 1, withscores=True))
    found = []
    for name, started in rows:
        run_id = name.decode("utf-8", "replace")
        keys = run_keys(scope, run_id)
        with client.pipeline(transaction=True) as pipe:
            pipe.exists(keys.meta)
            pipe.zcard(keys.queued)
            pipe.llen(keys.failed)
            exists, queued, failed = pipe.execute()
        found.append(RunInfo(run_id, started / 1000, bool(exists), queued, failed))
    return found


def all_run_ids(client: redis.Redis, scope: RunScope) -> list[str]:
    """Every run id in the index, oldest first."""
    names = cast("list[bytes]", client.zrange(RunKeys.of(scope).runs, 0, -1))
    return [name.decode("utf-8", "replace") for name in names]
