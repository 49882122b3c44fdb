"""What a REDIS_URL says: which servers, how to reach them, who we are.

    redis://[user:password@]host[:6379][/db]
    rediss://…                                    the same over TLS
    unix://[user:password@]/path/to/socket[?db=0]
    redis+sentinel://[user:password@]host[:26379],host…/service[/db]      (rediss+sentinel:// over TLS)
    redis+cluster://[user:password@]host[:6379],host…[/0]                 (rediss+cluster:// over TLS)

User and password may be percent-encoded or written as they are: `redis://:p@ss/w#rd@host:6379/0` means what it
looks like. Further options follow as a query, under the names that redis-py gives them; see OPTIONS.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from netspy.errors import ConfigError
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = Literal["plain", "unix", "sentinel", "cluster"]

SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("plain", False),
    "rediss": ("plain", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
REDIS_PORT = 6379
SENTINEL_PORT = 26379

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?", re.ASCII)
_TRUE = frozenset({"1", "true", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "no", "n", "off"})


class Address(NamedTuple):
    """One REDIS_URL, read. `hosts` are the servers, sentinels or start nodes to begin with."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    db: int = 0
    service: str = ""
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})

    @property
    def names(self) -> str:
        """The hosts, for messages."""
        return ", ".join(f"{host}:{port}" for host, port in self.hosts) or self.path


def _flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("it is true or false")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError("it is a number of seconds above 0")
    return value


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError("there is no such file")
    return text


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError("there is no such folder")
    return text


def _verification(text: str) -> str:
    if text not in {"none", "optional", "required"}:
        raise ValueError("it is required, optional or none")
    return text


def _tls_version(text: str) -> Any:
    import ssl

    try:
        return {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[text]
    except KeyError:
        raise ValueError("it is 1.2 or 1.3") from None


OPTIONS: dict[str, Callable[[str], Any]] = {
    "db": int,
    "username": str,
    "password": str,
    "client_name": str,
    "socket_timeout": _seconds,
    "socket_connect_timeout": _seconds,
}
"""What the query of every URL may hold."""

TLS_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": _file,
    "ssl_ca_path": _folder,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_password": str,
    "ssl_check_hostname": _flag,
    "ssl_cert_reqs": _verification,
    "ssl_min_version": _tls_version,
    "ssl_ciphers": str,
}
"""What it may hold besides with rediss."""

SENTINEL_OPTIONS: dict[str, Callable[[str], Any]] = {"sentinel_username": str, "sentinel_password": str}
"""What it may hold besides with sentinels: who we are to them (user and password are for the servers)."""


def read_address(url: str) -> Address:
    """The address in `url`. Nothing is sent; files that TLS needs are looked for.

    Raises ConfigError that names what is wrong, without the password.
    """
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in SCHEMES:
        raise ConfigError(
            f"REDIS_URL={hide_password(url)!r} is no Redis address; write redis://host:6379/0, rediss://… for TLS, "
            "unix:///path/to/socket, redis+sentinel://host:26379,host:26379/service/0 or "
            "redis+cluster://host:7000,host:7001"
        )
    kind, tls = SCHEMES[scheme]
    problems = []
    for secret, place in _splits(rest):
        try:
            return _read(url, kind, tls, secret, place)
        except ConfigError as error:
            problems.append(error)
    if len(problems) > 1:
        raise _wrong(
            url,
            "can't be read",
            "write characters such as / ? # @ : % in its user or password as %2F %3F %23 %40 %3A %25",
        )
    raise problems[0]


def url_of_client(client: Any) -> str:
    """The address of a redis-py client, blocking or asyncio, of one server. Raises ConfigError for any other object."""
    pool = getattr(client, "connection_pool", None)
    known: Mapping[str, Any] = getattr(pool, "connection_kwargs", {})
    if "path" not in known and "host" not in known:
        raise ConfigError(
            f"a {type(client).__name__} tells no single Redis address; give a URL (REDIS_URL's kinds), or leave it out"
        )

    def text(name: str) -> str:
        return quote(str(known.get(name) or ""), safe="")

    secret = f"{text('username')}:{text('password')}@" if known.get("password") else ""
    if "path" in known:
        return f"unix://{secret}{quote(str(known['path']))}?db={known.get('db') or 0}"
    tls = any(kind.__name__ == "SSLConnection" for kind in pool.connection_class.__mro__)  # type: ignore[union-attr]
    host = str(known["host"])
    place = f"[{host}]" if ":" in host else host
    options = {name: known[name] for name in TLS_OPTIONS if tls and isinstance(known.get(name), str | bool)}
    query = f"?{urlencode(options)}" if options else ""
    return f"redis{'s' if tls else ''}://{secret}{place}:{known.get('port', REDIS_PORT)}/{known.get('db') or 0}{query}"


def _splits(rest: str) -> list[tuple[str, str]]:
    """Ways to tell user and password from the place, the likeliest first.

    The standard's (RFC 3986: what stands before the first of / ? #), then, for passwords written as they are, with
    every @ as the border, from the right.
    """
    end = min((at for at in (rest.find(mark) for mark in "/?#") if at >= 0), default=len(rest))
    border = rest.rfind("@", 0, end)
    found = [(rest[: max(0, border)], rest[border + 1 :])]
    at = rest.rfind("@")
    while at >= 0:
        if at != border:
            found.append((rest[:at], rest[at + 1 :]))
        at = rest.rfind("@", 0, at)
    return found


def _read(url: str, kind: Kind, tls: bool, secret: str, place: str) -> Address:
    place, fragment, _ = place.partition("#")
    if fragment:
        raise _wrong(url, "has a # in it", "leave out what it begins, or write it as %23")
    place, _, query = place.partition("?")
    options = _read_options(url, kind, tls, query)
    name, colon, password = secret.partition(":")
    username = unquote(name) or options.pop("username", None)
    password = unquote(password) if colon and password else options.pop("password", None)
    options.pop("username", None)
    options.pop("password", None)
    rights: dict[str, Any] = {
        "username": username or None,
        "password": password or None,
        "sentinel_username": options.pop("sentinel_username", None),
        "sentinel_password": options.pop("sentinel_password", None),
    }
    db = options.pop("db", None)
    if kind == "unix":
        if not place.startswith("/"):
            raise _wrong(url, "names no socket", "write unix:///path/to/socket?db=0, with three slashes")
        return Address(kind, tls, path=unquote(place), db=db or 0, **rights, options=options)
    authority, _, path = place.partition("/")
    hosts = _read_hosts(url, authority, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT)
    if kind == "plain" and len(hosts) > 1:
        raise _wrong(
            url, f"names {len(hosts)} hosts", "use redis+sentinel:// or redis+cluster:// for several"
        )
    service = ""
    if kind == "sentinel":
        service, _, path = path.partition("/")
        service = unquote(service)
        if not service or "@" in service:
            raise _wrong(
                url,
                "names no service",
                "write it after the hosts, as in redis+sentinel://host:26379/mymaster/0 (the name in `sentinel monitor`)",
            )
    path = path.strip("/")
    if path and not path.isdecimal():
        raise _wrong(
            url,
            f"names the database {path!r}, which is no number",
            "end it with /0, or another number that the server has",
        )
    db = int(path) if path and db is None else db or 0
    if kind == "cluster" and db:
        raise _wrong(url, f"names database {db}", "a Redis Cluster has only database 0")
    return Address(kind, tls, hosts, db=db, service=service, **rights, options=options)


def _read_hosts(url: str, authority: str, port: int) -> tuple[tuple[str, int], ...]:
    hosts = []
    for text in authority.split(","):
        if not text and authority in {"", ","}:
            raise _wrong(url, "names no host", "write redis://host:6379/0")
        found = _HOST.fullmatch(text)
        number = int(found[2]) if found and found[2] else port
        if found is None or not 0 < number < 65536:
            raise _wrong(
                url,
                "has something that is no host:port before its first slash",
                "write host:6379 (an IPv6 address in brackets), and @ only after user:password",
            )
        hosts.append((found[1].strip("[]"), number))
    return tuple(hosts)


def _read_options(url: str, kind: Kind, tls: bool, query: str) -> dict[str, Any]:
    known = OPTIONS | (TLS_OPTIONS if tls else {}) | (SENTINEL_OPTIONS if kind == "sentinel" else {})
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            if name in TLS_OPTIONS:
                raise _wrong(url, f"has the TLS option {name}", "TLS addresses begin with rediss://")
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(sorted(known))}"
            raise _wrong(url, f"has the option {name[:40]!r}, which isn't known", hint)
        try:
            options[name] = known[name](text)
        except ValueError as error:
            shown = "" if "password" in name else f"={text!r}"
            reason = str(error) if known[name] is not int else "it is a whole number"
            raise _wrong(url, f"has {name}{shown}", reason) from None
    if options.get("ssl_cert_reqs") == "none":
        options["ssl_check_hostname"] = False
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise _wrong(url, "has ssl_keyfile without ssl_certfile", "name the certificate of this key too")
    return options


def _wrong(url: str, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"REDIS_URL={hide_password(url)!r} {what}; {remedy}")
