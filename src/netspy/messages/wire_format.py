"""The packed form of a request: what a queue between processes holds.

A JSON object with one-letter keys, defaults left out; values that JSON would change are tagged (`codec`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from netspy.errors import SerializationError
from netspy.messages import codec

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
"""Another version is refused, not guessed at."""

DEFAULT_PRIORITY = 300


class Packed(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The fields of a request. Millions of these sit in a queue, hence the short keys."""

    v: int  # version
    u: str  # url
    m: str = "GET"  # method
    c: str | None = None  # callback
    e: str | None = None  # errback
    p: int | float = DEFAULT_PRIORITY
    r: Annotated[int, msgspec.Meta(ge=0)] = 0  # retry_times
    f: bool = True  # filter_repeat
    k: dict[str, Any] | None = None  # cb_kwargs
    q: dict[str, Any] | None = None  # requests_kwargs
    x: dict[str, Any] | None = None  # custom
    o: dict[str, Any] | None = None  # options that differ from their defaults


class _AnyVersion(msgspec.Struct):
    v: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Packed).decode


def encode(packed: Packed, shown: object) -> bytes:
    """The JSON. `shown` is the request, for errors. Raises SerializationError naming the key at fault."""
    if packed.k or packed.q or packed.x or packed.o:
        _lift(packed, codec.is_plain)
    try:
        data = _encode(packed)
    except UnicodeEncodeError:
        _lift(packed, lambda _: False)
        try:
            data = _encode(packed)
        except UnicodeEncodeError as error:
            raise SerializationError(
                f"{shown!r} has a lone surrogate in its URL, method or a name"
            ) from error
    return data if len(data) <= codec.MAX_BYTES else codec.check_size(data, repr(shown))


def decode(data: bytes) -> Packed:
    """The inverse of `write`. Raises SerializationError for anything else, and for another version."""
    if len(data) > codec.MAX_BYTES:
        raise SerializationError(f"a request of {len(data):,} bytes is over the limit of {codec.MAX_BYTES:,}")
    try:
        packed = _decode(data)
        if b'"!' in data:
            _lower(packed)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _unreadable(data, error) from error
    if packed.v != VERSION:
        raise _unreadable(data, None)
    return packed


def _lift(packed: Packed, plain: Callable[[Any], bool]) -> None:
    """Tag what JSON would change."""
    if packed.k is not None and not plain(packed.k):
        packed.k = codec.tag(packed.k, "cb_kwargs")
    if packed.q is not None and not plain(packed.q):
        packed.q = codec.tag(packed.q, "requests_kwargs")
    if packed.x is not None and not plain(packed.x):
        packed.x = codec.tag(packed.x, "custom")
    if packed.o is not None and not plain(packed.o):
        packed.o = codec.tag(packed.o, "request")


def _lower(packed: Packed) -> None:
    """Read the tags again."""
    parts = [codec.untag(part) for part in (packed.k, packed.q, packed.x, packed.o)]
    if not all(part is None or type(part) is dict for part in parts):
        raise msgspec.DecodeError("k, q, x and o are objects")
    packed.k, packed.q, packed.x, packed.o = parts


def _unreadable(data: bytes, error: Exception | None) -> SerializationError:
    try:
        version: int | None = msgspec.json.decode(data, type=_AnyVersion).v
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        version = None
    if version is not None and version != VERSION:
        return SerializationError(
            f"a request of format version {version}; this netspy reads version {VERSION}: update this node"
        )
    return SerializationError(f"not a packed request: {error}: {bytes(data[:80])!r}")
