"""A master with replicas, watched by sentinels, for tests: fail-over as users have it, within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from netspy.testing.children import wait_until
from netspy.testing.private_server import Block
from netspy.testing.redis_server import RedisServer

if TYPE_CHECKING:
    from netspy.testing.certificates import Certificates

SETTLE_TIMEOUT = 30.0


class Sentinel(RedisServer):
    """One sentinel. It keeps what it learns in its file, so it can be killed and restarted."""

    def __init__(
        self,
        master: RedisServer,
        service: str,
        *,
        quorum: int,
        down_after_s: float,
        sentinel_password: str | None = None,
    ) -> None:
        """Watches `master` under the name `service`."""
        super().__init__(master.binary, password=sentinel_password, tls=master.tls)
        ms = round(down_after_s * 1000)
        watched = [
            f"sentinel monitor {service} {master.host} {master.port} {quorum}",
            f"sentinel down-after-milliseconds {service} {ms}",
            f"sentinel failover-timeout {service} {max(2000, 4 * ms)}",
        ]
        if master.password:
            watched.append(f'sentinel auth-pass {service} "{_quoted(master.password)}"')
        if sentinel_password:
            watched.append(f'sentinel sentinel-pass "{_quoted(sentinel_password)}"')
        self._watched = watched

    def _argv(self) -> list[str]:
        path = self.folder / "sentinel.conf"
        if not path.exists():
            lines = [f'dir "{self.folder}"', f"bind {self.host}"]
            if self.tls is None:
                lines.append(f"port {self.port}")
            else:
                lines += ["port 0", f"tls-port {self.port}", "tls-replication yes"]
                lines += [
                    f'{name} "{value}"' for name, value in self._config.items() if name.startswith("tls-")
                ]
            if self.password:
                lines.append(f'requirepass "{_quoted(self.password)}"')
            path.write_text("\n".join([*lines, *self._watched]) + "\n")
        return [self.binary, str(path), "--sentinel"]


class RedisReplication(Block):
    """`servers[0]` begins as the master; who it is now says `master`.

    A master that doesn't answer for `down_after_s` is replaced by a replica, some 1 to 3 s later. Servers have
    no files, unless `appendfsync`.
    """

    def __init__(
        self,
        binary: str | None = None,
        *,
        replicas: int = 1,
        sentinels: int = 3,
        service: str = "netspy-master",
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: Certificates | None = None,
        down_after_s: float = 0.6,
        **options: Any,
    ) -> None:
        """`options` are those of RedisServer, for each server."""
        self.service = service
        self._sentinel_password = sentinel_password
        self._tls = tls
        config = {"repl-diskless-sync-delay": "0", **options.pop("config", {})}
        if password is not None:
            config["masterauth"] = password
        if tls is not None:
            config["tls-replication"] = "yes"
        self.servers = [
            RedisServer(binary, password=password, tls=tls, config=config, **options)
            for _ in range(1 + replicas)
        ]
        self._wanted_sentinels = sentinels
        self._down_after_s = down_after_s
        self.sentinels: list[Sentinel] = []

    @property
    def url(self) -> str:
        """redis+sentinel:// (rediss+sentinel:// with TLS), as a user writes it."""
        master = self.servers[0]
        secret = f":{quote(master.password, safe='')}@" if master.password else ""
        hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        query = master.tls_query
        if self._sentinel_password:
            mark = "&" if query else "?"
            query += f"{mark}sentinel_password={quote(self._sentinel_password, safe='')}"
        scheme = "rediss+sentinel" if self._tls else "redis+sentinel"
        return f"{scheme}://{secret}{hosts}/{self.service}/0{query}"

    @property
    def master(self) -> RedisServer:
        """The server that most sentinels call the master now."""
        ports = [self._master_port(sentinel) for sentinel in self.sentinels if sentinel.alive]
        port = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == port)

    def _master_port(self, sentinel: Sentinel) -> int:
        answer = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return int(answer[1])

    @property
    def replica(self) -> RedisServer:
        """The first living server that isn't the master."""
        master = self.master
        return next(server for server in self.servers if server is not master and server.alive)

    def kill_master(self) -> RedisServer:
        """SIGKILL the master, and give it. A replica takes over; wait for that with `wait_new_master`."""
        master = self.master
        master.kill()
        return master

    def failover(self) -> RedisServer:
        """Tell a sentinel to promote a replica though the master lives, wait for it, and give the new master.

        As always with Sentinel, the old one takes writes for some seconds more, and then loses them.
        """
        from redis.exceptions import ResponseError

        old = self.master
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.alive)

        def accepted() -> bool:
            try:
                sentinel.ask("SENTINEL", "FAILOVER", self.service)
            except ResponseError:
                return False  # a replica that just came back, or a fail-over that has just ended
            return True

        if not wait_until(accepted, SETTLE_TIMEOUT, step=0.1):
            raise TimeoutError("the sentinels refuse to fail over; " + sentinel.log[-2000:])
        return self.wait_new_master(old)

    def wait_new_master(self, old: RedisServer) -> RedisServer:
        """Wait until all living sentinels call another server than `old` the master. Raises TimeoutError."""

        def agreed() -> bool:
            ports = {self._master_port(sentinel) for sentinel in self.sentinels if sentinel.alive}
            return len(ports) == 1 and old.port not in ports

        if not wait_until(agreed, SETTLE_TIMEOUT, step=0.05):
            raise TimeoutError("the sentinels promoted no replica; " + self.sentinels[0].log[-2000:])
        return self.master

    def start(self) -> Self:
        """Start all, and wait until the replicas follow and the sentinels know each other."""
        first, *others = self.servers
        first.start()
        for server in others:
            server.start()
            server.ask("REPLICAOF", first.host, str(first.port))
        if not wait_until(self._following, SETTLE_TIMEOUT, step=0.02):
            raise TimeoutError("the replicas don't follow; " + others[0].log[-2000:])
        for _ in range(self._wanted_sentinels):
            sentinel = Sentinel(
                first,
                self.service,
                quorum=self._wanted_sentinels // 2 + 1,
                down_after_s=self._down_after_s,
                sentinel_password=self._sentinel_password,
            )
            self.sentinels.append(sentinel)
            sentinel.start()
        if not wait_until(self._watching, SETTLE_TIMEOUT, step=0.05):
            raise TimeoutError("the sentinels don't know each other; " + self.sentinels[0].log[-2000:])
        return self

    def _following(self) -> bool:
        return all(
            server.client().info("replication").get("master_link_status") == "up"
            for server in self.servers[1:]
        )

    def _watching(self) -> bool:
        for sentinel in self.sentinels:
            facts = sentinel.ask("SENTINEL", "MASTER", self.service)
            known = dict(zip(facts[::2], facts[1::2], strict=True))
            if int(known[b"num-other-sentinels"]) != len(self.sentinels) - 1:
                return False
            if int(known[b"num-slaves"]) != len(self.servers) - 1:
                return False
        return True

    def close(self) -> None:
        """End all and remove their folders. Safe to call twice."""
        for server in [*self.sentinels, *self.servers]:
            server.close()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
