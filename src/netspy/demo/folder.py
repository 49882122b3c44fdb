"""What `netspy demo` keeps on disk: its lock, the run that is not finished yet, and each run's files."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from netspy.errors import ConfigError
from netspy.redisio.embedded.process import is_running, started_at

SPACE_NEEDED = 50_000_000
"""Bytes. A run writes some 5 MB; the rest is room for the append-only file of Redis to be rewritten."""

LEFTOVERS_S = 20.0
"""How long nodes whose parent was killed are waited for: they stop gracefully by themselves."""


class Unfinished(NamedTuple):
    """A run that was stopped. `port`: where its URLs say that the shop is; `starts`: how often it was started."""

    run_id: str
    port: int
    starts: int


class DemoFolder:
    """`<dir>/redis`, `<dir>/<run>/`, `<dir>/unfinished.json`, `<dir>/lock`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._lock = -1

    # -- alone with the folder

    def open(self, *, waiting: Callable[[], None] | None = None) -> None:
        """Make the folder and take its lock. Raises ConfigError, one line, when it can't be used.

        Nodes whose parent was killed still hold the lock: `waiting()` is called once, then they are waited for.
        """
        import fcntl

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            os.write(self._probe(), b"x")
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise ConfigError(
                f"--dir {str(self.path)!r} can't be used: {error.strerror}; name a folder that can be written"
            ) from None
        finally:
            self._end_probe()
        if free < SPACE_NEEDED:
            raise ConfigError(
                f"--dir {str(self.path)!r} is on a disk with {free / 1e6:.0f} MB left; "
                f"the demo wants {SPACE_NEEDED / 1e6:.0f} MB: name another folder, or make room"
            )
        end = time.monotonic() + LEFTOVERS_S
        told = False
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner, alive = self._owner()
                if alive or time.monotonic() > end:
                    raise ConfigError(
                        f"a demo (process {owner}) is running in {str(self.path)!r}; stop it, or use --dir"
                    ) from None
            if not told and waiting is not None:
                waiting()
                told = True
            time.sleep(0.1)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {started_at(os.getpid())}".encode(), 0)

    _probing = -1

    def _probe(self) -> int:
        """A file made only to see whether one can be."""
        self._probing = os.open(self.path / ".probe", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        return self._probing

    def _end_probe(self) -> None:
        if self._probing >= 0:
            os.close(self._probing)
            self._probing = -1
            with suppress(OSError):
                (self.path / ".probe").unlink()

    def _owner(self) -> tuple[str, bool]:
        pid, _, started = os.pread(self._lock, 200, 0).decode("ascii", "replace").partition(" ")
        return pid, pid.isdigit() and is_running(int(pid), started)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- the unfinished run

    def unfinished(self) -> Unfinished | None:
        """The run to go on with; None when there is none, or its note can't be read."""
        try:
            found = json.loads((self.path / "unfinished.json").read_text("utf-8"))
            return Unfinished(str(found["run_id"]), int(found["port"]), int(found["starts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def note(self, run: Unfinished) -> None:
        """Remember the run until `forget`."""
        partial = self.path / "unfinished.json.part"
        partial.write_text(json.dumps(run._asdict()), encoding="utf-8")
        partial.replace(self.path / "unfinished.json")

    def forget(self) -> None:
        """The next demo is a new run."""
        (self.path / "unfinished.json").unlink(missing_ok=True)

    def new_run_id(self) -> str:
        """The time, with a number when that name is taken."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name, number = stamp, 2
        while (self.path / name).exists():
            name, number = f"{stamp}-{number}", number + 1
        return name

    # -- paths

    @property
    def redis(self) -> Path:
        """Data folder of the embedded Redis."""
        return self.path / "redis"

    def run(self, run_id: str) -> Path:
        """The folder of a run's items."""
        return self.path / run_id
