"""Header lines: those that arrive, read leniently; those that leave, checked strictly."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from netspy.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_bad_name = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]").search  # RFC 9110 5.6.2: what a token can't contain
_fold = re.compile(r"\s*\n[ \t]+").sub
_bad_value = re.compile(rb"[\r\n\0]").search


class Head:
    """Status line and header lines of one response."""

    __slots__ = ("pairs", "status")

    def __init__(self, status: int, pairs: list[tuple[str, str]]) -> None:
        """`pairs` keep the order and every line; names are lower-case."""
        self.status = status
        self.pairs = pairs

    def get(self, name: str) -> str | None:
        """The first value of `name` (lower-case), None when there is none."""
        for key, value in self.pairs:
            if key == name:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """All values of `name` (lower-case), in order."""
        return [value for key, value in self.pairs if key == name]


def read_head(lines: list[bytes]) -> Head:
    """The head that `lines` (status line first, line ends kept) make up.

    Values are UTF-8 where they can be, else latin-1. A line without a colon is skipped, a folded one
    (RFC 9112 5.2) continues the line before it: a page isn't lost to a sloppy header.
    """
    first = lines[0].split(None, 2)
    status = int(first[1]) if len(first) > 1 and first[1].isdigit() else 0
    raw = b"".join(lines[1:])
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "".join([decode(line) for line in lines[1:]])
    if "\n " in text or "\n\t" in text:
        text = _fold(" ", text)
    pairs = []
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            pairs.append((name.strip().lower(), value.strip()))
    return Head(status, pairs)


def decode(raw: bytes) -> str:
    """Header bytes as text: UTF-8 if valid, else latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def raw_values(lines: Iterable[bytes], name: bytes) -> list[bytes]:
    """The undecoded values of the lines called `name` (lower-case, with its colon)."""
    size = len(name)
    return [line[size:].strip() for line in lines if line[:size].lower() == name]


def given_pairs(headers: Any) -> list[tuple[str, Any]]:
    """The headers of a request, a mapping or pairs, as pairs; a value of None leaves the header out.

    Raises RequestError for anything else.
    """
    if not headers:
        return []
    try:
        items = headers.items() if hasattr(headers, "items") else headers
        return [(str(name), value) for name, value in items]
    except (TypeError, ValueError):
        raise RequestError(
            f"headers= takes a dict or a list of pairs, not {type(headers).__name__}"
        ) from None


def merge(defaults: Mapping[str, str], given: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Defaults, each replaced by the given header of the same name, then the rest of the given ones in
    order.
    """
    names = {name.lower() for name, _ in given}
    return [(name, value) for name, value in defaults.items() if name.lower() not in names] + given


@lru_cache(maxsize=1024)
def _name_line(name: str) -> bytes:
    if not name or _bad_name(name):
        raise RequestError(f"the header name {name!r:.80} has a character that HTTP doesn't allow there")
    return name.encode("ascii")


def line(name: str, value: Any) -> bytes:
    """One header line as libcurl takes it. Raises RequestError when it can't be sent as one line.

    None removes a header that libcurl would add by itself. Text goes out as UTF-8.
    """
    head = _name_line(name)
    if value is None:
        return head + b":"
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    raw = raw.strip(b" \t")
    if _bad_value(raw):
        raise RequestError(f"the value of the header {name!r} contains a line break or NUL; take it out")
    # libcurl drops "Name:" and sends "Name;" as an empty header.
    return head + b": " + raw if raw else head + b";"
