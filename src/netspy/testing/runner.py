"""Scripts and commands as real processes: their output, their summary line, signals to them.

    result = run_script(source, cwd=tmp_path, env={"NETSPY_REDIS_URL": url})
    assert result.returncode == 0
    assert result.summary["pages"] == 24

Every child leads a process group of its own, is reaped, and does not outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self, cast

from netspy.testing.children import DieWithParent, kill_group, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

SUMMARY_MARK = "NETSPY_RUN_SUMMARY "

_numbers = itertools.count(1)


class Result(NamedTuple):
    """What a finished process left.

    `returncode` is negative for a signal's number. `summary` is the JSON of the last NETSPY_RUN_SUMMARY line,
    or {} when there is none.
    """

    returncode: int
    stdout: str
    stderr: str
    summary: dict[str, Any]
    seconds: float

    def check(self, returncode: int = 0) -> Result:
        """Give this result back. Raises ScriptError with the output when it ended with another code."""
        if self.returncode != returncode:
            raise ScriptError(
                f"ended with {self.returncode}, expected {returncode}", self.stdout, self.stderr
            )
        return self


class ScriptError(AssertionError):
    """A process didn't do what the test waits for; the message carries the end of its output."""

    def __init__(self, what: str, stdout: str, stderr: str) -> None:
        super().__init__(f"{what}\n--- stdout\n{stdout[-4000:]}\n--- stderr\n{stderr[-6000:]}")


class _Reader(threading.Thread):
    """Collects the lines of one stream."""

    def __init__(self, stream: IO[str], changed: threading.Condition) -> None:
        super().__init__(daemon=True, name="script-output")
        self.lines: list[str] = []
        self.ended = False
        self._stream = stream
        self._changed = changed
        self.start()

    def run(self) -> None:
        for line in self._stream:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()
        self._stream.close()


class Script:
    """A running process. As a context manager it is killed, with its group, when the block ends."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, own_folder: bool) -> None:
        self.argv = list(argv)
        self.cwd = cwd
        self._own_folder = own_folder
        self._changed = threading.Condition()
        self._started = time.monotonic()
        self._result: Result | None = None
        self._process = subprocess.Popen(  # noqa: S603 - running the given program is what this is for
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._guard = DieWithParent(self.pid, group=True)
        self._out = _Reader(cast("IO[str]", self._process.stdout), self._changed)
        self._err = _Reader(cast("IO[str]", self._process.stderr), self._changed)

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        with self._changed:
            return "".join(self._out.lines)

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        with self._changed:
            return "".join(self._err.lines)

    @property
    def alive(self) -> bool:
        """Whether the process runs (also while it is paused)."""
        return self._result is None and self._process.poll() is None

    def wait_line(self, text: str, timeout: float = 30.0) -> str:
        """The first line on stdout or stderr that contains `text`, waiting for it.

        Raises ScriptError when the process ends without it or it doesn't come in `timeout` seconds.
        """

        def found() -> str | None:
            for line in itertools.chain(self._out.lines, self._err.lines):
                if text in line:
                    return line.rstrip("\n")
            return None

        with self._changed:
            self._changed.wait_for(lambda: found() or (self._out.ended and self._err.ended), timeout)
            line = found()
            ended = self._out.ended and self._err.ended
        if line is None:
            why = "the process ended" if ended else f"{timeout:g} s passed"
            raise ScriptError(f"no line with {text!r}: {why}", self.stdout, self.stderr)
        return line

    def interrupt(self) -> None:
        """SIGINT to the process and its children, as Ctrl-C on a terminal does."""
        self.signal(signal.SIGINT, group=True)

    def terminate(self, *, group: bool = False) -> None:
        """SIGTERM, as a service manager or `docker stop` sends it."""
        self.signal(signal.SIGTERM, group=group)

    def kill(self, *, group: bool = False) -> None:
        """SIGKILL: no chance to clean up."""
        self.signal(signal.SIGKILL, group=group)

    def pause(self, *, group: bool = False) -> None:
        """SIGSTOP: frozen until `cont`. Returns when every thread of the process has come to a stop (on Linux)."""
        self.signal(signal.SIGSTOP, group=group)
        wait_until(lambda: not self.alive or _stopped(self.pid), 5.0)

    def cont(self, *, group: bool = False) -> None:
        """SIGCONT: goes on after `pause`."""
        self.signal(signal.SIGCONT, group=group)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the process, or to its whole group. Nothing happens when it has ended."""
        if not self.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def finish(self, timeout: float = 60.0) -> Result:
        """Wait for the end and return what it left. At the time-out it is killed: raises ScriptError."""
        if self._result is not None:
            return self._result
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._reap()
            raise ScriptError(
                f"still running after {timeout:g} s: {self.argv}", self.stdout, self.stderr
            ) from None
        return self._reap()

    def _reap(self) -> Result:
        """End what is left of the group, collect the output, drop the folder."""
        if self._result is None:
            # Children that outlived their leader keep the group, and with it the number, in being.
            kill_group(self.pid)
            self._guard.release()
            code = self._process.wait()
            seconds = time.monotonic() - self._started
            # A grandchild in a session of its own may still hold the streams: what has come by then counts.
            self._out.join(5)
            self._err.join(5)
            summary = summary_of(self.stdout) or summary_of(self.stderr)  # there with rows on stdout
            self._result = Result(code, self.stdout, self.stderr, summary, seconds)
            if self._own_folder:
                shutil.rmtree(self.cwd, ignore_errors=True)
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reap()


def _stopped(pid: int) -> bool:
    """Whether no thread of the process runs any more; True where that can't be seen."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            state = (thread / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
            if state not in "TtZX":
                return False
    except OSError:
        return True
    return True


def summary_of(output: str) -> dict[str, Any]:
    """The JSON object of the last NETSPY_RUN_SUMMARY line, or {}."""
    for line in reversed(output.splitlines()):
        if line.startswith(SUMMARY_MARK):
            found: dict[str, Any] = json.loads(line[len(SUMMARY_MARK) :])
            return found
    return {}


def start_command(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str | None] | None = None,
    cwd: str | Path | None = None,
) -> Script:
    """Start a command. The environment is this process's without NETSPY_*, then `env` (None removes a name).

    Without `cwd` it runs in a fresh folder that goes away with it.
    """
    folder = Path(cwd) if cwd is not None else Path(tempfile.mkdtemp(prefix="netspy-run-"))
    return Script(
        [str(part) for part in argv], env=_environment(env or {}), cwd=folder, own_folder=cwd is None
    )


def start_script(
    path_or_source: str | Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    cwd: str | Path | None = None,
) -> Script:
    """Start a Python script with this interpreter: a path, or the source itself (text with a line break)."""
    own = cwd is None
    folder = Path(tempfile.mkdtemp(prefix="netspy-run-")) if cwd is None else Path(cwd)
    if isinstance(path_or_source, str) and "\n" in path_or_source:
        script = folder / f"script_{os.getpid()}_{next(_numbers)}.py"
        script.write_text(path_or_source, encoding="utf-8")
    else:
        script = Path(path_or_source).resolve()
    argv = [sys.executable, str(script), *args]
    return Script(argv, env=_environment(env or {}), cwd=folder, own_folder=own)


def run_command(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str | None] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 60.0,
) -> Result:
    """`start_command` and wait for its end. Raises ScriptError at the time-out (seconds)."""
    with start_command(argv, env=env, cwd=cwd) as script:
        return script.finish(timeout)


def run_script(
    path_or_source: str | Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 60.0,
) -> Result:
    """`start_script` and wait for its end. Raises ScriptError at the time-out (seconds)."""
    with start_script(path_or_source, args=args, env=env, cwd=cwd) as script:
        return script.finish(timeout)


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("NETSPY_")}
    env["PYTHONUNBUFFERED"] = "1"
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env
