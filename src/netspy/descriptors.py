"""The file descriptors of this process: how many it may open, and has."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

UNLIMITED = 1 << 16
"""Where the system sets no limit."""


def limit() -> int:
    """How many files this process may have open."""
    if sys.platform == "win32":
        return UNLIMITED
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else int(soft)


def in_use() -> int:
    """How many it has open now; a guess where the system doesn't tell."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return sum(1 for _ in Path(folder).iterdir())
    return 32


def raise_limit(wanted: int) -> None:
    """Have this process open `wanted` files, or as many as the hard limit allows. For who owns the process."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and most > soft:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
