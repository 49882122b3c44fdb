"""Which HTTP/2 streams have come to their end.

RFC 9113 8.1: an answer is complete with END_STREAM. A stream that is reset with NO_ERROR before that isn't, and libcurl takes it
for complete. It tells of each frame in its trace only, so that is where this comes from.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache

from curl_cffi import _wrapper

_STREAM = re.compile(rb"\[HTTP/2\] \[(\d+)\] (OPENED|<- FRAME\[)")
_END = b"eos=1"


@cache
def trace_frames() -> None:
    """Have libcurl trace HTTP/2 on the handles that are verbose."""
    library = ctypes.CDLL(_wrapper.__file__)
    library.curl_global_trace.argtypes = [ctypes.c_char_p]
    library.curl_global_trace(b"http/2")


def opened(text: bytes) -> int | None:
    """The stream that this line says the transfer has opened."""
    found = _STREAM.match(text)
    return int(found[1]) if found is not None and found[2] == b"OPENED" else None


class Streams:
    """The streams of all connections of a pool that ended with END_STREAM and whose transfers don't know it yet.

    One transfer reads the frames of all that share its connection.
    """

    def __init__(self) -> None:
        self._ended: set[tuple[int, int]] = set()

    def saw(self, connection: int, text: bytes) -> None:
        """A line of the trace, told to a transfer on this connection."""
        found = _STREAM.match(text)
        if found is not None and found[2] != b"OPENED" and _END in text:
            self._ended.add((connection, int(found[1])))

    def take_end(self, connection: int, stream: int) -> bool:
        """Whether this stream has ended; it is forgotten."""
        if (connection, stream) not in self._ended:
            return False
        self._ended.discard((connection, stream))
        return True
