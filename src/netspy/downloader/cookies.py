"""The cookie jar of one downloader: RFC 6265bis storage and retrieval, without a page context.

SameSite and third-party rules need a page that embeds another; a crawler has none, so they are not applied.
Names and values keep the server's bytes: they are text with `surrogateescape`, and `encode` gives the bytes
back.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.errors import RequestError
from netspy.messages.pairs import pairs_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from publicsuffixlist import PublicSuffixList

MAX_PAIR = 4096  # bytes of name and value together (RFC 6265bis 5.6)
MAX_ATTRIBUTE = 1024  # bytes of one attribute's value (RFC 6265bis 5.6)
MAX_AGE = 400 * 86400  # seconds; longer lives are cut to 400 days (RFC 6265bis 5.5)
MAX_PER_DOMAIN = 180
MAX_DOMAINS = 10_000  # a crawl of the whole web must not keep every cookie it ever saw

_controls = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_date_tokens = re.compile(r"[^\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+").findall
_time_of_day = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\D|$)").match
_day = re.compile(r"(\d{1,2})(?:\D|$)").match
_year = re.compile(r"(\d{2,4})(?:\D|$)").match
_whole_number = re.compile(r"-?\d+").fullmatch
_ip_address = re.compile(r"[\d.]+|\[.*\]").fullmatch
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}


class Cookie:
    """One stored cookie."""

    __slots__ = ("created", "domain", "expires", "host_only", "name", "path", "secure", "value")

    def __init__(
        self,
        name: str,
        value: str,
        *,
        domain: str,
        path: str,
        host_only: bool,
        secure: bool,
        expires: float | None,
        created: int,
    ) -> None:
        """`expires` is a Unix time, None for a session cookie; `created` orders cookies of equal path
        length.
        """
        self.name = name
        self.value = value
        self.domain = domain
        self.path = path
        self.host_only = host_only
        self.secure = secure
        self.expires = expires
        self.created = created


class CookieJar:
    """Cookies by domain; a jar without cookies answers in no time."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` gives the Unix time."""
        self._now = now
        self.domains: dict[str, dict[tuple[str, str], Cookie]] = {}
        self._count = 0

    def __len__(self) -> int:
        return sum(map(len, self.domains.values()))

    def store(self, lines: Iterable[bytes], *, host: str, path: str, secure: bool) -> dict[str, str]:
        """Take the values of Set-Cookie lines of one response; what was set, by name (expired ones left out).

        `host` and `path` are those of the request URL, `secure` whether it was https.
        """
        now = self._now()
        taken: dict[str, str] = {}
        for line in lines:
            cookie = parse(line, host=host, path=path, secure=secure, now=now, created=self._count)
            if cookie is None or (cookie.secure and not secure):
                continue
            if not secure and self._shadows_secure(cookie, host):
                continue
            self._count += 1
            kept = self.domains.get(cookie.domain)
            key = (cookie.name, cookie.path)
            if cookie.expires is not None and cookie.expires <= now:
                taken.pop(cookie.name, None)
                if kept is not None and kept.pop(key, None) is not None and not kept:
                    del self.domains[cookie.domain]
                continue
            taken[cookie.name] = readable(cookie.value)
            if kept is None:
                if len(self.domains) >= MAX_DOMAINS:
                    del self.domains[next(iter(self.domains))]
                kept = self.domains[cookie.domain] = {}
            old = kept.get(key)
            if old is not None:
                cookie.created = old.created
            elif len(kept) >= MAX_PER_DOMAIN:
                del kept[next(iter(kept))]
            kept[key] = cookie
        return taken

    def _shadows_secure(self, cookie: Cookie, host: str) -> bool:
        """Whether a plain-http answer would overlay a Secure cookie that `host` gets (RFC 6265bis 5.7,
        step 17).
        """
        return any(
            old.secure and old.name == cookie.name and path_matches(cookie.path, old.path)
            for domain in with_parents(host)
            for old in self.domains.get(domain, {}).values()
            if domain == host or not old.host_only
        )

    def matching(self, *, host: str, path: str, secure: bool) -> list[tuple[str, str]]:
        """Name and value of the cookies to send to a URL: longer paths first, then older ones (RFC 6265bis
        5.8.3).
        """
        found: list[Cookie] = []
        now = self._now()
        for domain in with_parents(host):
            kept = self.domains.get(domain)
            if not kept:
                continue
            for key in [
                key for key, cookie in kept.items() if cookie.expires is not None and cookie.expires <= now
            ]:
                del kept[key]
            found += [
                cookie
                for cookie in kept.values()
                if (not cookie.host_only or domain == host)
                and (secure or not cookie.secure)
                and path_matches(path, cookie.path)
            ]
            if not kept:
                del self.domains[domain]
        if len(found) > 1:
            found.sort(key=lambda cookie: (-len(cookie.path), cookie.created))
        return [(cookie.name, cookie.value) for cookie in found]

    def clear(self) -> None:
        """Forget all cookies."""
        self.domains.clear()


def parse(line: bytes, *, host: str, path: str, secure: bool, now: float, created: int = 0) -> Cookie | None:
    """The cookie of one Set-Cookie value, None when it must be ignored (RFC 6265bis 5.6 and 5.7)."""
    text = line.decode("utf-8", "surrogateescape")
    if _controls(text):
        return None
    pair, _, rest = text.partition(";")
    name, equals, value = pair.partition("=")
    if not equals:
        name, value = "", name
    name, value = name.strip(" \t"), value.strip(" \t")
    if len(line) > MAX_PAIR and len(pair.encode("utf-8", "surrogateescape")) > MAX_PAIR + 1:
        return None
    if not name and (not value or value.lower().startswith(("__secure-", "__host-"))):
        return None
    domain, own_path, expires, max_age, is_secure = "", "", None, None, False
    has_path = False
    for attribute in rest.split(";") if rest else ():
        key, _, given = attribute.partition("=")
        given = given.strip(" \t")
        if len(given) > MAX_ATTRIBUTE:
            continue
        match key.strip(" \t").lower():
            case "domain":
                domain = given.removeprefix(".").lower()
            case "path":
                own_path, has_path = given, True
            case "expires":
                parsed = parse_date(given)
                expires = expires if parsed is None else parsed
            case "max-age" if _whole_number(given):
                max_age = max(-1, min(int(given[:12]), MAX_AGE))
            case "secure":
                is_secure = True
    if max_age is not None:
        expires = now + max_age if max_age > 0 else 0.0
    elif expires is not None:
        expires = min(expires, now + MAX_AGE)
    domain_given = bool(domain)
    if domain and not domain_matches(host, domain):
        return None
    host_only = not domain or _ip_address(domain) is not None or is_public_suffix(domain)
    if host_only and domain not in {"", host}:
        return None
    if not own_path.startswith("/"):
        own_path = default_path(path)
    lowered = name.lower()
    if lowered.startswith("__secure-") and not (is_secure and secure):
        return None
    if lowered.startswith("__host-") and not (
        is_secure and secure and not domain_given and has_path and own_path == "/"
    ):
        return None
    return Cookie(
        name,
        value,
        domain=host if host_only else domain,
        path=own_path,
        host_only=host_only,
        secure=is_secure,
        expires=expires,
        created=created,
    )


def with_parents(host: str) -> list[str]:
    """`host` and the domains above it; of an IP address only itself."""
    if _ip_address(host):
        return [host]
    labels = host.split(".")
    return [".".join(labels[start:]) for start in range(len(labels))]


def domain_matches(host: str, domain: str) -> bool:
    """RFC 6265bis 5.1.3: the same, or `host` is a name below `domain`."""
    return host == domain or (
        host.endswith(domain) and host[-len(domain) - 1] == "." and not _ip_address(host)
    )


def path_matches(path: str, own: str) -> bool:
    """RFC 6265bis 5.1.4: whether a cookie of path `own` goes to `path`."""
    return own in {"/", path} or (path.startswith(own) and (own.endswith("/") or path[len(own)] == "/"))


def default_path(path: str) -> str:
    """RFC 6265bis 5.1.4: the folder of a request path."""
    cut = path.rfind("/")
    return path[:cut] if cut > 0 else "/"


def is_public_suffix(domain: str) -> bool:
    """Whether many owners share `domain` (com, co.uk, github.io, localhost), so that a cookie for it is for nobody else.

    By the Public Suffix List, its private section included; a name of one label is always one. A list that can't be
    read (no file descriptor is left) makes every domain one: no cookie goes to a neighbour.
    """
    if "" in domain.removesuffix(".").split("."):
        return True
    try:
        return _public_suffixes().is_public(domain)
    except OSError:
        return True


@lru_cache(maxsize=1)
def _public_suffixes() -> PublicSuffixList:
    """Read when the first cookie comes that names a domain: it takes a fifth of a second."""
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()


def parse_date(text: str) -> float | None:
    """The Unix time of a cookie date in any of the spellings servers use (RFC 6265bis 5.1.1); None if
    there is none.
    """
    clock: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _date_tokens(text):
        if clock is None and (match := _time_of_day(token)):
            clock = int(match[1]), int(match[2]), int(match[3])
        elif day is None and (match := _day(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS[token[:3].lower()]
        elif year is None and (match := _year(token)):
            year = int(match[1])
    if clock is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    if year < 1601:
        return None
    try:
        return datetime(year, month, day, clock[0], clock[1], clock[2], tzinfo=UTC).timestamp()
    except ValueError:
        return None


class GivenCookie(NamedTuple):
    """A cookie that a request brings along: `text` is its pair as it stands in the header.

    Without a domain it goes wherever the request goes; "" as path is every path.
    """

    name: str
    text: str
    domain: str = ""
    path: str = ""
    host_only: bool = False
    secure: bool = False

    def goes_to(self, *, host: str, path: str, secure: bool) -> bool:
        """Whether it is for a URL."""
        return (
            (secure or not self.secure)
            and (not self.path or path_matches(path, self.path))
            and (
                not self.domain
                or self.domain == host
                or (not self.host_only and domain_matches(host, self.domain))
            )
        )


_breaks_name = re.compile(r"[=;\x00-\x1f\x7f]").search
_breaks_value = re.compile(r"[;\x00-\x08\x0a-\x1f\x7f]").search
_SCOPE = frozenset({"domain", "path", "secure", "hostOnly"})
_WITHOUT_EFFECT = frozenset(
    {
        "httpOnly", "sameSite", "expires", "expiry", "expirationDate", "session", "storeId", "id", "size", "priority",
        "sameParty", "sourceScheme", "sourcePort", "partitionKey",
    }
)  # fmt: skip


def given(cookies: Any) -> list[GivenCookie]:
    """`cookies=` of a request: a mapping, or a list of pairs, or of dicts as browsers, Scrapy and Selenium write them.

    Those have `name`, `value` and, if need be, `domain`, `path`, `secure` and `hostOnly`, which say where the cookie goes.
    None as value leaves a cookie out. Raises RequestError for anything else, and for what would be other cookies on the
    wire than it is here: a `;` in a value, `=` or a space around a name, control characters.
    """
    if not isinstance(cookies, list | tuple):
        return [_given(name, value) for name, value in pairs_of(cookies, "cookies") if value is not None]
    found: list[GivenCookie] = []
    for one in cookies:
        if isinstance(one, dict):
            found += _exported(one)
        else:
            found += [_given(name, value) for name, value in pairs_of([one], "cookies") if value is not None]
    return found


def pasted(value: str) -> list[GivenCookie]:
    """The cookies of a Cookie header, in order; a part without `=` is a cookie without a name."""
    found = []
    for part in value.split(";"):
        text = part.strip(" \t")
        if text:
            name, equals, _ = text.partition("=")
            found.append(GivenCookie(name.rstrip(" \t") if equals else "", text))
    return found


def _given(name: str, value: Any) -> GivenCookie:
    content = text_of(value, f"the value of the cookie {name!r:.80}")
    text = content.decode("utf-8", "surrogateescape") if isinstance(content, bytes) else content
    if _breaks_name(name) or name != name.strip() or (not name and "=" in text):
        raise RequestError(f"the cookie name {name!r:.80} would be sent as another name or another cookie")
    if _breaks_value(text):
        raise RequestError(
            f"the value of the cookie {name!r:.80} contains ';' or a control character, which would end it; "
            "encode it, or give the whole header as headers={'Cookie': …}"
        )
    return GivenCookie(name, pair(name, text))


def _exported(fields: dict[Any, Any]) -> list[GivenCookie]:
    """A cookie as a dict; none when its value is None."""
    strange = {str(key) for key in fields} - _SCOPE - _WITHOUT_EFFECT - {"name", "value"}
    if strange or not isinstance(fields.get("name"), str | bytes) or "value" not in fields:
        problem = f"unknown keys {sorted(strange)}" if strange else "no name or no value"
        raise RequestError(
            f"a dict in cookies= has {problem}; give {{'name': …, 'value': …}}, with domain, path and secure if need be"
        )
    domain, path = fields.get("domain") or "", fields.get("path") or ""
    if not isinstance(domain, str) or not isinstance(path, str):
        raise RequestError(f"domain and path of the cookie {fields['name']!r:.80} must be text")
    if fields["value"] is None:
        return []
    [(name, value)] = pairs_of({fields["name"]: fields["value"]}, "cookies")
    return [
        _given(name, value)._replace(
            domain=domain.removeprefix(".").lower(),
            path=path,
            host_only=bool(fields.get("hostOnly")),
            secure=bool(fields.get("secure")),
        )
    ]


def pair(name: str, value: str) -> str:
    """A cookie as it stands in the header (RFC 6265bis 5.8.3)."""
    return f"{name}={value}" if name else value


def header(pairs: Iterable[tuple[str, str]]) -> bytes:
    """The value of the Cookie header (RFC 6265bis 5.8.3)."""
    return "; ".join([pair(*one) for one in pairs]).encode("utf-8", "surrogateescape")


def readable(text: str) -> str:
    """`text` for people: bytes that are not UTF-8 read as latin-1."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    return text
