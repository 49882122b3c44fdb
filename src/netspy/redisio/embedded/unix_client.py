"""The few words one needs with a Redis server on a unix socket, without a client library."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

Reply = str | int | None | list["Reply"]


class UnixClient:
    """A connection for a handful of commands. Raises OSError when the server is away or silent."""

    def __init__(self, path: str, timeout: float) -> None:
        """Connect; `timeout` in seconds holds for each wait."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._reader = self._socket.makefile("rb")

    def ask(self, *parts: str) -> Reply:
        """The reply to one command (RESP2); an error reply comes as its text, beginning with a minus."""
        command = [f"*{len(parts)}\r\n".encode()]
        for part in parts:
            raw = part.encode()
            command.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
        self._socket.sendall(b"".join(command))
        return self._read()

    def _read(self) -> Reply:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, text = line[:1], line[1:-2].decode("utf-8", "replace")
        if kind == b"$":
            length = int(text)
            return None if length < 0 else self._reader.read(length + 2)[:-2].decode("utf-8", "replace")
        if kind == b"*":
            return [self._read() for _ in range(int(text))]
        if kind == b":":
            return int(text)
        return f"-{text}" if kind == b"-" else text

    def close(self) -> None:
        """Drop the connection."""
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
