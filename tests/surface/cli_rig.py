"""A spider on Redis, the `netspy` command as a real process, and a terminal for it to ask on."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netspy.testing.runner import Result, Script, run_command, start_command

NETSPY = [sys.executable, "-m", "netspy.cli"]

SPIDER = """
import os, time
import netspy as mw

BASE = os.environ["SITE"]


class Page(mw.Item):
    pass


class Pages(mw.Spider):
    __custom_setting__ = dict(
        PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0, RETRY_BACKOFF=0.01, SPIDER_MAX_RETRY_TIMES=1,
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"],
        HEARTBEAT_INTERVAL=float(os.environ.get("BEAT", "0.3")), HEARTBEAT_STALE=float(os.environ.get("STALE", "15")),
    )

    def start_requests(self):
        for n in range(int(os.environ.get("PAGES", "8"))):
            yield mw.Request(f"{BASE}/p/{n}")

    def parse(self, request, response):
        time.sleep(float(os.environ.get("PARSE_SLEEP", "0")))
        yield Page(url=request.url)
"""

AIR = """
import os
import netspy as mw


class Air(mw.AirSpider):
    __custom_setting__ = dict(PROGRESS="off", RETRY_BACKOFF=0.01, SPIDER_MAX_RETRY_TIMES=1)

    def start_requests(self):
        for path in ("/bad", "/gone", "/good"):
            yield mw.Request(os.environ["SITE"] + path)

    def parse(self, request, response):
        yield {"url": request.url}
"""


class Rig:
    """A folder with the spider, a site and the environment of the commands."""

    def __init__(self, folder: Path, site_url: str, redis_url: str | None = None) -> None:
        self.folder = folder
        self.env = {"SITE": site_url.rstrip("/")}
        if redis_url is not None:
            self.env["NETSPY_REDIS_URL"] = redis_url
        (folder / "main.py").write_text(SPIDER)
        (folder / "air.py").write_text(AIR)

    def __call__(self, *arguments: str, **env: str) -> Result:
        """Run one command to its end; standard input is no terminal."""
        return run_command([*NETSPY, *arguments], cwd=self.folder, env=self.env | env, timeout=60)

    def start(self, *arguments: str, **env: str) -> Script:
        return start_command([*NETSPY, *arguments], cwd=self.folder, env=self.env | env)

    def status(self, *arguments: str, **env: str) -> dict:
        return json.loads(self("status", *arguments, "--json", **env).check().stdout)

    def on_terminal(self, *arguments: str, answer: str = "", until: str = "") -> tuple[int, str]:
        """Run it on a terminal of 200 columns and type `answer` at a question: (exit code, what the screen got).

        `until`: interrupt it once the screen has shown this.
        """
        screen, terminal = pty.openpty()
        env = {name: value for name, value in os.environ.items() if not name.startswith("NETSPY_")}
        env |= self.env | {"TERM": "xterm", "COLUMNS": "200"}
        process = subprocess.Popen(
            [*NETSPY, *arguments], cwd=self.folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal
        )
        os.close(terminal)
        seen, end = b"", time.monotonic() + 60
        while time.monotonic() < end:
            if not select.select([screen], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(screen, 65536)
            except OSError:  # the last one to write has closed the terminal
                break
            if not data:
                break
            seen += data
            if answer and b"[y/N]" in seen:
                os.write(screen, answer.encode() + b"\n")
                answer = ""
            if until and until.encode() in seen:
                process.send_signal(2)
                until = ""
        os.close(screen)
        return process.wait(30), seen.decode("utf-8", "replace").replace("\r\n", "\n")

    def rows(self, name: str = "page.jsonl") -> list[dict]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


SOON_STALE = "1.2"
"""STALE of tests that wait until a killed node is known to be dead. In all others a node that the machine keeps from its
heartbeats for a second must not look dead."""


def until(condition: Callable[[], Any], timeout: float = 60.0) -> None:
    """Look until it holds; a look is a process of its own, so it is no busy wait."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not come to hold"


def one_line(result: Result, code: int, *parts: str) -> None:
    """The command ended with this code and one line on stderr that holds the parts; nothing on stdout."""
    result.check(code)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("netspy")
    for part in parts:
        assert part in result.stderr
