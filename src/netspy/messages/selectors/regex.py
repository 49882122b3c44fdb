"""Regular expressions on selected text: the rules of parsel, except that scripts are left as they are."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_raw_blocks = re.compile(
    r"<(script|style|xmp|iframe|noembed|noframes)\b[^>]*>(.*?)(?:</\1\b|\Z)", re.IGNORECASE | re.DOTALL
).finditer

_KEPT = ("lt", "amp")


def find_all(regex: str | re.Pattern[str], text: str, *, decode: bool, markup: bool) -> list[str]:
    """All matches in `text`: the group `extract`, else all groups one after the other, else whole matches.

    With `decode`, character references in them are decoded, `&lt;` and `&amp;` excepted. `markup` says that
    `text` is HTML source, where a match that begins inside a script or style is left alone: nothing there is
    a reference. A group that took no part in the match is "".
    """
    pattern = re.compile(regex) if isinstance(regex, str) else regex
    if (decode and "&" in text) or "extract" in pattern.groupindex:
        raw = _raw_spans(text) if decode and markup else []
        return [
            _unescape(text[start:end]) if decode and not _inside(start, raw) else text[start:end]
            for start, end in _spans(pattern, text)
        ]
    found: list[str] = pattern.findall(text)
    return list(chain.from_iterable(found)) if pattern.groups > 1 else found


def find_first(regex: str | re.Pattern[str], text: str, *, decode: bool, markup: bool) -> str | None:
    """The first of what `find_all` gives."""
    pattern = re.compile(regex) if isinstance(regex, str) else regex
    for start, end in _spans(pattern, text):
        match = text[start:end]
        if decode and "&" in match and not (markup and _inside(start, _raw_spans(text))):
            return _unescape(match)
        return match
    return None


def _spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    if "extract" in pattern.groupindex:
        match = pattern.search(text)
        if match is not None and match.start("extract") >= 0:
            yield match.span("extract")
        return
    groups = range(1, pattern.groups + 1) if pattern.groups else (0,)
    for match in pattern.finditer(text):
        for group in groups:
            yield match.span(group)


def _raw_spans(text: str) -> list[tuple[int, int]]:
    return [block.span(2) for block in _raw_blocks(text)]


def _inside(position: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)


def _unescape(match: str) -> str:
    if "&" not in match:
        return match
    from w3lib.html import replace_entities

    return replace_entities(match, keep=_KEPT)
