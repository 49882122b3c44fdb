"""`REDIS_URL="embedded"`: one private Redis per data folder, shared by all processes that name this folder.

The folder holds the append-only file, the log, the socket and three small files:

    lock         held (flock) while anybody looks, starts or stops; never held while crawling
    users        one line per user: pid, when that process started, token
    server.json  which server serves the folder: pid, when it started, socket, version

The first to come starts the server, the last to leave stops it. A server whose users all died is used again;
a dead one is replaced, with its data. A server is asked which folder it serves before it is trusted or
stopped, so a stale file never leads to somebody else's process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from netspy.errors import ConfigError, MissingExtraError, StoreUnavailableError
from netspy.private_files import FOLDER_MODE, narrow, narrow_folder, open_private
from netspy.redisio.embedded.binaries import MINIMUM, server_in_wheel, server_on_path, server_version
from netspy.redisio.embedded.process import is_running, started_at
from netspy.redisio.embedded.unix_client import UnixClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

SOCKET_PATH_MAX = 100
"""Bytes of a unix socket's path; the kernel's limit is 108 on Linux, 104 on macOS, the final NUL included."""

ANSWER_TIMEOUT = 5.0
PID_FILE_TIMEOUT = 2.0
START_TIMEOUT = 20.0
STOP_TIMEOUT = 30.0


_own_name = re.compile(
    r"lock|(users|server\.json)(\.part)?|redis\.(sock|pid|log)|appendonlydir|appendonly\.aof.*|dump\.rdb|temp-.*\.(aof|rdb)"
).fullmatch


class _Server(NamedTuple):
    """What server.json says. It is written before the start, then again with pid and start time."""

    socket: str
    version: tuple[int, ...]
    pid: int = 0
    started: str = ""


class EmbeddedRedis:
    """One user of the server of a data folder.

        with EmbeddedRedis(".netspy") as url:
            ...

    Calls block (a start takes some 20 ms, more when a large append-only file is loaded); don't make them on an event
    loop. An instance belongs to the process that acquired it: in a forked child `release` does nothing.
    """

    def __init__(self, data_dir: str | Path) -> None:
        """`data_dir` is made when needed. Nothing is started yet."""
        self.data_dir = Path(data_dir).absolute()
        self._token = ""
        self._owner = 0  # pid of the process that acquired; 0 = not acquired

    def acquire(self) -> str:
        """Join the server's users, starting it if need be, and return its URL (unix://…?db=0).

        Raises MissingExtraError when there is no server program, ConfigError when the folder or its data
        can't be used, StoreUnavailableError when the server doesn't come up.
        """
        with self._locked():
            self._hide()
            users = self._users()
            server = self._serving() or self._start()
            if self._owner != os.getpid():
                self._owner, self._token = os.getpid(), secrets.token_hex(8)
                users.append((self._owner, started_at(self._owner) or "", self._token))
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
            if known is not None and self._lives(known):
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
        """Stop the server, whoever uses it; data are kept. For cleaning up after killed processes."""
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
        """Alone with the folder, among processes and threads. The kernel frees the lock of a dead process."""
        try:
            import fcntl
        except ImportError:
            raise ConfigError(
                'REDIS_URL="embedded" needs a Unix system; give the URL of a Redis server instead'
            ) from None
        lock = -1
        try:
            self.data_dir.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise ConfigError(
                f"EMBEDDED_DATA_DIR={str(self.data_dir)!r} can't be used: {error}; "
                "name a folder of your own that can be written"
            ) from None
        finally:
            if lock >= 0:
                # Closing ends no lock that a process has, too, which was forked meanwhile.
                with contextlib.suppress(OSError):
                    fcntl.flock(lock, fcntl.LOCK_UN)
                os.close(lock)

    def _hide(self) -> None:
        """Take the server's files, which hold requests with their credentials, from all but their owner: also those that
        were made otherwise. The folder as well, unless it holds things of others.
        """
        found = list(self.data_dir.iterdir())
        own = [path for path in found if _own_name(path.name)]
        if len(own) == len(found):
            narrow_folder(self.data_dir.resolve())
        files = self.data_dir / "appendonlydir"
        if files.exists():
            narrow_folder(files)
            own += files.iterdir()
        for path in own:
            narrow(path)

    def _users(self) -> list[tuple[int, str, str]]:
        """The users that still live; the dead are left out."""
        try:
            lines = (self.data_dir / "users").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        rows = [line.split("\t") for line in lines]
        return [(int(pid), started, token) for pid, started, token in rows if is_running(int(pid), started)]

    def _write_users(self, users: list[tuple[int, str, str]]) -> None:
        self._write("users", "".join(f"{pid}\t{started}\t{token}\n" for pid, started, token in users))

    def _write(self, name: str, text: str) -> None:
        # Renamed into place: a process killed here leaves the old file, not half of the new one.
        partial = self.data_dir / f"{name}.part"
        with open(partial, "w", encoding="utf-8", opener=open_private) as file:
            file.write(text)
        partial.replace(self.data_dir / name)

    def _known(self) -> _Server | None:
        """The server that was started last here, alive or not."""
        try:
            found: dict[str, Any] = json.loads((self.data_dir / "server.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        return _Server(found["socket"], tuple(found["version"]), found["pid"], found["started"])

    # ---- the server

    def _serving(self, *, wait: bool = True) -> _Server | None:
        """The server that serves this folder now; None when there is none.

        With `wait` one that is loading its files is waited for; one that lives but doesn't answer raises
        StoreUnavailableError, because a second server on the same files would destroy them.
        """
        known = self._known()
        if known is None:
            return None
        end = time.monotonic() + START_TIMEOUT
        while True:
            state = self._state(known.socket)
            if state == "serving":
                return known if known.pid else self._recover(known)
            if state == "other" or not self._lives(known) or not wait:
                return None
            if state != "loading" and time.monotonic() > end:
                raise StoreUnavailableError(
                    f"the embedded Redis of {self.data_dir} (process {known.pid}) is alive but doesn't "
                    "answer; end that process and start again"
                )
            time.sleep(0.005)

    def _state(self, socket_path: str) -> str:
        """serving, loading, silent (no answer), or other (it serves another folder)."""
        try:
            with UnixClient(socket_path, ANSWER_TIMEOUT) as link:
                folder = link.ask("CONFIG", "GET", "dir")  # answered while loading, too
                loaded = link.ask("PING") == "PONG"
        except OSError:
            return "silent"
        if not isinstance(folder, list) or Path(str(folder[-1])) != self.data_dir.resolve():
            return "other"
        return "serving" if loaded else "loading"

    def _lives(self, known: _Server) -> bool:
        """Whether the process of a server that doesn't answer is there."""
        if known.pid:
            return is_running(known.pid, known.started)
        # Its starter was killed before it had noted the process: the server's own pid file tells, if it is
        # there within the moment that a start takes.
        end = time.monotonic() + PID_FILE_TIMEOUT
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                return started_at(int((self.data_dir / "redis.pid").read_text("ascii"))) is not None
            time.sleep(0.01)
        return False

    def _recover(self, known: _Server) -> _Server:
        """Note the process of a server whose starter could not."""
        with UnixClient(known.socket, ANSWER_TIMEOUT) as link:
            info = str(link.ask("INFO", "server"))
        pid = int(info.partition("process_id:")[2].split("\r\n", 1)[0])
        return self._note(known._replace(pid=pid, started=started_at(pid) or ""))

    def _note(self, server: _Server) -> _Server:
        self._write("server.json", json.dumps(server._asdict()))
        return server

    def _start(self) -> _Server:
        """Start a server on this folder's files and wait until it has loaded them."""
        binary, version = self._program()
        folder = self.data_dir.resolve()
        server = self._note(_Server(self._socket_path(), version))
        Path(server.socket).unlink(missing_ok=True)
        (folder / "redis.pid").unlink(missing_ok=True)
        log = folder / "redis.log"
        options = {
            "port": "0",
            "unixsocket": server.socket,
            "unixsocketperm": "700",
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": str(log),
            "pidfile": str(folder / "redis.pid"),
        }
        argv = [binary]
        for name, value in options.items():
            argv += [f"--{name}", value]
        log_from = log.stat().st_size if log.exists() else 0
        # Through a shell that ends at once: the server is nobody's child, so it outlives whoever started it
        # and its end leaves no zombie; in its own session, so Ctrl-C on the terminal is for the crawl alone.
        launched = subprocess.run(  # noqa: S603 - a fixed text; paths are arguments
            [
                "/bin/sh",
                "-c",
                'umask 077; log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!',
                "sh",
                str(log),
                *argv,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=folder,
            start_new_session=True,
            check=True,
        )
        pid = int(launched.stdout)
        server = self._note(server._replace(pid=pid, started=started_at(pid) or "gone"))
        end = time.monotonic() + START_TIMEOUT
        while (state := self._state(server.socket)) != "serving":
            alive = is_running(server.pid, server.started)
            if not alive or (state == "silent" and time.monotonic() > end):
                with log.open("rb") as stream:
                    stream.seek(log_from)
                    said = stream.read().decode("utf-8", "replace").strip().splitlines()
                why = " / ".join(said[-3:]) or ("it is silent" if alive else "it ended at once")
                raise StoreUnavailableError(
                    f"the embedded Redis ({binary}) did not start in {folder}: {why}; see {log}"
                )
            time.sleep(0.003)
        return server

    def _program(self) -> tuple[str, tuple[int, ...]]:
        """The first usable server program and its version."""
        by_version_7 = any((self.data_dir / "appendonlydir").glob("*.aof*"))
        refused = ""
        for binary in (server_on_path(), server_in_wheel()):
            version = server_version(binary) if binary else None
            if binary is None:
                continue
            if version is None or version < MINIMUM:
                refused = refused or f"{binary} is no Redis of version 6.2 or later"
            elif by_version_7 and version < (7,):
                # 6.2 looks for one file where 7 keeps a folder of them: it would start empty, without a word.
                refused = f"the data in {self.data_dir} were written by Redis 7 or later, {binary} is older"
            else:
                return binary, version
        if refused:
            raise ConfigError(f'REDIS_URL="embedded": {refused}; put a newer redis-server on PATH')
        raise MissingExtraError('REDIS_URL="embedded", as there is no redis-server on PATH,', "embedded")

    def _socket_path(self) -> str:
        """In the data folder; in a short temporary folder when that path is too long for a socket."""
        path = str(self.data_dir.resolve() / "redis.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        known = self._known()
        if known is not None and known.socket != path and self._state(known.socket) == "silent":
            with contextlib.suppress(OSError):
                if Path(known.socket).parent.stat().st_uid == os.getuid():
                    return known.socket
        base = tempfile.gettempdir()
        if len(os.fsencode(base)) > SOCKET_PATH_MAX - 30:
            base = "/tmp"  # noqa: S108 - mkdtemp makes a folder that is ours alone
        return str(Path(tempfile.mkdtemp(prefix="netspy-", dir=base)) / "redis.sock")

    def _stop(self) -> None:
        """Have the server that serves this folder write its data and end; wait until it is gone."""
        server = self._serving()
        if server is not None:
            self._shut_down(server)
        known = self._known()
        if known is None:
            return
        if self._state(known.socket) != "other":
            Path(known.socket).unlink(missing_ok=True)
            if Path(known.socket).parent != self.data_dir.resolve():
                with contextlib.suppress(OSError):
                    Path(known.socket).parent.rmdir()
        (self.data_dir / "server.json").unlink(missing_ok=True)

    def _shut_down(self, server: _Server) -> None:
        # SHUTDOWN flushes and fsyncs the append-only file before the process ends.
        said: object = None
        with contextlib.suppress(OSError), UnixClient(server.socket, STOP_TIMEOUT) as link:
            said = link.ask("SHUTDOWN")
        end = time.monotonic() + STOP_TIMEOUT
        while is_running(server.pid, server.started):
            if said is not None or time.monotonic() > end:
                raise StoreUnavailableError(
                    f"the embedded Redis of {self.data_dir} (process {server.pid}) did not end: "
                    f"{said or 'no answer'}; see {self.data_dir / 'redis.log'}"
                )
            time.sleep(0.003)


def _url(socket_path: str) -> str:
    return f"unix://{quote(socket_path)}?db=0"
