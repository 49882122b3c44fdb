"""Settings of tasks and batches."""

from __future__ import annotations

from typing import Annotated, Literal

from netspy.settings.declaring import described
from netspy.settings.shared import SharedSettings

_doc = described("task")


class TaskSettings(SharedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    TASK_SOURCE: Annotated[
        str,
        _doc(
            "Where tasks come from: empty = the Redis list of the spider, memory, amqp://…, kafka://…, the URL of a SQL "
            "table, or the path of a class."
        ),
    ] = ""
    TASK_POLL_INTERVAL: Annotated[float, _doc("Between two looks at the task source.", "s", gt=0)] = 2.0
    TASK_BATCH_SIZE: Annotated[int, _doc("Tasks fetched at a time.", "tasks", ge=1)] = 100
    TASK_EXHAUST_POLLS: Annotated[
        int, _doc("Empty looks in a row after which the source is exhausted.", "polls", ge=1)
    ] = 3
    BATCH_INTERVAL: Annotated[
        float, _doc("Between the starts of two batches.", "BATCH_INTERVAL_UNIT", gt=0)
    ] = 7.0
    BATCH_INTERVAL_UNIT: Annotated[Literal["day", "hour", "minute"], _doc("Unit of BATCH_INTERVAL.")] = "day"
    BATCH_CRON: Annotated[
        str,
        _doc(
            "Cron expression (minute hour day month weekday) for the starts of batches, instead of BATCH_INTERVAL."
        ),
    ] = ""
    BATCH_TIMEZONE: Annotated[str, _doc("Time zone in which BATCH_CRON is meant, e.g. Europe/Berlin.")] = (
        "UTC"
    )
    BATCH_STORE_URL: Annotated[
        str,
        _doc(
            "Database of the task table: mysql://, postgresql:// or sqlite:///path; empty = the MYSQL_* settings.",
            "URL",
        ),
    ] = ""
    BATCH_MONITOR_INTERVAL: Annotated[float, _doc("Between two passes of the batch master.", "s", gt=0)] = (
        10.0
    )
    BATCH_LOST_TASK_STALE: Annotated[
        float, _doc("A task in process for this long without a sign of life is lost.", "s", gt=0)
    ] = 600.0
    BATCH_PUSH_LIMIT: Annotated[int, _doc("Tasks the master claims at a time.", "tasks", ge=1)] = 5000
    BATCH_TASK_ID_FIELD: Annotated[str, _doc("Primary key column of the task table.")] = "id"
    BATCH_TASK_STATE_FIELD: Annotated[str, _doc("State column of the task table.")] = "batch_status"
    BATCH_TASK_TIME_FIELD: Annotated[str, _doc("Time column of the task table.")] = "update_time"
