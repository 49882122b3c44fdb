"""What is looked at before a node starts on a Redis: the server's version and persistence, and who owns the
keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import ConfigError
from netspy.redisio.errors import foreign_lock

if TYPE_CHECKING:
    import redis.asyncio

    from netspy.frontier.redis.membership import Owner

OLDEST_SERVER = (6, 2)


class ServerFacts(NamedTuple):
    """What the server told of itself, and what to warn of."""

    version: str
    warnings: list[str]


class Joined(NamedTuple):
    """A successful join."""

    kept: bool  #: see `Shared.joined`
    epoch: str
    history: str


async def server_facts(client: redis.asyncio.Redis) -> ServerFacts:
    """Ask the server. Raises ConfigError for one that is too old; what it may not tell is passed over in
    silence.
    """
    from redis.exceptions import ResponseError

    warnings: list[str] = []
    try:
        info: dict[str, Any] = await client.info()
    except ResponseError:
        return ServerFacts("", warnings)
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < OLDEST_SERVER:
        raise ConfigError(f"the Redis server has version {version}; netspy needs 6.2 or newer")
    if not info.get("run_id"):
        warnings.append(
            "the Redis server gives no run_id, so a restart that loses data is noticed only by missing keys"
        )
    policy = str(info.get("maxmemory_policy", ""))
    save: str | None = None
    try:
        # One name a call: 6.2 takes no more.
        policy = (await client.config_get("maxmemory-policy")).get("maxmemory-policy") or policy
        save = (await client.config_get("save")).get("save")
    except ResponseError:
        pass
    append_only = bool(int(info.get("aof_enabled", 0) or 0))
    if not append_only and save == "":
        warnings.append(
            "Redis keeps nothing on disk (appendonly no, save ''): when it restarts, the queue is gone and the "
            "crawl stops with an error; set `appendonly yes`"
        )
    elif not append_only and save is not None:
        warnings.append(
            f"Redis keeps only snapshots (appendonly no, save {save!r}): when it crashes, what happened since "
            "the last one is crawled again; `appendonly yes` loses at most a second"
        )
    if policy and policy != "noeviction":
        warnings.append(
            f"Redis may evict keys (maxmemory-policy {policy}), and with them the queue; set "
            "maxmemory-policy noeviction"
        )
    return ServerFacts(version, warnings)


def check_joined(reply: list[Any], ns: str, owner: Owner, layout: str) -> Joined:
    """The registration in `join`'s reply. Raises ConfigError with the remedy when the namespace isn't
    ours.
    """
    status, *rest = (part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in reply)
    if status == "OK":
        return Joined(bool(rest[0]), rest[1], rest[2])
    if status == "TYPE":
        parts = [status, *rest]
        wrong = ", ".join(
            f"{parts[i + 1]} is a {parts[i + 2]}, not a {parts[i + 3]}" for i in range(0, len(parts), 4)
        )
        raise ConfigError(
            f"Redis keys of {ns} belong to another program ({wrong}); choose another redis_key or "
            "REDIS_KEY_PREFIX, or "
            "delete them"
        )
    if status == "OWNER":
        raise ConfigError(
            f"the Redis namespace {ns} belongs to the {rest[1]} class {rest[0]}, and this is the {owner.kind} "
            f"class {owner.name}; give this spider its own redis_key, or, when the class was renamed, start it once "
            "with take_over=True or --take-over (or clear the job with `netspy reset`)"
        )
    if status == "FOREIGN":
        raise ConfigError(
            f"Redis key {rest[0]} belongs to another program: what netspy's item filter keeps there has a mark; choose "
            "another redis_key or REDIS_KEY_PREFIX, or delete it"
        )
    if status == "COUNT":
        raise ConfigError(
            f"Redis key {rest[0]} holds {rest[1]!r:.80}, and not a number of fingerprints: another program uses this name; "
            "choose another redis_key or REDIS_KEY_PREFIX, or delete it"
        )
    if status == "LOCK":
        raise ConfigError(foreign_lock(*rest))
    if status == "VERSION":
        raise ConfigError(
            f"the Redis namespace {ns} was written in format version {rest[0] or '?'}, which this version "
            "of netspy can't "
            "read; use the version that wrote it, or clear the job with `netspy reset`"
        )
    if status == "LAYOUT":
        found = f"the layout {rest[0]!r}" if rest[0] else "no mark of how to read it"
        raise ConfigError(
            f"Redis key {rest[1]} holds a Bloom filter with {found}, and the settings make {layout!r}; keep "
            "DEDUP_INITIAL_CAPACITY, DEDUP_ERROR_RATE and DEDUP_MAX_LAYERS as they were, choose another "
            "redis_key, or "
            "clear the job's dedup with `netspy reset`"
        )
    raise ConfigError(
        f"Redis answered the join of {ns} with {status!r}, which this version of netspy doesn't know"
    )
