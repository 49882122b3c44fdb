"""Between RabbitMQ and its client library: frames of others in a shape that the library can decode.

It decodes each property of each message, and ends the connection over one that it can't, which then comes again. So a
message's properties pass through it as bytes, in one header of ours, and the names that a delivery carries as text that
is always UTF-8. Told by the way: that the broker takes nothing in at present, or does again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from netspy.brokers.amqp_properties import Properties

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

RAW = "netspy-properties"
"""The header that holds them."""

_START = 7  # a frame's type, channel and size
_METHOD, _HEADER = 1, 2
_KINDS = frozenset({_METHOD, _HEADER, 3, 8})
_BLOCKED, _UNBLOCKED, _DELIVER = (10, 60), (10, 61), (60, 60)
_UP_TO_PROPERTIES = 12  # of a content header: class, weight, size of the body


def properties_of(message: Any) -> Properties:
    """Those of a message that came through a `FrameReader`; none when they are no properties."""
    try:
        return Properties.read(bytes(message.headers[RAW]))
    except (KeyError, ValueError):
        return Properties()


class FrameReader:
    """What the library reads from: the methods of a StreamReader that it calls. `on_blocked` hears of alarms."""

    def __init__(self, reader: asyncio.StreamReader, on_blocked: Callable[[str | None], None]) -> None:
        """`on_blocked` is called with the broker's reason, and with None when it takes messages again."""
        self._reader = reader
        self._on_blocked = on_blocked
        self._left = b""

    def at_eof(self) -> bool:
        """Whether nothing more comes."""
        return not self._left and self._reader.at_eof()

    async def read(self, size: int = -1) -> bytes:
        """What is there."""
        left, self._left = self._left, b""
        return left or await self._reader.read(size)

    async def readexactly(self, size: int) -> bytes:
        """The next bytes. Raises IncompleteReadError."""
        if not self._left:
            self._left = await self._frame()
        if size > len(self._left):  # not the shape of a frame: the library says what it thinks of it
            self._left += await self._reader.readexactly(size - len(self._left))
        piece, self._left = self._left[:size], self._left[size:]
        return piece

    async def _frame(self) -> bytes:
        start = await self._reader.readexactly(_START)
        kind, channel, size = struct.unpack(">BHI", start)
        if kind not in _KINDS:
            return start
        rest = await self._reader.readexactly(size + 1)
        payload = changed = rest[:-1]
        if kind == _HEADER:
            changed = _with_raw_properties(payload)
        elif kind == _METHOD:
            method = struct.unpack(">HH", payload[:4])
            if method == _DELIVER:
                changed = _with_readable_names(payload)
            elif method in {_BLOCKED, _UNBLOCKED}:
                self._on_blocked(payload[5:].decode("utf-8", "replace") if method == _BLOCKED else None)
        if changed is payload:
            return start + rest
        return struct.pack(">BHI", kind, channel, len(changed)) + changed + rest[-1:]


def _with_raw_properties(payload: bytes) -> bytes:
    raw = payload[_UP_TO_PROPERTIES:]
    shown = Properties(headers=[(RAW.encode(), b"x" + struct.pack(">I", len(raw)) + raw)])
    try:
        name = Properties.read(raw).message_id
    except ValueError:
        name = ""
    if name:
        shown.message_id = name
    return payload[:_UP_TO_PROPERTIES] + shown.marshal()


def _with_readable_names(payload: bytes) -> bytes:
    """basic.deliver: its exchange and routing key are any bytes that somebody published with."""
    exchange = 4 + 1 + payload[4] + 9  # behind the consumer's tag, the delivery's number and a flag
    key = exchange + 1 + payload[exchange]
    try:
        payload[exchange:].decode()
    except UnicodeDecodeError:
        names = (payload[exchange + 1 : key], payload[key + 1 : key + 1 + payload[key]])
        texts = [name.decode("ascii", "ignore").encode() for name in names]
        return payload[:exchange] + b"".join(bytes([len(text)]) + text for text in texts)
    return payload


class Transport:
    """How the library connects: as it does by itself, with a `FrameReader` in between."""

    def __init__(self, on_blocked: Callable[[str | None], None]) -> None:
        """See `FrameReader`."""
        self._on_blocked = on_blocked

    async def create(self, url: Any, **how: Any) -> tuple[Any, Any]:
        """Reader and writer."""
        from aiormq.connection import TCPTransportFactory, TLSTransportFactory

        plain = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, writer = await plain.create(url, **how)
        return FrameReader(reader, self._on_blocked), writer
