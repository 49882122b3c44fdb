"""The Content-Type field as browsers read it (WHATWG MIME Sniffing, "parse a MIME type"; Fetch, "extract a MIME type")."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_SPACE = "\t\n\r "
_token = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_text = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
_fields = re.compile(r'(?:"(?:[^"\\]|\\.?)*"?|[^",])+', re.DOTALL).findall
_parameters = re.compile(
    r';[\t\n\r ]*(?P<name>[^;=]*)(?:=(?:"(?P<quoted>(?:[^"\\]|\\.?)*)"?[^;]*|(?P<plain>[^;]*)))?', re.DOTALL
).finditer
_escaped = re.compile(r"\\(.?)", re.DOTALL)


class MediaType(NamedTuple):
    """What a Content-Type says."""

    essence: str
    """`type/subtype` in lower case; "" when there is none that says something."""
    charset: str | None
    """The label of the charset parameter, as it stands there."""


@lru_cache(maxsize=256)
def media_type(field: str) -> MediaType:
    """What a Content-Type says; of several types, joined by commas, the last one that is one.

    Such a one without charset keeps the charset of an earlier one of the same type.
    """
    found = MediaType("", None)
    for value in _fields(field):
        essence, semicolon, parameters = value.strip(_SPACE).partition(";")
        kind, _, subtype = essence.rstrip(_SPACE).lower().partition("/")
        if not _token(kind) or not _token(subtype) or (kind, subtype) == ("*", "*"):
            continue
        essence = f"{kind}/{subtype}"
        charset = _charset(semicolon + parameters)
        if charset is None and essence == found.essence:
            charset = found.charset
        found = MediaType(essence, charset)
    return found


def _charset(parameters: str) -> str | None:
    """The value of the first charset parameter that has one."""
    for parameter in _parameters(parameters):
        if parameter["name"].lower() != "charset":
            continue
        if parameter["quoted"] is not None:
            value = _escaped.sub(lambda pair: pair[1] or "\\", parameter["quoted"])
        else:
            value = (parameter["plain"] or "").rstrip(_SPACE)
            if not value:
                continue
        if _text(value):
            return value
    return None
