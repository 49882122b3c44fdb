"""From bytes to text: which encoding a body is in, and its decoding.

The order is the browsers' (WHATWG HTML, "determining the character encoding"; Encoding, "decode"): what the
user set, byte order mark, charset of the Content-Type header, declaration inside the document. Only then is
the content looked at: strict UTF-8, UTF-8 with a few broken places, statistics (turbohtml's),
and windows-1252 as the last resort. A label that names no encoding gives no information. JSON is UTF-8 by
RFC 8259: there UTF-8 is tried before the header is believed.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from netspy.errors import ResponseError
from netspy.messages.charset_labels import is_whatwg, known, python_codec, resolve

Kind = Literal["html", "xml", "json"]

FALLBACK = "windows-1252"
_PRESCAN_BYTES = 1024  # WHATWG: a declaration must be complete within these
_LATE_META_BYTES = 65536  # and where browsers that meet one later start over
_SAMPLE_BYTES = 65536  # what is looked at, from just before the first byte that isn't ASCII
_STATISTICS_BYTES = 16384  # and what of it the statistics get to see: they cost about 0.2 ms per KB
_NEARLY = 20  # this many good multi-byte characters per bad sequence are no coincidence
_MULTI_BYTE = ("euc-jp", "shift_jis", "euc-kr", "gbk", "big5")  # the strictest first

_header_charset = re.compile(
    r""";\s*charset\s*=\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([^;,\s]*))""", re.IGNORECASE
).search
_comment_or_meta = re.compile(rb"<!--.*?(?:-->|\Z)|<meta(?=[\s/])", re.IGNORECASE | re.DOTALL).finditer
_attribute = re.compile(rb"""[\s/]*([^\s=/>]+)\s*(?:=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)?))?""").match
_content_charset = re.compile(rb"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE).search
_xml_declaration = re.compile(
    rb"""<\?xml\s[^>]*?\bencoding\s*=\s*(?:"([^">]*)"|'([^'>]*)')""", re.IGNORECASE
).match
_first_high_byte = re.compile(rb"[\x80-\xff]").search

_UNTELLING = frozenset({"", "application/octet-stream", "binary/octet-stream", "text/plain"})
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_XML_IN_UTF16 = ((b"<\0?\0x\0", "utf-16le"), (b"\0<\0?\0x", "utf-16be"))


def media_kind(content_type: str | None) -> Kind:
    """What a body of this Content-Type is read as; HTML when nothing else is said.

    XML by RFC 7303 (`text/xml`, `application/xml`, `+xml`), JSON by RFC 6839 (`application/json`, `+json`).
    XHTML is read as HTML: most of it isn't well-formed, and its namespace would leave plain selectors empty.
    """
    if not content_type:
        return "html"
    essence = content_type.partition(";")[0].strip().lower()
    if essence in ("text/html", "application/xhtml+xml"):
        return "html"
    if essence.endswith("+xml") or essence in ("text/xml", "application/xml"):
        return "xml"
    if essence.endswith(("+json", "/json")):
        return "json"
    return "html"


def body_kind(content_type: str | None, text: str) -> Kind:
    """As `media_kind`, with a look at the text where the Content-Type can't be meant.

    What is called JSON but begins with "<" (an error page, say) is HTML. What has no telling type and begins
    with an XML declaration is XML, unless it is XHTML.
    """
    kind = media_kind(content_type)
    if kind == "json":
        return "html" if text.lstrip()[:1] == "<" else "json"
    if kind == "html" and (content_type or "").partition(";")[0].strip().lower() in _UNTELLING:
        start = text[:1024].lstrip()
        if start.startswith("<?xml") and "<html" not in start.lower():
            return "xml"
    return kind


def detect(
    body: bytes, content_type: str | None = None, *, override: str | None = None, kind: Kind | None = None
) -> str:
    """The encoding of `body`: its WHATWG name in lower case, or a Python codec's where only Python knows it.

    `override` is what the user set; it wins over everything. `kind` defaults to what `content_type` says.
    Raises ResponseError when `override` names no encoding.
    """
    return _choose(body, content_type, override, kind or media_kind(content_type))[0]


def read(
    body: bytes, content_type: str | None = None, *, override: str | None = None, kind: Kind | None = None
) -> tuple[str, str]:
    """The encoding and the text in one go: the search often has to decode anyway. Raises as `detect` does."""
    encoding, text = _choose(body, content_type, override, kind or media_kind(content_type))
    return encoding, decode(body, encoding) if text is None else text


def decode(body: bytes, encoding: str) -> str:
    """The text of `body` in `encoding`, without its byte order mark.

    Malformed bytes become U+FFFD, one per malformed sequence, and nothing else changes (WHATWG "replacement"
    error mode). Raises ResponseError when `encoding` names no encoding.
    """
    name = required(encoding)
    for mark, marked in _BOMS:
        if marked == name and body.startswith(mark):
            body = body[len(mark) :]
    if name == "utf-8" or not is_whatwg(name):
        return body.decode(name, "replace")
    import turbohtml.detect  # noqa: F401  registers the whatwg-* codecs

    return body.decode(f"whatwg-{name}")


def required(label: str) -> str:
    """The encoding that `label` names. Raises ResponseError when it names none."""
    name = known(label)
    if name is None:
        raise ResponseError(
            f"{label!r} is not a character encoding; give a name such as 'utf-8', 'gb18030' or 'windows-1252'"
        )
    return name


def _choose(
    body: bytes, content_type: str | None, override: str | None, kind: Kind
) -> tuple[str, str | None]:
    """The encoding, and the text when finding out has made it already."""
    if override:
        return required(override), None
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name, None
    declared = _from_header(content_type) if content_type else None
    if kind == "json":
        return _choose_json(body, declared)
    if declared is None:
        declared = _declared_inside(body[:_PRESCAN_BYTES], kind)
    if declared is not None:
        return declared, None
    text = _strict_utf8(body)
    if text is not None:
        return "utf-8", text
    return _by_content(body, kind), None


def _choose_json(body: bytes, declared: str | None) -> tuple[str, str | None]:
    if b"\0" in body[:4]:  # RFC 4627, section 3: the pattern of zeros tells UTF-16 and UTF-32
        import json

        return known(json.detect_encoding(body)) or "utf-8", None
    text = _strict_utf8(body)
    if text is not None:
        return "utf-8", text
    return declared or _by_content(body, "json"), None


def _from_header(content_type: str) -> str | None:
    """The first charset parameter of a Content-Type (MIME Sniffing: a repeated one doesn't count)."""
    found = _header_charset(content_type)
    return resolve(found[1] or found[2] or found[3] or "") if found else None


def _declared_inside(head: bytes, kind: Kind) -> str | None:
    """What the document says of itself: XML declaration, or `<meta>` in HTML."""
    for mark, name in _XML_IN_UTF16:
        if head.startswith(mark):
            return name
    found = _xml_declaration(head.lstrip() if kind == "xml" else head)
    if found:
        return _ascii_compatible(found[1] or found[2])
    return None if kind == "xml" else _from_meta(head)


def _from_meta(head: bytes) -> str | None:
    if b"charset" not in head.lower():
        return None
    for tag in _comment_or_meta(head):
        if tag[0].startswith(b"<!"):
            continue
        charset = content = b""
        pragma = False
        at = tag.end()
        while pair := _attribute(head, at):
            at = pair.end()
            name, value = pair[1].lower(), pair[2] or pair[3] or pair[4] or b""
            if name == b"charset":
                charset = charset or value
            elif name == b"content":
                content = content or value
            elif name == b"http-equiv":
                pragma = pragma or value.strip().lower() == b"content-type"
        if at == len(head):
            break  # cut off in the middle of the tag: what is there may be half a name
        if not charset and pragma and (found := _content_charset(content)):
            charset = found[1] or found[2] or found[3] or b""
        encoding = _ascii_compatible(charset)
        if encoding is not None:
            return encoding
    return None


def _ascii_compatible(label: bytes) -> str | None:
    """WHATWG: what could be read as ASCII can't say that it is UTF-16; x-user-defined means windows-1252."""
    name = resolve(label.decode("latin-1"))
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return FALLBACK if name == "x-user-defined" else name


def _strict_utf8(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _by_content(body: bytes, kind: Kind) -> str:
    """The best guess for a body that declares nothing in the expected place and is not UTF-8 throughout."""
    if kind == "html" and (late := _from_meta(body[:_LATE_META_BYTES])) is not None:
        return late
    first = _first_high_byte(body)
    start = max(first.start() - 1, 0) if first else 0
    sample = body[start : start + _SAMPLE_BYTES]
    if _nearly(sample.decode("utf-8", "replace")):
        return "utf-8"
    # Without "<" no <meta> in a script or an XML text is taken for a declaration.
    return _by_statistics(sample[:_STATISTICS_BYTES].replace(b"<", b" "))


def _by_statistics(sample: bytes) -> str:
    """What turbohtml takes the bytes for; FALLBACK when it has no evidence.

    One broken sequence rules an encoding out there. So what is nearly in a multi-byte encoding is judged by its
    good characters: a page stays GBK with a title that was cut in the middle of a character.
    """
    guess = _guess(sample)
    if guess in _MULTI_BYTE and "\ufffd" not in decode(sample, guess):
        return guess
    for name in _MULTI_BYTE:
        text = decode(sample, name)
        if "\ufffd" in text and _nearly(text):
            good = text.replace("\ufffd", "").encode(python_codec(name), "ignore")
            if _guess(good) == name:
                return name
    return guess or FALLBACK


def _guess(sample: bytes) -> str | None:
    from turbohtml.detect import detect as by_statistics

    match = by_statistics(sample)
    return resolve(match.encoding) if match.encoding and match.confidence else None


def _nearly(text: str) -> bool:
    """Whether text decoded with replacement has but a few broken places (a cut title, one foreign comment)."""
    bad = text.count("\ufffd")
    good = len(text) - len(text.encode("ascii", "ignore")) - bad
    return good >= bad * _NEARLY
