"""A Kafka cluster for tests: librdkafka's own mock cluster, in a process of its own.

with KafkaMock() as kafka:
    servers = kafka.servers  # "127.0.0.1:40123"
    kafka.down()  # connections are cut and refused; what was written stays
    kafka.up()

It speaks the real protocol on real ports: produce, fetch, consumer groups, offsets. It is no Kafka: nothing is on a
disk, so data ends with its process, and its ports are new after a restart. An outage here is `down`/`up` or
`pause`/`resume`. It needs the confluent-kafka wheel, which brings the library.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

from netspy.testing.leash import Leash

if TYPE_CHECKING:
    from types import TracebackType

START_TIMEOUT = 15.0
_PRODUCER = 0  # rd_kafka_type_t
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


class KafkaMock:
    """The cluster as a test sees it. Topics appear when they are first used, with `partitions` partitions."""

    def __init__(self, *, brokers: int = 1, partitions: int = 4, rebalance_delay_ms: int = 50) -> None:
        self._options = {
            "brokers": brokers,
            "partitions": partitions,
            "rebalance_delay_ms": rebalance_delay_ms,
        }
        self._process: subprocess.Popen[str] | None = None
        self._leash: Leash | None = None
        self._paused = False
        self.servers = ""

    @property
    def pid(self) -> int:
        """Its process id. Raises RuntimeError when it isn't running."""
        if self._process is None:
            raise RuntimeError("the Kafka mock is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start it. Raises RuntimeError when it doesn't come up."""
        if find_librdkafka() is None:
            raise FileNotFoundError("confluent-kafka is not installed")
        self._process = subprocess.Popen(  # noqa: S603 - this module itself
            [sys.executable, "-m", "netspy.testing.kafka_mock", json.dumps(self._options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        self._leash = Leash(self._process.pid)
        self.servers = self._answer().removeprefix("ready ")
        return self

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
        """End it; its data is gone. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._leash is not None:
            self._leash.release()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

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


class _Cluster:
    """The library's mock cluster, in the process that is it."""

    def __init__(self, library: str, brokers: int, partitions: int, rebalance_delay_ms: int) -> None:
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
            ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
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
        self._partitions = partitions
        lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, rebalance_delay_ms)

    @property
    def servers(self) -> str:
        """host:port of the brokers."""
        found: bytes = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return found.decode()

    def do(self, command: str, *arguments: Any) -> None:
        """One command of the test."""
        lib = self._lib
        if command in {"down", "up"}:
            change = (
                lib.rd_kafka_mock_broker_set_down if command == "down" else lib.rd_kafka_mock_broker_set_up
            )
            for broker in self._brokers:
                _checked(change(self._cluster, broker))
        elif command == "topic":
            name, partitions = arguments
            _checked(lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))
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
