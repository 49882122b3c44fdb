"""Settings of items, dead letters and dedup."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netspy.settings.declaring import described
from netspy.settings.politeness import PolitenessSettings

_doc = described("items")


class ItemSettings(PolitenessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    ITEM_PIPELINES: Annotated[list[str], _doc("Class paths of the pipelines; each gets every item.")] = (
        msgspec.field(default_factory=lambda: ["netspy.pipelines.console.ConsolePipeline"])
    )
    ITEM_DEFAULT_TABLE: Annotated[str, _doc("Table of plain dicts.")] = "items"
    ITEM_MAX_CACHED_COUNT: Annotated[
        int, _doc("Items in the item buffer; callbacks wait beyond it.", "items", ge=1)
    ] = 5000
    ITEM_BATCH_SIZE: Annotated[int, _doc("The most items handed to a pipeline at a time.", "items", ge=1)] = (
        500
    )
    ITEM_FILTER_ENABLE: Annotated[bool, _doc("Drop Items whose fingerprint was stored before.")] = True
    ITEM_RETRY_TIMES: Annotated[
        int,
        _doc(
            "Further tries of a failing batch, after the first one, before it is split and its bad rows dead-lettered.",
            "tries",
            ge=0,
        ),
    ] = 3
    ITEM_RETRY_BACKOFF: Annotated[float, _doc("First wait between them; doubled each time.", "s", ge=0)] = 0.5
    ITEM_WRITE_TIMEOUT: Annotated[
        float,
        _doc(
            "The longest one call of a pipeline may take before it counts as failed; 0 = no limit.", "s", ge=0
        ),
    ] = 300.0
    ITEM_STORE_DOWN: Annotated[
        Literal["pause", "spill"],
        _doc(
            "While a pipeline's store is down: pause = keep the batch and claim nothing more, spill = dead-letter and go on."
        ),
    ] = "pause"
    ITEM_STORE_PATIENCE: Annotated[
        float,
        _doc(
            "The longest pause for a store that is down; then its items are dead-lettered and the crawl goes on.",
            "s",
            ge=0,
        ),
    ] = 2700.0
    ITEM_VALIDATE: Annotated[
        bool,
        _doc(
            "Check items against the types that their class declares; a bad one is dead-lettered with the field and reason."
        ),
    ] = False
    FAILED_ITEM_URL: Annotated[
        str,
        _doc(
            "A shared store for dead-lettered items, kept in the local file when it is away: redis (the spider's own), "
            "redis://…, sqlite:///…; empty = the file only."
        ),
    ] = ""
    FAILED_ITEM_PATH: Annotated[
        str, _doc("Items that could not be stored, one JSON object per line.", "path")
    ] = "failed_items.jsonl"
    CSV_OUTPUT_DIR: Annotated[str, _doc("Folder of the CSV pipeline.", "path")] = "."
    CSV_BOM: Annotated[
        bool, _doc("Begin new CSV files with a byte order mark, by which Excel knows UTF-8.")
    ] = False
    CSV_ESCAPE_FORMULAS: Annotated[
        bool,
        _doc(
            "Put an apostrophe before CSV text that a spreadsheet would run as a formula; it changes values."
        ),
    ] = False
    JSONL_OUTPUT_DIR: Annotated[str, _doc("Folder of the JSONL pipeline.", "path")] = "."
    JSONL_COMPRESSION: Annotated[
        Literal["none", "gzip", "zstd"], _doc("How the JSONL pipeline compresses its files.")
    ] = "none"
    JSONL_ROTATE_BYTES: Annotated[
        int,
        _doc(
            "A JSONL file that would grow beyond this is put away under a number; 0 = no limit.",
            "bytes",
            ge=0,
        ),
    ] = 0
    PARQUET_OUTPUT_DIR: Annotated[
        str, _doc("Folder of the Parquet pipeline; each table has a folder in it.", "path")
    ] = "."
    PARQUET_FILE_ROWS: Annotated[int, _doc("A Parquet file is finished at this many rows.", "rows", ge=1)] = (
        100_000
    )
    PARQUET_FILE_BYTES: Annotated[
        int, _doc("Or when its rows, before compression, take this much room.", "bytes", ge=1)
    ] = 134_217_728
    PARQUET_FILE_AGE: Annotated[
        float, _doc("Or at the first batch after this long; 0 = whatever its age.", "s", ge=0)
    ] = 3600.0
    MONGO_URI: Annotated[str, _doc("MongoDB server or servers.")] = "mongodb://localhost:27017"
    MONGO_DB: Annotated[str, _doc("The database there; each table is a collection.")] = "netspy"
    ELASTICSEARCH_HOSTS: Annotated[
        list[str], _doc("Elasticsearch or OpenSearch nodes; another is asked when one is away.")
    ] = msgspec.field(default_factory=lambda: ["http://localhost:9200"])
    ELASTICSEARCH_USER: Annotated[str, _doc("User for basic authentication; empty = none.")] = ""
    ELASTICSEARCH_PASSWORD: Annotated[str, _doc("That user's password.")] = ""
    ELASTICSEARCH_API_KEY: Annotated[
        str, _doc("API key, as the server gives it encoded; goes before a user.")
    ] = ""
    ELASTICSEARCH_CA_FILE: Annotated[
        str, _doc("Certificates (PEM) that its nodes are checked against; empty = the system's.", "path")
    ] = ""
    KAFKA_BOOTSTRAP_SERVERS: Annotated[
        list[str], _doc("Kafka brokers, host:port; the others of a cluster are found by them.")
    ] = msgspec.field(default_factory=lambda: ["localhost:9092"])
    KAFKA_URL: Annotated[
        str,
        _doc(
            "Kafka of KafkaPipeline where user, TLS or other properties are needed: kafka://user:password@host:9092?…; "
            "empty = KAFKA_BOOTSTRAP_SERVERS.",
            "URL",
        ),
    ] = ""
    KAFKA_TOPIC: Annotated[str, _doc("Topic of all rows of KafkaPipeline; empty = the row's table.")] = ""
    RABBITMQ_URL: Annotated[str, _doc("RabbitMQ of RabbitmqPipeline: amqp:// or amqps://.", "URL")] = (
        "amqp://guest:guest@localhost:5672/"
    )
    RABBITMQ_QUEUE: Annotated[
        str, _doc("Queue of all rows of RabbitmqPipeline; empty = the row's table.")
    ] = ""
    REDIS_ITEMS_KEY: Annotated[
        str, _doc("Key of all rows of RedisPipeline; empty = `<REDIS_KEY_PREFIX>:items:<table>`.")
    ] = ""
    REDIS_ITEMS_TYPE: Annotated[Literal["list", "stream"], _doc("What RedisPipeline writes there.")] = "list"
    FILES_STORE: Annotated[str, _doc("Where FilesPipeline puts files: a folder, or s3://bucket/prefix.")] = (
        "./files"
    )
    FILES_CONCURRENCY: Annotated[int, _doc("Files in download at a time, per process.", "files", ge=1)] = 8
    FILES_PER_HOST: Annotated[
        int, _doc("Files in download at a time from one host, besides the pages of the crawl.", "files", ge=1)
    ] = 2
    FILES_TIMEOUT: Annotated[float, _doc("One file, redirects included, may take this long.", "s", gt=0)] = (
        600.0
    )
    FILES_MAX_SIZE: Annotated[int, _doc("The largest file accepted; 0 = no limit.", "bytes", ge=0)] = (
        1_073_741_824
    )
    FILES_EXPIRE: Annotated[
        float,
        _doc(
            "A URL whose file is in the store is not fetched again for this long; 0 = always fetched.",
            "s",
            ge=0,
        ),
    ] = 7_776_000.0
    FILES_MISSING: Annotated[
        Literal["auto", "store", "dead-letter"],
        _doc(
            "A row whose file can't be had: stored with the error; dead-lettered; auto = dead-lettered only when another "
            "try can help."
        ),
    ] = "auto"
    S3_ENDPOINT_URL: Annotated[
        str, _doc("Address of an S3-compatible store, e.g. MinIO; empty = Amazon's.")
    ] = ""
    S3_REGION: Annotated[str, _doc("Region; empty = as the AWS configuration says.")] = ""
    S3_ACCESS_KEY_ID: Annotated[
        str, _doc("Access key; empty = as the AWS configuration or the machine's role says.")
    ] = ""
    S3_SECRET_ACCESS_KEY: Annotated[str, _doc("The access key's secret.")] = ""
    SQLITE_PATH: Annotated[str, _doc("Database file of the SQLite pipeline.", "path")] = "items.db"
    DEDUP_FILTER: Annotated[
        str, _doc("Request filter: auto, memory, lite, bloom, redis, redis-bloom, redis-set or a class path.")
    ] = "auto"
    DEDUP_ERROR_RATE: Annotated[
        float, _doc("Chance that a new URL is taken for a known one, first layer.", "", gt=0)
    ] = 1e-6
    DEDUP_INITIAL_CAPACITY: Annotated[
        int, _doc("Fingerprints in the first Bloom layer.", "fingerprints", ge=1)
    ] = 1_000_000
    DEDUP_WARN_FILL_RATE: Annotated[
        float, _doc("Share of the total capacity at which a warning is sent.", "", gt=0)
    ] = 0.8
    DEDUP_MAX_LAYERS: Annotated[int, _doc("The most Bloom layers.", "layers", ge=1)] = 4
