"""Part of a page is no page: what a 206 answer must be (RFC 9110 14.4, 15.3.7)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netspy.downloader.transfer import Head

_BYTES = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)", re.IGNORECASE)


def partial_problem(sent: Iterable[tuple[str, Any]], head: Head, size: int | None) -> str:
    """Why a 206 answer is not what was asked for; empty when it is.

    `sent`: the request's own header fields. `size`: bytes of the body; None = unknown.
    """
    told = head.get("content-range")
    if not any(name.lower() == "range" and value is not None for name, value in sent):
        return f"a part of the page (206, {told or 'no Content-Range'}), and no part was asked for"
    found = _BYTES.fullmatch((told or "").strip())
    if found is None or size is None or head.get("content-encoding") is not None:
        return ""  # several parts, another unit, or coded: its length is not the body's
    promised = int(found[2]) - int(found[1]) + 1
    return "" if size == promised else f"{size} bytes of a part of {promised} ({told})"
