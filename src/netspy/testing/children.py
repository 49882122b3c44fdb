"""Children that end with their parent, also when the parent is killed and can't clean up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class DieWithParent:
    """A watcher beside a child: when this process is gone, however it ended, the child is killed.

    The watcher is a shell that waits for the end of a pipe of which only this process has the other end.
    (Linux' parent-death signal would fire when the *thread* that started the child ends.)
    """

    def __init__(self, pid: int, *, group: bool = False) -> None:
        """Watch over `pid`; with `group` its whole process group is killed, which `pid` must lead."""
        target = f"-{pid}" if group else str(pid)
        self._watcher = subprocess.Popen(  # noqa: S603 - a fixed text; the number is an argument
            ["/bin/sh", "-c", 'trap "" INT TERM HUP; read _; kill -9 "$0" 2>/dev/null', target],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """Stop watching. Call it before the child is reaped: its number may soon be somebody else's."""
        self._watcher.kill()
        self._watcher.wait()
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()


def kill_group(leader: int) -> None:
    """SIGKILL every process in the group of `leader`; nothing happens when none is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], timeout: float, *, step: float = 0.005) -> bool:
    """Ask `condition()` every `step` seconds until it is true or `timeout` is over; gives its last answer."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(step)
    return True
