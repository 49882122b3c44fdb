"""What must not be printed: secrets, the passwords of URLs, and the parameters of URLs that are secrets by their names."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
SECRET_HINTS = ("PASSWORD", "SECRET", "TOKEN", "WEBHOOK", "API_KEY")


def is_secret(name: str) -> bool:
    """Whether the value of `name` must not be printed."""
    return any(hint in name for hint in SECRET_HINTS)


def display_value(name: str, value: Any) -> str:
    """A value fit for printing: secrets hidden, passwords in URLs replaced, also in what is no URL but was meant as one."""
    if is_secret(name) and value:
        return HIDDEN
    if isinstance(value, str) and _holds_url(name):
        return hide_password(value)
    return repr(_displayed(value, is_url=_holds_url(name)))


def _holds_url(name: str) -> bool:
    return name.endswith(("_URL", "_URI", "_DSN", "_SOURCE", "_HOSTS", "_SERVERS", "PROXY", "PROXIES"))


def _displayed(value: Any, *, is_url: bool) -> Any:
    if isinstance(value, str):
        return hide_password(value) if is_url else _without_odd_passwords(without_passwords(value))
    if isinstance(value, dict):
        return {key: _displayed(inner, is_url=is_url) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_displayed(inner, is_url=is_url) for inner in value]
    return value


# -- parameters

_secret_part = re.compile(
    r"passw|passphrase|passcode|pwd|secret|token|signature|credential|authori[sz]|oauth|jwt|hmac|csrf|xsrf|assertion|webhook"
    r"|session|sessid|(?:api|access|private|auth|app|license|subscription|pass)[-_.]?key",
    re.IGNORECASE,
).search
_secret_whole = re.compile(
    r"(?:.*[-_.\[])?(?:auth|sig|sign|sid|pass|otp|bearer)\]?|key|code|pin|ticket|hdne[as]|hdntl",
    re.IGNORECASE,
).fullmatch

_ENCODED = r"%(?:25)*"  # also in a URL that is a parameter of another one
_NAME = rf"(?:[^\s%?&#;=\"'<>/\\]|{_ENCODED}(?!25|3[bdf]|2[36])[0-9a-f]{{2}})+?"
_parameters = (
    re.compile(rf"(?i)([?&#])({_NAME})(=|{_ENCODED}3d)([^\s\"'<>&#]+)").sub,
    re.compile(rf"(?i)(;)({_NAME})(=|{_ENCODED}3d)([^\s\"'<>?&#;]+)").sub,
    re.compile(
        rf"(?i)({_ENCODED}(?:3f|26|23|3b))({_NAME})(=|{_ENCODED}3d)((?:(?!{_ENCODED}2[36])[^\s\"'<>&#])+)"
    ).sub,
)
_assignments = re.compile(
    r"""(?i)(?<![\w.\-?&#;%])((?:[\w.\-]+[-_.])?(?:password|passwd|passphrase|pwd|secret|token|signature|api[-_]?key|access[-_]?key)=)"""
    r"""("[^"]+"|'[^']+'|[^\s"'<>&;,)]+)"""
).sub


def is_secret_parameter(name: str) -> bool:
    """Whether a parameter of a URL that is called so is most likely a secret."""
    plain = unquote(unquote(name)) if "%" in name else name
    return _secret_part(plain) is not None or _secret_whole(plain) is not None


def _masked(found: re.Match[str]) -> str:
    head, name, equals, _ = found.groups()
    return f"{head}{name}{equals}{HIDDEN}" if is_secret_parameter(name) else found[0]


def _without_parameters(text: str) -> str:
    for sub in _parameters:
        text = sub(_masked, text)
    return _assignments(rf"\1{HIDDEN}", text)


# -- passwords

_AT = "@＠"  # the wide one comes from an input method left on
_raw_parameters = re.compile(r"([?&])([^?&=]+)(=)([^&]+)").sub  # a value may hold any character here, too
_host = re.compile(r"(?:[\w.~%*-]+|\[[0-9a-fA-F:.%\w]*\])(?::\d{0,5})?").fullmatch
_scheme = re.compile(r"\s*[A-Za-z][\w.+-]*\s*(?:[:：;.]\s*[/\\／]*|[/\\／]{2,})").match


def hide_password(url: str) -> str:
    """The URL of a store, broker or proxy without its password and its secret parameters.

    A password may hold any character. What can't be read as a URL is cut down to what is no part of a password for sure.
    """
    scheme, sep, rest = url.partition("://")
    if not sep:
        url = _without_parameters(url)
        at = max(_last_at(url), url.rfind("%40"))
        known = _scheme(url, 0, at) if at >= 0 else None
        return url if at < 0 else (known[0] if known else "") + HIDDEN + url[at:]
    rest = _without_parameters(_raw_parameters(_masked, rest))
    end = len(rest)
    for mark in "/?#":
        # A password may itself contain / or ?, so the authority ends after the last @ in front of a host.
        at = _last_at(rest)
        found = rest.find(mark, at + 1)
        if found >= 0:
            end = min(end, found)
    authority, tail = rest[:end], rest[end:]
    at = _last_at(authority)
    if at >= 0:
        user, host = authority[:at], authority[at + 1 :]
        name, colon, _secret = user.partition(":")
        return f"{scheme}://{name}:{HIDDEN}@{host}{tail}" if colon else f"{scheme}://{HIDDEN}@{host}{tail}"
    if not authority or all(_host(place) for place in authority.split(",")):
        return f"{scheme}://{authority}{tail}"
    # A port that is none, or no host in front of it: it may be user:password, and the host is what was forgotten.
    return (
        f"{scheme}://{authority.partition(':')[0]}:{HIDDEN}" if ":" in authority else f"{scheme}://{HIDDEN}"
    )


def _last_at(text: str) -> int:
    return max(text.rfind(at) for at in _AT)


def _without_odd_passwords(text: str) -> str:
    """`text` without what may be a password in words such as `redis:/:password@host` or `user:password@host`."""
    return _words(lambda found: _without_odd_password(found[0]), text) if _last_at(text) >= 0 else text


_words = re.compile(r"""[^\s,"']+""").sub
_before_password = re.compile(r"[:：/\\]").search


def _without_odd_password(word: str) -> str:
    at = _last_at(word)
    if at < 0 or "://" in word or HIDDEN in word or not _before_password(word, 0, at):
        return word
    return hide_password(word)


_http_user = re.compile(r"""(?i)\b(https?:[/\\]*)([^\s/\\?#"'<>]{0,300})[@＠]""").sub
_store_url = re.compile(r"""(?i)\b(?!https?:)[a-z][a-z0-9+.-]{0,30}://[^\s"'<>]+""").sub
_mistyped = re.compile(
    r"""(?i)\b((?:rediss?|unix|mysql|mariadb|postgres(?:ql)?|sqlite|mongodb|amqps?|kafka|socks[45][ah]?)(?:\+[a-z0-9+.-]{1,30})?)"""
    r"""(?!://[^/])([:：;.]?[/\\／]+|[:：;])([^\s"'<>]{0,300})[@＠]"""
).sub


def without_passwords(text: str) -> str:
    """`text` with *** in the place of the passwords of all URLs in it, and of parameters that are secrets by their names.

    In http(s) URLs only what stands before the host is a password (`https://example.com/@name` stays as it is): log lines
    quote page URLs. Store URLs get the stricter treatment, since people put raw passwords in them.
    """
    if "@" in text or "＠" in text:
        text = _http_user(
            lambda m: f"{m[1]}{m[2].partition(':')[0]}:***@" if ":" in m[2] else f"{m[1]}***@", text
        )
        text = _mistyped(rf"\1\2{HIDDEN}@", text)
    if "://" in text:
        text = _store_url(lambda m: hide_password(m[0]), text)
    return _without_parameters(text) if "=" in text or "%3" in text or "%25" in text else text
