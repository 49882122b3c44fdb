"""Whether an HTTP/2 answer without a length came to its end, which libcurl doesn't ask.

An answer is complete with END_STREAM (RFC 9113 8.1). A stream that is reset with NO_ERROR before it looks to libcurl
like one that ended. Where nothing else marks the end of the body, neither Content-Length nor a coding, libcurl's trace
of the frames is read: a frame first, then what it did to the transfer whose stream it belongs to. Any transfer of a
connection may be the one that reads a frame, so all of them are traced while such a body is on its way, and none at
other times: the trace costs more than the transfer.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any

from netspy.downloader.multi import ffi, wrapper

if TYPE_CHECKING:
    from netspy.downloader.transfer import Reception

TEXT = 0  # CURLINFO_TEXT
_frame = re.compile(
    rb"\[HTTP/2\] \[\d+\] (?:<- FRAME\[(?:(?P<end>DATA, .*eos=1)|(?P<reset>RST_STREAM, .*error=0\])|)"
    rb"|(?P<data>DATA, )|(?P<closed>CLOSED))"
).match
_last = ""  # "end" or "reset" when that was the last frame of any connection


def _switch_on() -> bool:
    """Have libcurl put HTTP/2 frames into the trace of handles that have one."""
    try:
        return bool(ctypes.CDLL(wrapper.__file__).curl_global_trace(b"http/2") == 0)
    except (AttributeError, OSError):  # a build that doesn't export it
        return False


available = _switch_on()


@ffi.callback("int(void *, int, char *, size_t, void *)")  # type: ignore[untyped-decorator]  # cffi
def on_trace(_easy: Any, kind: int, text: Any, size: int, user: Any) -> int:
    """CURLOPT_DEBUGFUNCTION."""
    global _last  # noqa: PLW0603  libcurl is called from one thread, the loop's
    if kind == TEXT and (found := _frame(ffi.buffer(text, size)[:])) is not None:
        what = found.lastgroup or ""
        if what == "data" and _last == "end":
            got: Reception = ffi.from_handle(user)
            got.ended = True
        elif what == "closed" and _last == "reset":
            got = ffi.from_handle(user)
            got.cut = not got.ended
        _last = what
    return 0
