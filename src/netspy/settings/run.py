"""Settings of one node's run: how much at a time, when to stop, how long things may take."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from netspy.settings.declaring import described

_doc = described("run")


class RunSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    PROJECT_NAME: Annotated[str, _doc("Name shown in the summary and in alerts.")] = "netspy"
    SPIDER_THREAD_COUNT: Annotated[int, _doc("Requests in flight per process.", "requests", ge=1)] = 16
    SPIDER_MAX_RETRY_TIMES: Annotated[
        int, _doc("Further tries after the first one before a request counts as failed.", "tries", ge=0)
    ] = 3
    SPIDER_RETRY_INTERVAL: Annotated[
        float, _doc("Fixed wait before a retry, added to RETRY_BACKOFF's.", "s", ge=0)
    ] = 0.0
    COLLECTOR_TASK_COUNT: Annotated[
        int,
        _doc(
            "The most requests a node claims in one call and holds without having started them.",
            "requests",
            ge=1,
        ),
    ] = 100
    REQUEST_BUFFER_MAX_CACHED: Annotated[
        int,
        _doc(
            "Discovered requests a node may hold before they are in the frontier; callbacks wait beyond it.",
            "requests",
            ge=1,
        ),
    ] = 1000
    BUFFER_FLUSH_INTERVAL: Annotated[
        float, _doc("The longest an item waits in the item buffer before its batch is written.", "s", gt=0)
    ] = 0.1
    DONE_CHECK_INTERVAL: Annotated[
        float, _doc("How often an idle node asks whether the run is over.", "s", gt=0)
    ] = 0.5
    SPIDER_MAX_RUNTIME: Annotated[
        float, _doc("Stop gracefully after this long; 0 = no limit.", "s", ge=0)
    ] = 0.0
    SPIDER_MAX_PAGES: Annotated[
        int,
        _doc("Stop gracefully after this many downloaded pages on this node; 0 = no limit.", "pages", ge=0),
    ] = 0
    SPIDER_MAX_ITEMS: Annotated[
        int, _doc("Stop gracefully after this many stored items on this node; 0 = no limit.", "items", ge=0)
    ] = 0
    SPIDER_MAX_ERRORS: Annotated[
        int,
        _doc("Stop gracefully after this many failed requests on this node; 0 = no limit.", "requests", ge=0),
    ] = 0
    SPIDER_STOP_TIMEOUT: Annotated[
        float,
        _doc(
            "On SIGINT or SIGTERM, running pages get this long to finish before their leases are given back.",
            "s",
            gt=0,
        ),
    ] = 7.0
    SPIDER_TASK_MAX_SECONDS: Annotated[
        float, _doc("The longest one callback may run before its lease is no longer renewed.", "s", gt=0)
    ] = 3600.0
    SPIDER_MAX_UNACKED: Annotated[
        int,
        _doc(
            "Pages fetched whose items are not stored yet; over it a node claims nothing more.",
            "requests",
            ge=1,
        ),
    ] = 2000
    SPIDER_MAX_DELIVERIES: Annotated[
        int,
        _doc(
            "A request that was so often the only suspect in a process that died goes to failed_requests (poison).",
            "deliveries",
            ge=1,
        ),
    ] = 3
    CALLBACK_MAX_THREADS: Annotated[
        int,
        _doc(
            "The most threads for plain `def` callbacks; the pool starts with one and grows when callbacks block.",
            "threads",
            ge=1,
        ),
    ] = 16
    CALLBACK_CHUNK: Annotated[
        int,
        _doc(
            "How many values are drawn from a callback's generator before they are handed over.",
            "values",
            ge=1,
        ),
    ] = 500
    DUMP_UNFINISHED_ON_EXIT: Annotated[
        bool,
        _doc(
            "AirSpider: keep what is unfinished at a stop beside FAILED_REQUEST_PATH, for RETRY_FAILED_ON_START."
        ),
    ] = True
    FAILED_REQUEST_PATH: Annotated[
        str, _doc("AirSpider: requests that failed for good, one JSON object per line.", "path")
    ] = "failed_requests.jsonl"
    RETRY_FAILED_ON_START: Annotated[
        bool, _doc("Queue the failed requests of the last run again at start.")
    ] = False
    RUN_SUMMARY_ENABLE: Annotated[bool, _doc("Print the `NETSPY_RUN_SUMMARY {json}` line at the end.")] = True
    FAIL_ON_NOTHING_TO_DO: Annotated[
        bool, _doc("Exit with code 9 instead of 0 when a run found nothing to do.")
    ] = False
    STRICT_SETTINGS: Annotated[
        bool, _doc("A name close to a setting's is an error instead of a warning.")
    ] = False
    DEBUG: Annotated[bool, _doc("Log at DEBUG and run callbacks in one thread.")] = False
