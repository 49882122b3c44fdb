"""An HTTP/2 server that sends any frames, right or wrong: RFC 9113, as far as a test needs it."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Self

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header field without compression (RFC 7541 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(stream: int, status: int = 200, fields: dict[str, str] | None = None, *, end: bool = False) -> bytes:
    """A HEADERS frame."""
    block = literal(":status", str(status)) + b"".join(literal(*pair) for pair in (fields or {}).items())
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


def data(stream: int, body: bytes, *, end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream, body)


def reset(stream: int, code: int = 0) -> bytes:
    """RST_STREAM; code 0 is NO_ERROR."""
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


class H2Server:
    """Answers each request with the frames of `answer(stream)`; None closes the connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.answer = lambda stream: head(stream) + data(stream, b"ok", end=True)
        self.streams = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def url(self, path: str = "/") -> str:
        assert self._server is not None
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if await reader.readexactly(len(_PREFACE)) != _PREFACE:
                return
            writer.write(frame(SETTINGS, 0, 0))
            while True:
                size = int.from_bytes(await reader.readexactly(3), "big")
                kind, flags = await reader.readexactly(2)
                stream = int.from_bytes(await reader.readexactly(4), "big")
                await reader.readexactly(size)
                if kind == SETTINGS and not flags & ACK:
                    writer.write(frame(SETTINGS, ACK, 0))
                if kind in {HEADERS, DATA} and flags & END_STREAM:
                    self.streams += 1
                    answer = self.answer(stream)
                    if answer is None:
                        return
                    writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
