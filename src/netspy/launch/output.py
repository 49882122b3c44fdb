"""The nodes' output, passed on by the parent line by line: above the panel when there is one."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from collections.abc import Callable, Iterable

from netspy.stdio import write_all

LONGEST_LINE = 65536
"""Bytes kept while a line has no end; more is passed on as it is, so that the memory stays bounded."""

_SLICE_S = 0.1


class OutputMultiplexer(threading.Thread):
    """Reads pipes until all of them are closed and writes what comes to this process's stdout or stderr.

    Only whole lines are passed on, so lines of several nodes don't mix. Whoever reads our own output may leave
    (`| head`): the nodes go on, unless their rows go to stdout (`rows`). Then its pipes are closed, so that no row
    counts as written that isn't.
    """

    def __init__(self, pipes: Iterable[tuple[int, str]], *, rows: bool = False) -> None:
        """`pipes`: read ends, which belong to the relay from now on, each with "stdout" or "stderr"."""
        self.rows = rows
        self._rounds = 0
        self._passing_on = False
        super().__init__(name="netspy-output", daemon=True)
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
            ready = self._selector.select()
            self._passing_on = True
            for key, _ in ready:
                if key.fd in self._parts:  # else closed in this round
                    self._read(key.fd)
            self._rounds += 1
            self._passing_on = False
        self._selector.close()

    def finish(self, silent_s: float, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until everything is passed on, for a reader that is slow as long as it takes: what the nodes have written
        counts as written. False when nothing more has come for `silent_s` though a pipe is open (something that the nodes
        started holds it); once `given_up()`, things that still come don't lengthen this time.
        """
        seen, silent = -1, 0
        while silent * _SLICE_S < silent_s:
            self.join(_SLICE_S)
            if not self.is_alive():
                return True
            if (self._passing_on or self._rounds != seen) and not given_up():
                seen, silent = self._rounds, 0
            else:
                silent += 1  # counted, not timed: of a pause of this whole process one slice is silent
        return False

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
        name = self._targets[fd]
        stream = getattr(sys, name)
        try:
            buffer = getattr(stream, "buffer", None)
            if self.rows and name == "stdout" and buffer is not None and not stream.isatty():
                # As a single node writes them. A text stream has an encoding of its own, and loses what is left when
                # signals interrupt it twice.
                stream.flush()
                write_all(getattr(buffer, "raw", buffer), data)
            else:
                stream.write(data.decode("utf-8", "replace"))
                stream.flush()
        except (OSError, ValueError, AttributeError):
            # Whoever read it is gone, or there is no such stream; the crawl goes on.
            if self.rows and name == "stdout":
                for other in [one for one in self._parts if self._targets[one] == "stdout"]:
                    self._end(other)
