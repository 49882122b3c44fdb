"""Every setting, once: name, type, default, unit and one sentence; and the loader that layers them.

Order, weakest first: defaults, the project's `setting.py` (NETSPY_SETTING names another file), the class attribute
`__custom_setting__`, NETSPY_* environment variables, constructor keywords and command-line flags. The origin of
each value is kept, so that `netspy settings` can show it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from netspy.errors import ConfigError

DEFAULT_ORIGIN = "default"
COMMAND_LINE = "-s"
"""The origin of settings given on the command line."""


def _doc(
    text: str, unit: str = "", group: str = "", *, ge: float | None = None, gt: float | None = None
) -> Meta:
    """The description of one setting: a sentence, its unit, and the bounds of its value."""
    extra = {"unit": unit, "group": group}
    if gt is not None:
        return Meta(description=text, extra=extra, gt=gt)
    return Meta(description=text, extra=extra) if ge is None else Meta(description=text, extra=extra, ge=ge)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spider's settings: a frozen value that is handed to whoever needs it.

    Field names are the documented setting names; see docs/settings.md, which is generated from this class.
    """

    # run
    PROJECT_NAME: Annotated[str, _doc("Name shown in the summary and in alerts.", group="run")] = "netspy"
    SPIDER_THREAD_COUNT: Annotated[int, _doc("Requests in flight per process.", "requests", "run", ge=1)] = 16
    SPIDER_MAX_RETRY_TIMES: Annotated[
        int,
        _doc("Further tries after the first one before a request counts as failed.", "tries", "run", ge=0),
    ] = 3
    SPIDER_RETRY_INTERVAL: Annotated[
        float, _doc("Fixed wait before a retry, added to RETRY_BACKOFF's.", "s", "run", ge=0)
    ] = 0.0
    COLLECTOR_TASK_COUNT: Annotated[
        int,
        _doc(
            "The most requests a node claims in one call and holds without having started them.",
            "requests",
            "run",
            ge=1,
        ),
    ] = 100
    REQUEST_BUFFER_MAX_CACHED: Annotated[
        int,
        _doc(
            "Discovered requests a node may hold before they are in the frontier; callbacks wait beyond it.",
            "requests",
            "run",
            ge=1,
        ),
    ] = 1000
    BUFFER_FLUSH_INTERVAL: Annotated[
        float,
        _doc("The longest an item waits in the item buffer before its batch is written.", "s", "run", gt=0),
    ] = 0.1
    DONE_CHECK_INTERVAL: Annotated[
        float, _doc("How often an idle node asks whether the run is over.", "s", "run", gt=0)
    ] = 0.5
    SPIDER_MAX_RUNTIME: Annotated[
        float, _doc("Stop gracefully after this long; 0 = no limit.", "s", "run", ge=0)
    ] = 0.0
    SPIDER_MAX_PAGES: Annotated[
        int,
        _doc(
            "Stop gracefully after this many downloaded pages on this node; 0 = no limit.",
            "pages",
            "run",
            ge=0,
        ),
    ] = 0
    SPIDER_MAX_ITEMS: Annotated[
        int,
        _doc(
            "Stop gracefully after this many stored items on this node; 0 = no limit.", "items", "run", ge=0
        ),
    ] = 0
    SPIDER_MAX_ERRORS: Annotated[
        int,
        _doc(
            "Stop gracefully after this many failed requests on this node; 0 = no limit.",
            "requests",
            "run",
            ge=0,
        ),
    ] = 0
    SPIDER_STOP_TIMEOUT: Annotated[
        float,
        _doc(
            "On SIGINT or SIGTERM, running pages get this long to finish before their leases are given back.",
            "s",
            "run",
            gt=0,
        ),
    ] = 7.0
    SPIDER_TASK_MAX_SECONDS: Annotated[
        float,
        _doc("The longest one callback may run before its lease is no longer renewed.", "s", "run", gt=0),
    ] = 3600.0
    SPIDER_MAX_UNACKED: Annotated[
        int,
        _doc(
            "Pages fetched whose items are not stored yet; over it a node claims nothing more.",
            "requests",
            "run",
            ge=1,
        ),
    ] = 2000
    SPIDER_MAX_DELIVERIES: Annotated[
        int,
        _doc(
            "A request that was so often the only suspect in a process that died goes to failed_requests (poison).",
            "deliveries",
            "run",
            ge=1,
        ),
    ] = 3
    CALLBACK_MAX_THREADS: Annotated[
        int,
        _doc(
            "The most threads for plain `def` callbacks; the pool starts with one and grows when callbacks block.",
            "threads",
            "run",
            ge=1,
        ),
    ] = 16
    CALLBACK_CHUNK: Annotated[
        int,
        _doc(
            "How many values are drawn from a callback's generator before they are handed over.",
            "values",
            "run",
            ge=1,
        ),
    ] = 500
    DUMP_UNFINISHED_ON_EXIT: Annotated[
        bool,
        _doc(
            "AirSpider: keep what is unfinished at a stop beside FAILED_REQUEST_PATH, for RETRY_FAILED_ON_START.",
            group="run",
        ),
    ] = True
    FAILED_REQUEST_PATH: Annotated[
        str, _doc("AirSpider: requests that failed for good, one JSON object per line.", "path", "run")
    ] = "failed_requests.jsonl"
    RETRY_FAILED_ON_START: Annotated[
        bool, _doc("Queue the failed requests of the last run again at start.", group="run")
    ] = False
    RUN_SUMMARY_ENABLE: Annotated[
        bool, _doc("Print the `NETSPY_RUN_SUMMARY {json}` line at the end.", group="run")
    ] = True
    FAIL_ON_NOTHING_TO_DO: Annotated[
        bool, _doc("Exit with code 9 instead of 0 when a run found nothing to do.", group="run")
    ] = False
    STRICT_SETTINGS: Annotated[
        bool, _doc("A name close to a setting's is an error instead of a warning.", group="run")
    ] = False
    DEBUG: Annotated[bool, _doc("Log at DEBUG and run callbacks in one thread.", group="run")] = False

    # distributed
    REDIS_URL: Annotated[
        str,
        _doc(
            "redis://, rediss:// (TLS), unix://, redis+sentinel://, redis+cluster:// or "
            '"embedded" (a private server in EMBEDDED_DATA_DIR).',
            "URL",
            "distributed",
        ),
    ] = "redis://localhost:6379/0"
    REDIS_KEY_PREFIX: Annotated[str, _doc("Prefix of all keys.", group="distributed")] = "netspy"
    REDIS_CONNECT_TIMEOUT: Annotated[
        float, _doc("How long one connection attempt may take.", "s", "distributed", gt=0)
    ] = 5.0
    REDIS_START_TIMEOUT: Annotated[
        float,
        _doc(
            "How long a start waits for a Redis that does not answer before it is an error.",
            "s",
            "distributed",
            ge=0,
        ),
    ] = 10.0
    REDIS_OUTAGE_TIMEOUT: Annotated[
        float,
        _doc(
            "How long a running node waits for a Redis that went away; 0 = for ever.",
            "s",
            "distributed",
            ge=0,
        ),
    ] = 0.0
    EMBEDDED_DATA_DIR: Annotated[
        str,
        _doc("Folder of the embedded Redis: its append-only file, socket and lock.", "path", "distributed"),
    ] = ".netspy"
    SPIDER_KEEP_ALIVE: Annotated[bool, _doc("Stay when the queue is empty.", group="distributed")] = False
    SPIDER_SEED_LOCK_TTL: Annotated[
        int,
        _doc(
            "How long the mark *seeded* is kept; after it the next start seeds again.",
            "s",
            "distributed",
            ge=1,
        ),
    ] = 86400
    SPIDER_SEEDING_TTL: Annotated[
        float,
        _doc(
            "A seeding node that has not renewed its lock for this long is replaced.",
            "s",
            "distributed",
            gt=0,
        ),
    ] = 10.0
    SPIDER_SEED_AHEAD: Annotated[
        int, _doc("Seeding pauses while this many requests are queued.", "requests", "distributed", ge=1)
    ] = 10_000
    SPIDER_STARTUP_GRACE: Annotated[
        float,
        _doc(
            "A node that never had work waits this long before it may call the run finished; 0 = off.",
            "s",
            "distributed",
            ge=0,
        ),
    ] = 10.0
    SPIDER_TASK_LEASE: Annotated[
        float,
        _doc(
            "A claimed request belongs to its node this long, renewed while it lives; 0 = nothing runs twice.",
            "s",
            "distributed",
            ge=0,
        ),
    ] = 600.0
    HEARTBEAT_INTERVAL: Annotated[
        float, _doc("Between two heartbeats of a node.", "s", "distributed", gt=0)
    ] = 3.0
    HEARTBEAT_STALE: Annotated[
        float,
        _doc(
            "A node without a heartbeat for this long is dead and its requests are taken over.",
            "s",
            "distributed",
            gt=0,
        ),
    ] = 15.0
    RUN_ID: Annotated[
        str, _doc("Identity of this run; with it every run crawls afresh.", group="distributed")
    ] = ""
    DEDUP_SCOPE: Annotated[
        Literal["auto", "run", "spider"],
        _doc(
            "run: each run crawls everything again; spider: never what an earlier run crawled; auto: run.",
            group="distributed",
        ),
    ] = "auto"
    RUN_TTL: Annotated[
        int, _doc("How long the keys of a run with RUN_ID are kept.", "s", "distributed", ge=1)
    ] = 604800

    # tasks and batches
    TASK_SOURCE: Annotated[
        str,
        _doc(
            "Where tasks come from: empty = the Redis list of the spider, memory, amqp://…, kafka://…, the URL of a SQL "
            "table, or the path of a class.",
            group="task",
        ),
    ] = ""
    TASK_POLL_INTERVAL: Annotated[float, _doc("Between two looks at the task source.", "s", "task", gt=0)] = (
        2.0
    )
    TASK_BATCH_SIZE: Annotated[int, _doc("Tasks fetched at a time.", "tasks", "task", ge=1)] = 100
    TASK_EXHAUST_POLLS: Annotated[
        int, _doc("Empty looks in a row after which the source is exhausted.", "polls", "task", ge=1)
    ] = 3
    BATCH_INTERVAL: Annotated[
        float, _doc("Between the starts of two batches.", "BATCH_INTERVAL_UNIT", "task", gt=0)
    ] = 7.0
    BATCH_INTERVAL_UNIT: Annotated[
        Literal["day", "hour", "minute"], _doc("Unit of BATCH_INTERVAL.", group="task")
    ] = "day"
    BATCH_CRON: Annotated[
        str,
        _doc(
            "Cron expression (minute hour day month weekday) for the starts of batches, instead of BATCH_INTERVAL.",
            group="task",
        ),
    ] = ""
    BATCH_TIMEZONE: Annotated[
        str, _doc("Time zone in which BATCH_CRON is meant, e.g. Europe/Berlin.", group="task")
    ] = "UTC"
    BATCH_STORE_URL: Annotated[
        str,
        _doc(
            "Database of the task table: mysql://, postgresql:// or sqlite:///path; empty = the MYSQL_* settings.",
            "URL",
            "task",
        ),
    ] = ""
    BATCH_MONITOR_INTERVAL: Annotated[
        float, _doc("Between two passes of the batch master.", "s", "task", gt=0)
    ] = 10.0
    BATCH_LOST_TASK_STALE: Annotated[
        float, _doc("A task in process for this long without a sign of life is lost.", "s", "task", gt=0)
    ] = 600.0
    BATCH_PUSH_LIMIT: Annotated[int, _doc("Tasks the master claims at a time.", "tasks", "task", ge=1)] = 5000
    BATCH_TASK_ID_FIELD: Annotated[str, _doc("Primary key column of the task table.", group="task")] = "id"
    BATCH_TASK_STATE_FIELD: Annotated[str, _doc("State column of the task table.", group="task")] = (
        "batch_status"
    )
    BATCH_TASK_TIME_FIELD: Annotated[str, _doc("Time column of the task table.", group="task")] = (
        "update_time"
    )

    # download
    REQUEST_TIMEOUT: Annotated[
        float, _doc("One fetch, redirects included, may take this long.", "s", "download", gt=0)
    ] = 22.0
    CONNECT_TIMEOUT: Annotated[
        float, _doc("Name look-up, connection and TLS may take this long.", "s", "download", gt=0)
    ] = 10.0
    IDLE_TIMEOUT: Annotated[
        float, _doc("A transfer without a byte for this long is given up; 0 = off.", "s", "download", ge=0)
    ] = 15.0
    USER_AGENT: Annotated[
        str, _doc("User-Agent header when a request has none; empty = netspy's own.", group="download")
    ] = ""
    RANDOM_USER_AGENT: Annotated[
        bool, _doc("Send a common browser's User-Agent, one per site.", group="download")
    ] = False
    USE_SESSION: Annotated[
        bool, _doc("Accepted; connections and cookies are always shared.", group="download")
    ] = True
    COOKIES_ENABLED: Annotated[bool, _doc("Keep and send cookies.", group="download")] = True
    HTTPX_HTTP2: Annotated[bool, _doc("Use HTTP/2 where a TLS server offers it.", group="download")] = True
    DOWNLOADER_IMPERSONATE: Annotated[
        str, _doc("Browser whose TLS and HTTP/2 fingerprint is used, e.g. chrome.", group="download")
    ] = ""
    VERIFY_TLS: Annotated[
        bool, _doc("Check certificates; a request's `verify=` overrides it.", group="download")
    ] = True
    BLOCK_PRIVATE_ADDRESSES: Annotated[
        bool,
        _doc(
            "Refuse to connect to private, loopback, link-local and cloud metadata addresses, redirects included.",
            group="download",
        ),
    ] = False
    MAX_REDIRECTS: Annotated[int, _doc("Redirects followed per fetch.", "hops", "download", ge=0)] = 20
    MAX_RESPONSE_SIZE: Annotated[
        int, _doc("The largest body accepted, after decompression; 0 = no limit.", "bytes", "download", ge=0)
    ] = 33554432
    ALLOWED_CONTENT_TYPES: Annotated[
        list[str], _doc("Content types accepted, `text/*` allowed; empty = all.", group="download")
    ] = msgspec.field(default_factory=list)
    DOWNLOADER_MIDDLEWARES: Annotated[
        list[str], _doc("Classes wrapped around each fetch, outermost first.", group="download")
    ] = msgspec.field(default_factory=list)
    DOWNLOADER: Annotated[str, _doc("Class path of the downloader.", group="download")] = (
        "netspy.downloader.curl.CurlDownloader"
    )
    SELECTOR_ENGINE: Annotated[
        Literal["turbohtml", "parsel"], _doc("What answers css() and xpath().", group="download")
    ] = "turbohtml"
    URL_IGNORE_PARAMS: Annotated[
        list[str],
        _doc(
            "Query parameters left out of the fingerprint, `utm_*` allowed; the URL fetched keeps them.",
            group="download",
        ),
    ] = msgspec.field(default_factory=list)

    # politeness
    CONCURRENT_REQUESTS_PER_DOMAIN: Annotated[
        int, _doc("Requests in flight per host and node; 0 = no limit.", "requests", "politeness", ge=0)
    ] = 8
    DOWNLOAD_DELAY: Annotated[
        float, _doc("Between two requests to one host on a node.", "s", "politeness", ge=0)
    ] = 0.0
    RANDOMIZE_DOWNLOAD_DELAY: Annotated[
        bool, _doc("Vary DOWNLOAD_DELAY between 0.5 and 1.5 times.", group="politeness")
    ] = True
    CHECK_STATUS_CODE: Annotated[
        bool, _doc("Apply the status policy; off: every status reaches the callback.", group="politeness")
    ] = True
    RETRY_STATUS_CODES: Annotated[list[int], _doc("Statuses tried again.", group="politeness")] = (
        msgspec.field(default_factory=lambda: [429, 500, 502, 503, 504])
    )
    ACCEPT_STATUS_CODES: Annotated[
        list[int], _doc("Statuses besides 2xx and 3xx that reach the callback.", group="politeness")
    ] = msgspec.field(default_factory=list)
    RETRY_AFTER_MAX: Annotated[
        float, _doc("The longest Retry-After that is obeyed.", "s", "politeness", ge=0)
    ] = 60.0
    RETRY_BACKOFF: Annotated[
        float,
        _doc(
            "First back-off before a retry; doubled each time, with jitter; 0 = at once.",
            "s",
            "politeness",
            ge=0,
        ),
    ] = 0.5
    RETRY_BACKOFF_MAX: Annotated[float, _doc("The longest back-off.", "s", "politeness", ge=0)] = 60.0
    CIRCUIT_FAILURE_THRESHOLD: Annotated[
        int,
        _doc(
            "Failures in a row on one host after which it cools down; 0 = off.",
            "requests",
            "politeness",
            ge=0,
        ),
    ] = 10
    CIRCUIT_COOLDOWN: Annotated[float, _doc("How long a host cools down.", "s", "politeness", ge=0)] = 60.0

    # items and dedup
    ITEM_PIPELINES: Annotated[
        list[str], _doc("Class paths of the pipelines; each gets every item.", group="items")
    ] = msgspec.field(default_factory=lambda: ["netspy.pipelines.console.ConsolePipeline"])
    ITEM_DEFAULT_TABLE: Annotated[str, _doc("Table of plain dicts.", group="items")] = "items"
    ITEM_MAX_CACHED_COUNT: Annotated[
        int, _doc("Items in the item buffer; callbacks wait beyond it.", "items", "items", ge=1)
    ] = 5000
    ITEM_BATCH_SIZE: Annotated[
        int, _doc("The most items handed to a pipeline at a time.", "items", "items", ge=1)
    ] = 500
    ITEM_FILTER_ENABLE: Annotated[
        bool, _doc("Drop Items whose fingerprint was stored before.", group="items")
    ] = True
    ITEM_RETRY_TIMES: Annotated[
        int,
        _doc(
            "Further tries of a failing batch, after the first one, before it is split and its bad rows dead-lettered.",
            "tries",
            "items",
            ge=0,
        ),
    ] = 3
    ITEM_RETRY_BACKOFF: Annotated[
        float, _doc("First wait between them; doubled each time.", "s", "items", ge=0)
    ] = 0.5
    ITEM_WRITE_TIMEOUT: Annotated[
        float,
        _doc(
            "The longest one call of a pipeline may take before it counts as failed; 0 = no limit.",
            "s",
            "items",
            ge=0,
        ),
    ] = 300.0
    ITEM_STORE_DOWN: Annotated[
        Literal["pause", "spill"],
        _doc(
            "While a pipeline's store is down: pause = keep the batch and claim nothing more, spill = dead-letter and go on.",
            group="items",
        ),
    ] = "pause"
    ITEM_STORE_PATIENCE: Annotated[
        float,
        _doc(
            "The longest pause for a store that is down; then its items are dead-lettered and the crawl goes on.",
            "s",
            "items",
            ge=0,
        ),
    ] = 2700.0
    ITEM_VALIDATE: Annotated[
        bool,
        _doc(
            "Check items against the types that their class declares; a bad one is dead-lettered with the field and reason.",
            group="items",
        ),
    ] = False
    FAILED_ITEM_URL: Annotated[
        str,
        _doc(
            "A shared store for dead-lettered items, kept in the local file when it is away: redis (the spider's own), "
            "redis://…, sqlite:///…; empty = the file only.",
            group="items",
        ),
    ] = ""
    FAILED_ITEM_PATH: Annotated[
        str, _doc("Items that could not be stored, one JSON object per line.", "path", "items")
    ] = "failed_items.jsonl"
    CSV_OUTPUT_DIR: Annotated[str, _doc("Folder of the CSV pipeline.", "path", "items")] = "."
    CSV_BOM: Annotated[
        bool, _doc("Begin new CSV files with a byte order mark, by which Excel knows UTF-8.", group="items")
    ] = False
    CSV_ESCAPE_FORMULAS: Annotated[
        bool,
        _doc(
            "Put an apostrophe before CSV text that a spreadsheet would run as a formula; it changes values.",
            group="items",
        ),
    ] = False
    JSONL_OUTPUT_DIR: Annotated[str, _doc("Folder of the JSONL pipeline.", "path", "items")] = "."
    JSONL_COMPRESSION: Annotated[
        Literal["none", "gzip", "zstd"], _doc("How the JSONL pipeline compresses its files.", group="items")
    ] = "none"
    JSONL_ROTATE_BYTES: Annotated[
        int,
        _doc(
            "A JSONL file that would grow beyond this is put away under a number; 0 = no limit.",
            "bytes",
            "items",
            ge=0,
        ),
    ] = 0
    PARQUET_OUTPUT_DIR: Annotated[
        str, _doc("Folder of the Parquet pipeline; each table has a folder in it.", "path", "items")
    ] = "."
    PARQUET_FILE_ROWS: Annotated[
        int, _doc("A Parquet file is finished at this many rows.", "rows", "items", ge=1)
    ] = 100_000
    PARQUET_FILE_BYTES: Annotated[
        int,
        _doc("Or when its rows, before compression, take this much room.", "bytes", "items", ge=1),
    ] = 134_217_728
    PARQUET_FILE_AGE: Annotated[
        float,
        _doc("Or at the first batch after this long; 0 = whatever its age.", "s", "items", ge=0),
    ] = 3600.0
    MONGO_URI: Annotated[str, _doc("MongoDB server or servers.", group="items")] = "mongodb://localhost:27017"
    MONGO_DB: Annotated[str, _doc("The database there; each table is a collection.", group="items")] = (
        "netspy"
    )
    ELASTICSEARCH_HOSTS: Annotated[
        list[str],
        _doc("Elasticsearch or OpenSearch nodes; another is asked when one is away.", group="items"),
    ] = msgspec.field(default_factory=lambda: ["http://localhost:9200"])
    ELASTICSEARCH_USER: Annotated[
        str, _doc("User for basic authentication; empty = none.", group="items")
    ] = ""
    ELASTICSEARCH_PASSWORD: Annotated[str, _doc("That user's password.", group="items")] = ""
    ELASTICSEARCH_API_KEY: Annotated[
        str, _doc("API key, as the server gives it encoded; goes before a user.", group="items")
    ] = ""
    ELASTICSEARCH_CA_FILE: Annotated[
        str,
        _doc("Certificates (PEM) that its nodes are checked against; empty = the system's.", "path", "items"),
    ] = ""
    KAFKA_BOOTSTRAP_SERVERS: Annotated[
        list[str], _doc("Kafka brokers, host:port; the others of a cluster are found by them.", group="items")
    ] = msgspec.field(default_factory=lambda: ["localhost:9092"])
    KAFKA_URL: Annotated[
        str,
        _doc(
            "Kafka of KafkaPipeline where user, TLS or other properties are needed: kafka://user:password@host:9092?…; "
            "empty = KAFKA_BOOTSTRAP_SERVERS.",
            "URL",
            "items",
        ),
    ] = ""
    KAFKA_TOPIC: Annotated[
        str, _doc("Topic of all rows of KafkaPipeline; empty = the row's table.", group="items")
    ] = ""
    RABBITMQ_URL: Annotated[
        str, _doc("RabbitMQ of RabbitmqPipeline: amqp:// or amqps://.", "URL", "items")
    ] = "amqp://guest:guest@localhost:5672/"
    RABBITMQ_QUEUE: Annotated[
        str, _doc("Queue of all rows of RabbitmqPipeline; empty = the row's table.", group="items")
    ] = ""
    REDIS_ITEMS_KEY: Annotated[
        str,
        _doc("Key of all rows of RedisPipeline; empty = `<REDIS_KEY_PREFIX>:items:<table>`.", group="items"),
    ] = ""
    REDIS_ITEMS_TYPE: Annotated[
        Literal["list", "stream"], _doc("What RedisPipeline writes there.", group="items")
    ] = "list"
    FILES_STORE: Annotated[
        str, _doc("Where FilesPipeline puts files: a folder, or s3://bucket/prefix.", group="items")
    ] = "./files"
    FILES_CONCURRENCY: Annotated[
        int, _doc("Files in download at a time, per process.", "files", "items", ge=1)
    ] = 8
    FILES_PER_HOST: Annotated[
        int,
        _doc(
            "Files in download at a time from one host, besides the pages of the crawl.",
            "files",
            "items",
            ge=1,
        ),
    ] = 2
    FILES_TIMEOUT: Annotated[
        float, _doc("One file, redirects included, may take this long.", "s", "items", gt=0)
    ] = 600.0
    FILES_MAX_SIZE: Annotated[
        int, _doc("The largest file accepted; 0 = no limit.", "bytes", "items", ge=0)
    ] = 1_073_741_824
    FILES_EXPIRE: Annotated[
        float,
        _doc(
            "A URL whose file is in the store is not fetched again for this long; 0 = always fetched.",
            "s",
            "items",
            ge=0,
        ),
    ] = 7_776_000.0
    FILES_MISSING: Annotated[
        Literal["auto", "store", "dead-letter"],
        _doc(
            "A row whose file can't be had: stored with the error; dead-lettered; auto = dead-lettered only when another "
            "try can help.",
            group="items",
        ),
    ] = "auto"
    S3_ENDPOINT_URL: Annotated[
        str, _doc("Address of an S3-compatible store, e.g. MinIO; empty = Amazon's.", group="items")
    ] = ""
    S3_REGION: Annotated[str, _doc("Region; empty = as the AWS configuration says.", group="items")] = ""
    S3_ACCESS_KEY_ID: Annotated[
        str, _doc("Access key; empty = as the AWS configuration or the machine's role says.", group="items")
    ] = ""
    S3_SECRET_ACCESS_KEY: Annotated[str, _doc("The access key's secret.", group="items")] = ""
    SQLITE_PATH: Annotated[str, _doc("Database file of the SQLite pipeline.", "path", "items")] = "items.db"
    DEDUP_FILTER: Annotated[
        str,
        _doc(
            "Request filter: auto, memory, lite, bloom, redis, redis-bloom, redis-set or a class path.",
            group="items",
        ),
    ] = "auto"
    DEDUP_ERROR_RATE: Annotated[
        float, _doc("Chance that a new URL is taken for a known one, first layer.", "", "items", gt=0)
    ] = 1e-6
    DEDUP_INITIAL_CAPACITY: Annotated[
        int, _doc("Fingerprints in the first Bloom layer.", "fingerprints", "items", ge=1)
    ] = 1_000_000
    DEDUP_WARN_FILL_RATE: Annotated[
        float, _doc("Share of the total capacity at which a warning is sent.", "", "items", gt=0)
    ] = 0.8
    DEDUP_MAX_LAYERS: Annotated[int, _doc("The most Bloom layers.", "layers", "items", ge=1)] = 4

    # SQL stores
    ITEM_AUTO_CREATE_TABLE: Annotated[
        bool, _doc("SQL pipelines make a missing table from the first batch's fields.", group="stores")
    ] = False
    ITEM_UNKNOWN_COLUMNS: Annotated[
        Literal["drop", "json", "add", "error"],
        _doc(
            "A field without a column in an SQL table: left out and reported, kept in ITEM_EXTRA_COLUMN, added to the "
            "table, or a failure of its row.",
            group="stores",
        ),
    ] = "drop"
    ITEM_EXTRA_COLUMN: Annotated[
        str,
        _doc("Column that ITEM_UNKNOWN_COLUMNS=json keeps fields in, as one JSON object.", group="stores"),
    ] = "extra"
    ITEM_UPDATE_UPSERT: Annotated[
        bool,
        _doc(
            "An UpdateItem that finds no row is inserted (SQL); off: it is a failure of that row.",
            group="stores",
        ),
    ] = False
    SQL_URL: Annotated[
        str, _doc("Database of SqlPipeline: mysql://, postgresql:// or sqlite:///path.", "URL", "stores")
    ] = ""
    SQL_POOL_SIZE: Annotated[
        int, _doc("The most connections a process opens to SQL_URL.", "connections", "stores", ge=1)
    ] = 5
    SQL_ON_CONFLICT: Annotated[
        Literal["update", "nothing", "error"],
        _doc(
            "SqlPipeline and a row whose key is there: overwrite its fields, leave it, or fail.",
            group="stores",
        ),
    ] = "update"
    MYSQL_HOST: Annotated[
        str, _doc("MySQL or MariaDB server: a host, or a socket's path.", group="stores")
    ] = "localhost"
    MYSQL_PORT: Annotated[int, _doc("Its port.", group="stores", ge=1)] = 3306
    MYSQL_USER: Annotated[str, _doc("The user there.", group="stores")] = "root"
    MYSQL_PASSWORD: Annotated[str, _doc("The user's password.", group="stores")] = ""
    MYSQL_DB: Annotated[str, _doc("The database there.", group="stores")] = "netspy"
    MYSQL_POOL_SIZE: Annotated[
        int, _doc("The most connections a process opens to MySQL.", "connections", "stores", ge=1)
    ] = 5
    MYSQL_UPDATE_ON_DUPLICATE: Annotated[
        bool,
        _doc(
            "A row whose key is there overwrites its fields; off: the old row stays as it is.", group="stores"
        ),
    ] = True
    POSTGRES_HOST: Annotated[
        str, _doc("PostgreSQL server: a host, or a socket's folder.", group="stores")
    ] = "localhost"
    POSTGRES_PORT: Annotated[int, _doc("Its port.", group="stores", ge=1)] = 5432
    POSTGRES_USER: Annotated[str, _doc("The user there.", group="stores")] = "postgres"
    POSTGRES_PASSWORD: Annotated[str, _doc("The user's password.", group="stores")] = ""
    POSTGRES_DB: Annotated[str, _doc("The database there.", group="stores")] = "netspy"
    POSTGRES_POOL_SIZE: Annotated[
        int, _doc("The most connections a process opens to PostgreSQL.", "connections", "stores", ge=1)
    ] = 5
    POSTGRES_ON_CONFLICT: Annotated[
        Literal["nothing", "update", "error"],
        _doc(
            "A row whose key is there: left as it is, overwritten by the new one's fields, or a failure.",
            group="stores",
        ),
    ] = "nothing"
    POSTGRES_CONFLICT_TARGET: Annotated[
        list[str],
        _doc(
            "Columns of the key to go by; empty: the item's `__unique_key__`, else the table's keys.",
            group="stores",
        ),
    ] = msgspec.field(default_factory=list)

    # observation
    LOG_LEVEL: Annotated[
        Literal["TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL"],
        _doc("Least severe message shown.", group="ops"),
    ] = "INFO"
    LOG_FILE: Annotated[str | None, _doc("Also log to this file.", "path", "ops")] = None
    LOG_COLOR: Annotated[bool, _doc("Colours on a terminal; files never get any.", group="ops")] = True
    LOG_ROTATION: Annotated[str, _doc("Size or time at which LOG_FILE is rotated.", group="ops")] = "50 MB"
    LOG_RETENTION: Annotated[str, _doc("How long rotated log files are kept.", group="ops")] = "10 days"
    METRICS_LOG_INTERVAL: Annotated[
        float, _doc("Between two progress lines when there is no terminal; 0 = none.", "s", "ops", ge=0)
    ] = 10.0
    PROGRESS: Annotated[
        Literal["auto", "panel", "lines", "off"],
        _doc("Progress display; auto: a panel on a terminal, else lines.", group="ops"),
    ] = "auto"
    WARNING_ENABLE: Annotated[bool, _doc("Call the spider's `on_alert` hook.", group="ops")] = True
    WARNING_INTERVAL: Annotated[
        float, _doc("The same alert is not sent again within this time.", "s", "ops", ge=0)
    ] = 300.0

    def __post_init__(self) -> None:
        """Cross-checks between settings."""
        if 0 < self.SPIDER_TASK_LEASE < 2 * self.HEARTBEAT_INTERVAL:
            raise ConfigError(
                f"SPIDER_TASK_LEASE={self.SPIDER_TASK_LEASE:g}s is shorter than two heartbeats "
                f"(HEARTBEAT_INTERVAL={self.HEARTBEAT_INTERVAL:g}s), so a healthy node would lose its requests; "
                "make the lease longer, the heartbeat shorter, or the lease 0 to turn it off"
            )
        if self.HEARTBEAT_STALE <= self.HEARTBEAT_INTERVAL:
            raise ConfigError(
                f"HEARTBEAT_STALE={self.HEARTBEAT_STALE:g}s is not longer than HEARTBEAT_INTERVAL="
                f"{self.HEARTBEAT_INTERVAL:g}s, so every node would look dead; make it several heartbeats long"
            )
        if self.RUN_ID and self.RUN_TTL <= self.HEARTBEAT_STALE:
            raise ConfigError(
                f"RUN_TTL={self.RUN_TTL}s is not longer than HEARTBEAT_STALE={self.HEARTBEAT_STALE:g}s, so a run's keys "
                "would be gone before a dead node is noticed; make it hours or days"
            )
        if not self.DEDUP_ERROR_RATE < 1:
            raise ConfigError(f"DEDUP_ERROR_RATE={self.DEDUP_ERROR_RATE:g} must lie between 0 and 1")
        if not self.DEDUP_WARN_FILL_RATE <= 1:
            raise ConfigError(f"DEDUP_WARN_FILL_RATE={self.DEDUP_WARN_FILL_RATE:g} must lie between 0 and 1")
        for name, what in (("REDIS_KEY_PREFIX", self.REDIS_KEY_PREFIX), ("RUN_ID", self.RUN_ID)):
            if "{" in what or "}" in what:
                raise ConfigError(
                    f"{name}={what!r} contains a brace, which Redis Cluster reads as a hash tag; leave braces out"
                )
        if not self.REDIS_KEY_PREFIX:
            raise ConfigError("REDIS_KEY_PREFIX is empty; give the keys a prefix, e.g. 'netspy'")


FIELDS: dict[str, Any] = get_type_hints(Settings, include_extras=True)

# Names that tune another engine's internals. They are accepted, have no effect here, and say so once.
LEGACY = frozenset(
    {
        "SESSION_CACHE_SIZE",
        "SESSION_SHARD_THREADS",
        "CURL_SESSION_SHARD_THREADS",
        "DOWNLOADER_ASYNC",
        "DOWNLOADER_ASYNC_CONCURRENCY",
        "ASYNC_THREADS_PER_LOOP",
        "DONE_CHECK_TIMES",
        "DEDUP_TO_MD5",
        "ANTIBOT_DETECT",
        "ROBOTS_USER_AGENT",
        "ROBOTS_CACHE_TTL",
        "RESPONSE_CACHE_PATH",
        "RESPONSE_CACHE_EXPIRE",
        "PROXY_POOL",
        "PROXY_EXTRACT_API",
        "PROXY_MAX_USE_TIMES",
        "PROXY_MIN_INTERVAL",
        "PROXY_WAIT_TIMEOUT",
        "PROXY_BAN_SECONDS",
        "PROXY_BAN_MAX_SECONDS",
        "PROXY_SUSPECT_BAN_AFTER",
        "PROXY_ALLOW_DIRECT",
        "USER_POOL_WAIT_TIMEOUT",
        "USER_POOL_ALLOW_ANONYMOUS",
        "WEBDRIVER",
        "METRICS_ENABLE",
        "WARNING_FEISHU_WEBHOOK",
        "WARNING_DINGTALK_WEBHOOK",
        "WARNING_DINGTALK_SECRET",
        "WARNING_WECHAT_WEBHOOK",
        "WARNING_EMAIL",
        "WARNING_FAILED_RATE",
        "WARNING_MIN_REQUESTS",
        "WARNING_FAILED_COUNT",
        "WARNING_STALL_SECONDS",
    }
)

# Switches whose feature is not built yet. Turning one on is refused: a crawl that silently ignores robots.txt or
# goes out without its proxy does harm.
NOT_BUILT = {
    "PROXY_ENABLE": "proxy pools are not built yet; give single requests a `proxy=`",
    "ROBOTS_OBEY": "robots.txt rules are not built yet; filter the URLs in your spider",
    "GLOBAL_THROTTLE": "the cluster-wide rate limit is not built yet; divide DOWNLOAD_DELAY by the number of nodes",
    "RESPONSE_CACHE_ENABLE": "the response cache is not built yet",
    "METRICS_PROMETHEUS_PORT": "the Prometheus exporter is not built yet; read the summary line or `netspy status`",
}

SECRET_HINTS = ("PASSWORD", "SECRET", "TOKEN", "WEBHOOK", "API_KEY")


class Loaded(Struct, frozen=True):
    """Settings with where each value came from, and what is to be said about them at start."""

    settings: Settings
    origins: dict[str, str]
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] = {}  # the user's own upper-case names


def base_type(name: str) -> Any:
    """The type of a setting without its description."""
    hint = FIELDS[name]
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def meta(name: str) -> Meta:
    """The description, unit and bounds of a setting."""
    found: Meta = get_args(FIELDS[name])[1]
    return found


def type_name(name: str) -> str:
    """The type of a setting as people write it, e.g. `int`, `list[str]`, `auto | run | spider`."""
    kind = base_type(name)
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    return (
        kind.__name__
        if isinstance(kind, type) and get_origin(kind) is None
        else str(kind).replace("typing.", "")
    )


_TRUE = {"1", "true", "yes", "on", "y", "t"}
_FALSE = {"0", "false", "no", "off", "n", "f"}


def from_text(name: str, text: str, origin: str) -> Any:
    """Read a setting given as text (environment, command line) by its declared type. Raises ConfigError."""
    kind = base_type(name)
    if kind is bool:
        low = text.strip().lower()
        if low in _TRUE:
            return True
        if low in _FALSE:
            return False
        raise ConfigError(f"{origin}: {name}={text!r} is not a yes or no; write true or false")
    if kind in (int, float):
        try:
            return kind(text.strip().replace("_", ""))
        except ValueError:
            raise ConfigError(
                f"{origin}: {name}={text!r} is not {'a whole number' if kind is int else 'a number'}"
            ) from None
    if get_origin(kind) is list or kind is dict or get_origin(kind) is dict:
        stripped = text.strip()
        if stripped[:1] in "[{" and stripped:
            try:
                return json.loads(stripped)
            except json.JSONDecodeError as error:
                raise ConfigError(f"{origin}: {name}={text!r} is not JSON ({error})") from None
        parts = [part.strip() for part in stripped.split(",") if part.strip()]
        return [int(p) if p.lstrip("-").isdigit() and int in get_args(kind) else p for p in parts]
    return text


def checked(name: str, value: Any, origin: str) -> Any:
    """`value` as the declared type of `name`, within its bounds. Raises ConfigError naming origin, name and value."""
    if isinstance(value, str) and base_type(name) is not str and base_type(name) in (bool, int, float):
        value = from_text(name, value, origin)
    if isinstance(value, tuple | set | frozenset):
        value = list(value)
    try:
        return msgspec.convert(value, FIELDS[name], strict=True)
    except msgspec.ValidationError as error:
        shown = "***" if is_secret(name) else repr(value)
        raise ConfigError(
            f"{origin}: {name}={shown} is wrong: {str(error).lower()}; it is of type {type_name(name)}"
        ) from None


def is_secret(name: str) -> bool:
    """Whether the value of `name` must not be printed."""
    return any(hint in name for hint in SECRET_HINTS)


def shown(name: str, value: Any) -> str:
    """A value fit for printing: secrets hidden, passwords in URLs replaced."""
    if is_secret(name) and value:
        return "***"
    if name.endswith(("_URL", "_URI", "_SOURCE")):
        return hide_password(str(value))
    if name.endswith("_HOSTS"):
        return repr([hide_password(str(host)) for host in value])
    return repr(value)


_SECRET_PARAMETER = re.compile(r"(?i)([?&][\w.-]*(?:password|token|secret)=)[^&]*")


def hide_password(url: str) -> str:
    """`url` with the password of its authority, and any password or token parameter, replaced by ***."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        return url
    rest = _SECRET_PARAMETER.sub(r"\1***", rest)
    end = len(rest)
    for mark in "/?#":
        # A password may itself contain / or ?, so the authority ends after the last @ in front of a host.
        at = rest.rfind("@")
        found = rest.find(mark, at + 1)
        if found >= 0:
            end = min(end, found)
    authority, tail = rest[:end], rest[end:]
    if "@" in authority:
        user, _, host = authority.rpartition("@")
        name, colon, _secret = user.partition(":")
        authority = f"{name}:***@{host}" if colon else f"***@{host}"
    return f"{scheme}://{authority}{tail}"


_HTTP_USER = re.compile(r"""(?i)\b(https?://)([^\s/?#"'<>]*)@""")
_STORE_URL = re.compile(r"""(?i)\b(?!https?:)[a-z][a-z0-9+.-]*://[^\s"'<>]+""")


def without_passwords(text: str) -> str:
    """`text` with the passwords of all URLs in it replaced by ***.

    In http(s) URLs only what stands before the host is touched (`https://example.com/@name` stays as it is):
    log lines quote page URLs. Store URLs get the stricter treatment, since people put raw passwords in them.
    """
    if "://" not in text or "@" not in text:
        return text
    text = _HTTP_USER.sub(
        lambda m: m[1] + (m[2].partition(":")[0] + ":" if ":" in m[2] else "") + "***@", text
    )
    return _STORE_URL.sub(lambda m: hide_password(m[0]), text)


def project_file(environ: Mapping[str, str], folder: Path | None = None) -> Path | None:
    """The project's setting file: what NETSPY_SETTING names, else `setting.py` or `settings.py` in the folder."""
    named = environ.get("NETSPY_SETTING", "")
    folder = folder or Path.cwd()
    if named:
        path = Path(named)
        if path.is_file():
            return path
        as_module = folder.joinpath(*named.split(".")).with_suffix(".py")
        if as_module.is_file():
            return as_module
        raise ConfigError(
            f"NETSPY_SETTING={named!r} names no file; give the path of a setting.py, or unset it"
        )
    for name in ("setting.py", "settings.py"):
        path = folder / name
        if path.is_file():
            return path
    return None


def read_project(path: Path) -> dict[str, Any]:
    """The upper-case names of a setting file. Raises ConfigError when the file raises."""
    try:
        names = runpy.run_path(str(path))
    except Exception as error:
        raise ConfigError(f"{path}: reading the settings failed: {type(error).__name__}: {error}") from error
    return {key: value for key, value in names.items() if key.isupper() and not key.startswith("_")}


def load(
    *,
    custom: Mapping[str, Any] | None = None,
    custom_origin: str = "__custom_setting__",
    overrides: Mapping[str, Any] | None = None,
    override_origin: str | Mapping[str, str] = "keyword",
    environ: Mapping[str, str] | None = None,
    project: Mapping[str, Any] | None = None,
    project_origin: str = "setting.py",
) -> Loaded:
    """Layer the sources and check the result.

    `project=None` reads the project's file; pass a mapping to give its values directly. `override_origin` may name the
    origin of each override by itself. Raises ConfigError with one line for the first wrong value.
    """
    environ = os.environ if environ is None else environ
    if project is None:
        path = project_file(environ)
        project, project_origin = (read_project(path), str(path)) if path else ({}, project_origin)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(FIELDS, DEFAULT_ORIGIN)
    extra: dict[str, Any] = {}
    warnings: list[str] = []
    strict: list[str] = []

    def take(name: str, value: Any, origin: str) -> None:
        if name in FIELDS:
            values[name] = checked(name, value, origin)
            origins[name] = origin
        elif name in NOT_BUILT:
            on = value if not isinstance(value, str) else value.strip().lower() not in _FALSE | {""}
            if on:
                raise ConfigError(f"{origin}: {name}={value!r}: {NOT_BUILT[name]}")
        elif name in LEGACY:
            warnings.append(f"{origin}: {name} is accepted and has no effect in netspy")
        else:
            close = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.85)
            if close:
                strict.append(f"{origin}: {name} is no setting; did you mean {close[0]}?")
            elif origin == COMMAND_LINE and name not in extra:
                warnings.append(
                    f"{origin}: {name} is no setting (`netspy settings` lists them; -a gives an argument)"
                )
            extra[name] = value

    for source, origin in ((project, project_origin), (custom or {}, custom_origin)):
        for name, value in source.items():
            take(name, value, origin)
    for variable, text in environ.items():
        if not variable.startswith("NETSPY_") or variable == "NETSPY_SETTING":
            continue
        name = variable.removeprefix("NETSPY_")
        if name in FIELDS and text == "":
            continue
        take(name, from_text(name, text, variable) if name in FIELDS else text, variable)
    for name, value in (overrides or {}).items():
        origin = override_origin if isinstance(override_origin, str) else override_origin.get(name, "keyword")
        take(name, value, origin)

    if strict and values.get("STRICT_SETTINGS", False):
        raise ConfigError("; ".join(strict))
    return Loaded(Settings(**values), origins, tuple(warnings + strict), extra)


class ProjectSettings:
    """`netspy.setting`: a read view of the project's settings (defaults, setting.py, environment).

    A spider's own settings, with its `__custom_setting__`, are `spider.settings`.
    """

    def __init__(self) -> None:
        self._loaded: Loaded | None = None

    def _get(self) -> Loaded:
        if self._loaded is None:
            self._loaded = load()
        return self._loaded

    def reload(self) -> None:
        """Read the sources again at the next use."""
        self._loaded = None

    def as_dict(self) -> dict[str, Any]:
        """Every setting and the project's own upper-case names."""
        loaded = self._get()
        return {**msgspec.structs.asdict(loaded.settings), **loaded.extra}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.as_dict()[name]
        except KeyError:
            raise AttributeError(f"no setting is called {name!r}; see docs/settings.md") from None
