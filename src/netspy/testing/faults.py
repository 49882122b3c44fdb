"""A crawl that a test may break, and the check of what came out of it.

    def test_my_spider_survives_a_kill(site, redis_url, tmp_path):
        site.route("/", ...)
        with FaultRun(tmp_path, "my_spider.py", site=site, redis_url=redis_url, namespace="netspy:MySpider") as run:
            first, second = run.node(crash_at="after_claim:2"), run.node()
            run.wait_killed(first)
            run.wait_taken_over(first)
            run.finish(second)
            run.check({site.url("/a"), site.url("/b")}, fetched_twice=50)

The rows go to two sinks at once: an SQLite file, where a table with a unique key keeps one row per key, and a JSONL
file, which only ever grows and so shows what was written twice. Heartbeats are short, so that a dead node is noticed
within two seconds.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from netspy.policy.failed_record import FailedRecord, read_failed
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.fault_pages import AIR_PAGES, PAGES, WRONG_CLOCK, serve_pages
from netspy.testing.runner import SUMMARY_MARK, Result, Script, ScriptError, start_script

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from types import TracebackType

    from redis import Redis

    from netspy.testing.site import LocalSite

__all__ = ["AIR_PAGES", "PAGES", "FaultReport", "FaultRun", "serve_pages"]

QUICK: dict[str, str] = {
    "HEARTBEAT_INTERVAL": "0.3",
    "HEARTBEAT_STALE": "1.5",
    "SPIDER_SEEDING_TTL": "1.5",
    "SPIDER_STARTUP_GRACE": "5",
    "DONE_CHECK_INTERVAL": "0.1",
    "SPIDER_MAX_UNACKED": "50",
    "COLLECTOR_TASK_COUNT": "10",
    "SPIDER_THREAD_COUNT": "4",
    "RETRY_BACKOFF": "0.1",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "0",
    "PROGRESS": "off",
    "SQLITE_PATH": "sink.db",
    "JSONL_OUTPUT_DIR": "lines",
    "ITEM_PIPELINES": "netspy.pipelines.sqlite.SqlitePipeline,netspy.pipelines.jsonl.JsonlPipeline",
}
"""Settings of the nodes, unless the test says otherwise."""


FAILED_FILE = "failed_requests.jsonl"
_LOCKED_S = 30.0
"""How long a node may be writing into the SQLite file while a test wants to read it."""


class FaultReport(NamedTuple):
    """What a run under a fault came to.

    `lost`: expected rows that are nowhere. `fetched_twice`: fetches beyond one per page. `stored_twice`: rows beyond
    one per key in the table with a unique key. `written_twice`: the same in the file, which has no key. `seconds`:
    from the fault until the run had recovered from it, None when the test didn't measure it.
    """

    lost: int
    fetched_twice: int
    stored_twice: int
    written_twice: int
    seconds: float | None


class FaultRun:
    """Node processes on one Redis, in one folder; a context manager that ends them all.

    `source` is a script that starts a spider, as a path or as text. `redis_url` None is for an AirSpider: what is said
    here of queues and leases is not for it, and its failed list is the file `failed_requests.jsonl`. `namespace` is the
    spider's in Redis: `<REDIS_KEY_PREFIX>:<redis_key>`. Rows are read from `table` and told apart by the column `key`.
    `env` goes to every node: NETSPY_* settings may stand there without the prefix.
    """

    def __init__(
        self,
        folder: Path,
        source: str | Path = PAGES,
        *,
        redis_url: str | None = None,
        namespace: str = "netspy:Pages",
        table: str = "page",
        key: str = "url",
        site: LocalSite | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.namespace = namespace
        self.table = table
        self.key = key
        self.site = site
        self.nodes: list[Script] = []
        self.ended: list[Result] = []
        self._source = source
        self._env = {**QUICK, **(env or {})}
        if site is not None:
            self._env.setdefault("SITE", site.url("").rstrip("/"))
        self._stack = ExitStack()
        self._client: Redis | None = None
        self._fault_at: float | None = None
        self._recovered_after: float | None = None

    # -- nodes

    def node(
        self, *, crash_at: str = "", redis_url: str | None = None, clock_shift: float = 0.0, **env: str
    ) -> Script:
        """Start a node.

        `crash_at` is a point of `netspy.crash` with its count, such as "after_claim:3". `clock_shift`: seconds by which
        the wall clock of this node is wrong.
        """
        return self._start(
            {**self._env, **env}, crash_at=crash_at, redis_url=redis_url, clock_shift=clock_shift
        )

    def _start(
        self,
        values: Mapping[str, str],
        *,
        crash_at: str = "",
        redis_url: str | None = None,
        clock_shift: float = 0.0,
    ) -> Script:
        named = {_in_environment(name): value for name, value in values.items()}
        url = redis_url or self.redis_url
        if url is not None:
            named["NETSPY_REDIS_URL"] = url
        if crash_at:
            named["NETSPY_CRASH_AT"] = crash_at
        if clock_shift:
            named["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(self._wrong_clock(clock_shift)), os.environ.get("PYTHONPATH")])
            )
        script = self._stack.enter_context(start_script(self._source, env=named, cwd=self.folder))
        self.nodes.append(script)
        return script

    def _wrong_clock(self, shift: float) -> Path:
        """A folder whose `sitecustomize` Python runs before anything else reads the time."""
        folder = self.folder / f"clock{shift:+g}"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK.format(shift=shift), encoding="utf-8")
        return folder

    def finish(self, *scripts: Script, code: int = 0, timeout: float = 60.0) -> list[Result]:
        """Wait for these nodes (without any: for all that still run) to end with `code`. Raises ScriptError."""
        waited = scripts or tuple(script for script in self.nodes if script.alive)
        results = [script.finish(timeout).check(code) for script in waited]
        self.ended += results
        return results

    def finish_by_restarts(
        self, *, at_most: int = 20, timeout: float = 60.0, codes: tuple[int, ...] = (0,), **env: str
    ) -> int:
        """Start one node after the other, as a supervisor would, until one ends by itself; how many were killed.

        `codes`: how it may end; 6 (nothing but failures) is right where only the deadly page may be left for it. Raises
        ScriptError for another code, AssertionError when `at_most` nodes were killed.
        """
        for killed in range(at_most):
            result = self._start({**self._env, **env}).finish(timeout)
            if result.returncode >= 0:
                if result.returncode not in codes:
                    result.check(codes[0])
                self.ended.append(result)
                return killed
        raise AssertionError(f"{at_most} nodes in a row were killed")

    # -- the fault and the recovery

    def fault(self) -> None:
        """The fault happens now. Later calls for further faults of the same kind begin the time anew."""
        self._fault_at = time.monotonic()
        self._recovered_after = None

    def recovered(self) -> float:
        """The run has recovered from the fault now; seconds since `fault`."""
        if self._fault_at is None:
            raise RuntimeError("recovered() was called before fault()")
        self._recovered_after = time.monotonic() - self._fault_at
        return self._recovered_after

    def wait_killed(self, script: Script, timeout: float = 30.0) -> None:
        """Wait until a node's armed crash point has ended it. Raises ScriptError when it ended in another way."""
        script.finish(timeout).check(-9)
        self.fault()

    def wait_taken_over(self, script: Script, timeout: float = 30.0) -> float:
        """Wait until nothing is leased in the name of this dead node any more; seconds since the fault."""
        self.wait(
            lambda: not self.leases_of(script), f"the leases of process {script.pid} are taken over", timeout
        )
        return self.recovered()

    def wait(self, condition: Any, what: str, timeout: float = 30.0) -> None:
        """Wait until `condition()` is true. Raises ScriptError with `what` and the youngest node's output."""
        if not wait_until(condition, timeout, step=0.02):
            last = self.nodes[-1] if self.nodes else None
            raise ScriptError(
                f"{timeout:g} s passed and it isn't so that {what}",
                last.stdout if last else "",
                "\n".join(f"[{node.pid}] {node.stderr[-3000:]}" for node in self.nodes),
            )

    # -- what Redis holds

    @property
    def client(self) -> Redis:
        """A client of the run's Redis, with bytes. Raises RuntimeError for a run without one."""
        if self.redis_url is None:
            raise RuntimeError("an AirSpider's run has no Redis")
        if self._client is None:
            import redis

            if (
                "+" in self.redis_url.partition("://")[0]
            ):  # sentinels or a cluster, which redis-py's URLs don't know
                settings = Settings(REDIS_URL=self.redis_url)
                self._client = sync_client(settings, key=self.namespace)
            else:
                self._client = redis.Redis.from_url(self.redis_url)
        return self._client

    def count(self, name: str) -> int:
        """Members of one of the run's keys: z_requests, z_inflight, z_delayed or failed_requests."""
        found: Any = (
            self.client.llen(f"{self.namespace}:{name}")
            if name == "failed_requests"
            else self.client.zcard(f"{self.namespace}:{name}")
        )
        return int(found)

    def node_ids(self, script: Script) -> set[bytes]:
        """The ids under which a process is registered."""
        records: Any = self.client.hgetall(f"{self.namespace}:nodes")
        reports = {name: json.loads(value) for name, value in records.items() if value.startswith(b"{")}
        return {name for name, report in reports.items() if report.get("pid") == script.pid}

    def leases_of(self, script: Script) -> list[bytes]:
        """What is leased in the name of a process. Ids whose record is gone have no leases."""
        ids = self.node_ids(script)
        members: Any = self.client.zrange(f"{self.namespace}:z_inflight", 0, -1)
        return [member for member in members if member[27:35] in ids]

    def failed(self) -> list[FailedRecord]:
        """The records of the failed list, or of an AirSpider's file."""
        if self.redis_url is None:
            return [read_failed(line) for line in _file_lines(self.folder / FAILED_FILE)]
        records: Any = self.client.lrange(f"{self.namespace}:failed_requests", 0, -1)
        return [read_failed(record) for record in records]

    # -- what was stored

    def stored(self) -> Counter[str]:
        """Rows per key in the table with the unique key."""
        path = self.folder / self._env["SQLITE_PATH"]
        if not path.exists():
            return Counter()
        with closing(sqlite3.connect(path, timeout=_LOCKED_S)) as db:
            try:
                return Counter(str(row[0]) for row in db.execute(f'SELECT "{self.key}" FROM "{self.table}"'))  # noqa: S608 - the test's own names
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return Counter()  # no batch was stored yet

    def written(self) -> Counter[str]:
        """Whole lines per key in the file. Raises ValueError for a line that isn't JSON."""
        path = self.folder / self._env["JSONL_OUTPUT_DIR"] / f"{self.table}.jsonl"
        if not path.exists():
            return Counter()
        return Counter(str(row[self.key]) for row in _whole_lines(path))

    def dead_letters(self) -> Counter[str]:
        """Rows per key in the file of items that could not be stored."""
        path = self.folder / "failed_items.jsonl"
        rows = _whole_lines(path) if path.exists() else ()
        return Counter(str(row["data"][self.key]) for row in rows)

    def check(
        self,
        expected: Collection[str],
        *,
        fetched_twice: int | None = None,
        failed: int = 0,
        dead_letters: bool = False,
        keys_empty: bool = True,
    ) -> FaultReport:
        """Compare the run with what it should have come to. Raises AssertionError.

        Both sinks hold exactly the `expected` keys, the table each of them once; at most `fetched_twice` fetches were
        repeats (None: any number); the run's queues are empty and its failed list has `failed` entries; every node that
        `finish` waited for told the truth in its last line. With `dead_letters` a row may also be in the file of items
        that could not be stored, else that file is empty.
        """
        wanted, stored, written = set(expected), self.stored(), self.written()
        kept = set(self.dead_letters())
        _demand(dead_letters or not kept, f"{len(kept)} rows are dead letters, e.g. {sorted(kept)[:3]}")
        lost = wanted - set(stored) - kept
        if keys_empty:
            told = [f"{record.reason}: {record.url or record.raw}" for record in self.failed()]
            _demand(len(told) == failed, f"the failed list should have {failed} entries and has {told[:20]}")
        _demand(not lost, f"{len(lost)} of {len(wanted)} rows are lost, e.g. {sorted(lost)[:3]}")
        _demand(set(stored) <= wanted, f"rows nobody expected: {sorted(set(stored) - wanted)[:3]}")
        apart = set(stored) ^ set(written)
        _demand(apart <= kept, f"the table and the file differ: {sorted(apart - kept)[:3]}")
        stored_twice = stored.total() - len(stored)
        _demand(stored_twice == 0, f"{stored_twice} keyed rows are stored twice")
        again = 0
        if self.site is not None:
            hits = self.site.all_hits()
            again = sum(hits.values()) - len(hits)
            most = sorted(hits.items(), key=lambda pair: -pair[1])[:3]
            _demand(
                fetched_twice is None or again <= fetched_twice, f"{again} fetches were repeats, e.g. {most}"
            )
        if keys_empty:
            left = self._left()
            _demand(not any(left.values()), f"the run is over and there is {left}")
        for result in self.ended:
            check_last_line(result)
        return FaultReport(
            len(lost), again, stored_twice, written.total() - len(written), self._recovered_after
        )

    def _left(self) -> dict[str, int]:
        """What a run that is over must not leave: queued and leased requests, an AirSpider's state to go on from."""
        if self.redis_url is None:
            return {path.name: path.stat().st_size for path in self.folder.glob(f"{FAILED_FILE}.*")}
        return {name: self.count(name) for name in ("z_requests", "z_inflight", "z_delayed")}

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._client is not None:
            self._client.close()


def check_last_line(result: Result) -> None:
    """The last line on stdout is the summary, and it tells the code with which the process ended."""
    last = result.stdout.rstrip("\n").rpartition("\n")[2]
    _demand(last.startswith(SUMMARY_MARK), f"the last line on stdout is {last[:200]!r}")
    told, code = result.summary["exit_code"], result.returncode
    _demand(told == code, f"the summary says exit code {told}, and it was {code}")


def _demand(fulfilled: bool, otherwise: str) -> None:
    """An assertion that Python keeps under -O. Raises AssertionError."""
    if not fulfilled:
        raise AssertionError(otherwise)


def _in_environment(name: str) -> str:
    from netspy.settings import FIELDS

    return f"NETSPY_{name}" if name in FIELDS else name


def _file_lines(path: Path) -> list[bytes]:
    """The whole lines of a file that may not be there."""
    if not path.exists():
        return []
    return [line[:-1] for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
