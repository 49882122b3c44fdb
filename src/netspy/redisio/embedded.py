"""`REDIS_URL="embedded"`: one private Redis per data folder, shared by all processes that name this folder.

The folder holds the append-only file, the log, the socket and three small files:

    lock         held (flock) while anybody looks, starts or stops; never held while crawling
    users        one line per user: pid, when that process started, token
    server.json  which server serves the folder: pid, when it started, socket, version

The first to come starts the server as a daemon, the last to leave stops it. A server whose users all died is used
again; a dead one is replaced, with its data. A server is asked which folder it serves before it is trusted or
stopped, so a stale file never leads to somebody else's process.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

from netspy.errors import ConfigError, MissingExtraError, StoreUnavailableError
from netspy.redisio.binaries import MINIMUM, server_in_wheel, server_on_path, server_version
from netspy.redisio.process import is_running, started_at
from netspy.redisio.unixlink import UnixLink

if TYPE_CHECKING:
    from types import TracebackType

SOCKET_PATH_MAX = 100
"""Bytes of a unix socket's path; the kernel's limit is 108 on Linux, 104 on macOS, the final NUL included."""

ANSWER_TIMEOUT = 5.0
START_TIMEOUT = 20.0
STOP_TIMEOUT = 30.0


class _Server(NamedTuple):
    """What server.json says."""

    pid: int
    started: str
    socket: str
    version: tuple[int, ...]


class EmbeddedRedis:
    """One user of the server of a data folder.

        with EmbeddedRedis(".netspy") as url:
            ...

    Calls block (a start takes some 20 ms, more when a large append-only file is loaded); don't make them on an
    event loop. An instance belongs to the process that acquired it: in a forked child `release` does nothing.
    """

    def __init__(self, data_dir: str | Path) -> None:
        """`data_dir` is made when needed. Nothing is started yet."""
        self.data_dir = Path(data_dir).absolute()
        self._token = secrets.token_hex(8)
        self._owner = 0  # pid of the process that acquired; 0 = not acquired

    def acquire(self) -> str:
        """Join the server's users, starting it if need be, and return its URL (unix://…?db=0).

        Raises MissingExtraError when there is no server program, ConfigError when the folder or its data can't
        be used, StoreUnavailableError when the server doesn't come up.
        """
        with self._locked():
            users = self._users()
            server = self._serving() or self._start()
            if self._owner != os.getpid():
                users.append((os.getpid(), started_at(os.getpid()) or "", self._token))
                self._owner = os.getpid()
            self._write_users(users)
            return _url(server.socket)

    def release(self) -> None:
        """Leave; the last to leave stops the server and waits for its end. Safe to call twice."""
        if self._owner != os.getpid():
            return
        self._owner = 0
        with self._locked():
            users = [user for user in self._users() if user[2] != self._token]
            self._write_users(users)
            if not users:
                self._stop()

    def ensure(self) -> bool:
        """Start the server again if it died; True when it had to be. For users who find it away.

        A server that is alive but doesn't answer (stopped, swapping) is left alone. Raises as `acquire` does.
        """
        with self._locked():
            if self._serving(wait=False) is not None:
                return False
            known = self._known()
            if known is not None and is_running(known.pid, known.started):
                return False
            self._start()
            return True

    def running(self) -> str | None:
        """The URL when a server serves this folder now, else None. Starts and changes nothing."""
        if not (self.data_dir / "server.json").exists():
            return None
        with self._locked():
            server = self._serving(wait=False)
            return _url(server.socket) if server else None

    def stop(self) -> None:
        """Stop the server whoever uses it, saving its data. For cleaning up after processes that were killed."""
        if not self.data_dir.exists():
            return
        with self._locked():
            self._stop()

    def __enter__(self) -> str:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # ---- the folder

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the folder, among processes and threads. The kernel frees the lock of a process that dies."""
        try:
            import fcntl
        except ImportError:
            raise ConfigError(
                'REDIS_URL="embedded" needs a Unix system; give the URL of a Redis server instead'
            ) from None
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"EMBEDDED_DATA_DIR={str(self.data_dir)!r} can't be used ({error.strerror}); "
                "name a folder that can be written"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _users(self) -> list[tuple[int, str, str]]:
        """The users that still live; the dead are left out."""
        try:
            lines = (self.data_dir / "users").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            pid, started, token = line.split("\t")
            if is_running(int(pid), started):
                found.append((int(pid), started, token))
        return found

    def _write_users(self, users: list[tuple[int, str, str]]) -> None:
        self._write("users", "".join(f"{pid}\t{started}\t{token}\n" for pid, started, token in users))

    def _write(self, name: str, text: str) -> None:
        # Renamed into place: a process killed here leaves the old file, not half of the new one.
        partial = self.data_dir / f"{name}.part"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.data_dir / name)

    def _known(self) -> _Server | None:
        """The server that was started last here, alive or not."""
        try:
            found: dict[str, Any] = json.loads((self.data_dir / "server.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        return _Server(found["pid"], found["started"], found["socket"], tuple(found["version"]))

    # ---- the server

    def _serving(self, *, wait: bool = True) -> _Server | None:
        """The server that serves this folder now; None when there is none.

        With `wait` one that is loading its files is waited for; one that lives but doesn't answer raises
        StoreUnavailableError, because a second server on the same files would destroy them.
        """
        known = self._known()
        if known is None or not is_running(known.pid, known.started):
            return None
        end = time.monotonic() + START_TIMEOUT
        while True:
            state = self._state(known.socket)
            if state == "serving":
                return known
            if state == "other":
                return None
            if not wait:
                return None
            if not is_running(known.pid, known.started):
                return None
            if state != "loading" and time.monotonic() > end:
                raise StoreUnavailableError(
                    f"the embedded Redis of {self.data_dir} (process {known.pid}) is alive but doesn't answer; "
                    "end that process and start again"
                )
            time.sleep(0.01)

    def _state(self, socket_path: str) -> str:
        """serving, loading, silent (no answer), or other (it serves another folder)."""
        try:
            with UnixLink(socket_path, ANSWER_TIMEOUT) as link:
                answer = link.ask("PING")
                if answer != "PONG":
                    return "loading"
                folder = link.ask("CONFIG", "GET", "dir")
        except OSError:
            return "silent"
        same = (
            isinstance(folder, list) and len(folder) == 2 and Path(str(folder[1])) == self.data_dir.resolve()
        )
        return "serving" if same else "other"

    def _start(self) -> _Server:
        """Start a server on this folder's files and wait until it has loaded them."""
        binary, version = self._program()
        socket_path = self._socket_path()
        Path(socket_path).unlink(missing_ok=True)
        folder = str(self.data_dir.resolve())
        options = {
            "port": "0",
            "unixsocket": socket_path,
            "unixsocketperm": "700",
            "dir": folder,
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": str(Path(folder) / "redis.log"),
            "pidfile": str(Path(folder) / "redis.pid"),
            # As a daemon it is nobody's child: it outlives its starter, and its end leaves no zombie behind.
            "daemonize": "yes",
        }
        (self.data_dir / "redis.pid").unlink(missing_ok=True)
        argv = [binary]
        for name, value in options.items():
            argv += [f"--{name}", value]
        launched = subprocess.run(  # noqa: S603 - the server program just found
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            start_new_session=True,  # Ctrl-C on the terminal is for the crawl
            timeout=START_TIMEOUT,
            check=False,
        )
        if launched.returncode != 0:
            raise StoreUnavailableError(
                self._did_not_start(binary, launched.stdout.decode("utf-8", "replace"))
            )
        server = self._await_pid(binary, socket_path, version)
        self._write("server.json", json.dumps(server._asdict()))
        end = time.monotonic() + START_TIMEOUT
        while (state := self._state(socket_path)) != "serving":
            if not is_running(server.pid, server.started) or (state != "loading" and time.monotonic() > end):
                raise StoreUnavailableError(self._did_not_start(binary))
            time.sleep(0.003)
        return server

    def _await_pid(self, binary: str, socket_path: str, version: tuple[int, ...]) -> _Server:
        """The daemon's process, from its pid file."""
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.data_dir / "redis.pid").read_text("ascii"))
                started = started_at(pid)
                if started is not None:
                    return _Server(pid, started, socket_path, version)
            if self._log_tail().rstrip().endswith("bye bye..."):
                break
            time.sleep(0.003)
        raise StoreUnavailableError(self._did_not_start(binary))

    def _did_not_start(self, binary: str, said: str = "") -> str:
        detail = " / ".join((said.strip() or self._log_tail()).splitlines()[-3:])
        return (
            f"the embedded Redis ({binary}) did not start in {self.data_dir}: {detail or 'it said nothing'}"
        )

    def _log_tail(self) -> str:
        try:
            return (self.data_dir / "redis.log").read_text("utf-8", "replace")[-1000:]
        except OSError:
            return ""

    def _program(self) -> tuple[str, tuple[int, ...]]:
        """The first usable server program and its version."""
        written_by_7 = any((self.data_dir / "appendonlydir").glob("*.aof*"))
        too_old = ""
        for binary in (server_on_path(), server_in_wheel()):
            if binary is None:
                continue
            version = server_version(binary)
            if version is None or version[:2] < MINIMUM:
                too_old = too_old or f"{binary} is no Redis of 6.2 or later"
                continue
            if written_by_7 and version < (7, 0, 0):
                # 6.2 looks for one file where 7 keeps a folder of them; it would start empty, without a word.
                raise ConfigError(
                    f"the data in {self.data_dir} were written by Redis 7 or later, and {binary} is "
                    f"{'.'.join(map(str, version))}; put the newer redis-server on PATH, or use another "
                    "EMBEDDED_DATA_DIR"
                )
            return binary, version
        if too_old:
            raise ConfigError(f'REDIS_URL="embedded": {too_old}; install a newer redis-server')
        raise MissingExtraError('REDIS_URL="embedded" found no redis-server on PATH and', "embedded")

    def _socket_path(self) -> str:
        """In the data folder; in a short temporary folder when that path is too long for a socket."""
        path = str(self.data_dir.resolve() / "redis.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        known = self._known()
        if known is not None and Path(known.socket).parent.is_dir() and known.socket != path:
            return known.socket
        base = tempfile.gettempdir()
        return str(
            Path(tempfile.mkdtemp(prefix="netspy-", dir=base if len(base) < 60 else "/tmp")) / "redis.sock"
        )  # noqa: S108 - the one short folder that Unix systems have

    def _stop(self) -> None:
        """Have the server that serves this folder write its data and end; wait until it is gone."""
        known = self._known()
        if known is None:
            return
        if self._serving() is not None:
            # SHUTDOWN flushes and fsyncs the append-only file before the process ends.
            with contextlib.suppress(OSError), UnixLink(known.socket, STOP_TIMEOUT) as link:
                link.ask("SHUTDOWN")
            end = time.monotonic() + STOP_TIMEOUT
            while is_running(known.pid, known.started):
                if time.monotonic() > end:
                    raise StoreUnavailableError(
                        f"the embedded Redis of {self.data_dir} (process {known.pid}) did not end in "
                        f"{STOP_TIMEOUT:g} s; see {self.data_dir / 'redis.log'}"
                    )
                time.sleep(0.003)
        Path(known.socket).unlink(missing_ok=True)
        if Path(known.socket).parent != self.data_dir.resolve():
            shutil.rmtree(Path(known.socket).parent, ignore_errors=True)
        (self.data_dir / "server.json").unlink(missing_ok=True)


def _url(socket_path: str) -> str:
    return f"unix://{quote(socket_path)}?db=0"
