"""URLs by the WHATWG URL Standard: what is sent (`wire`), what is compared (`canonical`), how links join.

Two forms of one URL are kept apart. The *wire* form carries the author's bytes: a server that signs its
links, or that looks at the order of parameters, must see them as they were written. The *canonical* form
exists only inside fingerprints. Both are idempotent: f(f(x)) == f(x).

Plain ASCII URLs that are in order already are recognised by one regular expression and handed back as they
are; everything else goes through ada, the URL parser of Node.js, which is loaded at its first use.
"""

from __future__ import annotations

import codecs
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from string import ascii_letters, digits, hexdigits
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from netspy.errors import InvalidUrlError, RequestError
from netspy.messages.pairs import pairs_of, text_of
from netspy.settings import without_passwords

Ignore = Callable[[str], Any]
"""Tells by its name whether a query parameter is left out of the canonical form; made by `compile_ignore`."""

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# A host that WHATWG leaves as it is: lower case, and its last label doesn't look like a number (which would
# make it an IPv4 address in short form). Default ports, and ports that may be out of range, are left to the
# parser.
_ORIGIN = (
    rf"https?://(?:(?:[a-z0-9_-]+\.)*[a-z_-][a-z0-9_-]*|(?:{_OCTET}\.){{3}}{_OCTET})"
    r"(?::(?!(?:80|443)/)(?:[1-9]\d{1,3}|[1-5]\d{4}))?"
)
_RFC = r"A-Za-z0-9._~!$&()*+,;=:@%/\-"
# RFC 3986 characters only, in the WHATWG serialisation already (which turns ' into %27 in a query).
_in_order = re.compile(rf"{_ORIGIN}/[{_RFC}']*+(?:\?[{_RFC}?]*+)?", re.ASCII).fullmatch
# What a browser would send without touching it, and ' in a query besides: it is legal there by RFC 3986.
_sendable = re.compile(rf"{_ORIGIN}/[{_RFC}'|\[\]]*+(?:\?[!$-;=?-~]*+)?", re.ASCII).fullmatch
# A dot segment in any spelling (WHATWG: "%2e" is a dot). May also match inside a query: then the slow way is
# taken.
_dotted = re.compile(r"/(?:\.|%2[eE])").search
_escape = re.compile(r"%([0-9A-Fa-f]{2})?").sub
_UNRESERVED = frozenset(ascii_letters + digits + "-._~")
_ESCAPES: dict[str | None, str] = {
    high + low: char if (char := chr(int(high + low, 16))) in _UNRESERVED else f"%{high}{low}".upper()
    for high in hexdigits
    for low in hexdigits
}
_ESCAPES[None] = "%25"  # a stray %; spelled out, so that what follows it can't become an escape the next time
# Characters that no RFC 3986 URL contains, so their escapes mean the same; ' and [ ] are legal and stay
# apart.
_outlaws = re.compile(r"[^!#-;=?-Z\[\]_a-z~]").sub
_not_in_query = re.compile(r"[^!#-;=?-~]+").sub
_EDGES = "".join(map(chr, range(0x21)))  # WHATWG: C0 controls and spaces at both ends are not part of the URL
_INSIDE = dict.fromkeys(map(ord, "\t\n\r"))  # WHATWG: neither are these, anywhere
_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):").match
_SPECIAL = frozenset(
    {"http", "https", "ftp", "file"}
)  # a link's query takes the page's encoding in these only
_CACHED_HEAD = 300  # characters of scheme and authority; a longer one (a data: URL) isn't kept in the cache


def canonical(url: str, ignore: Ignore | None = None) -> str:
    """The form in which two URLs of one page are equal; for comparison only, never sent.

    WHATWG serialisation without fragment; parameters sorted by name, those of one name in their order;
    escapes of unreserved characters decoded, others in upper case (RFC 3986 6.2.2). No parameter is left out
    unless `ignore` says so. Raises InvalidUrlError.
    """
    given = url
    if "#" in url:
        url = url[: url.index("#")]
    if _in_order(url) is None or "/." in url or ("%2" in url and _dotted(url) is not None):
        url = _outlaws(_percent, wire(given))
    if "%" in url:
        url = _escape(_one_escape, url)
    cut = url.find("?")
    if cut < 0:
        return url
    query = url[cut + 1 :]
    if "'" in query:
        query = query.replace("'", "%27")
    if ignore is None and "&" not in query:
        return f"{url[: cut + 1]}{query}"
    pairs = [(part.partition("=")[0], part) for part in query.split("&")]
    if ignore is not None and query:
        pairs = [pair for pair in pairs if not ignore(pair[0])]
        if not pairs:
            return url[:cut]
    pairs.sort(key=_name)
    return f"{url[: cut + 1]}{'&'.join([part for _, part in pairs])}"


def wire(url: str) -> str:
    """What goes out: the URL byte for byte, without fragment.

    Escapes are never made, undone or re-spelled where the URL can be sent as it is, and a stray % stays. Only what
    can't be sent is changed, as a browser does it: white space and non-ASCII are escaped (UTF-8), dot segments
    resolved, the host lower-cased and put through IDNA (UTS 46, non-transitional). Raises InvalidUrlError.
    """
    given = url
    if "#" in url:
        url = url[: url.index("#")]
    if _sendable(url) is not None and "/." not in url and ("%2" not in url or _dotted(url) is None):
        return url
    head, mark, query = given.strip(_EDGES).translate(_INSIDE).partition("#")[0].partition("?")
    try:
        # What would be cut off at the end of a URL is a part of it in front of its query or fragment.
        sent = _serialise(head) if head[-1:] not in _EDGES else _serialise(head + "?")[:-1]
        return sent + mark + _not_in_query(_percent, query)
    except ValueError:  # a lone surrogate in the query is one, too (UnicodeEncodeError)
        raise _invalid(url) from None


def join(base: str, href: str, *, encoding: str = "utf-8", fragment: bool = True) -> str:
    """The absolute URL of a link: `href` as found on a page whose base URL is `base`.

    As browsers do it: the path in UTF-8, the query of an http(s), ftp or file link in `encoding` (the page's,
    by its Python name; characters that it lacks become escaped character references). `fragment=False` leaves
    the fragment out. Raises InvalidUrlError when the result doesn't parse; the scheme is not looked at.
    """
    if not fragment and "#" in href:
        href = href[: href.index("#")]
    if href.startswith("/") and not href.startswith("//"):
        end = base.find("/", 8)
        candidate = (base[:end] if end > 0 else base) + href
    else:
        candidate = href
    if (
        _in_order(candidate) is not None
        and "/." not in candidate
        and ("%2" not in candidate or _dotted(candidate) is None)
    ):
        return candidate
    if not href.isascii() and encoding.lower() not in {"utf-8", "utf8", "ascii", "us-ascii"}:
        href = _encode_query(base, href, encoding)
    try:
        joined = _ada_join(base, href)
    except ValueError:
        raise InvalidUrlError(
            f"the link {display_url(href)} on {display_url(base)} doesn't make a URL; leave it out"
        ) from None
    return joined if fragment or "#" not in joined else joined[: joined.index("#")]


def require_http(url: str) -> str:
    """The wire form of a URL that can be fetched. Raises InvalidUrlError when it isn't http or https."""
    sent = wire(url)
    if not sent.startswith(("http://", "https://")):
        raise InvalidUrlError(f"{display_url(url)} can't be fetched: its scheme is neither http nor https")
    return sent


def host_of(url: str) -> str:
    """The host name in ASCII, without port; IPv6 in brackets, "" for none. Raises InvalidUrlError."""
    return _authority(url).host


def site_of(url: str) -> str:
    """8 hex digits that stand for the host and a port other than the default. Raises InvalidUrlError."""
    return _authority(url).site


def add_params(url: str, params: Any) -> str:
    """`url` with `params` behind the query it has, in front of its fragment.

    `params` is a mapping, pairs, or a query string that is added as it is. A list or tuple repeats its name; None
    leaves a parameter out; True and False are written true and false. Raises RequestError for other types.
    """
    if params is None:
        return url
    if isinstance(params, bytes):
        params = params.decode("latin-1")
    if isinstance(params, str):
        added = params.lstrip("?&")
    else:
        if isinstance(params, Iterator):
            params = list(params)
        try:
            pairs = pairs_of(params, "params")
            added = "&".join(_form(name, value) for name, values in pairs for value in _each(values))
        except (RequestError, ValueError) as error:
            raise RequestError(
                f"params={params!r:.200} can't be a query ({error}); give a dict, a list of pairs or a string"
            ) from error
    if not added:
        return url
    head, mark, tail = url.partition("#")
    glue = "?" if "?" not in head else "" if head.endswith(("?", "&")) else "&"
    return f"{head}{glue}{added}{mark}{tail}"


def display_url(url: str) -> str:
    """A URL fit for messages: quoted, its password and secret parameters hidden, shortened to some 200 characters."""
    return repr(without_passwords(url))[:200]


def compile_ignore(patterns: Iterable[str]) -> Ignore | None:
    """One test for all patterns of URL_IGNORE_PARAMS (`fnmatch` style, case counts); None for no pattern.

    Make it once and pass the same object: cached fingerprints are told apart by it.
    """
    joined = "|".join(fnmatch.translate(pattern) for pattern in patterns)
    return re.compile(joined).match if joined else None


class _Authority(NamedTuple):
    host: str
    site: str


def _authority(url: str) -> _Authority:
    end = url.find("/", 8)
    head = url[:end] if end > 0 else url
    try:
        return _cached_authority(head) if len(head) <= _CACHED_HEAD else _parsed_authority(head)
    except ValueError:
        pass
    try:
        # The cut was too early: white space in front, or superfluous slashes.
        return _parsed_authority(url)
    except ValueError:
        raise _invalid(url) from None


def _parsed_authority(url: str) -> _Authority:
    import ada_url

    parsed = ada_url.parse_url(url, ("hostname", "host", "protocol"))
    site = blake2b((parsed["host"] or parsed["protocol"]).encode(), digest_size=4).hexdigest()
    return _Authority(parsed["hostname"], site)


_cached_authority = lru_cache(maxsize=16384)(_parsed_authority)


def _serialise(url: str) -> str:
    """The WHATWG serialisation of a URL that has neither query nor fragment. Raises ValueError."""
    import ada_url

    return ada_url.normalize_url(url)


def _ada_join(base: str, href: str) -> str:
    import ada_url

    return ada_url.join_url(base, href)


def _invalid(url: str) -> InvalidUrlError:
    if _scheme(url.strip(_EDGES)) is None:
        return InvalidUrlError(
            f"{display_url(url)} is not an absolute URL; start it with https:// or join it to its page's URL"
        )
    return InvalidUrlError(f"{display_url(url)} doesn't parse as a URL; check its host and port")


def _name(pair: tuple[str, str]) -> str:
    return pair[0]


def _one_escape(match: re.Match[str]) -> str:
    return _ESCAPES[match[1]]


def _percent(match: re.Match[str]) -> str:
    return quote(match[0], safe="")


def _each(values: Any) -> Iterable[Any]:
    """The values of one parameter, None left out."""
    if isinstance(values, (list, tuple, set, frozenset)):
        return (value for value in values if value is not None)
    return () if values is None else (values,)


def _form(name: str, value: Any) -> str:
    """One name=value of a query, form-encoded."""
    return f"{quote_plus(name)}={quote_plus(text_of(value, f'the value of {name!r:.80}'))}"


def _encode_query(base: str, href: str, encoding: str) -> str:
    """`href` with its query percent-encoded in the page's encoding (WHATWG URL, "query state")."""
    text = href.strip(_EDGES).translate(_INSIDE)
    scheme = _scheme(text) or _scheme(base)
    if scheme is None or scheme[1].lower() not in _SPECIAL:
        return href
    head, mark, fragment = text.partition("#")
    path, question, query = head.partition("?")
    if query.isascii() or encoding.lower().startswith(("utf", "ucs")):
        return href  # a page in UTF-16 or UTF-32 still has its queries in UTF-8 ("get an output encoding")
    try:
        raw = query.encode(encoding, "netspy.reference")
    except LookupError:
        return href  # Python doesn't know the label; UTF-8 is what is left
    # Bytes of a multi-byte character that look like ASCII stay as they are, as in browsers.
    return f"{path}{question}{quote(raw, safe=_QUERY_SAFE)}{mark}{fragment}"


_QUERY_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "\"#<>'")


def _reference(error: UnicodeError) -> tuple[bytes, int]:
    """Encode error handler: what the encoding lacks becomes an escaped `&#…;` (WHATWG, "html" error mode)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return b"".join(b"%%26%%23%d%%3B" % ord(char) for char in missing), error.end


codecs.register_error("netspy.reference", _reference)
