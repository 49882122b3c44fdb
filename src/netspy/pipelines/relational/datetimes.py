"""Moments, dates, times and spans as SQL parameters. A moment is stored in UTC; a naive one is taken for UTC.

Text goes to the server only where the server can't take it for something else: `10.11.12` is three dates, and `2026`
as a time of day would be 20:26. No I/O here.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from netspy.pipelines.relational.strict import unfit

if TYPE_CHECKING:
    from netspy.sqlio.address import Kind

_PLAIN_DATE = re.compile(r"\d{4}([-/])\d{1,2}\1\d{1,2}", re.ASCII)
_PLAIN_MOMENT = re.compile(r"\d{4}([-/])\d{1,2}\1\d{1,2}[ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,6})?)?", re.ASCII)
_PLAIN_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
_MYSQL_TIME = re.compile(r"-?\d{1,3}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
_HALF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?\s*[AaPp][Mm]", re.ASCII)
_YEAR_FIRST_OR_NAMED = re.compile(
    r"\d{4}[-/]|.*[A-Za-z]{3}.*\d{4}|.*\d{4}.*[A-Za-z]{3}", re.ASCII | re.DOTALL
)
_BARE_NUMBER = re.compile(r"\s*[-+]?[\d.]+\s*", re.ASCII)


def moment(value: Any, kind: Kind, *, zone: bool) -> Any:
    """For a column without a zone (which holds UTC) or with one."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            if _server_reads_moment(value, kind, zone=zone):
                return value
            raise unfit(value, "dates and times") from None
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC)
            return value if zone else value.replace(tzinfo=None)
        return value.replace(tzinfo=UTC) if zone else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if zone else None)
    raise unfit(value, "dates and times")


def _server_reads_moment(text: str, kind: Kind, *, zone: bool) -> bool:
    """Whether the server reads all of the text, and in one way: PostgreSQL drops a zone that it isn't asked for."""
    if _PLAIN_MOMENT.fullmatch(text) or _PLAIN_DATE.fullmatch(text):
        return True
    return zone and kind == "postgresql" and _YEAR_FIRST_OR_NAMED.match(text) is not None


def day(value: Any, _kind: Kind) -> Any:
    """For a DATE."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = date.fromisoformat(text)
        except ValueError:
            try:
                value = datetime.fromisoformat(text)
            except ValueError:
                if _PLAIN_DATE.fullmatch(text):
                    return text
                raise unfit(value, "dates") from None
    if isinstance(value, datetime):
        if value.time() != time():
            raise unfit(value, "dates, which would lose the time")
        return value.date()
    if isinstance(value, date):
        return value
    raise unfit(value, "dates")


def time_of_day(value: Any, kind: Kind) -> Any:
    """For a TIME, which on MySQL is also a span of up to 838 hours."""
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise unfit(value, "times without a zone")
        return value
    if kind == "mysql" and isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        text = value.strip()
        plain = _MYSQL_TIME if kind == "mysql" else _PLAIN_TIME
        if plain.fullmatch(text) or (kind == "postgresql" and _HALF_DAY.fullmatch(text)):
            return text
    raise unfit(value, "times")


def time_with_zone(value: Any, _kind: Kind) -> Any:
    """For a TIME WITH TIME ZONE; without one it is taken for UTC."""
    if isinstance(value, time):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, str) and ":" in value:
        return value
    raise unfit(value, "times")


def span(value: Any, _kind: Kind) -> Any:
    """For an INTERVAL."""
    if isinstance(value, timedelta) or (isinstance(value, str) and not _BARE_NUMBER.fullmatch(value)):
        return value
    raise unfit(value, "intervals")
