"""Failed requests as they are shown: as a row, whole, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from netspy.cli.output import facts, iso_time, local_time, say, visible
from netspy.errors import SerializationError
from netspy.policy.failed_record import MAX_ERROR_CHARS
from netspy.policy.secrets import mask

if TYPE_CHECKING:
    from netspy.cli.failed.records import Numbered
    from netspy.policy.failed_record import FailedRecord


def request_of(record: FailedRecord) -> dict[str, Any] | None:
    """The request's fields by their documented names; as stored when this version can't read it; None for no request."""
    from netspy.messages.request import Request

    if record.payload is None:
        return None
    try:
        return Request.unpack(record.payload).to_dict()
    except SerializationError:
        try:
            stored: dict[str, Any] = json.loads(record.payload)
        except RecursionError:
            return {"unreadable": record.payload[:MAX_ERROR_CHARS].decode("utf-8", "replace")}
        return stored


def as_dict(one: Numbered, *, reveal: bool = False) -> dict[str, Any]:
    """What --json shows: the whole record with its number, secrets masked unless `reveal`."""
    record = one.record
    shown: dict[str, Any] = {
        "number": one.number,
        "time": iso_time(record.time),
        "reason": record.reason,
        "error": record.error,
        "attempts": record.attempts,
        "priority": record.priority,
        "url": record.url,
    }
    request = request_of(record)
    shown |= {"raw": record.raw} if request is None else {"request": request}
    return shown if reveal else mask(shown)


def row_of(one: Numbered) -> tuple[str, ...]:
    """Its number, time, attempts, reason and URL."""
    record = one.record
    url = record.url or record.raw or ""
    return str(one.number), local_time(record.time), str(record.attempts), record.reason, url


def print_whole(one: Numbered, *, reveal: bool) -> None:
    """To stdout, with the request as it was queued."""
    record = one.record
    rows = [
        ("number", str(one.number)),
        ("time", local_time(record.time)),
        ("reason", record.reason),
        ("error", record.error),
        ("attempts", str(record.attempts)),
        ("priority", f"{record.priority:g}"),
    ]
    for line in facts(rows):
        print(line)
    request = request_of(record)
    if request is None:
        raw = record.raw or ""
        print(f"stored as: {visible(raw if reveal else mask(raw))}")
        return
    print("request")
    given = {name: value for name, value in request.items() if value not in (None, {}, "")}
    safe = mask(given)
    shown = given if reveal else safe
    for line in json.dumps(shown, indent=2, ensure_ascii=False, default=repr).splitlines():
        print(line if reveal and line.isprintable() else visible(line))
    if not reveal and safe != given:
        say("*** hides cookies, credentials and the like; --reveal shows them")
