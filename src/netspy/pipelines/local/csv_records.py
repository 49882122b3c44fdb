"""Where the records of a CSV file begin and end, and whether the file has the form that we write. No I/O here.

One parser for all questions, with the rules of Python's `csv`, Excel and pandas: a quote counts only at the beginning
of a field; anywhere else it is a character like others.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

BOM = codecs.BOM_UTF8
OTHER_DELIMITERS = ";\t|"

Where = Literal["plain", "quoted", "closed"]

_OPENING = re.compile(rb'[,\r\n]"')
_INSIDE = re.compile(rb'(?:[^"]++|"")*+')
_FIELD = rb'(?:"(?:[^"]++|"")*+"(?!")|(?!"))[^,\r\n]*+'
_RECORDS = re.compile(rb"(?:" + _FIELD + rb"(?:," + _FIELD + rb")*+\r?\n)*+")
_LONG = 1 << 23  # a record longer than this is read piece by piece
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_HINT = re.compile(r"(?i)sep=[^\w\r\n](?:\r?\n|\r|\Z)")
_SAMPLE = 100  # records by which the delimiter is told


class Tail(NamedTuple):
    """The last line break that ends a record is right before `end`. What follows has `fields` fields, 0 when nothing
    does; `in_quotes`: a quote is open at its end.
    """

    end: int
    fields: int
    in_quotes: bool


def pieces(blocks: Iterable[bytes]) -> Iterator[tuple[Where, bytes]]:
    """The bytes, which begin with a record, as pieces outside of quotes, inside, and inside up to the closing quote.

    A return comes in one piece with what follows it.
    """
    quoted, fresh = False, True  # fresh: at the beginning of a field
    carry = b""
    for raw in blocks:
        block = carry + raw
        carry = b""
        at = 0
        while at < len(block):
            if quoted:
                found = _INSIDE.match(block, at)
                end = found.end() if found else at
                if end + 1 < len(block):
                    yield "closed", block[at : end + 1]
                    quoted, fresh, at = False, False, end + 1
                    continue
                if end > at:
                    yield "quoted", block[at:end]
                carry = block[end:]  # a quote: what comes next tells whether it is one of a pair
                break
            if fresh and block[at] == 0x22:
                yield "quoted", b'"'
                quoted, at = True, at + 1
                continue
            opening = _OPENING.search(block, at)
            if opening is not None:
                yield "plain", block[at : opening.start() + 1]
                fresh, at = True, opening.start() + 1
                continue
            carry = b"\r" if block.endswith(b"\r") else b""
            if rest := block[at : len(block) - len(carry)]:
                yield "plain", rest
                fresh = rest[-1] in b",\r\n"
            break
    if carry:
        yield ("closed" if quoted else "plain"), carry


def first_record(blocks: Iterable[bytes]) -> int:
    """The length of the first record with its line break; 0 when there is no line break behind it."""
    at = 0
    for where, piece in pieces(blocks):
        if where == "plain" and (found := piece.find(b"\n")) >= 0:
            return at + found + 1
        at += len(piece)
    return 0


def tail_of(blocks: Iterable[bytes], start: int) -> Tail:
    """The end of a file whose bytes from `start`, the beginning of a record, are `blocks`.

    Raises ValueError for a return without a newline outside of quotes: this is a line break of another kind.
    """
    at, rest, more = start, b"", iter(blocks)
    for block in more:
        rest += block
        found = _RECORDS.match(rest)
        whole = found.end() if found else 0
        at, rest = at + whole, rest[whole:]
        if len(rest) > _LONG:
            break
    end, commas, where = at, 0, "plain"
    for where, piece in pieces(chain([rest], more)):
        if where == "plain":
            if _LONE_RETURN.search(piece) and piece != b"\r":
                raise ValueError("its lines end with a return alone")
            last = piece.rfind(b"\n") + 1
            if last:
                end, commas = at + last, 0
            commas += piece.count(b",", last)
        at += len(piece)
    return Tail(end, commas + 1 if at > end else 0, where == "quoted")


def records(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Each record with its line break, if it has one, and its number of fields."""
    parts: list[bytes] = []
    commas = 0
    for where, piece in pieces(blocks):
        if where != "plain":
            parts.append(piece)
            continue
        *lines, rest = piece.split(b"\n")
        for line in lines:
            yield b"".join([*parts, line, b"\n"]), commas + line.count(b",") + 1
            parts, commas = [], 0
        if rest:
            parts.append(rest)
            commas += rest.count(b",")
    if parts:
        yield b"".join(parts), commas + 1


def padded(blocks: Iterable[bytes], pad: bytes, most: int) -> Iterator[bytes]:
    """The records with `pad` at their ends; all else as it is.

    Raises ValueError for one of more than `most` fields: what it has beyond them would come under a new name.
    """
    for record, fields in records(blocks):
        if fields > most and record.strip(b"\r\n"):
            raise ValueError(f"a line has {fields} fields where the heading has {most}")
        body = record.removesuffix(b"\n").removesuffix(b"\r")
        yield body + pad + record[len(body) :]


def columns_of(head: bytes) -> list[str]:
    """The names in the heading, which is UTF-8 with or without a mark."""
    return next(csv.reader(io.StringIO(head.removeprefix(BOM).decode(), newline="")), [])


def why_foreign(head: bytes, blocks: Iterable[bytes], wanted: Collection[str]) -> str:
    """What is different in a file of others whose heading is `head`, followed by `blocks`; "" for a file that goes on
    with commas. `wanted`: the columns that are to be written.
    """
    if head.count(b"\0") * 3 >= len(head):
        return "it is UTF-16 or UTF-32"
    text = head.removeprefix(BOM).decode()
    if _HINT.match(text):
        return f"its first line is {text.strip()!r}"
    columns = columns_of(head)
    first = text.rstrip("\r\n")
    if len(columns) == 1 and not first.startswith('"'):
        # One column by commas: is it several by something else?
        for sign in sorted(set(re.sub(r"[\w\s]", "", first)) | {"\t", " "}):
            parts = first.split(sign)
            same = len(set(parts) & set(wanted))
            if len(parts) > 1 and (sign in OTHER_DELIMITERS or same > (sign == " ")):
                return _separated(sign)
        return ""
    if set(wanted) <= set(columns):
        return ""
    outside = b"".join(piece for where, piece in pieces([head]) if where == "plain").decode(
        "utf-8", "replace"
    )
    sample = [record.decode() for record, _ in islice(records(blocks), _SAMPLE)]
    by_comma = _is_even(sample, ",", len(columns))
    for sign in OTHER_DELIMITERS:
        count = outside.count(sign) + 1
        if count > 1 and (count > len(columns) or not by_comma) and _is_even(sample, sign, count):
            return _separated(sign)
    return ""


def _is_even(sample: list[str], sign: str, fields: int) -> bool:
    """Whether all records have so many fields when `sign` separates them."""
    try:
        return all(len(row) == fields for row in csv.reader(sample, delimiter=sign))
    except csv.Error:
        return False


def _separated(sign: str) -> str:
    return f"its columns are separated by {'tabs' if sign == chr(9) else repr(sign)}, not by commas"
