"""Tasks in a text file: JSON lines, CSV with a heading, or plain lines; read as they come, in constant memory."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from netspy.errors import ConfigError, SerializationError
from netspy.messages import codec
from netspy.tasks.wire import decode_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Format = Literal["jsonl", "csv", "text"]
FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".jl": "jsonl", ".csv": "csv", ".txt": "text",
}  # fmt: skip

MAX_LINE = codec.MAX_BYTES + 2
"""Bytes. A longer line is no task; it is read and left out in pieces."""


class Line(NamedTuple):
    """A task, or why the line is none. `number` counts from 1; a CSV record over several lines has its last one's.
    `size`: bytes, roughly.
    """

    number: int
    value: Any
    trouble: str = ""
    size: int = 0


def format_of(path: Path) -> Format:
    """By the name's ending. Raises ConfigError for one that says nothing."""
    suffix = path.suffix.lower()
    found = FORMATS.get(suffix)
    if suffix == ".json":
        raise ConfigError(
            f"{path}: a .json file may be one value or one per line; say --format jsonl for the latter (an array's elements "
            f"as lines: jq -c '.[]' {path})"
        )
    if found is None:
        known = ", ".join(FORMATS)
        raise ConfigError(f"{path}: the ending tells no format (known: {known}); say it with --format")
    return found


def read_lines(raw: Iterable[bytes], form: Format) -> Iterator[Line]:
    """The tasks of a file's lines, empty ones left out. Nothing is raised for a bad line: it says so itself."""
    if form == "csv":
        return _csv(raw)
    return _plain(raw, form)


def _plain(raw: Iterable[bytes], form: Format) -> Iterator[Line]:
    number, inside = 0, False  # inside a line that is too long
    for piece in raw:
        if not inside:
            number += 1
        whole = piece.endswith(b"\n")
        if inside:
            inside = not whole
            continue
        if len(piece) >= MAX_LINE and not whole:
            inside = True
            yield Line(number, None, f"longer than {codec.MAX_BYTES:,} bytes; pass a key to large data")
            continue
        text = piece.removeprefix(b"\xef\xbb\xbf") if number == 1 else piece
        text = text.strip()
        if text:
            yield _json(number, text) if form == "jsonl" else _text(number, text)


def _json(number: int, text: bytes) -> Line:
    try:
        return Line(number, decode_value(text, ours=False), size=len(text))
    except SerializationError as error:
        shown = text[:60].decode("utf-8", "replace")
        return Line(number, None, f"no JSON value ({_short(error)}): {shown!r}")


def _short(error: SerializationError) -> str:
    return str(error).partition("(")[2].rpartition("): ")[0] or str(error)


def _text(number: int, text: bytes) -> Line:
    try:
        return Line(number, text.decode("utf-8"), size=len(text))
    except UnicodeDecodeError as error:
        return Line(number, None, f"not UTF-8 (byte {error.start + 1})")


class _Decoded:
    """The lines as text for the CSV reader; one that is no UTF-8 is remembered and handed on readable."""

    def __init__(self, raw: Iterable[bytes]) -> None:
        self._raw = raw
        self.bad: list[int] = []

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._raw, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                self.bad.append(number)
                yield line.decode("utf-8", "replace")


def _csv(raw: Iterable[bytes]) -> Iterator[Line]:
    source = _Decoded(raw)
    reader = csv.reader(iter(source), strict=True)  # else an open quote makes the rest of the file one value
    head: list[str] | None = None
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(reader.line_num, None, f"no CSV record ({error})")
            continue
        if not row or (len(row) == 1 and not row[0].strip() and (head is None or len(head) > 1)):
            continue
        if head is None:
            head = [name.strip() for name in row]
            if len(head) == 1 and (other := next((mark for mark in ";\t|" if mark in head[0]), "")):
                raise ConfigError(
                    f"line {reader.line_num}: the heading {row[0]!r:.120} is one column; separate columns by commas, not by "
                    f"{other!r}"
                )
            if len(set(head)) < len(head) or "" in head or source.bad:
                raise ConfigError(
                    f"line {reader.line_num}: the heading {','.join(row)!r:.120} must name each column once, in UTF-8; add a "
                    "heading line"
                )
            continue
        trouble = ""
        if source.bad:
            trouble = f"not UTF-8 (line {source.bad[0]})"
            source.bad.clear()
        elif len(row) != len(head):
            trouble = f"{len(row)} values for {len(head)} columns"
        value = None if trouble else dict(zip(head, row, strict=True))
        yield Line(reader.line_num, value, trouble, sum(map(len, row)))
