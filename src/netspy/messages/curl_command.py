"""A curl command line, as browsers' "Copy as cURL (bash)" writes it, turned into a Request's keywords.

Understood
    -X --request · -H --header · -d --data --data-ascii --data-raw --data-binary --data-urlencode · --json ·
    --url-query · -F --form --form-string · -G --get · -I --head · -A --user-agent · -e --referer · -b --cookie · -u --user
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
        "url-query", "form", "form-string", "user-agent", "referer", "cookie", "user", "oauth2-bearer", "range", "proxy",
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
        self.headers: list[tuple[str, str]] = []
        self.removed: dict[str, str] = {}  # by its name in lower case
        self.defaults: dict[str, str | None] = {}  # what options add, unless -H says otherwise
        self.body: str | None = None
        self.json = False
        self.query: list[str] = []
        self.form: list[tuple[str, tuple[Any, ...]]] = []
        self.cookie = ""
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
        body, kind = self.body, "application/x-www-form-urlencoded"
        if self.form and body is not None:
            raise RequestError("the curl command has a form (-F) and data (-d); a request has one body")
        out: dict[str, Any] = dict(self.more)
        if self.get and body is not None:
            url, body = add_params(url, body), None
        else:  # curl has no place for both
            url = add_params(url, "&".join(self.query))
        if self.json:
            kind = "application/json"
            self.defaults.setdefault("Accept", kind)
        if body is not None:
            out["data"] = body
            self.defaults.setdefault("Content-Type", kind)
        if self.form:
            out["files"] = self.form
        method = "HEAD" if self.head else "POST" if (body is not None or self.form) else "GET"
        headers = self._all_headers()
        if self.cookie and not any(name.lower() == "cookie" for name, _ in headers):
            pairs = [part.split("=", 1) for part in self.cookie.split("; ") if _plain_cookie(part)]
            if "; ".join(map("=".join, pairs)) == self.cookie and len(dict(pairs)) == len(pairs):
                out["cookies"] = dict(pairs)
            else:  # repeated names, cookies without one, or other spaces
                headers.append(("Cookie", self.cookie))
        if headers:
            names = {name.lower() for name, _ in headers}
            out["headers"] = dict(headers) if len(names) == len(headers) else headers
        if self.verify_off:
            out["verify"] = False
        if self.follow:
            out["follow_redirects"] = True
        if self.proxy is not None:
            out["proxy"] = self._whole_proxy(self.proxy)
        return {"url": url, "method": self.method or method, **out}

    def _all_headers(self) -> list[tuple[str, str | None]]:
        """The given ones, what options add beside them, and None for those that shall not be sent at all."""
        headers: list[tuple[str, str | None]] = list(self.headers)
        given = {name.lower() for name, _ in headers}
        for name, value in self.defaults.items():
            if name.lower() not in given | self.removed.keys():
                headers.append((name, value))
        for low, name in self.removed.items():
            if low not in given and (
                low != "content-type" or self.form
            ):  # other bodies get none by themselves
                headers.append((name, None))
        return headers

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
            if value.endswith(
                ";"
            ):  # curl's way to send an empty header; with a space behind it nothing is sent
                self.headers.append((name[:-1], ""))
        elif not colon or not name:
            raise RequestError(f"curl option -H {value!r:.100} has no colon; a header is 'Name: value'")
        elif not content:
            self.removed[name.lower()] = name
        elif name.lower() != "content-length":  # the body that is sent decides
            self.headers.append((name, content))

    def _user_agent(self, value: str) -> None:
        self.defaults["User-Agent"] = value or None

    def _referer(self, value: str) -> None:
        self.defaults["Referer"] = value.removesuffix(";auto") or None

    def _oauth2_bearer(self, value: str) -> None:
        self.defaults["Authorization"] = f"Bearer {value}"

    def _range(self, value: str) -> None:
        self.defaults["Range"] = f"bytes={value}"

    def _cookie(self, value: str) -> None:
        if value and "=" not in value:
            raise RequestError(f"curl option -b {value!r:.100} names a file; give the cookies themselves")
        self.cookie = ";".join(filter(None, [self.cookie, value]))

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
        self._data_raw(value)

    _data_ascii = _data_binary = _data

    def _data_raw(self, value: str) -> None:
        self.body = value if self.body is None else f"{self.body}&{value}"

    def _data_urlencode(self, value: str) -> None:
        self._data_raw(_urlencoded(value, "--data-urlencode"))

    def _url_query(self, value: str) -> None:
        self.query.append(value[1:] if value.startswith("+") else _urlencoded(value, "--url-query"))

    def _json(self, value: str) -> None:
        _no_file("--json", value)
        self.json = True
        self.body = (self.body or "") + value

    def _form(self, value: str) -> None:
        name, equals, content = value.partition("=")
        if not equals or not name:
            problem = "name" if equals else "'='"
            raise RequestError(f"curl option -F {value!r:.100} has no {problem}; a form field is name=value")
        if content.startswith(("@", "<")):
            _no_file("-F", "@" + content[1:])
        self.form.append((name, form_content(content)))

    def _form_string(self, value: str) -> None:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise RequestError(f"curl option --form-string {value!r:.100} is no name=value")
        self.form.append((name, (None, content)))


_SPACES = " \t\n\v\f\r"
_quoted = re.compile(r'"((?:\\[\\"]|[^"])*+)"[^;]*', re.DOTALL).match
_unescape = re.compile(r'\\([\\"])').sub
_plain_cookie = re.compile(r"[^\s=;]+=[^;\x00-\x1f\x7f]*").fullmatch
_option = re.compile(r"type=|filename=|headers=|encoder=", re.IGNORECASE).match
_media_type = re.compile(r"[^/ ]{1,127}/[^;, \n]{1,127}").match


def form_content(text: str) -> tuple[str | None, ...]:
    r"""What stands behind `name=` in curl's -F, when it reads no file: (file name or None, content[, content type]).

    curl's reading: up to the first `;` without the spaces around it, or, in double quotes, up to the closing one, with
    `\"` and `\\` for themselves; then `;type=…`. Raises RequestError for what would change the part in another way.
    """
    if text.startswith("("):
        raise RequestError(f"curl option -F has a multipart field at {text!r:.60}, which isn't understood")
    content, at = _word(text, _behind_spaces(text, 0))
    file_name: str | None = None
    kind: tuple[int, int] | None = None
    in_kind = False  # what follows a type belongs to it: `; charset=utf-8`
    while at < len(text):
        at = _behind_spaces(text, at + 1)
        option = (_option(text, at) or [""])[0].lower()
        if option == "type=" and not in_kind:
            start = _behind_spaces(text, at + len(option))
            if not _media_type(text, start):
                raise RequestError(f"curl option -F has {text[at:]!r:.60}, which names no content type")
            at = _end_of_word(text, start)
            kind, in_kind = (start, at), True
        elif option == "filename=":
            file_name, at = _word(text, _behind_spaces(text, at + len(option)))
            in_kind = False
        elif option:
            raise RequestError(f"curl option -F has {text[at:]!r:.60}, which isn't understood; leave it out")
        elif in_kind and kind is not None:
            at = _end_of_word(text, at)
            kind = (kind[0], at)
        else:  # curl skips what it doesn't know
            _, at = _word(text, at)
    return (file_name, content, *([] if kind is None else [text[slice(*kind)].rstrip(_SPACES)]))


def _behind_spaces(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip(_SPACES))


def _end_of_word(text: str, at: int) -> int:
    end = text.find(";", at)
    return len(text) if end < 0 else end


def _word(text: str, at: int) -> tuple[str, int]:
    """A word of -F from `at`, and where it ends: at a `;` or the end of the text."""
    quoted = _quoted(text, at)
    if quoted:
        return _unescape(r"\1", quoted[1]), quoted.end()
    end = _end_of_word(text, at)
    return text[at:end].rstrip(_SPACES), end


def _urlencoded(value: str, option: str) -> str:
    name, mark, content = _urlencode_parts(value)
    if mark == "@":
        _no_file(option, "@" + content)
    return f"{name}={quote_plus(content)}" if name else quote_plus(content)


def _urlencode_parts(value: str) -> tuple[str, str, str]:
    """`content`, `=content`, `name=content`, `@file`, `name@file` → name, mark, content."""
    found = re.match(r"([^=@]*)([=@])(.*)", value, re.DOTALL)
    return (found[1], found[2], found[3]) if found else ("", "=", value)


def _no_file(option: str, value: str) -> None:
    if value.startswith("@"):
        raise RequestError(
            f"curl option {option} {value!r:.100} reads a file; read it yourself and pass what it holds"
        )
