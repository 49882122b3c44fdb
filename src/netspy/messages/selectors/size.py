"""How large the tree of a page may become, judged from its text before it is parsed.

HTML opens `<b>`, `<font>` and their like again in each block until they are closed. A page that never closes them
has a tree of up to 512 elements for each tag, some kilobytes for each byte of text. Here such pages are told from
the others cheaply; what can't be told from the text is found out by parsing pages in part.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

MAX_NODES = 2_000_000
"""Elements, texts and comments of one page; some 200 bytes each. Where MAX_TREE_NODES says nothing else."""

DEEPEST = 512
"""Elements that are open at a time in turbohtml's tree builder."""

_BYTES_PER_NODE = 200
_BYTES_PER_ATTRIBUTE = 24
_MOST_TRIES = 32

# How HTML reads the rest of a tag: a quote that doesn't follow an attribute's `=` is a letter like others.
_REST = (
    r"(?=[ \t\n\r\f/>])(?:[ \t\n\r\f/]|[^ \t\n\r\f/>][^ \t\n\r\f/>=]*+"
    r"(?:[ \t\n\r\f]*=[ \t\n\r\f]*(?:\"[^\"]*\"|'[^']*'|[^ \t\n\r\f>\"'][^ \t\n\r\f>]*+)?)?)*+"
)
# These are run on every page of some size, so they tell most tags by a letter or two.
_opening = re.compile(
    r"<(?:[bisuBISU]|[bcefstBCEFST](?:[iI][gG]|[oO][dD][eE]|[mM]|[oO][nN][tT]|[mM][aA][lL]{2}|[tT]|"
    rf"[tT][rR][iI][kK][eE]|[tT][rR][oO][nN][gG])){_REST}"
).findall
_gathering = re.compile(r"<(?:[bB][oO][dD][yY]|[hH][tT][mM][lL])(?=[ \t\n\r\f/>])").findall
_opening_or_closing = re.compile(
    rf"<(/?)((b|big|code|em|font|i|s|small|strike|strong|tt|u){_REST})", re.IGNORECASE
).finditer
_gathered = re.compile(rf"<(?:body|html){_REST}", re.IGNORECASE).finditer


class Doubt(NamedTuple):
    """What a page's text can't rule out."""

    try_first: list[int]
    """Ends of the parts of the text to be parsed and counted first, each so long that a tree which was within the
    limit up to there can't leave it far behind."""
    hopeless: bool = False
    """There is nothing to try: the page is large, and most of what it opens stays open."""


def doubt(text: str, tags: int, limit: int) -> Doubt | None:
    """None when the tree of `text`, which has `tags` times `<`, is surely within `limit` nodes, or 0; else what to try."""
    room = limit * _BYTES_PER_NODE
    if not limit or (tags * (DEEPEST + 2) <= limit and len(text) ** 2 <= room * 6):
        return None
    if len(_gathering(text)) * len(text) * 8 > room and _copied(text) > room:
        return Doubt([], hopeless=True)
    opened = min(3 * len(set(_opening(text))), DEEPEST)
    step = limit // (opened + 2)
    if tags <= step:
        return None
    if tags > step * _MOST_TRIES and tags * (_most_open(text) + 2) > limit:
        return Doubt([], hopeless=True)
    return Doubt(
        [tag.start() for number, tag in enumerate(re.finditer("<", text)) if number and not number % step]
    )


def _most_open(text: str) -> int:
    """How many elements wait to be opened again, where most do; if each end tag ends one of them.

    Of those that are written alike, with the same attributes, HTML keeps three.
    """
    unclosed: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    distinct = most = 0
    for tag in _opening_or_closing(text):
        name, key = tag[3].lower(), tag[2]
        if not tag[1]:
            unclosed[name] += 1
            alike[key] += 1
            distinct += alike[key] <= 3
            most = max(most, min(unclosed.total(), distinct))
        elif unclosed[name]:
            unclosed[name] -= 1
    return min(most, DEEPEST)


def _copied(text: str) -> int:
    """Bytes of attributes copied by `<body a>` and `<html a>`: HTML gathers them on one element.

    Each such tag has what was gathered copied.
    """
    gathered = copied = 0
    for tag in _gathered(text):
        gathered += (len(tag[0]) - 5) // 2
        copied += gathered
    return copied * _BYTES_PER_ATTRIBUTE
