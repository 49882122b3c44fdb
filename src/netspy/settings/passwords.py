"""What must not be printed: secrets, and the passwords of URLs."""

from __future__ import annotations

import re
from typing import Any

SECRET_HINTS = ("PASSWORD", "SECRET", "TOKEN", "WEBHOOK", "API_KEY")


def is_secret(name: str) -> bool:
    """Whether the value of `name` must not be printed."""
    return any(hint in name for hint in SECRET_HINTS)


def display_value(name: str, value: Any) -> str:
    """A value fit for printing: secrets hidden, passwords in URLs replaced."""
    if is_secret(name) and value:
        return "***"
    if name.endswith(("_URL", "_URI", "_SOURCE")):
        return hide_password(str(value))
    if name.endswith("_HOSTS"):
        return repr([hide_password(str(host)) for host in value])
    return repr(value)


_SECRET_PARAMETER = re.compile(r"(?i)([?&][\w.-]*(?:password|token|secret)=)[^&]*")


def hide_password(url: str) -> str:
    """`url` with the password of its authority, and any password or token parameter, replaced by ***."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        return url
    rest = _SECRET_PARAMETER.sub(r"\1***", rest)
    end = len(rest)
    for mark in "/?#":
        # A password may itself contain / or ?, so the authority ends after the last @ in front of a host.
        at = rest.rfind("@")
        found = rest.find(mark, at + 1)
        if found >= 0:
            end = min(end, found)
    authority, tail = rest[:end], rest[end:]
    if "@" in authority:
        user, _, host = authority.rpartition("@")
        name, colon, _secret = user.partition(":")
        authority = f"{name}:***@{host}" if colon else f"***@{host}"
    return f"{scheme}://{authority}{tail}"


_HTTP_USER = re.compile(r"""(?i)\b(https?://)([^\s/?#"'<>]*)@""")

_STORE_URL = re.compile(r"""(?i)\b(?!https?:)[a-z][a-z0-9+.-]*://[^\s"'<>]+""")


def without_passwords(text: str) -> str:
    """`text` with the passwords of all URLs in it replaced by ***.

    In http(s) URLs only what stands before the host is touched (`https://example.com/@name` stays as it is):
    log lines quote page URLs. Store URLs get the stricter treatment, since people put raw passwords in them.
    """
    if "://" not in text or "@" not in text:
        return text
    text = _HTTP_USER.sub(
        lambda m: m[1] + (m[2].partition(":")[0] + ":" if ":" in m[2] else "") + "***@", text
    )
    return _STORE_URL.sub(lambda m: hide_password(m[0]), text)
