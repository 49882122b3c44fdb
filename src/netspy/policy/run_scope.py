"""Which names a run has in the shared store: the namespace, and how far request and item dedup reach.

Without RUN_ID a `redis_key` is one job that can be continued; with RUN_ID every run has its own namespace
`<prefix>:<redis_key>:run:<RUN_ID>`, whose keys live for RUN_TTL after the run's last sign of life.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from netspy.errors import ConfigError

if TYPE_CHECKING:
    from netspy.settings import Settings

CLUSTER_SCHEMES = frozenset({"redis+cluster", "rediss+cluster"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """Names of one run.

    `job` is `<prefix>:<redis_key>`; `ns` is the job, or the run inside it; `dedup` is where request
    fingerprints live: `ns`, or the job when DEDUP_SCOPE is "spider". Item fingerprints live in `ns`, each
    seeding generation beginning anew. `run_ttl_ms` is 0 when the keys are permanent.
    """

    prefix: str
    redis_key: str
    run_id: str
    job: str
    ns: str
    dedup: str
    run_ttl_ms: int
    incremental: bool

    @property
    def queue_ttl_ms(self) -> int:
        """Lifetime of requests: the run's; for ever where a later run takes over what this one leaves."""
        return 0 if self.incremental else self.run_ttl_ms

    @property
    def dedup_ttl_ms(self) -> int:
        """Lifetime of the request fingerprints: the run's, and for ever in the job's scope."""
        return self.run_ttl_ms if self.dedup == self.ns else 0


def run_scope(
    settings: Settings,
    class_name: str,
    redis_key: str | None = None,
    *,
    use_run_id: bool = True,
    cluster: bool | None = None,
) -> RunScope:
    """The names for a spider class. `redis_key` defaults to the class name; BatchSpider ignores RUN_ID.

    In Redis Cluster the job is a hash tag, so that all keys of a job share one slot; `cluster` None goes by
    REDIS_URL. Raises ConfigError for a name that would collide with another key.
    """
    key = class_name if redis_key is None else redis_key
    prefix = settings.REDIS_KEY_PREFIX
    run_id = settings.RUN_ID if use_run_id else ""
    check_names(prefix, key, run_id)
    job = f"{prefix}:{key}"
    if cluster is None:
        cluster = settings.REDIS_URL.partition("://")[0] in CLUSTER_SCHEMES
    if cluster:
        job = "{" + job + "}"
    ns = f"{job}:run:{run_id}" if run_id else job
    per_run = settings.DEDUP_SCOPE != "spider"
    return RunScope(
        prefix=prefix,
        redis_key=key,
        run_id=run_id,
        job=job,
        ns=ns,
        dedup=ns if per_run else job,
        run_ttl_ms=settings.RUN_TTL * 1000 if run_id else 0,
        incremental=bool(run_id) and not per_run,
    )


def check_names(prefix: str, redis_key: str, run_id: str) -> None:
    """Raise ConfigError, with the way out, for names whose keys would mix with others."""
    if not redis_key:
        raise ConfigError("redis_key is empty; leave it out to use the class name, or give the job a name")
    for name, value in (("REDIS_KEY_PREFIX", prefix), ("redis_key", redis_key), ("RUN_ID", run_id)):
        if "{" in value or "}" in value:
            raise ConfigError(
                f"{name}={value!r} contains a brace, which Redis Cluster reads as a hash tag; leave braces "
                "out"
            )
        if any(ch in value for ch in "\r\n\0"):
            raise ConfigError(f"{name}={value!r} contains a line break or a zero byte; use plain text")
    for name, value, joined in (
        ("REDIS_KEY_PREFIX", prefix, f"{prefix}:"),
        ("redis_key", redis_key, f":{redis_key}"),
    ):
        if ":run:" in joined:
            raise ConfigError(
                f"{name}={value!r} would give keys that look like those of a run (…:run:<RUN_ID>); choose "
                "another name"
            )
    for name, value in (("redis_key", redis_key), ("RUN_ID", run_id)):
        if value == "items" or value.endswith(":items"):
            raise ConfigError(
                f"{name}={value!r} ends in 'items', so its keys would mix with the item fingerprints of "
                "another job (…:items:dedup:…); choose another name"
            )
