"""Names of character encodings as the web means them (WHATWG Encoding, section 4.2; the table is turbohtml's)."""

from __future__ import annotations

import codecs
from functools import lru_cache

FALLBACK = "windows-1252"
"""What bytes are read as that say nothing and look like nothing."""

# WHATWG refuses to decode these, because they can hide markup from a filter. A crawler has no filter to protect
# and would only lose the text.
_REFUSED = {"hz-gb-2312": "hz", "iso-2022-kr": "iso2022_kr", "csiso2022kr": "iso2022_kr"}

# The Python codec that comes nearest where Python doesn't know the name, or means less by it.
_PYTHON = {
    "big5": "big5hkscs",
    "euc-kr": "cp949",
    "iso-8859-8-i": "iso8859_8",
    "shift_jis": "cp932",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-user-defined": "latin-1",
}


@lru_cache(maxsize=256)
def resolve(label: str) -> str | None:
    """The encoding that a declared label means on the web, by its WHATWG name in lower case; None when it is none.

    `gb2312` means gbk, `iso-8859-1` and `ascii` mean windows-1252.
    """
    import turbohtml

    try:
        name = turbohtml.parse(b"", encoding=label).encoding
    except (LookupError, ValueError):
        return None
    if name == "replacement":
        return _REFUSED.get(label.strip("\t\n\f\r ").lower())
    return name.lower() if name else None


@lru_cache(maxsize=256)
def known(label: str) -> str | None:
    """As `resolve`, and any other text codec that Python has (`cp936`, `utf-32` …) by its Python name."""
    name = resolve(label)
    if name is not None:
        return name
    try:
        info = codecs.lookup(label.strip())
        b" ".decode(info.name, "replace")  # raises LookupError for codecs that don't make text, such as `hex`
    except (LookupError, ValueError):
        return None
    return resolve(info.name) or info.name


def is_whatwg(name: str) -> bool:
    """Whether `name`, as returned by `resolve` or `known`, is decoded by the WHATWG tables."""
    return resolve(name) == name


def python_codec(name: str) -> str:
    """The Python codec for *encoding* text in `name`, e.g. for the query of a link."""
    return _PYTHON.get(name, name)
