"""Scripts of tests as forks of an interpreter that has its imports behind it (Linux): a tenth of the time of a new one.

The child is a real one of this process: its pid, its exit status, its streams and every signal to it are as Popen's. What a
fork can't be is started anew, as everybody's scripts are: other programs, other options of Python, and an environment in
which something differs that is read before a script's first line, and a script that looks at what is imported. All forks of one
test process hash strings alike. A test marked `cold` starts everything anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

from netspy.testing import runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

READ_EARLY = (
    "PYTHON",
    "LD_",
    "MALLOC_",
    "LC_",
    "LANG",
    "LOGURU_",
    "SSL_",
    "CURL_",
    "TERM",
    "COLUMNS",
    "FORCE_COLOR",
)
"""What the interpreter or a library reads while it is loaded begins with one of these."""
LOOKS_AT_IMPORTS = (b"sys.modules", b"meta_path")
PR_SET_CHILD_SUBREAPER = 36


class Fork:
    """What `netspy.testing.runner` uses of a Popen, for a child that another process has forked."""

    def __init__(self, pid: int, stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            watched = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(watched, select.POLLIN)
                poll.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(watched)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code


class ForkServer:
    """One warm interpreter; started with the first script, ended with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._env: dict[str, str] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.forked = 0

    def spawn(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> runner.Process:
        """A fork that runs `argv`, or what Popen makes of it where a fork isn't the same."""
        with self._lock:
            if self._socket is None:
                self._begin(env)
            if not self._can(argv, env):
                return runner.spawn(argv, cwd=cwd, env=env)
            self.forked += 1
            return self._fork(list(argv[1:]), cwd, env)

    def close(self) -> None:
        """End it; forks live on. The next script starts another one."""
        with self._lock:
            if self._socket is not None and self._process is not None:
                self._socket.close()
                self._process.wait()
                self._socket = self._process = None

    def _begin(self, env: Mapping[str, str]) -> None:
        self._env = early(env)
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        assert ours.recv(1) == b"\n", "the fork server did not start"
        self._socket = ours

    def _can(self, argv: Sequence[str], env: Mapping[str, str]) -> bool:
        if argv[0] != sys.executable or early(env) != self._env:
            return False
        if argv[1] == "-m":
            return True
        script = Path(argv[1])
        if not (script.suffix == ".py" and script.is_absolute() and script.is_file()):
            return False
        source = script.read_bytes()
        return not any(word in source for word in LOOKS_AT_IMPORTS)

    def _fork(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> Fork:
        assert self._socket is not None
        request = json.dumps({"argv": argv, "cwd": str(cwd.resolve()), "env": dict(env)}).encode()
        out, to_out = os.pipe()
        err, to_err = os.pipe()
        try:
            with self._taking_in_orphans():
                socket.send_fds(self._socket, [request], [to_out, to_err])
                pid = int(self._answer())
        finally:
            os.close(to_out)
            os.close(to_err)
        return Fork(pid, *(open(end, encoding="utf-8", errors="replace") for end in (out, err)))

    def _answer(self) -> bytes:
        assert self._socket is not None
        answer = b""
        while not answer.endswith(b"\n\n"):
            part = self._socket.recv(4096)
            assert part, "the fork server has ended"
            answer += part
        return answer

    @contextlib.contextmanager
    def _taking_in_orphans(self) -> Iterator[None]:
        """While it holds, a process whose parent ends below this one becomes a child of this one."""
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            yield
        finally:
            self._libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_EARLY)}
