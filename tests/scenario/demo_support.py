"""What tests of the demo and of fleets look at: child processes, what is left behind, the demo on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import wait_until
from netspy.testing.runner import Script, start_command

NETSPY = Path(sys.executable).with_name("netspy")


def demo(folder: Path, *options: str) -> Script:
    """`netspy demo` without a terminal."""
    return start_command([NETSPY, "demo", "--dir", folder / "data", *options], cwd=folder)


class Terminal:
    """`netspy demo` on a terminal of its own: keys typed go to it, as from a person."""

    def __init__(self, folder: Path, *options: str, columns: int = 100, rows: int = 40) -> None:
        command = (
            f"stty cols {columns} rows {rows}; exec {NETSPY} demo --dir {folder / 'data'} {' '.join(options)}"
        )
        self._keys = folder / "keys"
        if not self._keys.exists():
            os.mkfifo(self._keys)
        source = (
            f"import os, pty\nos.dup2(os.open({str(self._keys)!r}, os.O_RDWR), 0)\n"
            f"status = pty.spawn(['/bin/sh', '-c', {command!r}])\n"
            "os._exit(os.waitstatus_to_exitcode(status))\n"
        )
        self.script = start_command(
            [sys.executable, "-c", source], env={"TERM": "xterm-256color"}, cwd=folder
        )

    def press(self, keys: bytes) -> None:
        fd = os.open(self._keys, os.O_WRONLY)
        os.write(fd, keys)
        os.close(fd)

    def wait_for(self, pattern: str, seconds: float = 30) -> None:
        """Until the pattern is in what was shown so far, without its colours."""
        found = wait_until(
            lambda: re.search(pattern, plain(self.script.stdout), re.S) is not None, seconds, step=0.02
        )
        assert found, plain(self.script.stdout)[-3000:]


def plain(shown: str) -> str:
    """Text without cursor movements and colours, and without the terminal's echo of Ctrl-C."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\^C", "", shown)


def children(pid: int) -> list[int]:
    """The processes that `pid` started and that still run."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [int(one) for one in found]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def state_of(pid: int) -> str:
    """`R`, `S`, `T`, `Z`; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def nodes_of(pid: int) -> list[int]:
    """The node processes of a parent: forked, so with its own command line."""
    mine = command_of(pid)
    return [one for one in children(pid) if command_of(one) == mine]


def run_folder(folder: Path) -> Path:
    """The newest run's folder of a demo."""
    return max(path for path in (folder / "data").iterdir() if path.name[0].isdigit())


def stored(folder: Path) -> int:
    """Lines in the demo's JSONL file."""
    files = list((folder / "data").glob("2*/product.jsonl"))
    return sum(len(file.read_bytes().splitlines()) for file in files)


def wait_stored(folder: Path, count: int) -> None:
    assert wait_until(lambda: stored(folder) >= count, 60), f"{stored(folder)} of {count}"


def unfinished(folder: Path) -> dict:
    path = folder / "data" / "unfinished.json"
    return json.loads(path.read_text()) if path.exists() else {}


def nothing_left(folder: Path, timeout: float = 15.0) -> bool:
    """No Redis of the demo's folder and no process that names it."""
    server = EmbeddedRedis(folder / "data" / "redis")

    def gone() -> bool:
        mine = [p for p in os.listdir("/proc") if p.isdigit() and str(folder / "data") in command_of(int(p))]
        return not mine and server.running() is None

    return wait_until(gone, timeout, step=0.05)
