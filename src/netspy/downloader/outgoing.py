"""What a request sends: its keywords turned into the headers, body and libcurl options of a hop. Decisions
only.
"""

from __future__ import annotations

import base64
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from curl_cffi.const import CurlOpt

from netspy.downloader import body as bodies
from netspy.downloader import cookies as cookie_rules
from netspy.downloader import redirects
from netspy.downloader.failures import Kind, download_error
from netspy.downloader.transfer import PREREQFUNCTION, once
from netspy.errors import RequestError
from netspy.messages.pairs import pairs_of, text_of
from netspy.messages.urls import host_of
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from netspy.downloader.cookies import GivenCookie
    from netspy.downloader.transfer import Option
    from netspy.messages.request import Request
    from netspy.settings import Settings

PROXY_SCHEMES = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})
_not_a_token = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]").search
_SENDS_LENGTH = frozenset(
    {"POST", "PUT", "PATCH"}
)  # methods whose missing body is an empty one (RFC 9110 8.6)
IDEMPOTENT = frozenset(
    {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}
)  # that may be sent again (RFC 9110 9.2.2)


class Outgoing:
    """One fetch on its way. Redirects change it hop by hop."""

    __slots__ = (
        "body",
        "connect_s",
        "cookies",
        "follow",
        "headers",
        "impersonate",
        "kwargs",
        "method",
        "pasted",
        "plain",
        "proxied",
        "proxy",
        "random_user_agent",
        "range",
        "total_s",
        "url",
    )

    def __init__(self, request: Request, url: str, settings: Settings) -> None:
        """`url` is the wire form. Raises RequestError for keywords that can't be sent."""
        kwargs: Mapping[str, Any] = request.requests_kwargs
        self.kwargs = kwargs
        self.url = url
        self.method: str = request.method
        self.impersonate: str = request.impersonate or settings.DOWNLOADER_IMPERSONATE
        own_choice = request.random_user_agent
        self.random_user_agent: bool = settings.RANDOM_USER_AGENT if own_choice is None else bool(own_choice)
        self.total_s = settings.REQUEST_TIMEOUT
        self.connect_s = settings.CONNECT_TIMEOUT
        self.body: bodies.Body | None = None
        self.headers: list[tuple[str, Any]] = []
        self.cookies: list[GivenCookie] = []
        self.pasted: str | None = None  # a Cookie header that nothing has changed yet
        self.proxied = False
        self.proxy = ""  # the first one on the way: Proxy-Authorization is for it
        self.range = ""
        self.follow = True
        self.plain = (
            self.method == "GET" and not kwargs
        )  # nothing differs from what every handle is prepared for
        if self.plain:
            return
        if not self.method or _not_a_token(self.method):
            raise RequestError(
                f"{self.method!r:.80} is no HTTP method; it must be one word without special characters"
            )
        if kwargs:
            try:
                self._read(kwargs, request.encoding or "utf-8")
            except UnicodeError as error:
                raise unsendable(error) from None

    def _read(self, kwargs: Mapping[str, Any], encoding: str) -> None:
        pairs = given_pairs(kwargs.get("headers"))
        self.body, pairs = with_boundary(kwargs, pairs, encoding)
        self.follow = yes_or_no(
            first_of(kwargs, "follow_redirects", "allow_redirects", default=True), "follow_redirects"
        )
        self.total_s, self.connect_s = limits(kwargs.get("timeout"), self.total_s, self.connect_s)
        names = {name.lower() for name, _ in pairs}
        auth = kwargs.get("auth")
        if auth is not None and "authorization" not in names:
            pairs.append(("Authorization", basic(auth)))
        if self.body is not None and self.body.content_type is not None and "content-type" not in names:
            pairs.append(("Content-Type", self.body.content_type))
        if "cookie" in names:
            # Taken apart, so that the jar's cookies can join and a redirect's new value can replace the given
            # one.
            lines = [_text(value) for name, value in pairs if name.lower() == "cookie" and value is not None]
            self.cookies = [cookie for text in lines for cookie in cookie_rules.pasted(text)]
            self.pasted = lines[0] if len(lines) == 1 else None
            pairs = [pair for pair in pairs if pair[0].lower() != "cookie"]
        if kwargs.get("cookies"):
            own = cookie_rules.given(kwargs["cookies"])
            self.forget_cookies({cookie.name for cookie in own})
            self.cookies += own
            self.pasted = None
        self.range = ", ".join(
            str(value) for name, value in pairs if name.lower() == "range" and value is not None
        )
        if self.range and "accept-encoding" not in names:
            pairs.append(("Accept-Encoding", "identity"))  # a part of coded bytes can't be decoded
        self.headers = pairs

    @property
    def can_ask_plainly(self) -> bool:
        """Whether it may be sent again, and without libcurl: no body, no proxy, no certificate of its own."""
        return (
            self.method in {"GET", "HEAD"}
            and self.body is None
            and not self.proxied
            and self.kwargs.get("cert") is None
        )

    def redirect(self, status: int, url: str) -> None:
        """Turn this into the next hop, to `url` (wire form)."""
        here, there = redirects.origin(self.url), redirects.origin(url)
        self.plain = False
        self.method, keeps_body = redirects.method_after(status, self.method)
        dropped: frozenset[str] = frozenset()
        if not keeps_body:
            self.body = None
            dropped |= redirects.BODY_HEADERS
        if not redirects.keeps_credentials(here, there):
            dropped |= redirects.CREDENTIALS | {"host"}
        if not redirects.keeps_cookies(here, there):
            self.cookies, self.pasted = [], None
        if dropped and self.headers:
            self.headers = [pair for pair in self.headers if pair[0].lower() not in dropped]
        self.url = url

    def forget_cookies(self, names: Collection[str]) -> None:
        """Send none of the request's own cookies of these names any more."""
        kept = [cookie for cookie in self.cookies if cookie.name not in names]
        if len(kept) != len(self.cookies):
            self.cookies, self.pasted = kept, None

    def lines(self, defaults: Mapping[str, str], jar_cookies: list[tuple[str, str]]) -> tuple[bytes, ...]:
        """The header lines of this hop. Raises RequestError for text that has no UTF-8 form."""
        try:
            return self._lines(defaults, jar_cookies)
        except UnicodeError as error:
            raise unsendable(error) from None

    def _lines(self, defaults: Mapping[str, str], jar_cookies: list[tuple[str, str]]) -> tuple[bytes, ...]:
        pairs = merge(defaults, self.headers)
        lines = [line(name, value) for name, value in pairs if not is_for_proxy(name)]
        if self.body is not None or self.method in _SENDS_LENGTH:
            # Browsers don't ask for 100-continue, and libcurl shall not invent a content type.
            lines.append(b"Expect:")
            if not any(name.lower() == "content-type" for name, _ in self.headers):
                lines.append(b"Content-Type:")
        cookie = self.cookie_header(jar_cookies)
        if cookie:
            lines.append(line("Cookie", cookie))
        return tuple(lines)

    def cookie_header(self, jar_cookies: list[tuple[str, str]]) -> bytes:
        """The Cookie value: the jar's cookies, then the request's own, which win by name and keep their order.

        A Cookie header that nothing joins goes out as it was given.
        """
        if not self.cookies:
            return cookie_rules.header(jar_cookies)
        place = place_of(self.url)
        own = [cookie for cookie in self.cookies if cookie.goes_to(**place)]
        names = {cookie.name for cookie in own}
        kept = [cookie_rules.pair(*pair) for pair in jar_cookies if pair[0] not in names]
        text = "; ".join([*kept, *(cookie.text for cookie in own)])
        return (text if kept or self.pasted is None else self.pasted).encode("utf-8", "surrogateescape")

    def options(self) -> list[Option]:
        """What libcurl is told beyond URL and headers; empty for a plain GET."""
        out: list[Option] = []
        method, content = self.method, self.body
        if content is not None or method in _SENDS_LENGTH:
            sent = b"" if content is None else content.content
            out += [(CurlOpt.POSTFIELDSIZE_LARGE, len(sent)), (CurlOpt.POSTFIELDS, sent)]
        if method == "HEAD":
            out.append((CurlOpt.NOBODY, 1))
        elif method != "GET" or content is not None:
            out.append((CurlOpt.CUSTOMREQUEST, method.encode("ascii")))
        if method not in IDEMPOTENT:
            out.append((PREREQFUNCTION, once))
        kwargs = self.kwargs
        if kwargs:
            proxy = proxy_for(self.method, self.url, kwargs)
            self.proxied = bool(proxy)
            if proxy:
                out.append((CurlOpt.PROXY, proxy.encode()))
                out += self._proxy_headers(proxy)
            if kwargs.get("verify") is not None:
                out += verify_options(kwargs["verify"])
            if kwargs.get("cert") is not None:
                out += cert_options(kwargs["cert"])
            if kwargs.get("timeout") is not None:
                out += [
                    (CurlOpt.TIMEOUT_MS, milliseconds(self.total_s)),
                    (CurlOpt.CONNECTTIMEOUT_MS, milliseconds(self.connect_s)),
                ]
        return out

    def _proxy_headers(self, proxy: str) -> list[Option]:
        """What the request's own headers say to `proxy`.

        Credentials are for one proxy, the first on the way; SOCKS knows no headers.
        """
        self.proxy = self.proxy or proxy
        given = [(name, value) for name, value in self.headers if is_for_proxy(name)]
        if not given or proxy != self.proxy or not proxy.startswith("http"):
            return []
        lines = tuple(line(name, value) for name, value in given)
        # A tunnel is used again for the user that it was opened for only. The header replaces what libcurl would make
        # of the user.
        users = [
            str(value) for name, value in given if name.lower() == "proxy-authorization" and value is not None
        ]
        return [(CurlOpt.PROXYHEADER, lines), *((CurlOpt.PROXYUSERNAME, user.encode()) for user in users)]


def is_for_proxy(name: str) -> bool:
    """Whether a header is for the proxy and nobody else (RFC 9110 11.7.2); also Proxy-Connection."""
    return name[:6].lower() == "proxy-"


def unsendable(error: UnicodeError) -> RequestError:
    """The error of text that can't be turned into bytes, such as half of a surrogate pair."""
    return RequestError(f"a header, cookie or body of the request can't be encoded: {error}")


def milliseconds(seconds: float) -> int:
    """For libcurl, to which 0 would mean no limit."""
    return max(1, round(seconds * 1000))


def first_of(kwargs: Mapping[str, Any], *names: str, default: Any) -> Any:
    """The first of `names` that is given and not None."""
    for name in names:
        if kwargs.get(name) is not None:
            return kwargs[name]
    return default


def yes_or_no(value: Any, keyword: str) -> bool:
    """True or False, 1 and 0 included. Raises RequestError for anything else, which Python might take for a yes."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise RequestError(f"{keyword}={value!r:.80} is neither True nor False")


def limits(timeout: Any, total_s: float, connect_s: float) -> tuple[float, float]:
    """Total and connect seconds of a request's `timeout=`; the defaults where it says None.

    A number is the total. (connect, read) allows `connect` for the connection and both together in total.
    """
    if timeout is None:
        return total_s, connect_s
    try:
        if isinstance(timeout, tuple | list):
            connect, read = timeout
            connect_s = connect_s if connect is None else float(connect)
            total_s = total_s if read is None else connect_s + float(read)
        else:
            total_s = float(timeout)
    except (TypeError, ValueError):
        raise RequestError(
            f"timeout={timeout!r:.80} is neither seconds nor (connect, read) seconds"
        ) from None
    if not (total_s > 0 and connect_s > 0):
        raise RequestError(f"timeout={timeout!r:.80} leaves no time; give seconds above 0")
    return min(total_s, 10.0**8), min(connect_s, 10.0**8)


def basic(auth: Any) -> str:
    """The Authorization value of `auth=(user, password)` (RFC 7617, UTF-8)."""
    if not (isinstance(auth, tuple | list) and len(auth) == 2):
        raise RequestError(f"auth= takes (user, password), not {type(auth).__name__}")
    user, password = (_text(text_of(part, "a part of auth=")) for part in auth)
    if ":" in user:
        raise RequestError("the user name in auth= contains a colon, which Basic authentication can't carry")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape")).decode(
        "ascii"
    )


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def place_of(url: str) -> dict[str, Any]:
    """What the cookie rules look at in a URL."""
    start = url.find("/", 8)
    path = url[start:].partition("?")[0] if start > 0 else "/"
    return {"host": host_of(url), "path": path or "/", "secure": url.startswith("https:")}


def proxy_for(method: str, url: str, kwargs: Mapping[str, Any]) -> str:
    """The proxy URL for `url`, "" for none.

    `proxy=` is for every URL; `proxies=` maps a scheme (`http`, `https://`, `all`) to one. A proxy without a
    scheme is an HTTP proxy. Raises DownloadError `proxy` for what is no proxy URL.
    """
    chosen = kwargs.get("proxy")
    given = kwargs.get("proxies")
    if not chosen and given:
        if not hasattr(given, "get"):
            raise RequestError("proxies= takes a dict from scheme to proxy URL")
        scheme = urlsplit(url).scheme
        for key in (scheme, f"{scheme}://", "all", "all://"):
            if given.get(key):
                chosen = given[key]
                break
    if not chosen:
        return ""
    text = str(chosen)
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in PROXY_SCHEMES and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise download_error(
            method,
            url,
            f"{hide_password(text)!r:.200} is no proxy URL; give {', '.join(sorted(PROXY_SCHEMES))}://host:port",
            Kind("proxy", retryable=False),
        )
    return text


def verify_options(verify: Any) -> list[Option]:
    """`verify=`: True, False, or the path of a CA file or folder."""
    if isinstance(verify, str | os.PathLike):
        path = os.fspath(verify)
        if not os.path.exists(path):  # noqa: PTH110  a string is what libcurl takes
            raise RequestError(
                f"verify={path!r} does not exist; give a CA file or folder in PEM form, True or False"
            )
        where = CurlOpt.CAPATH if os.path.isdir(path) else CurlOpt.CAINFO  # noqa: PTH112
        return [(CurlOpt.SSL_VERIFYPEER, 1), (CurlOpt.SSL_VERIFYHOST, 2), (where, os.fsencode(path))]
    checked = yes_or_no(verify, "verify")
    return [(CurlOpt.SSL_VERIFYPEER, 1 if checked else 0), (CurlOpt.SSL_VERIFYHOST, 2 if checked else 0)]


def cert_options(cert: Any) -> list[Option]:
    """`cert=`: a PEM file with certificate and key, or (certificate, key[, password])."""
    files = [cert] if isinstance(cert, str | os.PathLike) else list(cert)
    numbers = (CurlOpt.SSLCERT, CurlOpt.SSLKEY, CurlOpt.KEYPASSWD)
    if not 1 <= len(files) <= len(numbers):
        raise RequestError("cert= takes a path or (certificate, key[, password])")
    for path in files[:2]:
        if path is not None and not os.path.exists(path):  # noqa: PTH110  as above
            raise RequestError(f"cert={os.fspath(path)!r} does not exist")
    return [(number, os.fsencode(value)) for number, value in zip(numbers, files, strict=False) if value]


_bad_name = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]").search  # RFC 9110 5.6.2: what a token can't contain
_bad_value = re.compile(rb"[\r\n\0]").search


def given_pairs(headers: Any) -> list[tuple[str, str | bytes | None]]:
    """The headers of a request, a mapping or pairs, as pairs in order; None leaves a header out, a list repeats it.

    Raises RequestError for anything else.
    """
    if not headers:
        return []
    return [
        (name, None if one is None else text_of(one, f"the value of the header {name!r:.80}"))
        for name, value in pairs_of(headers, "headers")
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]


_boundary = re.compile(r'boundary="?([^\s";]+)', re.IGNORECASE).search


def with_boundary(
    kwargs: Mapping[str, Any], headers: list[tuple[str, str | bytes | None]], encoding: str
) -> tuple[bodies.Body | None, list[tuple[str, str | bytes | None]]]:
    """The body, and the headers, where a Content-Type that calls it multipart has the boundary that the body has."""
    place = next((at for at, (name, _) in enumerate(headers) if name.lower() == "content-type"), -1)
    told = "" if place < 0 else _text(headers[place][1] or "")
    if not kwargs.get("files") or not told.lower().lstrip().startswith("multipart/"):
        return bodies.encode(kwargs, encoding=encoding), headers
    named = _boundary(told)
    if named:
        return bodies.encode(kwargs, encoding=encoding, boundary=lambda: named[1]), headers
    body = bodies.encode(kwargs, encoding=encoding)
    parameter = ((body and body.content_type) or "").partition(";")[2]
    whole: tuple[str, str | bytes | None] = (headers[place][0], f"{told.rstrip(' ;')};{parameter}")
    return body, [*headers[:place], whole, *headers[place + 1 :]]


def merge(defaults: Mapping[str, str], given: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Defaults, each replaced by the given header of the same name, then the rest of the given ones in
    order.
    """
    names = {name.lower() for name, _ in given}
    return [(name, value) for name, value in defaults.items() if name.lower() not in names] + given


@lru_cache(maxsize=1024)
def _name_line(name: str) -> bytes:
    if not name or _bad_name(name):
        raise RequestError(f"the header name {name!r:.80} has a character that HTTP doesn't allow there")
    return name.encode("ascii")


def line(name: str, value: Any) -> bytes:
    """One header line as libcurl takes it. Raises RequestError when it can't be sent as one line.

    None removes a header that libcurl would add by itself. Text goes out as UTF-8.
    """
    head = _name_line(name)
    if value is None:
        return head + b":"
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    raw = raw.strip(b" \t")
    if _bad_value(raw):
        raise RequestError(f"the value of the header {name!r} contains a line break or NUL; take it out")
    # libcurl drops "Name:" and sends "Name;" as an empty header.
    return head + b": " + raw if raw else head + b";"
