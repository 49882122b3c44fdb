"""Whether a node that ran on this very machine is gone: the kernel's table of processes knows, whatever its heartbeat says.

A node writes into its record which kernel runs it, under which host name, in which PID namespace, under which process id, and
when that process began. Another node under the same kernel, name and namespace looks there: no such process, or one that began at
another time, is certain death. Anything else (another machine, another container, no /proc) says nothing, and the heartbeat
decides. A PID namespace that is gone may leave its number to a new one; then all its processes are gone with it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

import msgspec

_PROC = Path("/proc")
_DEAD = {b"Z", b"X"}


class ProcessIdentity(NamedTuple):
    """A process as the machine knows it. `kernel` names the boot, the PID namespace and the host, which tells clones of one
    virtual machine apart; `born` is in ticks since the boot.
    """

    kernel: str
    pid: int
    born: int


class _Report(msgspec.Struct):
    kernel: str = ""
    pid: int = 0
    born: int = 0


_decode = msgspec.json.Decoder(_Report).decode


def this_process() -> ProcessIdentity | None:
    """The own process; None where the system doesn't tell."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = (_PROC / "self/ns/pid").stat().st_ino
        state = _look(os.getpid())
    except (OSError, ValueError):
        return None
    return (
        ProcessIdentity(f"{boot}:{namespace}:{socket.gethostname()}", os.getpid(), state[0])
        if boot and state
        else None
    )


def is_gone(record: bytes | None, mine: ProcessIdentity) -> bool:
    """Whether the node that wrote `record` surely lives no more, seen from the process `mine`."""
    try:
        found = _decode(record or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # another program's, or an older version's
    if found.kernel != mine.kernel or not 1 < found.pid < 1 << 31 or found.born <= 0:
        return False
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # somebody else's process: it is there
    try:
        state = _look(found.pid)
    except (OSError, ValueError):
        return False  # hidden from us, or it ended in this moment
    return state is not None and (state[0] != found.born or state[1])


def _look(pid: int) -> tuple[int, bool] | None:
    """When a process began, and whether it is dead and merely not buried: no thread of it runs. Raises OSError, ValueError."""
    fields = (_PROC / f"{pid}/stat").read_bytes().rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return int(fields[19]), fields[0] in _DEAD and int(fields[17]) <= 1
