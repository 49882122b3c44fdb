"""What `netspy demo --batch` does: a task table, a master and two workers, two batches, one worker killed on the way."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from netspy.demo.folder import DemoFolder
from netspy.demo.run import Options, Say, display_path
from netspy.demo.site import ShopProcess
from netspy.demo.spider import demo_shop
from netspy.errors import NetspyError
from netspy.observe.outcome import ExitCode
from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import DieWithParent

TABLE = "product_page"
GONE = 3
"""Tasks whose page doesn't exist: they end as failed, in every batch."""
BATCHES = 2
DELAY_MS = "100:300"
INTERVAL_MIN = 0.5
"""Minutes between two batches."""
FAST_MIN = 0.02
"""The same where nobody watches."""
KILL_AT = 0.3
"""The part of the first batch's tasks after which a worker is killed."""
_BATCH_S = 600.0
_LEAVE_S = 60.0
_STEP_S = 0.05
_MOST_PROBLEMS = 5
_ENDS = {"master-1": 0, "master-2": 0, "worker-1": -signal.SIGKILL}
"""Exit codes; those of the other workers, which are stopped, are 143."""

CREATE = f"""
CREATE TABLE {TABLE} (
  id INTEGER PRIMARY KEY,
  url VARCHAR(2000) NOT NULL,
  batch_status SMALLINT NOT NULL DEFAULT 0,
  update_time DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""
INDEX = f"CREATE INDEX by_state ON {TABLE} (batch_status, update_time, id)"


class _Place(NamedTuple):
    """Where things are: the run's folder, the folder of Redis, the job's name."""

    folder: Path
    redis: Path
    key: str

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.db"

    @property
    def rows(self) -> Path:
        return self.folder / "visits.db"


def run_batch_demo(options: Options, say: Say) -> int:
    """Run it; the exit code. Raises ConfigError and other NetspyError: one line each."""
    folder = DemoFolder(options.folder)
    folder.open(
        waiting=lambda: say("The processes of a demo that was killed are still ending; waiting for them …")
    )
    try:
        run_id = folder.new_run_id()
        place = _Place(folder.run(run_id), folder.redis, f"BatchDemo-{run_id}")
        place.folder.mkdir(exist_ok=True)
        return _run(options, place, say)
    finally:
        folder.close()


def _run(options: Options, place: _Place, say: Say) -> int:
    server = EmbeddedRedis(place.redis)
    server.acquire()
    crew = _Crew(place, FAST_MIN if options.fast else INTERVAL_MIN)
    try:
        with ShopProcess(place.folder, port=0, delay_ms="0:0" if options.fast else options.delay_ms) as shop:
            total = _make_tasks(place, shop.url)
            _introduce(say, place, total, crew)
            _crawl(crew, place, total, say)
    except KeyboardInterrupt:
        say("")
        say("Stopped. Nothing is resumed: the next demo begins with a table of its own.")
        return int(ExitCode.SIGINT)
    finally:
        crew.end()
        server.release()
    return _conclude(place, total, crew, say)


def _make_tasks(place: _Place, list_url: str) -> int:
    base = list_url.rpartition("/list/")[0]
    urls = [base + item.path for item in demo_shop().expected().values()]
    urls += [f"{base}/item/gone-{number}.html" for number in range(1, GONE + 1)]
    with closing(sqlite3.connect(place.tasks)) as db, db:
        db.execute(CREATE)
        db.execute(INDEX)
        db.executemany(f"INSERT INTO {TABLE} (url) VALUES (?)", [(url,) for url in urls])  # noqa: S608 - a constant
    return len(urls)


def _introduce(say: Say, place: _Place, total: int, crew: _Crew) -> None:
    say(f"A table of {total:,} product pages, {GONE} of which don't exist, crawled in {BATCHES} batches.")
    say(f"  tasks   {display_path(place.tasks)} (SQLite; MySQL and PostgreSQL work the same)")
    say(f"  queue   an embedded Redis, data in {display_path(place.redis)}")
    say(f"  rows    {display_path(place.rows)}, with a unique key of batch and product")
    say("  master  netspy run netspy.demo.batch_spider --monitor --once    (as cron would)")
    say("  worker  netspy run netspy.demo.batch_spider                     (two, which stay)")
    say(f"  A batch is due every {crew.interval_min * 60:g} s, not every 7 days. Ctrl-C ends the demo.")


def _crawl(crew: _Crew, place: _Place, total: int, say: Say) -> None:
    """Two batches: in the first a worker dies, and another one comes in its place for the second."""
    say("")
    master = crew.start("master-1", "--monitor", "--once")
    _wait(lambda: _over(place) >= 0 or not master.alive, _LEAVE_S, "no batch was opened")
    workers = [crew.start("worker-1"), crew.start("worker-2")]
    enough = int(KILL_AT * total)
    _wait(lambda: _settled(place) >= enough or not master.alive, _BATCH_S, "the batch did not go on")
    if master.alive:
        os.kill(workers[0].pid, signal.SIGKILL)
        say(
            f"kill -9 {workers[0].pid}: a worker is gone, with {_settled(place):,} of {total:,} tasks settled. The other "
            "goes on, and takes over what it had in hand"
        )
    _wait(lambda: not master.alive, _BATCH_S, "the master did not bring the first batch to its end")
    workers.append(crew.start("worker-3"))
    due_s = _due(place, crew.interval_min * 60) - time.time()
    if due_s > 1:
        say(
            f"The next batch is due in {due_s:.0f} s. The workers wait for it; one was started in the dead one's place"
        )
    time.sleep(max(0.0, due_s) + 0.1)
    master = crew.start("master-2", "--monitor", "--once")
    _wait(lambda: not master.alive, _BATCH_S, "the master did not bring the second batch to its end")
    for worker in workers:
        worker.stop()
    _wait(lambda: not any(one.alive for one in workers), _LEAVE_S, "a worker did not stop")


def _due(place: _Place, interval_s: float) -> float:
    """When the batch after the last one is due, in seconds since 1970: the record says when that one was."""
    query = f"SELECT strftime('%s', max(batch_date)) FROM {TABLE}_batch_record"  # noqa: S608 - a constant
    with closing(sqlite3.connect(place.tasks)) as db:
        return float(db.execute(query).fetchone()[0]) + interval_s


def _wait(condition: Any, seconds: float, problem: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise NetspyError(
                f"{problem} within {seconds:g} s; its output is above, the workers' in their .log files"
            )
        time.sleep(_STEP_S)


class _Process:
    """A master or a worker: the `netspy` command, as a person would start it."""

    def __init__(self, name: str, argv: list[str], folder: Path, *, quiet: bool) -> None:
        self.name = name
        self._log = (folder / f"{name}.log").open("wb")
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log if quiet else None,
            start_new_session=True,  # Ctrl-C is for the demo, which ends them
        )
        self.pid = self._process.pid
        self._guard = DieWithParent(self.pid)
        self.code: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs; its exit code is kept when it doesn't."""
        if self.code is None:
            # Looked at without reaping: the watcher must let go of the number first.
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return True
            self._guard.release()
            self.code = self._process.wait()
            self._log.close()
        return False

    def stop(self) -> None:
        """Ask it to stop: SIGTERM."""
        if self.alive:
            self._process.terminate()

    def end(self) -> None:
        """Stop it, in good order if it can be."""
        if not self.alive:
            return
        self.stop()
        end = time.monotonic() + 10
        while self.alive and time.monotonic() < end:
            time.sleep(_STEP_S)
        if self.alive:
            self._process.kill()
            _wait(lambda: not self.alive, 10, f"{self.name} could not be killed")


class _Crew:
    """The processes of the demo."""

    def __init__(self, place: _Place, interval_min: float) -> None:
        self._place = place
        self.interval_min = interval_min
        self.all: list[_Process] = []

    def start(self, name: str, *options: str) -> _Process:
        """A master with `--monitor`, else a worker."""
        place = self._place
        settings = {
            "REDIS_URL": "embedded",
            "EMBEDDED_DATA_DIR": str(place.redis),
            "BATCH_STORE_URL": f"sqlite:///{place.tasks.absolute()}",
            "SQLITE_PATH": str(place.rows),
            "FAILED_ITEM_PATH": str(place.folder / "failed_items.jsonl"),
            "PROGRESS": "off",
        }
        if "--monitor" in options:
            settings["BATCH_INTERVAL"] = str(self.interval_min)
        else:
            settings["SPIDER_KEEP_ALIVE"] = "1"
        argv = [sys.executable, "-m", "netspy.cli", "run", "netspy.demo.batch_spider:BatchDemo", *options]
        argv += ["-a", f"redis_key={place.key}"]
        for setting, value in settings.items():
            argv += ["-s", f"{setting}={value}"]
        process = _Process(name, argv, place.folder, quiet="--monitor" not in options)
        self.all.append(process)
        return process

    def end(self) -> None:
        """Stop all that still run."""
        for process in self.all:
            process.end()


# -- what is in the databases ----------------------------------------------------------------------------------


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as db:
        db.row_factory = sqlite3.Row
        yield db


def _over(place: _Place) -> int:
    """How many batches are over; -1 before the first is opened."""
    records = _records(place)
    return sum(bool(record["is_done"]) for record in records) if records else -1


def _records(place: _Place) -> list[dict[str, Any]]:
    with _open(place.tasks) as db:
        try:
            return [dict(row) for row in db.execute(f"SELECT * FROM {TABLE}_batch_record ORDER BY id")]  # noqa: S608 - a constant
        except sqlite3.OperationalError:  # the master has not made it yet
            return []


def _settled(place: _Place) -> int:
    states = _states(place)
    return states[1] + states[-1]


def _states(place: _Place) -> Counter[int]:
    with _open(place.tasks) as db:
        found = db.execute(f"SELECT batch_status, count(*) FROM {TABLE} GROUP BY 1")  # noqa: S608 - a constant
        return Counter({int(state): count for state, count in found})


def _visits(place: _Place, batch: int) -> list[dict[str, Any]]:
    if not place.rows.exists():
        return []
    with _open(place.rows) as db:
        try:
            return [dict(row) for row in db.execute("SELECT * FROM visit WHERE batch = ?", (batch,))]
        except sqlite3.OperationalError:  # nothing was stored
            return []


def problems(place: _Place, total: int) -> list[str]:
    """What is wrong with the table, the records and the rows after the demo; [] = everything arrived."""
    found = []
    records = _records(place)
    if len(records) != BATCHES:
        found.append(f"{len(records)} batch records instead of {BATCHES}")
    for record in records:
        want = (total, total - GONE, GONE, 1)
        have = tuple(int(record[name]) for name in ("total_count", "done_count", "fail_count", "is_done"))
        if have != want:
            found.append(f"batch {record['id']}: total, done, failed, over are {have}, not {want}")
        found += [
            f"batch {record['id']}: {text}" for text in demo_shop().problems(_visits(place, record["id"]))
        ]
    states = _states(place)
    if states != Counter({1: total - GONE, -1: GONE}):
        found.append(f"the tasks' states are {dict(states)}")
    return found


def _conclude(place: _Place, total: int, crew: _Crew, say: Say) -> int:
    say("")
    for record in _records(place):
        say(
            f"batch {record['id']}   {record['done_count']:,} of {record['total_count']:,} tasks done, "
            f"{record['fail_count']} failed (no such page), {len(_visits(place, record['id'])):,} rows"
        )
    ends = ", ".join(f"{one.name} {_how(one.code)}" for one in crew.all)
    say(f"processes {ends}")
    answers = [
        line
        for line in (place.folder / "shop.log").read_text("utf-8").splitlines()
        if line.startswith("200 ")
    ]
    again = len(answers) - BATCHES * (total - GONE)
    kill = f", {again} of them once more: in hand at the kill" if again > 0 else ""
    say(f"the shop  served {len(answers):,} pages{kill}")
    wrong = problems(place, total)
    wrong += [
        f"{one.name} ended with code {one.code}, see {display_path(place.folder / one.name)}.log"
        for one in crew.all
        if one.code != _ENDS.get(one.name, int(ExitCode.SIGTERM))
    ]
    say("")
    if wrong:
        for text in wrong[:_MOST_PROBLEMS]:
            say(f"WRONG: {text}")
        return int(ExitCode.INTERNAL)
    say(
        f"checked: both batches have all {total - GONE:,} products, each once and with the right values, and no task is "
        "left open"
    )
    return 0


def _how(code: int | None) -> str:
    return {-signal.SIGKILL: "killed", 143: "stopped", 0: "ended"}.get(code or 0, f"ended with code {code}")
