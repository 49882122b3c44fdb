"""Who we say we are."""

from __future__ import annotations

import zlib
from functools import lru_cache
from importlib import metadata

_WINDOWS, _MAC, _LINUX = (
    "Windows NT 10.0; Win64; x64",
    "Macintosh; Intel Mac OS X 10_15_7",
    "X11; Linux x86_64",
)
_CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/136.0.0.0 Safari/537.36"
_SAFARI = "AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.4 Safari/605.1.15"
# Common desktop browsers, for RANDOM_USER_AGENT.
BROWSERS = (
    f"Mozilla/5.0 ({_WINDOWS}) {_CHROME}",
    f"Mozilla/5.0 ({_MAC}) {_CHROME}",
    f"Mozilla/5.0 ({_WINDOWS}) {_CHROME} Edg/136.0.0.0",
    f"Mozilla/5.0 ({_WINDOWS}; rv:138.0) Gecko/20100101 Firefox/138.0",
    f"Mozilla/5.0 ({_LINUX}; rv:138.0) Gecko/20100101 Firefox/138.0",
    f"Mozilla/5.0 ({_MAC}) {_SAFARI}",
)


@lru_cache(maxsize=1)
def own() -> str:
    """The name and version of netspy."""
    try:
        return f"netspy/{metadata.version('netspy')}"
    except metadata.PackageNotFoundError:
        return "netspy"


def browser_for(host: str) -> str:
    """A browser's User-Agent, always the same one for a host: a session that changes its browser is
    conspicuous.
    """
    return BROWSERS[zlib.crc32(host.encode()) % len(BROWSERS)]
