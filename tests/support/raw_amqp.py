"""A publisher that sends to RabbitMQ whatever bytes it is given: what clients in other languages send, and ours can't.

with RawPublisher(url) as publisher:
    publisher.send("books", b"body", properties(headers=pair(b"who", b"S" + long(b"caf\\xe9"))))
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pamqp.frame
from pamqp import commands
from pamqp.header import ProtocolHeader

if TYPE_CHECKING:
    from types import TracebackType

_NAMES = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id",
)  # fmt: skip


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes([len(text)]) + text


def long(data: bytes) -> bytes:
    """A long string, or the inside of a table."""
    return struct.pack(">I", len(data)) + data


def pair(name: bytes, value: bytes) -> bytes:
    """A header: `value` is its type's letter and its bytes."""
    return short(name) + value


def properties(**parts: bytes) -> bytes:
    """The flags and the properties; each is given as its bytes, `headers` as the pairs of the table."""
    flags, data = 0, b""
    for place, name in enumerate(_NAMES):
        if name in parts:
            flags |= 1 << (15 - place)
            data += long(parts[name]) if name == "headers" else parts[name]
    return struct.pack(">H", flags) + data


class RawPublisher:
    """One connection with confirms."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._link = socket.create_connection((where.hostname, where.port), 10)
        self._read = self._link.makefile("rb")
        self._link.sendall(ProtocolHeader().marshal())
        self._wait(commands.Connection.Start)
        self._tell(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
        tune = self._wait(commands.Connection.Tune)
        self._tell(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0)
        self._call(commands.Connection.Open("/"), commands.Connection.OpenOk, 0)
        self._call(commands.Channel.Open(), commands.Channel.OpenOk)
        self._call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def _tell(self, frame: Any, channel: int = 1) -> None:
        self._link.sendall(pamqp.frame.marshal(frame, channel))

    def _call(self, frame: Any, answer: Any, channel: int = 1) -> Any:
        self._tell(frame, channel)
        return self._wait(answer)

    def _wait(self, wanted: Any) -> Any:
        while True:
            start = self._read.read(7)
            if len(start) < 7:
                raise ConnectionResetError("RabbitMQ ended the connection")
            size = struct.unpack(">BHI", start)[2]
            _, _, frame = pamqp.frame.unmarshal(start + self._read.read(size + 1))
            if isinstance(frame, wanted):
                return frame
            if isinstance(frame, commands.Channel.Close | commands.Connection.Close):
                raise ConnectionResetError(f"{frame.reply_code} {frame.reply_text}")

    def declare(self, queue: str, **arguments: Any) -> None:
        """A durable queue; `x_max_length` is the argument x-max-length."""
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        self._call(
            commands.Queue.Declare(queue=queue, durable=True, arguments=named), commands.Queue.DeclareOk
        )

    def send(
        self,
        queue: str,
        body: bytes,
        head: bytes = b"\x00\x00",
        *,
        exchange: bytes = b"",
        key: bytes | None = None,
    ) -> None:
        """Publish, and wait for the confirm. Raises ConnectionResetError when RabbitMQ doesn't take it."""
        routing = queue.encode() if key is None else key
        publish = struct.pack(">HHH", 60, 40, 0) + short(exchange) + short(routing) + b"\x00"
        header = struct.pack(">HHQ", 60, 0, len(body)) + head
        frames = [(1, publish), (2, header)] + ([(3, body)] if body else [])
        self._link.sendall(b"".join(_framed(kind, payload) for kind, payload in frames))
        self._wait(commands.Basic.Ack)

    def get(self, queue: str) -> tuple[bytes, bytes] | None:
        """The next message, acked: its body, and its properties with their flags."""
        self._tell(commands.Basic.Get(queue=queue, no_ack=True))
        kind, payload = self._frame()
        if payload[:4] == struct.pack(">HH", 60, 72):  # basic.get-empty
            return None
        kind, head = self._frame()
        assert kind == 2, kind
        size, body = struct.unpack(">Q", head[4:12])[0], b""
        while len(body) < size:
            body += self._frame()[1]
        return body, head[12:]

    def _frame(self) -> tuple[int, bytes]:
        kind, _, size = struct.unpack(">BHI", self._read.read(7))
        return kind, self._read.read(size + 1)[:-1]

    def bind(self, queue: str, exchange: str) -> None:
        """A fanout exchange in front of a queue."""
        self._call(
            commands.Exchange.Declare(exchange=exchange, exchange_type="fanout"), commands.Exchange.DeclareOk
        )
        self._call(commands.Queue.Bind(queue=queue, exchange=exchange), commands.Queue.BindOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._read.close()
        self._link.close()


def _framed(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"
