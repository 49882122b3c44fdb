"""A Redis Cluster for tests: masters with or without replicas, made as an operator makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from netspy.testing.children import wait_until
from netspy.testing.private_server import Block
from netspy.testing.redis_server import RedisServer

if TYPE_CHECKING:
    from netspy.testing.certificates import Certificates

BUS_OFFSET = 10_000
"""What a node adds to its port for its talk with the others."""

SETTLE_TIMEOUT = 30.0


class ClusterNode(RedisServer):
    """One server, whose port leaves room for the bus port."""

    def _choose_port(self) -> int:
        while True:
            port = self._hold_port()
            try:
                if port + BUS_OFFSET > 65535:
                    return self._hold_port(port - BUS_OFFSET)  # as good as any other, if it's free
                self._hold_port(port + BUS_OFFSET)
            except OSError:
                self._let_ports_go()
            else:
                return port


class RedisCluster(Block):
    """Three masters, and as many replicas for each as `replicas` says.

    A master that doesn't answer for `down_after_s` is replaced by its replica, some 1 to 2 s later. Where there is none,
    the whole cluster would be down for a master that a busy machine kept waiting; so there it is Redis' own 15 s.
    """

    def __init__(
        self,
        binary: str | None = None,
        *,
        masters: int = 3,
        replicas: int = 0,
        password: str | None = None,
        tls: Certificates | None = None,
        down_after_s: float | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of RedisServer, for each node."""
        self._replicas = replicas
        self._tls = tls
        if down_after_s is None:
            down_after_s = 1.0 if replicas else 15.0
        config = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(round(down_after_s * 1000)),
            # A replica that just lost its master takes over, however old its data look to it.
            "cluster-replica-validity-factor": "0",
            "repl-diskless-sync-delay": "0",
            **options.pop("config", {}),
        }
        if password is not None:
            config["masterauth"] = password
        if tls is not None:
            config |= {"tls-cluster": "yes", "tls-replication": "yes"}
        self.nodes: list[RedisServer] = [
            ClusterNode(binary, password=password, tls=tls, config=config, **options)
            for _ in range(masters * (1 + replicas))
        ]

    @property
    def url(self) -> str:
        """redis+cluster:// (rediss+cluster:// with TLS) with all nodes that live."""
        node = self.nodes[0]
        secret = f":{quote(node.password, safe='')}@" if node.password else ""
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes if node.alive)
        scheme = "rediss+cluster" if self._tls else "redis+cluster"
        return f"{scheme}://{secret}{hosts}{node.tls_query}"

    def _living(self) -> RedisServer:
        return next(node for node in self.nodes if node.alive)

    def slot_of(self, key: str) -> int:
        """The slot of a key, or of its hash tag."""
        return int(self._living().ask("CLUSTER", "KEYSLOT", key))

    def master_of(self, key: str) -> RedisServer:
        """The node that serves the key's slot, as the first living node sees it."""
        return self._by_port(self._holders(self.slot_of(key))[0])

    def _holders(self, slot: int) -> list[int]:
        ranges = self._living().ask("CLUSTER", "SLOTS")
        for first, last, *holders in ranges:
            if int(first) <= slot <= int(last):
                return [int(holder[1]) for holder in holders]
        raise LookupError(f"no node serves slot {slot}")

    def _by_port(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    def kill_master_of(self, key: str) -> RedisServer:
        """SIGKILL the node that serves the key, and give it."""
        master = self.master_of(key)
        master.kill()
        return master

    def wait_new_master_of(self, key: str, old: RedisServer) -> RedisServer:
        """Wait until another node than `old` serves the key. Raises TimeoutError."""
        if not wait_until(lambda: self.master_of(key) is not old, SETTLE_TIMEOUT, step=0.05):
            raise TimeoutError("no replica took over; " + self.nodes[-1].log[-2000:])
        return self.master_of(key)

    def move_slot_of(self, key: str, *, finish: bool = True) -> RedisServer:
        """Move the key's slot with its keys to another master, as resharding does, and give that one.

        With `finish` False it stops half way: all keys are there, and the slot is not yet.
        """
        slot = self.slot_of(key)
        source = self.master_of(key)
        target = next(node for node in self._masters() if node is not source)
        names = {node: self._name(node) for node in (source, target)}
        target.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", names[source])
        source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", names[target])
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", str(slot), "100"):
            secret = ["AUTH", source.password] if source.password else []
            source.ask("MIGRATE", target.host, str(target.port), "", "0", "5000", *secret, "KEYS", *keys)
        if finish:
            self.finish_moving(key, target)
        return target

    def finish_moving(self, key: str, target: RedisServer) -> None:
        """The end of `move_slot_of`."""
        slot, name = self.slot_of(key), self._name(target)
        target.ask("CLUSTER", "SETSLOT", str(slot), "NODE", name)
        for node in self._masters():
            if node is not target:
                node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", name)

    def _masters(self) -> list[RedisServer]:
        return [node for node in self.nodes if node.alive and node.ask("ROLE")[0] == b"master"]

    def _name(self, node: RedisServer) -> str:
        return str(node.ask("CLUSTER", "MYID").decode())

    def flush(self) -> None:
        """Remove every key."""
        for node in self._masters():
            node.ask("FLUSHALL")

    def start(self) -> Self:
        """Start all, join them with `redis-cli --cluster create`, and wait until all slots are served."""
        for node in self.nodes:
            node.start()
        hosts = [f"{node.host}:{node.port}" for node in self.nodes]
        self.nodes[0].run_cli(
            "--cluster", "create", *hosts, "--cluster-replicas", str(self._replicas), "--cluster-yes"
        )
        if not wait_until(self._whole, SETTLE_TIMEOUT, step=0.05):
            raise TimeoutError("the cluster isn't whole; " + self.nodes[0].log[-2000:])
        return self

    def _whole(self) -> bool:
        for node in self.nodes:
            state = node.ask("CLUSTER", "INFO")
            if b"cluster_state:ok" not in state:
                return False
            role = node.ask("ROLE")
            if role[0] == b"slave" and role[3] != b"connected":
                return False
        return True

    def close(self) -> None:
        """End all and remove their folders. Safe to call twice."""
        for node in self.nodes:
            node.close()
