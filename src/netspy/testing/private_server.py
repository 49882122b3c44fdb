"""What the private servers for tests have in common: a process with a folder, a port, a log, and signals."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from netspy.testing.children import DieWithParent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


class HeldPort:
    """A TCP port that the system gives nobody else until `close`. Who connects there is refused, until a server is told to
    listen on it.

    A port that is merely free may be somebody else's by the time a server starts there, or while that server is down.
    Linux lets a server listen on a port that is bound and not listened on when both sides have set SO_REUSEADDR, as
    servers do. Elsewhere nothing is held.
    """

    def __init__(self, host: str = "127.0.0.1", number: int = 0) -> None:
        """`number` 0 takes a free one. Raises OSError when the port is somebody's."""
        self._socket = socket.socket()
        try:
            if sys.platform == "linux":
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, number))
            self.number: int = self._socket.getsockname()[1]
        except BaseException:
            self.close()
            raise
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """The port may be anybody's. Safe to call twice."""
        self._socket.close()


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on, and that nobody else is given while this process lives (see `HeldPort`)."""
    held = HeldPort(host)
    atexit.register(held.close)
    return held.number


class Block:
    """Started and closed by a `with` block; closed, too, when the start fails."""

    def start(self) -> Self:
        """Start it, and wait until it can be used."""
        raise NotImplementedError

    def close(self) -> None:
        """End it and remove what it has left. Safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PrivateServer(Block):
    """One server process with its own folder; ended and removed with the block, or with this process."""

    stop_timeout = 60.0
    """What a polite end may take, in seconds; then it is killed."""
    polite = signal.SIGTERM
    in_group = False
    """Whether it has processes of its own, which signals and the end are for, too."""

    def __init__(self, binary: str, *, prefix: str) -> None:
        """`prefix` begins the folder's name."""
        self.binary = binary
        self.host = "127.0.0.1"
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._held: list[HeldPort] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._guards: list[DieWithParent] = []
        self._paused = False

    @property
    def pid(self) -> int:
        """The server's process id. Raises RuntimeError when it isn't running."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (also while it is paused)."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the server has written so far."""
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    # ---- what a test does to it

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. What it has not handed to the operating system is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a service manager does, and wait until it is gone. Files stay. Safe to call twice."""
        self._end(self.polite)

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port with the same files."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered, until `resume`."""
        self._signal(self.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self.alive:
            self._signal(self.pid, signal.SIGCONT)
        self._paused = False

    # ---- life

    def close(self) -> None:
        """End it and remove its folder. Safe to call twice."""
        self._end(signal.SIGKILL)  # nobody reads its files any more
        shutil.rmtree(self.folder, ignore_errors=True)
        self._let_ports_go()

    def _hold_port(self, number: int = 0) -> int:
        """A port that stays this server's until `close`, whether it runs or not. Raises OSError, see `HeldPort`."""
        held = HeldPort(self.host, number)
        self._held.append(held)
        return held.number

    def _let_ports_go(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()

    def _signal(self, pid: int, number: int) -> None:
        (os.killpg if self.in_group else os.kill)(pid, number)

    def _run(self, argv: Sequence[str], **options: Any) -> None:
        """Start the process; what it writes goes to `log`. Options are those of Popen."""
        self._process = self._spawn(argv, leads_group=self.in_group, **options)

    def _spawn(
        self, argv: Sequence[str], *, leads_group: bool = False, **options: Any
    ) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - the server's own program
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for the tests, which then end it in order
                **options,
            )
        self._guards.append(DieWithParent(process.pid, group=leads_group))
        return process

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        for guard in self._guards:
            guard.release()
        self._guards.clear()
        if process is not None:
            self._end_process(process, number)
        self._paused = False

    def _end_process(self, process: subprocess.Popen[bytes], number: int) -> None:
        if process.poll() is None:
            process.send_signal(number)
            if self._paused:
                process.send_signal(signal.SIGCONT)
        try:
            process.wait(self.stop_timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
