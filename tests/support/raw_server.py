"""A server that sends any bytes, right or wrong, and remembers the bytes it got.

A path is answered by a list of steps: bytes to send, a number of seconds or an asyncio.Event to wait for, CLOSE, RESET,
HANG, or a function from the request to one of these. Several answers for one path are given in turn, the last one again and again.
Paths that are not set get `200 ok`.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Step(Enum):
    """What a server can do besides sending and waiting."""

    CLOSE = "close the connection in order"
    RESET = "close the connection with a TCP reset"
    HANG = "say nothing more until the client goes"


CLOSE, RESET, HANG = Step.CLOSE, Step.RESET, Step.HANG


@dataclass
class Seen:
    """One request as it came in."""

    method: str
    target: bytes
    version: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    connection: int = 0

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        return (self.all(name) or [None])[0]


Answer = Any  # a step or a list of steps, see above


def reply(
    body: bytes = b"ok",
    *,
    status: str = "200 OK",
    headers: list[str] | None = None,
    length: int | None = None,
) -> bytes:
    """A complete answer; `length` lies about the size."""
    lines = [
        f"HTTP/1.1 {status}",
        *(headers or []),
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def redirect(location: str | bytes, status: int = 302, headers: list[str] | None = None) -> bytes:
    raw = location if isinstance(location, bytes) else location.encode()
    more = "".join(f"{line}\r\n" for line in headers or []).encode()
    return b"HTTP/1.1 %d Moved\r\n" % status + more + b"Location: " + raw + b"\r\nContent-Length: 0\r\n\r\n"


def coded(body: bytes, coding: str, content_type: str = "text/html") -> bytes:
    return reply(body, headers=[f"Content-Encoding: {coding}", f"Content-Type: {content_type}"])


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", headers: list[str] | None = None) -> bytes:
    more = "".join(f"{line}\r\n" for line in headers or []).encode()
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\n" + more + b"Transfer-Encoding: chunked\r\n\r\n" + body + end


def gz(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


class RawServer:
    """Listens on a free port of 127.0.0.1, or on the one that is given, on the loop that starts it."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        self.seen: list[Seen] = []
        self.connections = 0  # accepted so far
        self.open = 0  # open now
        self.answered = 0  # answers that were played to their end
        self.alpn: list[str | None] = []  # what each TLS connection agreed on
        self._tls = tls
        self._host = host
        self._answers: dict[str, list[Answer]] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._hits: dict[str, int] = defaultdict(int)
        self.port = port

    async def start(self) -> RawServer:
        self._server = await asyncio.start_server(
            self._serve, self._host, self.port, ssl=self._tls, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def on(self, path: str, *answers: Answer) -> str:
        """Set the answers of a path (query not counted); its URL."""
        self._answers[path] = list(answers)
        return self.url(path)

    def url(self, path: str = "/", host: str | None = None) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{host or self._host}:{self.port}{path}"

    def at(self, path: str) -> list[Seen]:
        """The requests for a path."""
        return [seen for seen in self.seen if seen.target.decode("latin-1").partition("?")[0] == path]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that happens on this server makes `condition` true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        number = self.connections
        if self._tls is not None:
            self.alpn.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        self._note()
        try:
            while (seen := await read_request(reader, number)) is not None:
                self.seen.append(seen)
                self._note()
                path = seen.target.decode("latin-1").partition("?")[0]
                turn = self._hits[path]
                self._hits[path] += 1
                answers = self._answers.get(path, [reply()])
                if not await play(answers[min(turn, len(answers) - 1)], seen, reader, writer):
                    break
                self.answered += 1
                self._note()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            pass  # the server is being closed
        finally:
            self.open -= 1
            self._note()
            self._tasks.discard(task)
            writer.close()


async def read_request(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    first = await reader.readline()
    if not first.strip():
        return None
    method, target, version = first.split()
    seen = Seen(method.decode(), target, version, connection=connection)
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("utf-8", "surrogateescape").partition(":")
        seen.headers.append((name, value.strip()))
    length = int(seen.get("content-length") or 0)
    if length:
        seen.body = await reader.readexactly(length)
    return seen


async def play(
    answer: Answer, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Do the steps; whether the connection goes on."""
    for step in answer if isinstance(answer, list | tuple) else [answer]:
        if writer.is_closing():
            return False  # the client is gone
        do = step(seen) if callable(step) else step
        if do is CLOSE:
            return False
        if do is RESET:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if do is HANG:
            await reader.read()
            return False
        if isinstance(do, int | float):
            await asyncio.sleep(do)
            continue
        if isinstance(do, asyncio.Event):
            await do.wait()
            continue
        if isinstance(do, list | tuple):
            if not await play(do, seen, reader, writer):
                return False
            continue
        writer.write(do)
        await writer.drain()
    return True
