"""Digests by which requests and items are known: BLAKE2b cut to 16 bytes."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from netspy.messages.codec import stable
from netspy.messages.urls import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netspy.messages.urls import Ignore

BODY_NAMES = ("data", "json", "content", "files")
"""The request keywords that make a body, and so belong to its identity. Headers, cookies and proxies
don't."""


def request_digest(
    method: str, url: str, requests_kwargs: Mapping[str, Any] | None, ignore: Ignore | None
) -> bytes:
    """16 bytes, equal for requests of one page: method, canonical URL, body. Raises InvalidUrlError."""
    head = f"{method} {canonical(url, ignore)}".encode()
    if requests_kwargs:
        head += body_mark(requests_kwargs)
    return blake2b(head, digest_size=16).digest()


def raw_digest(method: str, url: str) -> bytes:
    """16 bytes for a request that is never fetched, whose URL needn't be one."""
    return blake2b(f"{method} {url}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def body_mark(requests_kwargs: Mapping[str, Any]) -> bytes:
    """What the body adds to the digest; empty without one. Keys of a form or of JSON count in any order."""
    mark = b""
    for name in BODY_NAMES:
        body = requests_kwargs.get(name)
        if body is None:
            continue
        if name in {"data", "content"} and isinstance(body, (bytes, bytearray, str)):
            # The bytes on the wire are the same whichever keyword they came by, and as text or bytes.
            part, raw = "raw", body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
        else:
            part, raw = name, stable(body)
        mark += b" %s %d " % (part.encode(), len(raw)) + raw
    return mark


def item_digest(table: str, fields: Mapping[str, Any]) -> bytes:
    """16 bytes for a row: its table and the given fields, by name, type and value."""
    return blake2b(stable([table, dict(fields)]), digest_size=16).digest()
