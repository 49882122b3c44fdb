"""From bytes to text: which encoding a body is in, and its decoding.

The order is the browsers' (WHATWG HTML, "determining the character encoding"; Encoding, "decode"): what the
user set, byte order mark, charset of the Content-Type header, declaration inside an HTML or XML document
(`netspy.messages.charset_declared`). Only then is the content looked at: strict UTF-8, UTF-8 with a few broken
places, statistics (turbohtml's), and windows-1252 as the last resort. A label that names no encoding gives no
information. What is not quite a declaration (a label that the header has in a form that doesn't count, a meta tag in
a script) is a hint: it is believed before the statistics, but not against UTF-8. JSON is UTF-8 by RFC 8259: there
UTF-8 is tried before the header is believed.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from netspy.errors import ResponseError
from netspy.messages.charset_declared import PRESCAN_BYTES, in_html, in_xml, prescan
from netspy.messages.charset_labels import FALLBACK, is_whatwg, known, python_codec, resolve
from netspy.messages.media_type import MediaType, media_type

Kind = Literal["html", "xml", "json"]

_SAMPLE_BYTES = 65536  # what is looked at, from just before the first byte that isn't ASCII
_STATISTICS_BYTES = 16384  # and what of it the statistics get to see: they cost about 0.2 ms per KB
_NEARLY_UTF8 = 5  # this many good multi-byte characters per bad sequence are no coincidence,
_NEARLY = 20  # and this many in an encoding where most pairs of bytes mean something
_MULTI_BYTE = ("euc-jp", "shift_jis", "euc-kr", "gbk", "big5")  # the strictest first

_sloppy_charset = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';,]+)""", re.IGNORECASE).search
# What careless writers of UTF-8 leave in it: halves of surrogate pairs, and U+FFFD for what they couldn't read.
_utf8_scars = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]|\xef\xbf\xbd").sub
_first_high_byte = re.compile(rb"[\x80-\xff]").search

_TYPES: dict[Kind, MediaType] = {
    "html": MediaType("text/html", None),
    "xml": MediaType("text/xml", None),
    "json": MediaType("application/json", None),
}
_UNKNOWN = frozenset({"", "unknown/unknown", "application/unknown"})
_UNTELLING = _UNKNOWN | {"application/octet-stream", "binary/octet-stream", "text/plain"}
_XHTML = "application/xhtml+xml"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_BOMS_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def media_kind(content_type: str | None) -> Kind:
    """What a body of this Content-Type is read as; HTML when nothing else is said.

    XML by RFC 7303 (`text/xml`, `application/xml`, `+xml`), JSON by RFC 6839 (`application/json`, `+json`).
    XHTML is read as HTML: most of it isn't well-formed, and its namespace would leave plain selectors empty.
    """
    return _kind_of(media_type(content_type).essence) if content_type else "html"


def _kind_of(essence: str) -> Kind:
    if essence.endswith("+xml") or essence in ("text/xml", "application/xml"):
        return "html" if essence == _XHTML else "xml"
    return "json" if essence.endswith(("+json", "/json")) else "html"


def body_kind(content_type: str | None, text: str) -> Kind:
    """As `media_kind`, with a look at the text where the Content-Type can't be meant.

    What is called JSON but begins with "<" (an error page, say) is HTML. What has no telling type and begins
    with an XML declaration is XML, unless it is XHTML.
    """
    kind = media_kind(content_type)
    if kind == "json":
        return "html" if text.lstrip()[:1] == "<" else "json"
    if kind == "html" and media_type(content_type or "").essence in _UNTELLING and _begins_as_xml(text):
        return "xml"
    return kind


def _begins_as_xml(text: str) -> bool:
    start = text[:PRESCAN_BYTES].lstrip()
    return start.startswith("<?xml") and "<html" not in start.lower()


def detect(
    body: bytes, content_type: str | None = None, *, override: str | None = None, kind: Kind | None = None
) -> str:
    """The encoding of `body`: its WHATWG name in lower case, or a Python codec's where only Python knows it.

    `override` is what the user set; it wins over everything. `kind` defaults to what `content_type` says.
    Raises ResponseError when `override` names no encoding.
    """
    return _choose(body, content_type, override, kind)[0]


def read(
    body: bytes, content_type: str | None = None, *, override: str | None = None, kind: Kind | None = None
) -> tuple[str, str]:
    """The encoding and the text in one go: the search often has to decode anyway. Raises as `detect` does."""
    encoding, text = _choose(body, content_type, override, kind)
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
    body: bytes, content_type: str | None, override: str | None, kind: Kind | None
) -> tuple[str, str | None]:
    """The encoding, and the text when finding out has made it already."""
    if override:
        return required(override), None
    header = media_type(content_type or "")
    is_json = (kind or _kind_of(header.essence)) == "json"
    if is_json and body.startswith(_BOMS_UTF32):
        return "utf-32", None
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name, None
    declared = resolve(header.charset) if header.charset is not None else None
    if is_json and kind is None and body.lstrip()[:1] == b"<":
        kind, is_json = "html", False  # an error page, which body_kind reads as HTML as well
    if is_json:
        return _choose_json(body, declared)
    if declared is not None:
        return declared, None
    declared, hint = _declared_inside(body, _TYPES[kind].essence if kind else header.essence)
    if declared is not None:
        return declared, None
    if content_type and (sloppy := _sloppy_charset(content_type)):
        hint = resolve(sloppy[1]) or hint
    text = _strict_utf8(body)
    if text is None:
        return _by_content(body, hint), None
    return (hint, None) if hint and text.isascii() else ("utf-8", text)


def _choose_json(body: bytes, declared: str | None) -> tuple[str, str | None]:
    if b"\0" in body[:4]:  # RFC 4627, section 3: the pattern of zeros tells UTF-16 and UTF-32
        import json

        return known(json.detect_encoding(body)) or "utf-8", None
    text = _strict_utf8(body)
    if text is not None:
        return "utf-8", text
    return declared or _by_content(body, None), None


def _declared_inside(body: bytes, essence: str) -> tuple[str | None, str | None]:
    """What a document of this type declares, and what may be a hint of its encoding.

    Only HTML and XML declare anything, and what is called by no type but begins like one of them.
    """
    if essence in _UNKNOWN:
        head = body.lstrip()[:PRESCAN_BYTES]
        if head[:1] == b"<":
            essence = "text/xml" if _begins_as_xml(head.decode("latin-1")) else "text/html"
    if essence == "text/html":
        if (declared := in_html(body)) is not None:
            return declared, None
        hint = prescan(body)
        return (None, hint) if hint else (in_xml(body), None)
    if essence == _XHTML:
        return (declared, None) if (declared := in_xml(body)) else (None, in_html(body))
    if _kind_of(essence) == "xml":
        return in_xml(body if body.startswith(b"\0") else body.lstrip()), None
    return None, in_xml(body) if essence in _UNTELLING else None


def _strict_utf8(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _by_content(body: bytes, hint: str | None) -> str:
    """The best guess for a body that declares nothing in the expected place and is not UTF-8 throughout."""
    first = _first_high_byte(body)
    start = max(first.start() - 1, 0) if first else 0
    sample = body[start : start + _SAMPLE_BYTES]
    if _nearly_utf8(sample):
        return "utf-8"
    if hint is not None and hint != "utf-8":
        return hint
    # Without "<" no <meta> in a script or an XML text is taken for a declaration.
    return _by_statistics(sample[:_STATISTICS_BYTES].replace(b"<", b" "))


def _nearly_utf8(sample: bytes) -> bool:
    """Whether there are but a few broken places (a cut title, one foreign comment). A character that the end cuts off
    is none.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(_utf8_scars(b"\xc3\xa4", sample))
    return not text.isascii() and _nearly(text, _NEARLY_UTF8)


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


def _nearly(text: str, good_per_bad: int = _NEARLY) -> bool:
    """Whether text decoded with replacement has so few broken places."""
    bad = text.count("\ufffd")
    good = len(text) - len(text.encode("ascii", "ignore")) - bad
    return good >= bad * good_per_bad
