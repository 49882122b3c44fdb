"""The nodes' output, passed on by the parent line by line: above the panel when there is one."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from collections.abc import Iterable

LONGEST_LINE = 65536
"""Bytes kept while a line has no end; more is passed on as it is, so that the memory stays bounded."""


class Relay(threading.Thread):
    """Reads pipes until all of them are closed and writes what comes to this process's stdout or stderr.

    Only whole lines are passed on, so lines of several nodes don't mix. Whoever reads our own output may leave
    (`| head`): the nodes go on, unless their rows go to stdout (`rows`). Then its pipes are closed, so that no row
    counts as written that isn't.
    """

    def __init__(self, pipes: Iterable[tuple[int, str]], *, rows: bool = False) -> None:
        """`pipes`: read ends, which belong to the relay from now on, each with "stdout" or "stderr"."""
        self._rows = rows
        super().__init__(name="netspy-relay", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, bytearray] = {}
        self._targets: dict[int, str] = {}
        for fd, name in pipes:
            self._selector.register(fd, selectors.EVENT_READ)
            self._parts[fd] = bytearray()
            self._targets[fd] = name

    def run(self) -> None:
        """Until every pipe is closed by all who could write to it."""
        while self._parts:
            for key, _ in self._selector.select():
                if key.fd in self._parts:  # else closed in this round
                    self._read(key.fd)
        self._selector.close()

    def _read(self, fd: int) -> None:
        data = os.read(fd, LONGEST_LINE)
        part = self._parts[fd]
        part += data
        if not data:
            if part:
                self._write(fd, bytes(part) + b"\n")
            if fd in self._parts:
                self._end(fd)
            return
        end = part.rfind(b"\n") + 1
        if not end and len(part) > LONGEST_LINE:
            end = len(part)
        if end:
            whole = bytes(part[:end])
            del part[:end]
            self._write(fd, whole)

    def _end(self, fd: int) -> None:
        self._selector.unregister(fd)
        del self._parts[fd]
        os.close(fd)

    def _write(self, fd: int, data: bytes) -> None:
        stream = getattr(sys, self._targets[fd])
        try:
            stream.write(data.decode("utf-8", "replace"))
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # Whoever read it is gone, or there is no such stream; the crawl goes on.
            if self._rows and self._targets[fd] == "stdout":
                for other in [one for one in self._parts if self._targets[one] == "stdout"]:
                    self._end(other)
