"""Whether a 206 brings what was asked for (RFC 9110 14 and 15.3.7): decisions only.

Anything else is a part of a page taken for the whole.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_content_range = re.compile(r"bytes[ :=]*(\d+)-(\d+)/(\d+|\*)", re.IGNORECASE).fullmatch
_asked = re.compile(r"\s*(\d*)\s*-\s*(\d*)\s*").fullmatch


class Part(NamedTuple):
    """What a Content-Range names: first and last byte, and the size of the whole; None where it isn't told."""

    first: int
    last: int
    total: int | None

    @property
    def size(self) -> int:
        """Bytes in the part."""
        return self.last - self.first + 1

    @property
    def is_all(self) -> bool:
        """Whether it is the whole."""
        return self.first == 0 and self.last + 1 == self.total


def part_of(content_range: str | None) -> Part | None:
    """The part that a Content-Range value names; None when it names none, or one that can't be."""
    found = _content_range((content_range or "").strip())
    if found is None:
        return None
    total = None if found[3] == "*" else int(found[3])
    part = Part(int(found[1]), int(found[2]), total)
    return part if part.size > 0 and (total is None or part.last < total) else None


def misfit(asked: str, content_range: str | None, content_type: str | None) -> str | None:
    """Why a 206 isn't the answer to the Range value `asked` ("" for none); None when it is."""
    part = part_of(content_range)
    if part is not None and part.is_all:
        return None
    if not asked:
        return f"a part ({content_range or 'it does not say which'}) of what was asked for as a whole"
    unit, _, specs = asked.partition("=")
    if unit.strip().lower() != "bytes":
        return None  # of a unit that only the two ends know
    wanted = specs.split(",")
    if (content_type or "").strip().lower().startswith("multipart/byteranges"):
        return None if len(wanted) > 1 else f"several parts, but Range: {asked} asks for one"
    if part is None:
        return f"a part, but its Content-Range {content_range!r:.80} doesn't say which"
    spans = [span(spec, part) for spec in wanted]
    if None not in spans:
        first = min(one[0] for one in spans if one is not None)
        last = max(one[1] for one in spans if one is not None)
        if (part.first, part.last) == (first, last):
            return None
    return f"the part {content_range!r:.80}, but Range: {asked:.80} asks for another"


def span(spec: str, part: Part) -> tuple[int, int] | None:
    """First and last byte that `spec` of a Range (`0-99`, `100-`, `-100`) asks for, as far as they exist.

    Where the size of the whole isn't told, an open end is where the part ends. None for what is no range.
    """
    found = _asked(spec)
    if found is None or not (found[1] or found[2]):
        return None
    end = part.last if part.total is None else part.total - 1
    if not found[1]:
        return max(0, end - int(found[2]) + 1), end
    first = int(found[1])
    if not found[2]:
        return first, end
    last = int(found[2])
    return first, last if part.total is None else min(last, end)
