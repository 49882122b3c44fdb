"""One crawl under a fault: a site, a Redis, a sink, and the processes that crawl, all ended with the case."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from frameworks import SPIDERS, Framework

from netspy.testing.runner import Result, Script, start_command
from netspy.testing.servers import FaultProxy, RedisServer
from netspy.testing.site import Incoming, LocalSite

IDLE_LIMIT = 40.0
"""Seconds without a page after which a node counts as hung: far longer than any lease or time-out set here."""


class Plan(NamedTuple):
    """The work of a case. Without `lists` the crawl starts from `seeds` detail pages that lead nowhere."""

    lists: int = 20
    links: int = 50
    seeds: int = 0
    seed_pause: float = 0.0
    write_pause: float = 0.0
    page_delay: float = 0.02
    in_flight: int = 16

    @property
    def pages(self) -> int:
        return self.lists * (1 + self.links) if self.lists else self.seeds


class Note(NamedTuple):
    """Something the numbers don't say; `what` is a key of report.NOTES."""

    what: str
    value: str = ""


class World:
    """A context manager. `limit` (seconds) bounds the case: what still runs then is ended by its pid."""

    def __init__(self, framework: Framework, python: str, plan: Plan, limit: float) -> None:
        self.framework = framework
        self.plan = plan
        self.folder = Path(tempfile.mkdtemp(prefix="faults-"))
        self.site = LocalSite()
        self.redis = RedisServer(appendfsync="always")
        self.proxy: FaultProxy | None = None
        self.results: list[Result] = []
        self.codes: list[str] = []
        self.notes: list[Note] = []
        self.fault_at: float | None = None
        self.ended_at = 0.0
        self._python = python
        self._limit = limit
        self._nodes: list[Script] = []
        self._started: dict[int, float] = {}
        self.began = time.monotonic()

    # ---- what the case does

    def start(self) -> Script:
        """A new process of the spider."""
        plan = self.plan
        env = {
            "FAULTS_BASE": self.site.url("").rstrip("/"),
            "FAULTS_REDIS": self.proxy.redis_url() if self.proxy else self.redis.url,
            "FAULTS_ROWS": str(self.folder / "rows.jsonl"),
            "FAULTS_SEEDED": str(self.folder / "seeded"),
            "FAULTS_LISTS": str(plan.lists),
            "FAULTS_SEEDS": str(plan.seeds),
            "FAULTS_SEED_PAUSE": str(plan.seed_pause),
            "FAULTS_WRITE_PAUSE": str(plan.write_pause),
            "FAULTS_IN_FLIGHT": str(plan.in_flight),
            "FAULTS_SETTINGS": json.dumps(self.framework.settings),
            "PYTHONDONTWRITEBYTECODE": "1",
            # A peer must never import this checkout: one of them has the same package name.
            "PYTHONPATH": os.environ.get("PYTHONPATH") if self.framework.environment == "ours" else None,
        }
        node = start_command([self._python, SPIDERS / self.framework.script], env=env, cwd=self._new_folder())
        self._nodes.append(node)
        self._started[node.pid] = time.monotonic()
        return node

    def through_proxy(self) -> FaultProxy:
        """Put a proxy before Redis for the processes to come."""
        self.proxy = FaultProxy("127.0.0.1", self.redis.port).start()
        return self.proxy

    def wait(self, condition: Callable[[], object], node: Script) -> bool:
        """Wait until the condition is truthy; False when the node ends or the limit comes first."""
        while not condition():
            if not node.alive or self.left <= 0:
                return False
            time.sleep(0.002)
        return True

    def kill(self, node: Script) -> None:
        """kill -9, and note the time as that of the fault."""
        if not node.alive:
            self.notes.append(Note("early"))
        node.kill(group=True)
        self.fault()
        self.results.append(node.finish(10))
        self.codes.append(str(self.results[-1].returncode))

    def fault(self) -> None:
        self.fault_at = time.monotonic()

    def end(self, node: Script) -> bool:
        """Wait for the node's end; one that hangs is ended. True when it ended by itself with exit code 0."""
        while node.alive and self.left > 0 and self.idle(node) < IDLE_LIMIT:
            time.sleep(0.01)
        self.ended_at = time.monotonic()
        hangs = node.alive
        if hangs and self.idle(node) < IDLE_LIMIT / 2:
            self.notes.append(Note("slow", f"{self._limit:.0f}"))
        elif hangs:
            self.notes.append(Note("hung", f"{self.idle(node):.0f}"))
        node.kill(group=True)
        self.results.append(node.finish(10))
        code = self.results[-1].returncode
        self.codes.append("ended" if hangs else str(code))
        return not hangs and code == 0

    def end_supervised(self, node: Script) -> None:
        """As `end`; a node that hung or ended with an error code is started once more, as an operator would."""
        if not self.end(node):
            if self.codes[-1] != "ended":
                self.notes.append(Note("crashed", last_error(self.results[-1])))
            self.notes.append(Note("again"))
            self.end(self.start())

    def idle(self, node: Script) -> float:
        """Seconds since the last request of a page, or since this node's start."""
        last = self.site.log[-1].time if self.site.log else 0.0
        return time.monotonic() - max(last, self._started[node.pid])

    # ---- what came of it

    @property
    def left(self) -> float:
        return self.began + self._limit - time.monotonic()

    @property
    def seeded(self) -> int:
        """Seeds that the spider has given so far, over all starts."""
        path = self.folder / "seeded"
        return path.stat().st_size if path.exists() else 0

    def rows(self) -> Counter[str]:
        """How often each URL's row is in the sink."""
        path = self.folder / "rows.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return Counter(json.loads(line)["url"] for line in lines)

    # ---- life

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="node-", dir=self.folder))

    def __enter__(self) -> Self:
        links = self.plan.links

        def list_page(request: Incoming) -> str:
            number = int(request.path.rsplit("/", 1)[1])
            anchors = (
                f'<a class="detail" href="/detail/{number * links + position}">more</a>'
                for position in range(links)
            )
            return f"<h1>List {number}</h1>" + "".join(anchors)

        self.site.route("/list/", list_page, prefix=True, delay=self.plan.page_delay)
        self.site.route(
            "/detail/",
            lambda request: f"<h1>Page {request.path}</h1>",
            prefix=True,
            delay=self.plan.page_delay,
        )
        self.site.start()
        self.redis.start()
        self.began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.kill(group=True)
            node.finish(10)
        if self.proxy:
            self.proxy.close()
        self.redis.close()
        self.site.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def last_error(result: Result) -> str:
    """The class of the last exception that a process printed, or ""."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.stderr + "\n" + result.stdout)
    found = re.findall(r"^\W*(?:[a-z_0-9]+\.)*([A-Z]\w*(?:Error|Exception|Refused))\b", text, re.MULTILINE)
    return found[-1] if found else ""
