"""Whether a process is still the one it was: numbers are used again, start times are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def started_at(pid: int) -> str | None:
    """A mark of when process `pid` started, equal for its whole life; None when it has ended."""
    if sys.platform.startswith("linux"):
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return None
        # Field 2, the name in parentheses, may hold anything; field 3 is the state, 22 the start in ticks.
        fields = stat[stat.rindex(b")") + 2 :].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    said = subprocess.run(  # noqa: S603 - a fixed program; its argument is a number
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    state, _, start = said.stdout.strip().partition(" ")
    return None if not start or state.startswith("Z") else start.strip()


def is_running(pid: int, started: str) -> bool:
    """Whether the process `pid` that started at `started` is still there. A zombie isn't."""
    return started_at(pid) == started
