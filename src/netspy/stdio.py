"""The standard streams of a process that may have been started without them, or whose reader may leave."""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import suppress
from typing import Any, TextIO

_FULL_PAUSE_S = 0.01


class NoStream(io.TextIOWrapper):
    """Stands for a stream that the process was started without. What is written to it is gone."""


def open_missing() -> None:
    """Give a process that was started with a closed stdin, stdout or stderr (`>&-`) the null device there.

    Otherwise the next file or socket gets that number: prints go into it, and libuv aborts when it is to close one
    of these. For who owns the process (`start`, the commands), before anything is opened.
    """
    for fd in closed():
        null = os.open(os.devnull, os.O_RDWR)
        if null != fd:
            os.dup2(null, fd)
            os.close(null)
        os.set_inheritable(fd, True)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            raw = io.FileIO(fd, "w" if fd else "r", closefd=False)
            buffer: Any = io.BufferedWriter(raw) if fd else io.BufferedReader(raw)
            setattr(sys, name, NoStream(buffer, encoding="utf-8", errors="backslashreplace"))


def closed() -> list[int]:
    """Those of the descriptors 0, 1, 2 that are closed."""
    return [fd for fd in range(3) if not _is_open(fd)]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def is_missing(stream: TextIO | None) -> bool:
    """Whether there is no such stream: what is written to it, nobody gets."""
    return stream is None or isinstance(stream, NoStream)


def write_all(raw: Any, data: bytes) -> None:
    """Past the buffer, which would keep what could not be written, and write it at some later time."""
    view = memoryview(data)
    while view:
        written = raw.write(view)
        if not written:  # it doesn't block, and is full
            time.sleep(_FULL_PAUSE_S)
        view = view[written or 0 :]
    raw.flush()


def write_last(stream: TextIO | None, text: str) -> OSError | ValueError | None:
    """Write what ends a process's output; the error when it can't be: its reader has left, the disk is full.

    Then the stream leads nowhere from here on, so that nothing that is left in its buffer fails once more while the
    interpreter ends, which would replace the exit code.
    """
    if stream is None:
        return None
    try:
        stream.flush()
        buffer = getattr(stream, "buffer", None)
        if buffer is None or stream.isatty():
            stream.write(text)
            stream.flush()
        else:
            write_all(
                getattr(buffer, "raw", buffer), text.encode(stream.encoding or "utf-8", "backslashreplace")
            )
    except (OSError, ValueError) as error:
        lead_nowhere(stream)
        return error
    return None


def lead_nowhere(stream: TextIO) -> None:
    """From here on, what is written to this stream is gone."""
    with suppress(OSError, ValueError, AttributeError):
        fd = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, fd)
        os.close(null)
