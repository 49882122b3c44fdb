"""What a database URL says, or the MYSQL_* and POSTGRES_* settings: which server, which database, who we are.

    mysql://[user[:password]@]host[:3306]/database        also mysql+pymysql://, mariadb://
    postgresql://[user[:password]@]host[:5432]/database   also postgres://, postgresql+psycopg://
    sqlite:///relative/path.db    sqlite:////absolute/path.db    sqlite:///~/path.db

User and password may be percent-encoded or written as they are (`mysql://me:p@ss/w#rd@host/db` means what it looks
like); they are decoded once. Further options follow as a query; see OPTIONS. A PostgreSQL URL may name several
servers (`host1:5432,host2:5432`), of which the first that answers is used.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

from netspy.errors import ConfigError
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netspy.settings import Settings

Kind = Literal["mysql", "postgresql", "sqlite"]

SCHEMES: dict[str, Kind] = {
    "mysql": "mysql",
    "mysql+pymysql": "mysql",
    "mariadb": "mysql",
    "mariadb+pymysql": "mysql",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
    "sqlite": "sqlite",
}
DEFAULT_PORT: dict[Kind, int] = {"mysql": 3306, "postgresql": 5432, "sqlite": 0}

OPTIONS: dict[Kind, frozenset[str]] = {
    "mysql": frozenset(
        {
            "unix_socket",
            "ssl_ca",
            "ssl_cert",
            "ssl_key",
            "ssl_verify_identity",
            "ssl_verify_cert",
            "ssl_disabled",
            "charset",
        }
    ),
    "postgresql": frozenset(
        {
            "host",
            "sslmode",
            "sslrootcert",
            "sslcert",
            "sslkey",
            "sslpassword",
            "application_name",
            "options",
            "target_session_attrs",
            "load_balance_hosts",
            "channel_binding",
            "gssencmode",
            "prepare_threshold",
        }
    ),
    "sqlite": frozenset(),
}
"""What the query of a URL may hold: names of PyMySQL, of libpq and of psycopg (`prepare_threshold=none` for a pooler
that can't keep prepared statements).
"""

_SERVER = re.compile(
    r"(?:(?P<user>[^:]*?)(?::(?P<password>.*))?@)?"
    r"(?P<hosts>(?:(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+)(?::\d{1,5})?)"
    r"(?:,(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+)(?::\d{1,5})?)*)?"
    r"(?:/(?P<database>[^?#]*))?(?:\?(?P<query>[^#]*))?",
    re.ASCII | re.DOTALL,
)
_HOST = re.compile(r"(\[[^\]]+\]|[^:]+)(?::(\d+))?")


class SqlAddress(NamedTuple):
    """One database. `database` is the file's path for SQLite. `password` is as the server knows it."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    user: str = ""
    password: str = ""
    database: str = ""
    options: Mapping[str, str] = MappingProxyType({})

    @property
    def shown(self) -> str:
        """The address for messages: no password, no options."""
        if self.kind == "sqlite":
            return f"sqlite:///{self.database}"
        where = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.hosts)
        where = where or self.options.get("unix_socket") or self.options.get("host") or ""
        user = f"{self.user}@" if self.user else ""
        return f"{self.kind}://{user}{where}/{self.database}"

    def __repr__(self) -> str:
        return f"SqlAddress({self.shown})"


def read_url(url: str, *, origin: str = "the database URL") -> SqlAddress:
    """The address in `url`. Raises ConfigError that names `origin` and the URL without its password."""
    scheme, mark, rest = url.strip().partition("://")
    kind = SCHEMES.get(scheme.lower())
    if not mark or kind is None:
        raise ConfigError(_unknown(scheme if mark else "", origin))
    if kind == "sqlite":
        return SqlAddress("sqlite", database=_sqlite_path(rest, url, origin))
    found = _SERVER.fullmatch(rest)
    if found is None:
        raise _wrong(url, origin, "it has no host after the user's part", kind)
    hosts = tuple(_host(text, kind) for text in (found["hosts"] or "").split(",") if text)
    if any(not 0 < port < 65536 for _, port in hosts):
        raise _wrong(url, origin, "a port lies between 1 and 65535", kind)
    if len(hosts) > 1 and kind == "mysql":
        raise _wrong(
            url, origin, "it names several hosts, which only PostgreSQL's driver can try in turn", kind
        )
    options = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
    _check_options(options, kind, origin)
    if not hosts and not (options.get("unix_socket") or options.get("host")):
        raise _wrong(url, origin, "it names no host", kind)
    database = unquote(found["database"] or "")
    if not database:
        raise _wrong(url, origin, "it names no database", kind)
    return SqlAddress(
        kind,
        hosts,
        unquote(found["user"] or ""),
        unquote(found["password"] or ""),
        database,
        MappingProxyType(options),
    )


def mysql_address(settings: Settings) -> SqlAddress:
    """What the MYSQL_* settings say. Raises ConfigError for an empty host or database."""
    return _from_settings("mysql", "MYSQL", settings)


def postgres_address(settings: Settings) -> SqlAddress:
    """What the POSTGRES_* settings say. Raises ConfigError for an empty host or database."""
    return _from_settings("postgresql", "POSTGRES", settings)


def _from_settings(kind: Kind, prefix: str, settings: Settings) -> SqlAddress:
    host, port, user, password, database = (
        getattr(settings, f"{prefix}_{part}") for part in ("HOST", "PORT", "USER", "PASSWORD", "DB")
    )
    for name, value in ((f"{prefix}_HOST", host), (f"{prefix}_DB", database)):
        if not value:
            raise ConfigError(f"{name} is empty; set it to store there")
    if host.startswith("/"):  # a socket's path, as the servers' own tools take it
        option = {"unix_socket": host} if kind == "mysql" else {"host": host}
        return SqlAddress(kind, (), user, password, database, MappingProxyType(option))
    return SqlAddress(kind, ((host, port),), user, password, database)


def _host(text: str, kind: Kind) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    assert found is not None  # noqa: S101 - _SERVER matched it
    return found[1].strip("[]"), int(found[2]) if found[2] else DEFAULT_PORT[kind]


def _sqlite_path(rest: str, url: str, origin: str) -> str:
    path = rest.removeprefix("/")
    if path == rest:
        raise ConfigError(
            f"{origin}={hide_password(url)!r}: write sqlite:///file.db, or sqlite:////folder/file.db for an absolute path"
        )
    if not path or path == ":memory:":
        raise ConfigError(
            f"{origin}={hide_password(url)!r} names no file; a database in memory would be another one for each connection"
        )
    if "?" in path:
        raise ConfigError(
            f"{origin}={hide_password(url)!r}: SQLite takes no options; leave out what follows the ?"
        )
    return str(Path(path).expanduser()) if path.startswith("~") else path


def _check_options(options: Mapping[str, str], kind: Kind, origin: str) -> None:
    for name, value in options.items():
        if name not in OPTIONS[kind]:
            near = difflib.get_close_matches(name, OPTIONS[kind], n=1)
            hint = f"did you mean {near[0]}?" if near else f"it may be {', '.join(sorted(OPTIONS[kind]))}"
            raise ConfigError(f"{origin}: the option {name!r} is none of {kind}'s; {hint}")
        if name == "charset" and value.lower() != "utf8mb4":
            raise ConfigError(
                f"{origin}: charset={value!r} can't hold every character; leave it out, netspy uses utf8mb4"
            )


def _wrong(url: str, origin: str, why: str, kind: Kind) -> ConfigError:
    scheme = "mysql" if kind == "mysql" else "postgresql"
    return ConfigError(
        f"{origin}={hide_password(url)!r}: {why}; write "
        f"{scheme}://user:password@host:{DEFAULT_PORT[kind]}/database"
    )


def _unknown(scheme: str, origin: str) -> str:
    forms = "mysql://, mariadb://, postgresql:// or sqlite:///path"
    if not scheme:
        # Not quoted: it may hold a password, and without a scheme nothing tells where.
        return f"{origin} is no URL: it has no ://; it starts with {forms}"
    family = SCHEMES.get(scheme.lower().partition("+")[0])
    if family is not None:
        plain = scheme.partition("+")[0]
        driver = {"mysql": "PyMySQL", "postgresql": "psycopg", "sqlite": "Python's sqlite3"}[family]
        return f"{origin}: {scheme}:// names another driver; netspy uses {driver}, write {plain}://"
    return f"{origin}: {scheme}:// is no database that netspy knows; it starts with {forms}"
