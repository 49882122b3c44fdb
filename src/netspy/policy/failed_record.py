"""The JSON record of a request that failed for good, as kept in `failed_requests`.

    {"reason": str, "error": str, "attempts": int, "time": float, "priority": float, "site": "8 hex digits",
     "request": {…}}

`time` is in seconds since 1970. `request` is the stored payload, byte for byte; a payload that nobody could
read is kept as the string `raw` instead. In a file there is `spider` too, whose record it is. Records of other programs are
shown as they are.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from netspy.settings import without_passwords

MAX_ERROR_CHARS = 2000
"""Error texts are cut here: the list grows while memory may be short."""


class FailedRecord(msgspec.Struct, kw_only=True, omit_defaults=False):
    """One failed request. `request` is its payload as JSON text; None when it could not be read (see
    `raw`).
    """

    reason: str = ""
    error: str = ""
    attempts: int = 0
    time: float = 0.0
    priority: float = 300.0
    site: str = "00000000"
    request: msgspec.Raw = msgspec.Raw()
    raw: str | None = None
    spider: str = ""

    @property
    def payload(self) -> bytes | None:
        """The stored request as JSON bytes, or None."""
        text = bytes(self.request)
        return text if text.startswith(b"{") else None

    @property
    def url(self) -> str:
        """The request's URL, or an empty string."""
        try:
            found = json.loads(self.payload or b"{}")
        except (ValueError, RecursionError):
            return ""
        if not isinstance(found, dict):
            return ""
        return str(found.get("u", found.get("url", "")))  # packed requests have one-letter keys


_decoder = msgspec.json.Decoder(FailedRecord)


def pack_failed(
    payload: bytes | None,
    *,
    reason: str,
    error: str,
    attempts: int,
    time: float,
    priority: float = 300.0,
    site: str = "00000000",
    raw: str | None = None,
) -> bytes:
    """The record as JSON bytes. `payload` must be a JSON object; `raw` is for one that isn't.

    Passwords of URLs in `error` are hidden; the request keeps what it needs for another try.
    """
    error = without_passwords(error)
    head: dict[str, Any] = {
        "reason": reason,
        "error": error if len(error) <= MAX_ERROR_CHARS else error[:MAX_ERROR_CHARS] + "…",
        "attempts": attempts,
        "time": round(time, 3),
        "priority": priority if math.isfinite(priority) else 300.0,
        "site": site,
    }
    if payload is None:
        head["raw"] = raw or ""
        return msgspec.json.encode(head)
    return msgspec.json.encode(head)[:-1] + b',"request":' + payload + b"}"


def of_spider(record: bytes, spider: str) -> bytes:
    """A record of `pack_failed`, with the name of the spider whose it is."""
    return record[:-1] + b',"spider":' + msgspec.json.encode(spider) + b"}"


def read_failed(record: bytes) -> FailedRecord:
    """The record in `record`; anything unreadable becomes a record with reason "unreadable" and `raw` set."""
    try:
        found = _decoder.decode(record)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return FailedRecord(reason="unreadable", error=str(error), raw=record.decode("utf-8", "replace"))
    if found.payload is None and found.raw is None:
        return FailedRecord(
            reason="unreadable", error="the record holds no request", raw=record.decode("utf-8", "replace")
        )
    return found
