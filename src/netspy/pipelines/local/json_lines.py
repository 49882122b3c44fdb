"""A file of JSON lines that goes on: how it ends, and whether it is one at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from netspy.pipelines.local.csv_records import BOM
from netspy.pipelines.local.shared_file import end_of_last_line

if TYPE_CHECKING:
    from netspy.pipelines.local.shared_file import SharedFile

HEAD_BYTES = 1 << 16  # of a file, to see what it is


def why_foreign(head: bytes) -> str:
    """What is different in a file that begins like this; "" for JSON lines, each of them an object, in UTF-8."""
    text = head.removeprefix(BOM).lstrip()
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head[:4]:
        return "it is UTF-16 or UTF-32"
    if text and not text.startswith(b"{"):
        return f"it begins with {text[:1].decode('latin-1')!r} and not with an object"
    line, newline, _ = text.partition(b"\n")
    if newline:
        try:
            msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"its first line is no JSON in UTF-8 ({error})"
    return ""


def ended(file: SharedFile) -> bytes:
    """Cut a torn last line. Returns what must stand before the next one: a newline where only that was missing.

    Raises ValueError for a last line that is neither whole nor one of ours, cut short: it is left as it is.
    """
    size = file.size()
    if size == 0 or file.read(size - 1, 1) == b"\n":
        return b""
    end = end_of_last_line(file)
    last = file.read(end, size - end)
    if is_torn(last):
        file.cut(end)
        return b""
    try:
        msgspec.json.decode(last.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"its last line is no JSON in UTF-8 ({error})") from error
    return b"\n"


def is_torn(line: bytes) -> bool:
    """Whether it is the beginning of an object, or bytes that a power cut left empty."""
    if not line.startswith(b"{"):
        return not line.strip(b"\0")
    if line.endswith(b"\0"):
        return True
    # A number goes on with a digit; msgspec takes a literal at the very end for a wrong one.
    return any(map(_ends_too_early, (line, line + b"0", line + b" ")))


def _ends_too_early(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return str(error) == "Input data was truncated"
    return False
