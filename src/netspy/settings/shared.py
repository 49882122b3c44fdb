"""Settings of Redis and of several nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from netspy.settings.declaring import described
from netspy.settings.run import RunSettings

_doc = described("distributed")


class SharedSettings(RunSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    REDIS_URL: Annotated[
        str,
        _doc(
            "redis://, rediss:// (TLS), unix://, redis+sentinel://, redis+cluster:// or "
            '"embedded" (a private server in EMBEDDED_DATA_DIR).',
            "URL",
        ),
    ] = "redis://localhost:6379/0"
    REDIS_KEY_PREFIX: Annotated[str, _doc("Prefix of all keys.")] = "netspy"
    REDIS_CONNECT_TIMEOUT: Annotated[float, _doc("How long one connection attempt may take.", "s", gt=0)] = (
        5.0
    )
    REDIS_START_TIMEOUT: Annotated[
        float,
        _doc("How long a start waits for a Redis that does not answer before it is an error.", "s", ge=0),
    ] = 10.0
    REDIS_OUTAGE_TIMEOUT: Annotated[
        float, _doc("How long a running node waits for a Redis that went away; 0 = for ever.", "s", ge=0)
    ] = 0.0
    EMBEDDED_DATA_DIR: Annotated[
        str, _doc("Folder of the embedded Redis: its append-only file, socket and lock.", "path")
    ] = ".netspy"
    SPIDER_KEEP_ALIVE: Annotated[bool, _doc("Stay when the queue is empty.")] = False
    SPIDER_SEED_LOCK_TTL: Annotated[
        int, _doc("How long the mark *seeded* is kept; after it the next start seeds again.", "s", ge=1)
    ] = 86400
    SPIDER_SEEDING_TTL: Annotated[
        float, _doc("A seeding node that has not renewed its lock for this long is replaced.", "s", gt=0)
    ] = 10.0
    SPIDER_SEED_AHEAD: Annotated[
        int, _doc("Seeding pauses while this many requests are queued.", "requests", ge=1)
    ] = 10_000
    SPIDER_STARTUP_GRACE: Annotated[
        float,
        _doc(
            "A node that never had work waits this long before it may call the run finished; 0 = off.",
            "s",
            ge=0,
        ),
    ] = 10.0
    SPIDER_TASK_LEASE: Annotated[
        float,
        _doc(
            "A claimed request belongs to its node this long, renewed while it lives; 0 = nothing runs twice.",
            "s",
            ge=0,
        ),
    ] = 600.0
    HEARTBEAT_INTERVAL: Annotated[float, _doc("Between two heartbeats of a node.", "s", gt=0)] = 3.0
    HEARTBEAT_STALE: Annotated[
        float,
        _doc("A node without a heartbeat for this long is dead and its requests are taken over.", "s", gt=0),
    ] = 15.0
    RUN_ID: Annotated[str, _doc("Identity of this run; with it every run crawls afresh.")] = ""
    DEDUP_SCOPE: Annotated[
        Literal["auto", "run", "spider"],
        _doc("run: each run crawls everything again; spider: never what an earlier run crawled; auto: run."),
    ] = "auto"
    RUN_TTL: Annotated[int, _doc("How long the keys of a run with RUN_ID are kept.", "s", ge=1)] = 604800
