"""The demo's shop as a process of its own, which ends with the demo however that ends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from netspy.demo.spider import LISTS, PER_LIST, SEED
from netspy.errors import ConfigError, NetspyError

START_S = 15.0
PORT_FREE_S = 3.0
"""How long a port is waited for: the shop of a killed demo ends a moment after its last node."""


class ShopProcess:
    """Starts the shop; as a context manager it stops it."""

    def __init__(self, folder: Path, *, port: int, delay_ms: str) -> None:
        """`port` 0 takes a free one. Raises ConfigError when the port is taken."""
        if port:
            _wait_for_port(port)
        ready = folder / ".shop-ready.json"
        ready.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "netspy.testing.shop", "--port", str(port), "--delay-ms", delay_ms]
        argv += ["--lists", str(LISTS), "--per", str(PER_LIST), "--seed", str(SEED)]
        argv += ["--ready-file", str(ready), "--log", str(folder / "shop.log"), "--until-stdin-closes"]
        # Its own session: Ctrl-C is for the crawl. Its standard input ends when nobody is left to read the pages:
        # the nodes inherit the other end.
        self._said = folder / "shop.err"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
        try:
            self.url = self._ready(ready)
        except BaseException:
            self.stop()
            raise
        self.port = int(self.url.split(":")[2].split("/")[0])

    def _ready(self, ready: Path) -> str:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with suppress(FileNotFoundError):
                url = str(json.loads(ready.read_text("utf-8"))["url"])
                ready.unlink(missing_ok=True)
                return url
            if self._process.poll() is not None:
                said = self._said.read_text("utf-8", "replace").strip()
                raise NetspyError(
                    f"the demo's shop did not start: {said.splitlines()[-1] if said else 'no word'}"
                )
            time.sleep(0.02)
        raise NetspyError(f"the demo's shop did not start within {START_S:g} s")

    def stop(self) -> None:
        """End it and wait until it is gone. Safe to call twice."""
        with suppress(OSError):
            self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(OSError):
            if not self._said.stat().st_size:
                self._said.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + PORT_FREE_S
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if time.monotonic() > end:
                    raise ConfigError(
                        f"port {port}, where the shop of the unfinished demo was, can't be opened: {error.strerror}; "
                        "free it, or forget that run with --fresh"
                    ) from None
            else:
                return
        time.sleep(0.1)
