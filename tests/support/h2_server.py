"""An HTTP/2 server that sends any frames, right or wrong, and counts the requests it got.

The n-th request, whatever its path, is answered by the n-th script, the last one again and again. A script is a list of
steps: frames (functions of the stream's number, made by `head`, `data`, `reset`, …), CLOSE, or HANG.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from support.raw_server import CLOSE, HANG, Step

if TYPE_CHECKING:
    import ssl

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, HTTP_1_1_REQUIRED = 0, 2, 7, 8, 13

Frames = Callable[[int], bytes]
Script = Sequence[Frames | Step]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(status: int = 200, *fields: tuple[str, str], end: bool = False) -> Frames:
    """A HEADERS frame; each field is an HPACK literal without indexing (RFC 7541 6.2.2), without Huffman."""
    pairs = [(":status", str(status)), *fields] if status else fields
    block = b"".join(
        b"\0%c%s%c%s" % (len(name), name.encode(), len(value), value.encode()) for name, value in pairs
    )
    return lambda stream: frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


def data(body: bytes, *, end: bool = False) -> Frames:
    return lambda stream: frame(DATA, END_STREAM if end else 0, stream, body)


def reset(code: int = NO_ERROR) -> Frames:
    return lambda stream: frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last_stream: int, code: int = NO_ERROR) -> Frames:
    return lambda _stream: frame(GOAWAY, 0, 0, struct.pack(">II", last_stream, code))


class H2Server:
    """Listens on a free port of 127.0.0.1 on the loop that starts it. `tls` offers h2 by ALPN."""

    def __init__(self, tls: ssl.SSLContext, *scripts: Script, answer_at_once: bool = False) -> None:
        """`answer_at_once`: when a request's head has come, without waiting for its body."""
        tls.set_alpn_protocols(["h2"])
        self._tls = tls
        self.scripts = list(scripts)
        self.requests: list[tuple[int, int]] = []  # connection, stream
        self.connections = 0
        self._at_once = answer_at_once
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a request makes `condition` true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = self.connections
        try:
            await reader.readexactly(len(PREFACE))
            writer.write(frame(SETTINGS, 0, 0))
            while True:
                size, kind, flags, stream = struct.unpack(">IBBI", b"\0" + await reader.readexactly(9))
                payload = await reader.readexactly(size)
                if kind == SETTINGS and not flags & ACK:
                    writer.write(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    writer.write(frame(PING, ACK, 0, payload))
                if kind == HEADERS if self._at_once else kind in {HEADERS, DATA} and flags & END_STREAM:
                    self.requests.append((connection, stream))
                    self._changed.set()
                    script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
                    if not await self._play(script, stream, reader, writer):
                        return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the server is being closed
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _play(
        self, script: Script, stream: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Do the steps; whether the connection goes on."""
        for step in script:
            if step is CLOSE:
                return False
            if step is HANG:
                await reader.read()
                return False
            assert not isinstance(step, Step)
            writer.write(step(stream))
        await writer.drain()
        return True
