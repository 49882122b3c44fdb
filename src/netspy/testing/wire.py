"""The HTTP/1.1 side of a local site: one connection, its requests in order, keep-alive.

It reads what RFC 9112 clients send (content length or chunked bodies, pipelining, `Expect: 100-continue`) and
writes answers with a content length. It is made for tests on loopback: no write back-pressure, no time-outs.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import parse_qs

MAX_HEAD = 256 * 1024

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Header fields: a mapping, or pairs where a name may come more than once."""

_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(slots=True)
class Incoming:
    """A request as it arrived.

    `target` is the path with its query as sent, `path` the part before the question mark; header names are in
    lower case. `hits` counts the requests for this path so far, this one included.
    """

    method: str
    target: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    hits: int = 1

    @property
    def query(self) -> dict[str, list[str]]:
        """The decoded query parameters."""
        return parse_qs(self.target.partition("?")[2], keep_blank_values=True)

    def json(self) -> Any:
        """The body read as JSON. Raises ValueError."""
        return json.loads(self.body)


@dataclass(slots=True)
class Answer:
    """What a route gives back.

    A `str` body is encoded in `charset`, which the content type then names; `bytes` go out as they are; other
    values become JSON. `delay` is in seconds. `drop` closes the connection instead of answering, `hang` keeps
    it open without a word.
    """

    body: Any = b""
    status: int = 200
    headers: Headers = field(default_factory=dict)
    content_type: str | None = None
    charset: str | None = None
    delay: float = 0.0
    drop: bool = False
    hang: bool = False

    def encoded(self) -> tuple[bytes, str]:
        """The body's bytes and its content type."""
        body, kind = self.body, self.content_type
        if isinstance(body, bytes | bytearray | memoryview):
            kind = kind or "text/html"
            return bytes(body), f"{kind}; charset={self.charset}" if self.charset else kind
        charset = self.charset or "utf-8"
        if isinstance(body, str):
            kind = kind or "text/html"
        else:
            body, kind = json.dumps(body, ensure_ascii=False), kind or "application/json"
        if "charset=" not in kind and (self.charset or kind.startswith("text/")):
            kind = f"{kind}; charset={charset}"
        return body.encode(charset), kind


class Responder(Protocol):
    """What a connection asks of its site."""

    def respond(self, request: Incoming) -> Answer | Awaitable[Answer]:
        """The answer to a request; called on the site's loop."""

    def opened(self, connection: Connection) -> None:
        """A connection was accepted."""

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""

    def done(self) -> None:
        """An answer was sent, or its request was abandoned."""


class _BadRequestError(Exception):
    """The bytes received are no HTTP/1 request."""


class Connection(asyncio.Protocol):
    """One client connection; requests are answered one after the other, in the order of arrival."""

    def __init__(self, site: Responder, loop: asyncio.AbstractEventLoop) -> None:
        self._site = site
        self._loop = loop
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._pending: asyncio.Task[None] | asyncio.TimerHandle | None = None
        self._told_to_continue = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport and tell the site."""
        self._transport = cast("asyncio.Transport", transport)
        self._site.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was being answered."""
        del exc
        self._transport = None
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self._busy:
            self._busy = False
            self._site.done()
        self._site.closed(self)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes in and answer every request that is complete."""
        self._buffer += data
        self._serve()

    def _serve(self) -> None:
        while not self._busy and self._buffer and self._transport and not self._transport.is_closing():
            try:
                request = self._read()
            except _BadRequestError as error:
                self._send(None, Answer(str(error), status=400, content_type="text/plain"), close=True)
                return
            if request is None:
                return
            self._busy = True
            self._told_to_continue = False
            close = request.headers.get("connection", "").lower() == "close"
            answer = self._site.respond(request)
            if inspect.isawaitable(answer):
                self._pending = self._loop.create_task(self._finish_later(request, answer, close=close))
            else:
                self._finish(request, answer, close=close)

    async def _finish_later(self, request: Incoming, answer: Awaitable[Answer], *, close: bool) -> None:
        self._finish(request, await answer, close=close)
        self._serve()

    def _finish(self, request: Incoming, answer: Answer, *, close: bool) -> None:
        if answer.hang:
            return
        if answer.delay > 0:
            self._pending = self._loop.call_later(answer.delay, self._finish_delayed, request, answer, close)
        else:
            self._send(request, answer, close=close)

    def _finish_delayed(self, request: Incoming, answer: Answer, close: bool) -> None:
        self._send(request, answer, close=close)
        self._serve()

    def _send(self, request: Incoming | None, answer: Answer, *, close: bool) -> None:
        self._pending = None
        if self._busy:
            self._busy = False
            self._site.done()
        transport = self._transport
        if transport is None:
            return
        if answer.drop:
            transport.close()
            return
        transport.write(_as_bytes(request, answer, close=close))
        if close:
            transport.close()

    def _read(self) -> Incoming | None:
        """The next complete request, taken off the buffer; None when more bytes are needed."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise _BadRequestError("the request's head is too long")
            return None
        method, target, version, headers = _head(bytes(self._buffer[:end]))
        if version == "HTTP/1.0" and headers.get("connection", "").lower() != "keep-alive":
            headers["connection"] = "close"
        start = end + 4
        if headers.get("transfer-encoding", "").lower() == "chunked":
            found = _dechunk(self._buffer, start)
        else:
            length = headers.get("content-length", "0")
            if not length.isdecimal():
                raise _BadRequestError(f"content-length {length!r} is no number")
            stop = start + int(length)
            found = (bytes(self._buffer[start:stop]), stop) if len(self._buffer) >= stop else None
        if found is None:
            if headers.get("expect", "").lower() == "100-continue" and not self._told_to_continue:
                self._told_to_continue = True
                if self._transport is not None:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body, stop = found
        del self._buffer[:stop]
        return Incoming(method, target, target.partition("?")[0], headers, body)


def _head(raw: bytes) -> tuple[str, str, str, dict[str, str]]:
    """Method, target, version and header fields (equal names joined by a comma)."""
    lines = raw.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _BadRequestError(f"no HTTP/1 request line: {lines[0][:80]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise _BadRequestError(f"no header field: {line[:80]!r}")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return parts[0], parts[1], parts[2], headers


def _dechunk(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    """The chunked body that starts at `at` and where it ends; None when it isn't complete."""
    parts: list[bytes] = []
    while True:
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return None
        try:
            size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
        except ValueError:
            raise _BadRequestError("a chunk's size is no number") from None
        at = end + 2
        if size == 0:
            end = buffer.find(b"\r\n", at)
            while end > at:  # trailer fields
                at, end = end + 2, buffer.find(b"\r\n", end + 2)
            return (b"".join(parts), end + 2) if end >= 0 else None
        if len(buffer) < at + size + 2:
            return None
        parts.append(bytes(buffer[at : at + size]))
        at += size + 2


def _as_bytes(request: Incoming | None, answer: Answer, *, close: bool) -> bytes:
    """The answer on the wire."""
    body, kind = answer.encoded()
    fields = answer.headers.items() if isinstance(answer.headers, Mapping) else answer.headers
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, '')}"]
    named = set()
    for name, value in fields:
        named.add(name.lower())
        lines.append(f"{name}: {value}")
    bodiless = answer.status in (204, 304) or answer.status < 200
    if "content-type" not in named and not bodiless:
        lines.append(f"Content-Type: {kind}")
    if "content-length" not in named and not bodiless:
        lines.append(f"Content-Length: {len(body)}")
    if close and "connection" not in named:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    if bodiless or (request is not None and request.method == "HEAD"):
        return head
    return head + body
