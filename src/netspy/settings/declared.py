"""Every setting, declared once: name, type, default, unit and one sentence; then the cross-checks, and the names beside them.

Each chapter of this page is one of docs/settings.md, which is made from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, get_type_hints

import msgspec

from netspy.errors import ConfigError


class Describe(Protocol):
    """Makes the description of one setting."""

    def __call__(
        self, text: str, unit: str = "", *, ge: float | None = None, gt: float | None = None
    ) -> msgspec.Meta:
        """A sentence, its unit, and the bounds of its value."""


def described(group: str) -> Describe:
    """What describes the settings of one group, a chapter of docs/settings.md."""

    def describe(
        text: str, unit: str = "", *, ge: float | None = None, gt: float | None = None
    ) -> msgspec.Meta:
        extra = {"unit": unit, "group": group}
        if gt is not None:
            return msgspec.Meta(description=text, extra=extra, gt=gt)
        return (
            msgspec.Meta(description=text, extra=extra)
            if ge is None
            else msgspec.Meta(description=text, extra=extra, ge=ge)
        )

    return describe


_run = described("run")
_distributed = described("distributed")
_task = described("task")
_download = described("download")
_politeness = described("politeness")
_items = described("items")
_stores = described("stores")
_ops = described("ops")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spider's settings: a frozen value that is handed to whoever needs it. Field names are the documented names."""

    # -- Settings of one node's run: how much at a time, when to stop, how long things may take

    PROJECT_NAME: Annotated[str, _run("Name shown in the summary and in alerts.")] = "netspy"
    SPIDER_THREAD_COUNT: Annotated[int, _run("Requests in flight per process.", "requests", ge=1)] = 16
    SPIDER_MAX_RETRY_TIMES: Annotated[
        int, _run("Further tries after the first one before a request counts as failed.", "tries", ge=0)
    ] = 3
    SPIDER_RETRY_INTERVAL: Annotated[
        float, _run("Fixed wait before a retry, added to RETRY_BACKOFF's.", "s", ge=0)
    ] = 0.0
    COLLECTOR_TASK_COUNT: Annotated[
        int,
        _run(
            "The most requests a node claims in one call and holds without having started them.",
            "requests",
            ge=1,
        ),
    ] = 100
    REQUEST_BUFFER_MAX_CACHED: Annotated[
        int,
        _run(
            "Discovered requests a node may hold before they are in the frontier; callbacks wait beyond it.",
            "requests",
            ge=1,
        ),
    ] = 1000
    BUFFER_FLUSH_INTERVAL: Annotated[
        float, _run("The longest an item waits in the item buffer before its batch is written.", "s", gt=0)
    ] = 0.1
    DONE_CHECK_INTERVAL: Annotated[
        float, _run("How often an idle node asks whether the run is over.", "s", gt=0)
    ] = 0.5
    SPIDER_MAX_RUNTIME: Annotated[
        float, _run("Stop gracefully after this long; 0 = no limit.", "s", ge=0)
    ] = 0.0
    SPIDER_MAX_PAGES: Annotated[
        int,
        _run("Stop gracefully after this many downloaded pages on this node; 0 = no limit.", "pages", ge=0),
    ] = 0
    SPIDER_MAX_ITEMS: Annotated[
        int, _run("Stop gracefully after this many stored items on this node; 0 = no limit.", "items", ge=0)
    ] = 0
    SPIDER_MAX_ERRORS: Annotated[
        int,
        _run("Stop gracefully after this many failed requests on this node; 0 = no limit.", "requests", ge=0),
    ] = 0
    SPIDER_STOP_TIMEOUT: Annotated[
        float,
        _run(
            "At a stop, running pages get this long to finish before their leases are given back.",
            "s",
            gt=0,
        ),
    ] = 7.0
    SPIDER_TASK_MAX_SECONDS: Annotated[
        float, _run("The longest one callback may run before its lease is no longer renewed.", "s", gt=0)
    ] = 3600.0
    SPIDER_MAX_UNACKED: Annotated[
        int,
        _run(
            "Pages fetched whose items are not stored yet; over it a node claims nothing more.",
            "requests",
            ge=1,
        ),
    ] = 2000
    SPIDER_MAX_DELIVERIES: Annotated[
        int,
        _run(
            "A request that was so often the only suspect in a process that died goes to failed_requests (poison).",
            "deliveries",
            ge=1,
        ),
    ] = 3
    CALLBACK_MAX_THREADS: Annotated[
        int,
        _run(
            "The most threads for plain `def` callbacks; the pool starts with one and grows when callbacks block.",
            "threads",
            ge=1,
        ),
    ] = 16
    CALLBACK_CHUNK: Annotated[
        int,
        _run(
            "How many values are drawn from a callback's generator before they are handed over.",
            "values",
            ge=1,
        ),
    ] = 500
    DUMP_UNFINISHED_ON_EXIT: Annotated[
        bool,
        _run(
            "AirSpider: keep what is unfinished at a stop beside FAILED_REQUEST_PATH, for RETRY_FAILED_ON_START."
        ),
    ] = True
    FAILED_REQUEST_PATH: Annotated[
        str, _run("AirSpider: requests that failed for good, one JSON object per line.", "path")
    ] = "failed_requests.jsonl"
    RETRY_FAILED_ON_START: Annotated[
        bool, _run("Queue the failed requests of the last run again at start.")
    ] = False
    RUN_SUMMARY_ENABLE: Annotated[bool, _run("Print the `NETSPY_RUN_SUMMARY {json}` line at the end.")] = True
    FAIL_ON_NOTHING_TO_DO: Annotated[
        bool, _run("Exit with code 9 instead of 0 when a run found nothing to do.")
    ] = False
    STRICT_SETTINGS: Annotated[
        bool, _run("A name close to a setting's is an error instead of a warning.")
    ] = False
    DEBUG: Annotated[bool, _run("Log at DEBUG and run callbacks in one thread.")] = False

    # -- Settings of Redis and of several nodes

    REDIS_URL: Annotated[
        str,
        _distributed(
            "redis://, rediss:// (TLS), unix://, redis+sentinel://, redis+cluster:// or "
            '"embedded" (a private server in EMBEDDED_DATA_DIR).',
            "URL",
        ),
    ] = "redis://localhost:6379/0"
    REDIS_KEY_PREFIX: Annotated[str, _distributed("Prefix of all keys.")] = "netspy"
    REDIS_CONNECT_TIMEOUT: Annotated[
        float, _distributed("How long one connection attempt may take.", "s", gt=0)
    ] = 5.0
    REDIS_START_TIMEOUT: Annotated[
        float,
        _distributed(
            "How long a start waits for Redis, Kafka, RabbitMQ or a task database that does not answer.",
            "s",
            ge=0,
        ),
    ] = 10.0
    REDIS_OUTAGE_TIMEOUT: Annotated[
        float,
        _distributed(
            "How long a running node waits for any of these when it went away; 0 = for ever.",
            "s",
            ge=0,
        ),
    ] = 0.0
    EMBEDDED_DATA_DIR: Annotated[
        str, _distributed("Folder of the embedded Redis: its append-only file, socket and lock.", "path")
    ] = ".netspy"
    SPIDER_KEEP_ALIVE: Annotated[bool, _distributed("Stay when the queue is empty.")] = False
    SPIDER_SEED_LOCK_TTL: Annotated[
        int,
        _distributed("How long the mark *seeded* is kept; after it the next start seeds again.", "s", ge=1),
    ] = 86400
    SPIDER_SEEDING_TTL: Annotated[
        float,
        _distributed("A seeding node that has not renewed its lock for this long is replaced.", "s", gt=0),
    ] = 10.0
    SPIDER_SEED_AHEAD: Annotated[
        int, _distributed("Seeding pauses while this many requests are queued.", "requests", ge=1)
    ] = 10_000
    SPIDER_STARTUP_GRACE: Annotated[
        float,
        _distributed(
            "A node that never had work waits this long before it may call the run finished; 0 = off.",
            "s",
            ge=0,
        ),
    ] = 10.0
    SPIDER_TASK_LEASE: Annotated[
        float,
        _distributed(
            "A claimed request belongs to its node this long, renewed while it lives; 0 = nothing runs twice.",
            "s",
            ge=0,
        ),
    ] = 600.0
    HEARTBEAT_INTERVAL: Annotated[float, _distributed("Between two heartbeats of a node.", "s", gt=0)] = 3.0
    HEARTBEAT_STALE: Annotated[
        float,
        _distributed(
            "A node without a heartbeat for this long is dead and its requests are taken over.", "s", gt=0
        ),
    ] = 15.0
    RUN_ID: Annotated[str, _distributed("Identity of this run; with it every run crawls afresh.")] = ""
    DEDUP_SCOPE: Annotated[
        Literal["auto", "run", "spider"],
        _distributed(
            "run: each run crawls everything again; spider: never what an earlier run crawled; auto: run."
        ),
    ] = "auto"
    RUN_TTL: Annotated[int, _distributed("How long the keys of a run with RUN_ID are kept.", "s", ge=1)] = (
        604800
    )

    # -- Settings of tasks and batches

    TASK_SOURCE: Annotated[
        str,
        _task(
            "Where tasks come from: empty = the Redis list of the spider, memory, amqp://…, kafka://…, stream:KEY or "
            "redis://…?stream=KEY, the URL of a SQL table, or the path of a class."
        ),
    ] = ""
    TASK_POLL_INTERVAL: Annotated[float, _task("Between two looks at the task source.", "s", gt=0)] = 2.0
    TASK_BATCH_SIZE: Annotated[int, _task("Tasks fetched at a time.", "tasks", ge=1)] = 100
    TASK_EXHAUST_POLLS: Annotated[
        int, _task("Empty looks in a row after which the source is exhausted.", "polls", ge=1)
    ] = 3
    BATCH_INTERVAL: Annotated[
        float, _task("Between the starts of two batches.", "BATCH_INTERVAL_UNIT", gt=0)
    ] = 7.0
    BATCH_INTERVAL_UNIT: Annotated[Literal["day", "hour", "minute"], _task("Unit of BATCH_INTERVAL.")] = "day"
    BATCH_CRON: Annotated[
        str,
        _task(
            "Cron expression (minute hour day month weekday) for the starts of batches, instead of BATCH_INTERVAL."
        ),
    ] = ""
    BATCH_TIMEZONE: Annotated[str, _task("Time zone in which BATCH_CRON is meant, e.g. Europe/Berlin.")] = (
        "UTC"
    )
    BATCH_STORE_URL: Annotated[
        str,
        _task(
            "Database of the task table: mysql://, postgresql:// or sqlite:///path; empty = the MYSQL_* settings.",
            "URL",
        ),
    ] = ""
    BATCH_MONITOR_INTERVAL: Annotated[float, _task("Between two passes of the batch master.", "s", gt=0)] = (
        10.0
    )
    BATCH_LOST_TASK_STALE: Annotated[
        float, _task("A task in process for this long without a sign of life is lost.", "s", gt=0)
    ] = 600.0
    BATCH_PUSH_LIMIT: Annotated[int, _task("Tasks the master claims at a time.", "tasks", ge=1)] = 5000
    BATCH_TASK_ID_FIELD: Annotated[str, _task("Primary key column of the task table.")] = "id"
    BATCH_TASK_STATE_FIELD: Annotated[str, _task("State column of the task table.")] = "batch_status"
    BATCH_TASK_TIME_FIELD: Annotated[str, _task("Time column of the task table.")] = "update_time"

    # -- Settings of one fetch

    REQUEST_TIMEOUT: Annotated[
        float, _download("One fetch, redirects included, may take this long.", "s", gt=0)
    ] = 22.0
    CONNECT_TIMEOUT: Annotated[
        float, _download("Name look-up, connection and TLS may take this long.", "s", gt=0)
    ] = 10.0
    IDLE_TIMEOUT: Annotated[
        float, _download("A transfer without a byte for this long is given up; 0 = off.", "s", ge=0)
    ] = 15.0
    USER_AGENT: Annotated[
        str, _download("User-Agent header when a request has none; empty = netspy's own.")
    ] = ""
    RANDOM_USER_AGENT: Annotated[bool, _download("Send a common browser's User-Agent, one per site.")] = False
    USE_SESSION: Annotated[
        bool,
        _download(
            "Whether `Request(…).download()` outside a spider shares cookies and connections; within a spider they always are."
        ),
    ] = True
    COOKIES_ENABLED: Annotated[bool, _download("Keep and send cookies.")] = True
    HTTPX_HTTP2: Annotated[bool, _download("Use HTTP/2 where a TLS server offers it.")] = True
    DOWNLOADER_IMPERSONATE: Annotated[
        str, _download("Browser whose TLS and HTTP/2 fingerprint is used, e.g. chrome.")
    ] = ""
    VERIFY_TLS: Annotated[bool, _download("Check certificates; a request's `verify=` overrides it.")] = True
    BLOCK_PRIVATE_ADDRESSES: Annotated[
        bool,
        _download(
            "Refuse to connect to private, loopback, link-local and cloud metadata addresses, redirects included."
        ),
    ] = False
    MAX_REDIRECTS: Annotated[int, _download("Redirects followed per fetch.", "hops", ge=0)] = 20
    MAX_RESPONSE_SIZE: Annotated[
        int, _download("The largest body accepted, after decompression; 0 = no limit.", "bytes", ge=0)
    ] = 33554432
    ALLOWED_CONTENT_TYPES: Annotated[
        list[str],
        _download(
            "Content types accepted, each as its beginning (`text/`, `text/html`) or a pattern (`*/xml`); empty = all."
        ),
    ] = msgspec.field(default_factory=list)
    DOWNLOADER_MIDDLEWARES: Annotated[
        list[str], _download("Classes wrapped around each fetch, outermost first.")
    ] = msgspec.field(default_factory=list)
    DOWNLOADER: Annotated[str, _download("Class path of the downloader.")] = (
        "netspy.downloader.curl.CurlDownloader"
    )
    SELECTOR_ENGINE: Annotated[
        Literal["turbohtml", "parsel"], _download("What answers css() and xpath().")
    ] = "turbohtml"
    MAX_TREE_NODES: Annotated[
        int,
        _download(
            "The largest tree of an HTML page, in elements and texts of some 200 bytes; a page that makes a larger "
            "one fails alone; 0 = no limit.",
            "nodes",
            ge=0,
        ),
    ] = 2000000
    URL_IGNORE_PARAMS: Annotated[
        list[str],
        _download(
            "Query parameters left out of the fingerprint, `utm_*` allowed; the URL fetched keeps them."
        ),
    ] = msgspec.field(default_factory=list)

    # -- Settings of how sites are spared, and of when a request is tried again

    CONCURRENT_REQUESTS_PER_DOMAIN: Annotated[
        int, _politeness("Requests in flight per host and node; 0 = no limit.", "requests", ge=0)
    ] = 8
    DOWNLOAD_DELAY: Annotated[
        float, _politeness("Between two requests to one host on a node.", "s", ge=0)
    ] = 0.0
    RANDOMIZE_DOWNLOAD_DELAY: Annotated[
        bool, _politeness("Vary DOWNLOAD_DELAY between 0.5 and 1.5 times.")
    ] = True
    CHECK_STATUS_CODE: Annotated[
        bool, _politeness("Apply the status policy; off: every status reaches the callback.")
    ] = True
    RETRY_STATUS_CODES: Annotated[list[int], _politeness("Statuses tried again.")] = msgspec.field(
        default_factory=lambda: [429, 500, 502, 503, 504]
    )
    ACCEPT_STATUS_CODES: Annotated[
        list[int], _politeness("Statuses besides 2xx and 3xx that reach the callback.")
    ] = msgspec.field(default_factory=list)
    RETRY_AFTER_MAX: Annotated[float, _politeness("The longest Retry-After that is obeyed.", "s", ge=0)] = (
        60.0
    )
    RETRY_BACKOFF: Annotated[
        float,
        _politeness("First back-off before a retry; doubled each time, with jitter; 0 = at once.", "s", ge=0),
    ] = 0.5
    RETRY_BACKOFF_MAX: Annotated[float, _politeness("The longest back-off.", "s", ge=0)] = 60.0
    CIRCUIT_FAILURE_THRESHOLD: Annotated[
        int,
        _politeness("Failures in a row on one host after which it cools down; 0 = off.", "requests", ge=0),
    ] = 10
    CIRCUIT_COOLDOWN: Annotated[float, _politeness("How long a host cools down.", "s", ge=0)] = 60.0

    # -- Settings of items, dead letters and dedup

    ITEM_PIPELINES: Annotated[list[str], _items("Class paths of the pipelines; each gets every item.")] = (
        msgspec.field(default_factory=lambda: ["netspy.pipelines.console.ConsolePipeline"])
    )
    ITEM_DEFAULT_TABLE: Annotated[str, _items("Table of plain dicts.")] = "items"
    ITEM_MAX_CACHED_COUNT: Annotated[
        int, _items("Items in the item buffer; callbacks wait beyond it.", "items", ge=1)
    ] = 5000
    ITEM_BATCH_SIZE: Annotated[
        int, _items("The most items handed to a pipeline at a time.", "items", ge=1)
    ] = 500
    ITEM_FILTER_ENABLE: Annotated[bool, _items("Drop Items whose fingerprint was stored before.")] = True
    ITEM_RETRY_TIMES: Annotated[
        int,
        _items(
            "Further tries of a failing batch, after the first one, before it is split and its bad rows dead-lettered.",
            "tries",
            ge=0,
        ),
    ] = 3
    ITEM_RETRY_BACKOFF: Annotated[float, _items("First wait between them; doubled each time.", "s", ge=0)] = (
        0.5
    )
    ITEM_WRITE_TIMEOUT: Annotated[
        float,
        _items(
            "The longest one call of a pipeline may take before it counts as failed; 0 = no limit.", "s", ge=0
        ),
    ] = 300.0
    ITEM_STORE_DOWN: Annotated[
        Literal["pause", "spill"],
        _items(
            "While a pipeline's store is down: pause = keep the batch and claim nothing more, spill = dead-letter and go on."
        ),
    ] = "pause"
    ITEM_STORE_PATIENCE: Annotated[
        float,
        _items(
            "The longest pause for a store that is down; then its items are dead-lettered and the crawl goes on.",
            "s",
            ge=0,
        ),
    ] = 2700.0
    ITEM_VALIDATE: Annotated[
        bool,
        _items(
            "Check items against the types that their class declares; a bad one is dead-lettered with the field and reason."
        ),
    ] = False
    FAILED_ITEM_URL: Annotated[
        str,
        _items(
            "A shared store for dead-lettered items, kept in the local file when it is away: redis (the spider's own), "
            "redis://…, sqlite:///…; empty = the file only."
        ),
    ] = ""
    FAILED_ITEM_PATH: Annotated[
        str, _items("Items that could not be stored, one JSON object per line.", "path")
    ] = "failed_items.jsonl"
    CSV_OUTPUT_DIR: Annotated[str, _items("Folder of the CSV pipeline.", "path")] = "."
    CSV_BOM: Annotated[
        bool, _items("Begin new CSV files with a byte order mark, by which Excel knows UTF-8.")
    ] = False
    CSV_ESCAPE_FORMULAS: Annotated[
        bool,
        _items(
            "Put an apostrophe before CSV text that a spreadsheet would run as a formula; it changes values."
        ),
    ] = False
    JSONL_OUTPUT_DIR: Annotated[str, _items("Folder of the JSONL pipeline.", "path")] = "."
    JSONL_COMPRESSION: Annotated[
        Literal["none", "gzip", "zstd"], _items("How the JSONL pipeline compresses its files.")
    ] = "none"
    JSONL_ROTATE_BYTES: Annotated[
        int,
        _items(
            "A JSONL file that would grow beyond this is put away under a number; 0 = no limit.",
            "bytes",
            ge=0,
        ),
    ] = 0
    PARQUET_OUTPUT_DIR: Annotated[
        str, _items("Folder of the Parquet pipeline; each table has a folder in it.", "path")
    ] = "."
    PARQUET_FILE_ROWS: Annotated[
        int, _items("A Parquet file is finished at this many rows.", "rows", ge=1)
    ] = 100_000
    PARQUET_FILE_BYTES: Annotated[
        int, _items("Or when its rows, before compression, take this much room.", "bytes", ge=1)
    ] = 134_217_728
    PARQUET_FILE_AGE: Annotated[
        float, _items("Or at the first batch after this long; 0 = whatever its age.", "s", ge=0)
    ] = 3600.0
    MONGO_URI: Annotated[str, _items("MongoDB server or servers.")] = "mongodb://localhost:27017"
    MONGO_DB: Annotated[str, _items("The database there; each table is a collection.")] = "netspy"
    ELASTICSEARCH_HOSTS: Annotated[
        list[str], _items("Elasticsearch or OpenSearch nodes; another is asked when one is away.")
    ] = msgspec.field(default_factory=lambda: ["http://localhost:9200"])
    ELASTICSEARCH_USER: Annotated[str, _items("User for basic authentication; empty = none.")] = ""
    ELASTICSEARCH_PASSWORD: Annotated[str, _items("That user's password.")] = ""
    ELASTICSEARCH_API_KEY: Annotated[
        str, _items("API key, as the server gives it encoded; goes before a user.")
    ] = ""
    ELASTICSEARCH_CA_FILE: Annotated[
        str, _items("Certificates (PEM) that its nodes are checked against; empty = the system's.", "path")
    ] = ""
    KAFKA_BOOTSTRAP_SERVERS: Annotated[
        list[str], _items("Kafka brokers, host:port; the others of a cluster are found by them.")
    ] = msgspec.field(default_factory=lambda: ["localhost:9092"])
    KAFKA_URL: Annotated[
        str,
        _items(
            "Kafka of KafkaPipeline where user, TLS or other properties are needed: kafka://user:password@host:9092?…; "
            "empty = KAFKA_BOOTSTRAP_SERVERS.",
            "URL",
        ),
    ] = ""
    KAFKA_TOPIC: Annotated[str, _items("Topic of all rows of KafkaPipeline; empty = the row's table.")] = ""
    RABBITMQ_URL: Annotated[str, _items("RabbitMQ of RabbitmqPipeline: amqp:// or amqps://.", "URL")] = (
        "amqp://guest:guest@localhost:5672/"
    )
    RABBITMQ_QUEUE: Annotated[
        str, _items("Queue of all rows of RabbitmqPipeline; empty = the row's table.")
    ] = ""
    REDIS_ITEMS_KEY: Annotated[
        str, _items("Key of all rows of RedisPipeline; empty = `<REDIS_KEY_PREFIX>:items:<table>`.")
    ] = ""
    REDIS_ITEMS_TYPE: Annotated[Literal["list", "stream"], _items("What RedisPipeline writes there.")] = (
        "list"
    )
    FILES_STORE: Annotated[
        str, _items("Where FilesPipeline puts files: a folder, or s3://bucket/prefix.", "path or URL")
    ] = "./files"
    FILES_CONCURRENCY: Annotated[int, _items("Files in download at a time, per process.", "files", ge=1)] = 8
    FILES_PER_HOST: Annotated[
        int,
        _items("Files in download at a time from one host, besides the pages of the crawl.", "files", ge=1),
    ] = 2
    FILES_TIMEOUT: Annotated[
        float, _items("One file, redirects included, may take this long.", "s", gt=0)
    ] = 600.0
    FILES_MAX_SIZE: Annotated[int, _items("The largest file accepted; 0 = no limit.", "bytes", ge=0)] = (
        1_073_741_824
    )
    FILES_EXPIRE: Annotated[
        float,
        _items(
            "A URL whose file is in the store is not fetched again for this long; 0 = always fetched.",
            "s",
            ge=0,
        ),
    ] = 7_776_000.0
    FILES_MISSING: Annotated[
        Literal["auto", "store", "dead-letter"],
        _items(
            "A row whose file can't be had: stored with the error; dead-lettered; auto = dead-lettered only when another "
            "try can help."
        ),
    ] = "auto"
    S3_ENDPOINT_URL: Annotated[
        str, _items("Address of an S3-compatible store, e.g. MinIO; empty = Amazon's.")
    ] = ""
    S3_REGION: Annotated[str, _items("Region; empty = as the AWS configuration says.")] = ""
    S3_ACCESS_KEY_ID: Annotated[
        str, _items("Access key; empty = as the AWS configuration or the machine's role says.")
    ] = ""
    S3_SECRET_ACCESS_KEY: Annotated[str, _items("The access key's secret.")] = ""
    SQLITE_PATH: Annotated[str, _items("Database file of the SQLite pipeline.", "path")] = "items.db"
    DEDUP_FILTER: Annotated[
        str,
        _items("Request filter: auto, memory, lite, bloom, redis, redis-bloom, redis-set or a class path."),
    ] = "auto"
    DEDUP_ERROR_RATE: Annotated[
        float, _items("Chance that a new URL is taken for a known one, first layer.", "", gt=0)
    ] = 1e-6
    DEDUP_INITIAL_CAPACITY: Annotated[
        int, _items("Fingerprints in the first Bloom layer.", "fingerprints", ge=1)
    ] = 1_000_000
    DEDUP_WARN_FILL_RATE: Annotated[
        float, _items("Share of the total capacity at which a warning is sent.", "", gt=0)
    ] = 0.8
    DEDUP_MAX_LAYERS: Annotated[int, _items("The most Bloom layers.", "layers", ge=1)] = 4

    # -- Settings of the stores that items go to

    ITEM_AUTO_CREATE_TABLE: Annotated[
        bool, _stores("SQL pipelines make a missing table from the first batch's fields.")
    ] = False
    ITEM_UNKNOWN_COLUMNS: Annotated[
        Literal["drop", "json", "add", "error"],
        _stores(
            "A field without a column in an SQL table: left out and reported, kept in ITEM_EXTRA_COLUMN, added to the "
            "table, or a failure of its row."
        ),
    ] = "drop"
    ITEM_EXTRA_COLUMN: Annotated[
        str, _stores("Column that ITEM_UNKNOWN_COLUMNS=json keeps fields in, as one JSON object.")
    ] = "extra"
    ITEM_UPDATE_UPSERT: Annotated[
        bool, _stores("An UpdateItem that finds no row is inserted (SQL); off: it is a failure of that row.")
    ] = False
    SQL_URL: Annotated[
        str, _stores("Database of SqlPipeline: mysql://, postgresql:// or sqlite:///path.", "URL")
    ] = ""
    SQL_POOL_SIZE: Annotated[
        int, _stores("The most connections a process opens to SQL_URL.", "connections", ge=1)
    ] = 5
    SQL_ON_CONFLICT: Annotated[
        Literal["update", "nothing", "error"],
        _stores("SqlPipeline and a row whose key is there: overwrite its fields, leave it, or fail."),
    ] = "update"
    MYSQL_HOST: Annotated[str, _stores("MySQL or MariaDB server: a host, or a socket's path.")] = "localhost"
    MYSQL_PORT: Annotated[int, _stores("Its port.", ge=1)] = 3306
    MYSQL_USER: Annotated[str, _stores("The user there.")] = "root"
    MYSQL_PASSWORD: Annotated[str, _stores("The user's password.")] = ""
    MYSQL_DB: Annotated[str, _stores("The database there.")] = "netspy"
    MYSQL_POOL_SIZE: Annotated[
        int, _stores("The most connections a process opens to MySQL.", "connections", ge=1)
    ] = 5
    MYSQL_UPDATE_ON_DUPLICATE: Annotated[
        bool, _stores("A row whose key is there overwrites its fields; off: the old row stays as it is.")
    ] = True
    POSTGRES_HOST: Annotated[str, _stores("PostgreSQL server: a host, or a socket's folder.")] = "localhost"
    POSTGRES_PORT: Annotated[int, _stores("Its port.", ge=1)] = 5432
    POSTGRES_USER: Annotated[str, _stores("The user there.")] = "postgres"
    POSTGRES_PASSWORD: Annotated[str, _stores("The user's password.")] = ""
    POSTGRES_DB: Annotated[str, _stores("The database there.")] = "netspy"
    POSTGRES_POOL_SIZE: Annotated[
        int, _stores("The most connections a process opens to PostgreSQL.", "connections", ge=1)
    ] = 5
    POSTGRES_ON_CONFLICT: Annotated[
        Literal["nothing", "update", "error"],
        _stores(
            "A row whose key is there: left as it is, overwritten by the new one's fields, or a failure."
        ),
    ] = "nothing"
    POSTGRES_CONFLICT_TARGET: Annotated[
        list[str],
        _stores("Columns of the key to go by; empty: the item's `__unique_key__`, else the table's keys."),
    ] = msgspec.field(default_factory=list)

    # -- Settings of logs, progress and alerts

    LOG_LEVEL: Annotated[
        Literal["TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL"],
        _ops("Least severe message shown."),
    ] = "INFO"
    LOG_FILE: Annotated[str | None, _ops("Also log to this file.", "path")] = None
    LOG_COLOR: Annotated[bool, _ops("Colours on a terminal; files never get any.")] = True
    LOG_ROTATION: Annotated[str, _ops("Size or time at which LOG_FILE is rotated.")] = "50 MB"
    LOG_RETENTION: Annotated[str, _ops("How long rotated log files are kept.")] = "10 days"
    METRICS_LOG_INTERVAL: Annotated[
        float, _ops("Between two progress lines when there is no terminal; 0 = none.", "s", ge=0)
    ] = 10.0
    PROGRESS: Annotated[
        Literal["auto", "panel", "lines", "off"],
        _ops("Progress display; auto: a panel on a terminal, else lines."),
    ] = "auto"
    WARNING_ENABLE: Annotated[bool, _ops("Call the spider's `on_alert` hook.")] = True
    WARNING_INTERVAL: Annotated[
        float, _ops("The same alert is not sent again within this time.", "s", ge=0)
    ] = 300.0

    # -- all of them together

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
