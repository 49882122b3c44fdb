"""A Kafka cluster for tests: librdkafka's own mock cluster, in a process of its own.

with KafkaMock() as kafka:
    servers = kafka.servers  # "127.0.0.1:40123"
    kafka.kill(groups=["crawl"])  # the process is gone
    kafka.start()  # another one, on the same ports

It speaks the real protocol on real ports: produce, fetch, consumer groups, offsets. It is no Kafka: nothing is on a
disk. What a broker would have there (messages, committed offsets) `kill` copies after the last client was cut off, and
`start` writes it into the new process before the first one is let in; members of groups are forgotten. A member that
leaves its group is missed after its session timeout only. It needs the confluent-kafka wheel, which brings the library.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

from netspy.testing.children import DieWithParent
from netspy.testing.private_server import Block, free_port
from netspy.testing.proxy import FaultProxy
from support.kafka_log import Kept, keep, restore

if TYPE_CHECKING:
    from collections.abc import Sequence

START_TIMEOUT = 60.0
_PRODUCER = 0  # rd_kafka_type_t
JOIN_GROUP, GROUP_AUTHORIZATION_FAILED = 11, 30
"""A request and an error of the protocol, for `request_errors`."""
UNKNOWN_TOPIC = 3
"""The protocol's error code UNKNOWN_TOPIC_OR_PARTITION, for `topic_error`."""


def find_librdkafka() -> str | None:
    """The library in the confluent-kafka wheel, or None."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    beside = folder.parent / "confluent_kafka.libs"
    found = sorted([*beside.glob("librdkafka*"), *folder.glob(".dylibs/librdkafka*")])
    return str(found[0]) if found else None


def write_with_headers(servers: str, topic: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Write a message whose headers have any bytes as names, which the Python client refuses."""
    library = ctypes.CDLL(find_librdkafka())
    for function in (library.rd_kafka_new, library.rd_kafka_conf_new, library.rd_kafka_headers_new):
        function.restype = ctypes.c_void_p
    why = ctypes.create_string_buffer(500)
    config = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(config, b"bootstrap.servers", servers.encode(), why, 500)
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, config, why, 500))
    packed = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name, value in headers:
        sizes = ctypes.c_ssize_t(len(name)), ctypes.c_ssize_t(len(value))
        library.rd_kafka_header_add(packed, name, sizes[0], value, sizes[1])
    # rd_kafka_vtype_t: topic 1, value 4, flags 7 (2: copy), headers 10, end 0.
    code = library.rd_kafka_producev(
        producer, 1, topic.encode(), 4, body, ctypes.c_size_t(len(body)), 7, 2, 10, packed, 0
    )
    assert code == 0, code
    assert library.rd_kafka_flush(producer, 30_000) == 0
    library.rd_kafka_destroy(producer)


def write_damaged_batch(servers: str, topic: str, *, codec: int, count: int) -> None:
    """Write a batch of so many messages to partition 0 that says it is compressed with `codec` (1: gzip), and isn't."""
    rest = (
        struct.pack(">hiqqqhii", codec, count - 1, 1_600_000_000_000, 1_600_000_000_000, -1, -1, -1, count)
        + b"damaged"
    )
    batch = struct.pack(">qiibI", 0, 9 + len(rest), -1, 2, 0) + rest
    name = struct.pack(">h", len(topic)) + topic.encode()
    # Produce, version 3: transactional id, acks, timeout; one topic with one partition.
    request = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhii", -1, -1, 5000, 1) + name
    request += struct.pack(">iii", 1, 0, len(batch)) + batch
    host, port = servers.split(",", maxsplit=1)[0].split(":")
    with socket.create_connection((host, int(port)), 10) as link:
        link.sendall(struct.pack(">i", len(request)) + request)
        answer = link.recv(1000)
    at = 4 + 4 + 4 + len(name) + 4 + 4
    assert answer[at : at + 2] == b"\0\0", answer


class KafkaMock(Block):
    """The cluster as a test sees it. Topics appear when they are first used, with 4 partitions."""

    def __init__(self, *, brokers: int = 1, rebalance_delay_ms: int = 50) -> None:
        self._options: dict[str, Any] = {"brokers": brokers, "rebalance_delay_ms": rebalance_delay_ms}
        self._kept: Kept | None = None
        self._inside = ""  # where the library itself listens
        self._process: subprocess.Popen[str] | None = None
        self._guard: DieWithParent | None = None
        self._paused = False
        self.servers = ""

    @property
    def pid(self) -> int:
        """Its process id. Raises RuntimeError when it isn't running."""
        if self._process is None:
            raise RuntimeError("the Kafka mock is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (also while it is paused)."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, lost: int = 0) -> Self:
        """Start it; after `kill` on the same ports, with what was kept. `lost`: so many of each partition's last messages
        are not, while offsets are, as after an election of a replica that lagged behind. Raises RuntimeError when it
        doesn't come up.
        """
        if find_librdkafka() is None:
            raise FileNotFoundError("confluent-kafka is not installed")
        if self.alive:
            raise RuntimeError("the Kafka mock is already running")
        self._options.setdefault("ports", [free_port() for _ in range(self._options["brokers"])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.kafka_mock", json.dumps(self._options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        self._guard = DieWithParent(self._process.pid)
        self._inside = self._answer().removeprefix("ready ")
        kept, self._kept = self._kept, None
        if kept is not None:
            for name, partitions in kept.topics.items():
                self.topic(name, partitions)
            restore(self._inside, kept, lost=lost)
            if lost:
                for name, partitions in kept.topics.items():
                    self.elect(name, partitions)
        self._tell("open")
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self._options["ports"])
        return self

    def kill(self, *, groups: Sequence[str] = (), lose: bool = False) -> None:
        """Cut all clients off and SIGKILL the process. Messages, and the offsets that these groups have committed, are
        kept for `start`; with `lose` nothing is.
        """
        if not lose:
            self._tell("shut")
            self._kept = keep(self._inside, groups)
        self.close()

    def _answer(self) -> str:
        out = cast("IO[str]", self._process.stdout) if self._process else None
        if out is None or not select.select([out], [], [], START_TIMEOUT)[0] or not (line := out.readline()):
            raise RuntimeError("the Kafka mock does not answer")
        return line.strip()

    def _tell(self, *command: Any) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise RuntimeError("the Kafka mock is not running")
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        answer = self._answer()
        if answer != "ok":
            raise RuntimeError(f"the Kafka mock can't do {command}: {answer}")

    # ---- what a test does to it

    def down(self) -> None:
        """All brokers go away: connections are cut, new ones refused. Data and committed offsets stay."""
        self._tell("down")

    def up(self) -> None:
        """They are back."""
        self._tell("up")

    def topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        self._tell("topic", name, partitions)

    def elect(self, name: str, partitions: int) -> None:
        """The partitions of this topic get a new leader, with a new epoch."""
        self._tell("elect", name, partitions)

    def expire(self, name: str, partition: int, before: int) -> None:
        """Delete a partition's messages before this offset, as the topic's retention does."""
        self._tell("expire", name, partition, before)

    def topic_error(self, name: str, code: int) -> None:
        """From now on requests about this topic fail with the protocol's error `code`; 0 = no longer."""
        self._tell("error", name, code)

    def request_errors(self, api_key: int, *codes: int) -> None:
        """The next requests of this kind (0 = Produce) fail with these error codes, one each."""
        self._tell("request_errors", api_key, list(codes))

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """End it, with its data. Safe to call twice."""
        process, self._process = self._process, None
        self._paused = False
        if process is None:
            return
        if self._guard is not None:
            self._guard.release()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class _Cluster:
    """The library's mock cluster, in the process that is it.

    The library chooses its ports itself. So clients come through others, of our choice, which the brokers name as theirs
    (`advertised.listeners` of a real one) while they are open.
    """

    def __init__(self, library: str, brokers: int, rebalance_delay_ms: int, ports: list[int]) -> None:
        # The client library is loaded first: the wheel's own copies of OpenSSL and others come with it.
        importlib.import_module("confluent_kafka")
        lib = ctypes.CDLL(library)
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        for name, result, arguments in (
            ("rd_kafka_conf_new", pointer, []),
            ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
            ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
            ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
            ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
            ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
            ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
            ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
            ("rd_kafka_mock_broker_set_host_port", None, [pointer, ctypes.c_int32, text, number]),
            ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
            ("rd_kafka_mock_partition_set_leader", number, [pointer, text, ctypes.c_int32, ctypes.c_int32]),
            (
                "rd_kafka_mock_partition_delete_records",
                number,
                [pointer, text, ctypes.c_int32, ctypes.c_int64],
            ),
            ("rd_kafka_mock_topic_set_error", None, [pointer, text, number]),
            (
                "rd_kafka_mock_push_request_errors_array",
                None,
                [pointer, ctypes.c_int16, ctypes.c_size_t, pointer],
            ),
        ):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        why = ctypes.create_string_buffer(512)
        conf = lib.rd_kafka_conf_new()
        lib.rd_kafka_conf_set(
            conf, b"log_level", b"0", why, len(why)
        )  # it would complain about having no brokers
        handle = lib.rd_kafka_new(_PRODUCER, conf, why, len(why))
        if not handle:
            raise RuntimeError(why.value.decode())
        self._lib = lib
        self._brokers = range(1, brokers + 1)
        self._cluster = lib.rd_kafka_mock_cluster_new(handle, brokers)
        lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, rebalance_delay_ms)
        self._own_ports = [int(server.rpartition(":")[2]) for server in self.servers.split(",")]
        self._ports = ports
        self._doors = [
            FaultProxy(port=inner, listen_on=port) for inner, port in zip(self._own_ports, ports, strict=True)
        ]
        for door in self._doors:
            door.cut()
            door.start()

    @property
    def servers(self) -> str:
        """host:port of the brokers' own ports."""
        found: bytes = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return found.decode()

    def _set_open(self, is_open: bool) -> None:
        for broker, port in zip(self._brokers, self._ports if is_open else self._own_ports, strict=True):
            self._lib.rd_kafka_mock_broker_set_host_port(self._cluster, broker, b"127.0.0.1", port)
        for door in self._doors:
            (door.resume if is_open else door.cut)()

    def do(self, command: str, *arguments: Any) -> None:
        """One command of the test."""
        lib = self._lib
        if command in {"down", "up"}:
            change = (
                lib.rd_kafka_mock_broker_set_down if command == "down" else lib.rd_kafka_mock_broker_set_up
            )
            for broker in self._brokers:
                _checked(change(self._cluster, broker))
        elif command in {"open", "shut"}:
            self._set_open(command == "open")
        elif command == "topic":
            name, partitions = arguments
            _checked(lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))
        elif command == "elect":
            name, partitions = arguments
            for partition in range(partitions):
                _checked(lib.rd_kafka_mock_partition_set_leader(self._cluster, name.encode(), partition, 1))
        elif command == "expire":
            name, partition, before = arguments
            _checked(
                lib.rd_kafka_mock_partition_delete_records(self._cluster, name.encode(), partition, before)
            )
        elif command == "error":
            name, code = arguments
            lib.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), code)
        elif command == "request_errors":
            api_key, codes = arguments
            array = (ctypes.c_int * len(codes))(*codes)
            lib.rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(codes), array)
        else:
            raise ValueError(f"unknown command {command!r}")


def _checked(error: int) -> None:
    if error:
        raise RuntimeError(f"librdkafka's error {error}")


def main() -> int:
    """The process: commands on stdin, one answer each on stdout, until stdin ends."""
    library = find_librdkafka()
    if library is None:
        raise FileNotFoundError("confluent-kafka is not installed")
    cluster = _Cluster(library, **json.loads(sys.argv[1]))
    sys.stdout.write(f"ready {cluster.servers}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        try:
            cluster.do(*json.loads(line))
            answer = "ok"
        except (RuntimeError, ValueError, TypeError) as error:
            answer = f"error: {error}"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
