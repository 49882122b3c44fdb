"""A private RabbitMQ node for tests: real processes on free ports, with everything a test may do to a broker.

with RabbitServer() as server:
    url = server.url
    server.kill()
    server.start()  # the same port, the same data

It takes some 5 s to start, so tests share one where they can. Its port mapper (epmd) is its own, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from netspy.testing.children import kill_group, wait_until
from netspy.testing.private_server import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Mapping

START_TIMEOUT = 60.0

_HELLO = b"AMQP\x00\x00\x09\x01"  # AMQP 0-9-1, 4.2.2: the protocol header
_PROGRAMS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/lib64/rabbitmq/bin/rabbitmq-server")
"""Where packages keep the program itself: their wrapper on PATH switches to another user, and wants root for it."""


def find_rabbitmq_server() -> str | None:
    """The server program, or None. It also needs `epmd` (of Erlang) on PATH."""
    if shutil.which("epmd") is None:
        return None
    for path in _PROGRAMS:
        if Path(path).is_file():
            return path
    return shutil.which("rabbitmq-server") if os.geteuid() != 0 else None


class RabbitServer(PrivateServer):
    """One node.

    `config` adds lines to rabbitmq.conf; `advanced` sets numbers of the application `rabbit` that have no line there,
    e.g. {"channel_tick_interval": 1000}. The user is guest, the vhost /.
    """

    in_group = True

    def __init__(
        self, *, config: Mapping[str, str] | None = None, advanced: Mapping[str, int] | None = None
    ) -> None:
        found = find_rabbitmq_server()
        if found is None:
            raise FileNotFoundError("rabbitmq-server (or Erlang's epmd) is not installed")
        super().__init__(found, prefix="netspy-rabbitmq-")
        self._config = dict(config or {})
        self._advanced = dict(advanced or {})
        self._ports: tuple[int, int] = (0, 0)  # of the distribution, of epmd
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """amqp:// of the user guest and the vhost /."""
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    # ---- life

    def start(self) -> Self:
        """Start it, on the same ports and data as before, and wait until it talks AMQP. Raises RuntimeError."""
        if self.alive:
            raise RuntimeError(f"the RabbitMQ node at {self.url} is already running")
        if not self.port:
            self.port, *rest = (self._hold_port() for _ in range(3))
            self._ports = (rest[0], rest[1])
        self._write_config()
        epmd = shutil.which("epmd") or "epmd"
        self._epmd = self._spawn([epmd, "-port", str(self._ports[1]), "-address", self.host])
        self._run([self.binary], env=self._environment())
        if wait_until(lambda: not self.alive or self._ready(), START_TIMEOUT, step=0.05) and self.alive:
            return self
        log = self.log
        self._end(signal.SIGKILL)
        raise RuntimeError(f"{self.binary} did not start; the end of its log:\n{log[-2000:]}")

    def control(self, *words: str) -> None:
        """`rabbitmqctl` for this node; takes some seconds. Raises CalledProcessError."""
        program = Path(self.binary).with_name("rabbitmqctl")
        command = [str(program), "--quiet", "-n", self._environment()["RABBITMQ_NODENAME"], *words]
        subprocess.run(command, env=self._environment(), check=True, capture_output=True, timeout=60)

    def _write_config(self) -> None:
        lines = {
            "listeners.tcp.1": f"{self.host}:{self.port}",
            "vm_memory_high_watermark.absolute": "1GB",
            "disk_free_limit.absolute": "50MB",
            "log.console": "true",
            "log.console.level": "warning",
            "log.file": "false",
            **self._config,
        }
        (self.folder / "rabbitmq.conf").write_text("".join(f"{k} = {v}\n" for k, v in lines.items()))
        (self.folder / "enabled_plugins").write_text("[].\n")
        pairs = ", ".join(f"{{{name}, {value}}}" for name, value in self._advanced.items())
        (self.folder / "advanced.config").write_text(f"[{{rabbit, [{pairs}]}}].\n")

    def _environment(self) -> dict[str, str]:
        distribution, epmd = self._ports
        folder = self.folder
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return env | {
            "HOME": str(folder),  # for a cookie of its own
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": self.host,
            "RABBITMQ_NODENAME": f"netspy{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            # No busy waiting: several servers and the tests share the machine.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _ready(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 2) as link:
                link.sendall(_HELLO)
                return bool(link.recv(64))
        except OSError:
            return False

    def _end(self, number: int) -> None:
        super()._end(number)
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            epmd.kill()
            epmd.wait()

    def _end_process(self, process: subprocess.Popen[bytes], number: int) -> None:
        if self._paused:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
        if process.poll() is None and number != signal.SIGKILL:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.stop_timeout)
        kill_group(process.pid)
        process.wait()
        # The listener belongs to a process of the group that isn't our child: wait for what it held.
        wait_until(lambda: not self._listening(), self.stop_timeout)

    def _listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0
