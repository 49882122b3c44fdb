"""What a redirect turns a request into: decisions only (RFC 9110 15.4 and 10.2.2, Fetch "HTTP-redirect
fetch").
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote_from_bytes, urlsplit

from netspy.messages import urls

STATUSES = frozenset({301, 302, 303, 307, 308})
BODY_HEADERS = frozenset(
    {
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-type",
        "transfer-encoding",
    }
)
CREDENTIALS = frozenset({"authorization"})
DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """RFC 6454: what credentials belong to."""

    scheme: str
    host: str
    port: int


def origin(url: str) -> Origin:
    """The origin of an http or https URL in wire form."""
    parts = urlsplit(url)
    return Origin(parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme])


def method_after(status: int, method: str) -> tuple[str, bool]:
    """The method of the next hop, and whether the body goes along."""
    if (status in {301, 302} and method == "POST") or (status == 303 and method not in {"GET", "HEAD"}):
        return "GET", False
    return method, True


def keeps_credentials(here: Origin, there: Origin) -> bool:
    """Whether Authorization and the like, given for `here`, may go to `there`: to the same origin only."""
    return here == there


def keeps_cookies(here: Origin, there: Origin) -> bool:
    """Whether cookies given with the request may go along.

    Cookies don't know ports (RFC 6265 8.5), so the same host gets them, unless they would leave https.
    """
    return here.host == there.host and not (here.scheme == "https" and there.scheme == "http")


def target(url: str, location: bytes) -> str:
    """The absolute URL that a Location value leads to from `url`; without a fragment of its own it inherits
    url's.

    Raw UTF-8 in it is read as text; other raw bytes (latin-1, GBK) are sent back escaped, byte for byte.
    Raises InvalidUrlError.
    """
    try:
        text = location.decode()
    except UnicodeDecodeError:
        text = quote_from_bytes(location, safe=_ASCII)
    found = urls.join(url, text)
    if "#" not in found and "#" in url:
        found += url[url.index("#") :]
    return found


_ASCII = "".join(map(chr, range(0x21, 0x7F)))
