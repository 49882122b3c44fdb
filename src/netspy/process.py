"""The process itself: how many files it may open and has open, and how long it has lived."""

from __future__ import annotations

import os
import sys
import time
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


_IMPORTED_AT = time.monotonic()
_had_a_run = False


def run_ended() -> None:
    """A run of this process is over."""
    global _had_a_run  # noqa: PLW0603 - of the process
    _had_a_run = True


def age_s() -> float:
    """Seconds since this process began, for its first run: a further one was not started together with anybody's (-inf).

    Where the system doesn't tell, since netspy was imported.
    """
    return float("-inf") if _had_a_run else _since_start()


def _since_start() -> float:
    try:
        started = int(Path("/proc/self/stat").read_text("latin-1").rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text("latin-1").split()[0])
        return max(0.0, up - started / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED_AT
