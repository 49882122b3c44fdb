"""What the addresses of brokers have in common: their own options in the query, passwords that are never shown."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from netspy.errors import ConfigError
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#\[\]@]+)(?::(\d{1,5}))?")


def wrong(name: str, url: str, what: str, remedy: str) -> ConfigError:
    """The error about an address: `name` is the setting or argument that holds it."""
    return ConfigError(f"{name}={display_url(url)!r} {what}; {remedy}")


def display_url(url: str) -> str:
    """`url` without its password, also the one of `sasl.password=…` and the like in the query."""
    return hide_password(url)


def split_query(url: str) -> tuple[str, list[tuple[str, str]]]:
    """The address without its query, and the pairs of the query."""
    place, _, query = url.partition("?")
    return place, parse_qsl(query, keep_blank_values=True)


def read_options(
    name: str,
    url: str,
    pairs: Iterable[tuple[str, str]],
    known: Mapping[str, Callable[[str], Any]],
    foreign: Callable[[str], bool],
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Our own options as values, and the pairs that are for the client library (`foreign`). Raises ConfigError."""
    own: dict[str, Any] = {}
    others: list[tuple[str, str]] = []
    for option, text in pairs:
        if option in known:
            try:
                own[option] = known[option](text)
            except ValueError as error:
                raise wrong(name, url, f"has {option}={text!r}", str(error)) from None
        elif foreign(option):
            others.append((option, text))
        else:
            close = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(sorted(known))}"
            raise wrong(name, url, f"has the option {option[:40]!r}, which isn't known", hint)
    return own, others


def count(text: str) -> int:
    """A whole number above 0. Raises ValueError."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("it is a whole number above 0")
    return int(text)


def word(text: str) -> str:
    """Text that isn't empty. Raises ValueError."""
    if not text:
        raise ValueError("it is empty")
    return text


def read_hosts(name: str, url: str, authority: str, port: int) -> list[tuple[str, int]]:
    """host[:port],host… Raises ConfigError."""
    hosts = []
    for text in authority.split(","):
        found = _HOST.fullmatch(text)
        number = int(found[2]) if found and found[2] else port
        if found is None or not 0 < number < 65536:
            raise wrong(
                name,
                url,
                f"names no host that can be read at {text!r}",
                f"write host:{port}, and characters such as / @ : in a password as %2F %40 %3A",
            )
        hosts.append((found[1], number))
    return hosts


def read_user(secret: str) -> tuple[str | None, str | None]:
    """User and password of `user:password`, percent-decoded."""
    name, colon, password = secret.partition(":")
    return unquote(name) or None, unquote(password) if colon else None
