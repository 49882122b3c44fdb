"""A curl command line, as browsers' "Copy as cURL (bash)" writes it, turned into a Request's keywords.

Understood
    -X --request · -H --header · -d --data --data-ascii --data-raw --data-binary --data-urlencode · --json ·
    -F --form --form-string · -G --get · -I --head · -A --user-agent · -e --referer · -b --cookie · -u --user
    · --oauth2-bearer · -r --range · -x --proxy · -U --proxy-user · -k --insecure · -L --location · -m
    --max-time · --url, and the URL itself. Short options may be run together (`-sSL`, `-XPOST`).
Ignored, for they don't change the request
    --compressed · -s -S -v -i -f -N -g -# -4 -6 -0 -q and their long names · --http1.1 --http2 --http3 ·
    --path-as-is · -o -w -c --connect-timeout --retry and their values.
Refused with a RequestError
    every other option, files (`@name`), shell variables, pipes and redirections, and more than one URL.

Without -L curl doesn't follow redirects; a Request does unless told otherwise, so nothing is set then.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn
from urllib.parse import quote_plus

from netspy.errors import RequestError
from netspy.messages.shell_words import split_command
from netspy.messages.urls import add_params

_SHORT = {
    "X": "request",
    "H": "header",
    "d": "data",
    "F": "form",
    "G": "get",
    "I": "head",
    "A": "user-agent",
    "e": "referer",
    "b": "cookie",
    "u": "user",
    "r": "range",
    "x": "proxy",
    "U": "proxy-user",
    "k": "insecure",
    "L": "location",
    "m": "max-time",
    "o": "output",
    "w": "write-out",
    "c": "cookie-jar",
} | dict.fromkeys("sSvifNg#460q", "silent")
_WITH_VALUE = frozenset(
    {
        "request", "header", "data", "data-ascii", "data-raw", "data-binary", "data-urlencode", "json",
        "form", "form-string", "user-agent", "referer", "cookie", "user", "oauth2-bearer", "range", "proxy",
        "proxy-user", "max-time", "url",
    }
)  # fmt: skip
_FLAGS = frozenset({"get", "head", "insecure", "location"})
_IGNORED_WITH_VALUE = frozenset({"output", "write-out", "cookie-jar", "connect-timeout", "retry"})
_IGNORED = frozenset(
    {
        "compressed", "silent", "show-error", "verbose", "include", "fail", "no-buffer", "globoff",
        "progress-bar", "ipv4", "ipv6", "http1.0", "http1.1", "http2", "http2-prior-knowledge", "http3",
        "disable", "path-as-is", "no-progress-meter",
    }
)  # fmt: skip


def parse_curl(command: str) -> dict[str, Any]:
    """The keywords for `Request(...)`. Raises RequestError for what can't be carried over."""
    words = split_command(command)
    if not words or words[0].removesuffix(".exe").rpartition("/")[2] != "curl":
        raise RequestError(f"not a curl command: {command.strip()!r:.100}; it starts with `curl`")
    reading = _Reading()
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            for url in rest:
                reading.option("url", url)
        elif word.startswith("--"):
            reading.option(word[2:], _value_of(word, rest) if _takes_value(word[2:]) else None)
        elif word.startswith("-") and len(word) > 1:
            _short_options(reading, word, rest)
        else:
            reading.option("url", word)
    return reading.keywords()


def _takes_value(name: str) -> bool:
    return name in _WITH_VALUE or name in _IGNORED_WITH_VALUE


def _value_of(word: str, rest: Any) -> str:
    value: str | None = next(rest, None)
    if value is None:
        raise RequestError(f"curl option {word} needs a value; the command ends there")
    return value


def _short_options(reading: _Reading, word: str, rest: Any) -> None:
    """`-sSL`, `-XPOST`, `-H 'a: b'`."""
    for place, letter in enumerate(word[1:], 2):
        name = _SHORT.get(letter)
        if name is None:
            _unknown(f"-{letter}")
        if _takes_value(name):
            reading.option(name, word[place:] or _value_of(word, rest))
            return
        reading.option(name, None)


def _unknown(option: str) -> NoReturn:
    raise RequestError(
        f"curl option {option} isn't understood; take it out and set what it does on the Request by hand"
    )


class _Reading:
    """What the options read so far ask for."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.method: str | None = None
        self.get = self.head = self.verify_off = self.follow = False
        self.headers: dict[str, str] = {}
        self.removed: set[str] = set()
        self.body: list[str] = []
        self.json = ""
        self.form: list[tuple[str, tuple[Any, ...]]] = []
        self.cookies: dict[str, str] = {}
        self.more: dict[str, Any] = {}
        self.proxy: str | None = None
        self.proxy_user: str | None = None

    def option(self, name: str, value: str | None) -> None:
        """Take one option by its long name. Raises RequestError when it isn't understood."""
        if name in _FLAGS:
            self._flag(name)
        elif name in _WITH_VALUE:
            getattr(self, "_" + name.replace("-", "_"))(value)
        elif name not in _IGNORED and name not in _IGNORED_WITH_VALUE:
            _unknown(f"--{name}")

    def keywords(self) -> dict[str, Any]:
        """The keywords for Request."""
        if self.url is None:
            raise RequestError("the curl command has no URL")
        url = self.url if "://" in self.url else f"http://{self.url}"  # curl guesses so, too
        body = self.json or ("&".join(self.body) if self.body else None)
        out: dict[str, Any] = dict(self.more)
        if self.get and body is not None:
            url, body = add_params(url, body), None
        if body is not None:
            out["data"] = body
            kind = "application/json" if self.json else "application/x-www-form-urlencoded"
            self._default("Content-Type", kind)
            if self.json:
                self._default("Accept", "application/json")
        if self.form:
            out["files"] = self.form
        method = "HEAD" if self.head else "POST" if (body is not None or self.form) else "GET"
        if self.headers:
            out["headers"] = self.headers
        if self.cookies:
            out["cookies"] = self.cookies
        if self.verify_off:
            out["verify"] = False
        if self.follow:
            out["follow_redirects"] = True
        if self.proxy is not None:
            out["proxy"] = self._whole_proxy(self.proxy)
        return {"url": url, "method": self.method or method, **out}

    def _default(self, name: str, value: str) -> None:
        """Set a header that curl adds by itself, unless it was given or taken out (`-H 'Accept:'`)."""
        given = {header.lower() for header in self.headers} | self.removed
        if name.lower() not in given:
            self.headers[name] = value

    def _whole_proxy(self, proxy: str) -> str:
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if self.proxy_user is None:
            return proxy
        scheme, _, place = proxy.partition("://")
        return f"{scheme}://{self.proxy_user}@{place.rpartition('@')[2]}"

    def _flag(self, name: str) -> None:
        self.get |= name == "get"
        self.head |= name == "head"
        self.verify_off |= name == "insecure"
        self.follow |= name == "location"

    def _url(self, value: str) -> None:
        if self.url is not None:
            raise RequestError(
                f"the curl command has two URLs, {self.url!r:.100} and {value!r:.100}; give it one"
            )
        self.url = value

    def _request(self, value: str) -> None:
        self.method = value.upper()

    def _header(self, value: str) -> None:
        _no_file("-H", value)
        name, colon, content = value.partition(":")
        name, content = name.strip(), content.strip()
        if value.startswith(":"):
            return  # :authority and its like: HTTP/2 makes them from the URL
        if not colon and name.endswith(";"):
            self.headers[name[:-1]] = ""  # curl's way to send an empty header
        elif not colon or not name:
            raise RequestError(f"curl option -H {value!r:.100} has no colon; a header is 'Name: value'")
        elif not content:
            self.removed.add(name.lower())
        elif name.lower() != "content-length":  # the body that is sent decides
            self.headers[name] = content

    def _user_agent(self, value: str) -> None:
        self.headers["User-Agent"] = value

    def _referer(self, value: str) -> None:
        self.headers["Referer"] = value.removesuffix(";auto")

    def _oauth2_bearer(self, value: str) -> None:
        self.headers["Authorization"] = f"Bearer {value}"

    def _range(self, value: str) -> None:
        self.headers["Range"] = f"bytes={value}"

    def _cookie(self, value: str) -> None:
        if "=" not in value:
            raise RequestError(f"curl option -b {value!r:.100} names a file; give the cookies themselves")
        for pair in value.split(";"):
            name, equals, content = pair.strip().partition("=")
            if equals:
                self.cookies[name] = content

    def _user(self, value: str) -> None:
        name, _, password = value.partition(":")
        self.more["auth"] = (name, password)

    def _proxy(self, value: str) -> None:
        self.proxy = value

    def _proxy_user(self, value: str) -> None:
        name, colon, password = value.partition(":")
        self.proxy_user = quote_plus(name) + colon + quote_plus(password)

    def _max_time(self, value: str) -> None:
        try:
            self.more["timeout"] = float(value)
        except ValueError:
            raise RequestError(f"curl option -m {value!r:.100} is no number of seconds") from None

    def _data(self, value: str) -> None:
        _no_file("-d", value)
        self.body.append(value)

    _data_ascii = _data_binary = _data

    def _data_raw(self, value: str) -> None:
        self.body.append(value)

    def _data_urlencode(self, value: str) -> None:
        name, mark, content = _urlencode_parts(value)
        if mark == "@":
            _no_file("--data-urlencode", "@" + content)
        self.body.append(f"{name}={quote_plus(content)}" if name else quote_plus(content))

    def _json(self, value: str) -> None:
        _no_file("--json", value)
        self.json += value

    def _form(self, value: str) -> None:
        name, equals, content = value.partition("=")
        if not equals:
            raise RequestError(f"curl option -F {value!r:.100} has no '='; a form field is name=value")
        if content.startswith(("@", "<")):
            _no_file("-F", "@" + content[1:])
        content, _, kind = content.partition(";type=")
        self.form.append((name, (None, content, kind) if kind else (None, content)))

    def _form_string(self, value: str) -> None:
        name, _, content = value.partition("=")
        self.form.append((name, (None, content)))


def _urlencode_parts(value: str) -> tuple[str, str, str]:
    """`content`, `=content`, `name=content`, `@file`, `name@file` → name, mark, content."""
    found = re.match(r"([^=@]*)([=@])(.*)", value, re.DOTALL)
    return (found[1], found[2], found[3]) if found else ("", "=", value)


def _no_file(option: str, value: str) -> None:
    if value.startswith("@"):
        raise RequestError(
            f"curl option {option} {value!r:.100} reads a file; read it yourself and pass what it holds"
        )
