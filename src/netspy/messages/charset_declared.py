"""What a document says of its own encoding: `<meta>` in HTML, the XML declaration.

HTML by WHATWG's parser (HTML, 13.2.3.5 and "change the encoding"): a meta *element* counts wherever it stands, and
what looks like one in a script, a comment or the value of an attribute doesn't. The tokenizer tells them apart;
a tree is not needed for that, and one of a whole page costs too much here. What only the prescan of the first 1,024
bytes takes for a declaration (one in a script) is given apart, by `prescan`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from netspy.messages.charset_labels import FALLBACK, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

PRESCAN_BYTES = 1024

_EARLY_BYTES = 2048  # where nearly all pages have their declaration, so that the rest isn't searched
_UTF16 = ((b"<\0?\0x\0", "utf-16le"), (b"\0<\0?\0x", "utf-16be"))
_AS_ASCII = bytes(range(128)) + b"?" * 128

# A tag up to its ">", which values in quotes may contain.
_meta_tags = re.compile(rb"""<meta[\s/](?:=\s*+(?:"[^"]*+"|'[^']*+'|(?!["']))|[^>=])*+""").finditer
_content_charset = re.compile(
    r"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|([^\t\n\f\r ;"'][^\t\n\f\r ;]*)?)""",
    re.IGNORECASE,
).search
_xml_encoding = re.compile(
    rb"""<\?xml[^>]*?encoding[\0-\x20]*=[\0-\x20]*(?:"([^">\0-\x20]*)"|'([^'>\0-\x20]*)')"""
).match


def in_xml(body: bytes) -> str | None:
    """The encoding that an XML declaration at the very beginning names, or UTF-16 when it is written in that."""
    for mark, name in _UTF16:
        if body.startswith(mark):
            return name
    found = _xml_encoding(body[:PRESCAN_BYTES])
    return _ascii_compatible((found[1] or found[2] or b"").decode("latin-1")) if found else None


def in_html(body: bytes) -> str | None:
    """The encoding that the first `<meta>` element with the name of one declares."""
    found = _in_elements(body[:_EARLY_BYTES])
    return found or (_in_elements(body) if len(body) > _EARLY_BYTES else None)


def _in_elements(body: bytes) -> str | None:
    end = max((tag.end() for tag in _meta_tags(body.lower()) if b"charset" in tag[0]), default=0)
    if not end:
        return None
    import turbohtml

    for token in turbohtml.tokenize(body[: end + 1].decode("latin-1")):
        if token.tag == "meta" and token.type is turbohtml.TokenType.START_TAG:
            encoding = _in_meta({name: value or "" for name, value in token.attrs or ()})
            if encoding is not None:
                return encoding
    return None


def _in_meta(attributes: Mapping[str, str]) -> str | None:
    encoding = _ascii_compatible(attributes.get("charset", ""))
    if encoding is None and attributes.get("http-equiv", "").lower() == "content-type":
        found = _content_charset(attributes.get("content", ""))
        if found:
            encoding = _ascii_compatible(found[1] or found[2] or found[3] or "")
    return encoding


def prescan(body: bytes) -> str | None:
    """What the prescan of the first bytes takes for a declaration, element or not; never windows-1252, which is as
    good as no answer there.
    """
    head = body[:PRESCAN_BYTES]
    if b"charset" not in head.lower():
        return None
    import turbohtml

    encoding = turbohtml.parse(head.translate(_AS_ASCII)).encoding
    return resolve(encoding) if encoding and encoding != FALLBACK else None


def _ascii_compatible(label: str) -> str | None:
    """WHATWG: what could be read as ASCII can't say that it is UTF-16; x-user-defined means windows-1252."""
    name = resolve(label)
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return FALLBACK if name == "x-user-defined" else name
