"""The TaskSpider and the BatchSpider of the fault suite, and what their tests share."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from netspy.testing.faults import FaultRun
from netspy.testing.runner import run_script
from netspy.testing.site import LocalSite

HEAD = """\
import os, sqlite3, sys, time
import netspy as mw

SITE = os.environ["SITE"]


def env(name, default="0"):
    return float(os.environ.get(name, default))


class Page(mw.Item):
    __unique_key__ = "url"

    url: str


"""

TASKS = (
    HEAD
    + """\
class Shop(mw.TaskSpider):
    task_key = "shop"

    def task_requests(self, task):
        time.sleep(env("DRAW_SLEEP"))
        yield mw.Request(f"{SITE}/t/{task}", cb_kwargs={"task": task})

    def parse(self, request, response, task):
        time.sleep(env("PARSE_SLEEP"))
        yield Page(url=request.url)


if __name__ == "__main__":
    Shop().start()
"""
)
"""Each task N is the page `/t/N`, and one row."""

BATCH = (
    HEAD
    + """\
class Crawl(mw.BatchSpider):
    __task_table__ = "crawl_task"

    def task_requests(self, task):
        time.sleep(env("DRAW_SLEEP"))
        yield mw.Request(task["url"])

    def parse(self, request, response, task):
        time.sleep(env("PARSE_SLEEP"))
        yield Page(url=task["url"])
        self.update_task(task["id"])


if __name__ == "__main__":
    role = os.environ["ROLE"]
    if role == "worker":
        Crawl().start()
    else:
        Crawl().start_monitor(once=role == "once")
"""
)
"""ROLE says what a process is: worker, monitor, once."""

QUICK = {"TASK_POLL_INTERVAL": "0.1", "TASK_EXHAUST_POLLS": "3", "TASK_BATCH_SIZE": "20"}
QUICK_BATCH = {
    **QUICK,
    "BATCH_MONITOR_INTERVAL": "0.3",
    "BATCH_LOST_TASK_STALE": "4",
    "BATCH_INTERVAL": "1",
    "BATCH_INTERVAL_UNIT": "hour",
}


def serve_tasks(site: LocalSite, count: int, *, delay: float = 0.0) -> set[str]:
    """The pages `/t/N`; their URLs."""
    site.route("/t/", "<h1>a task</h1>", prefix=True, delay=delay)
    return {site.url(f"/t/{n}") for n in range(count)}


def push(run: FaultRun, count: int, *, key: str = "netspy:shop:tasks") -> None:
    """Tasks 0 … count-1, as any program would push them."""
    run.client.rpush(key, *range(count))


def left_in_list(run: FaultRun, key: str = "netspy:shop:tasks") -> dict[str, int]:
    """What the task list still has: waiting, in nodes' hands, failed, and tasks whose requests are under way."""
    client: Any = run.client
    return {
        "waiting": client.llen(key),
        "taken": client.zcard(f"{key}:inflight"),
        "failed": client.llen(f"{key}:failed"),
        "open": client.hlen(f"{run.namespace}:open_tasks"),
        "closing": client.hlen(f"{run.namespace}:open_tasks:closing"),
    }


NOTHING = {"waiting": 0, "taken": 0, "failed": 0, "open": 0, "closing": 0}


def failed_tasks(run: FaultRun, key: str = "netspy:shop:tasks") -> list[dict[str, Any]]:
    """The records of the tasks that could not be turned into requests."""
    client: Any = run.client
    return [json.loads(text) for text in client.lrange(f"{key}:failed", 0, -1)]


# -- batches, with the task table in an SQLite file


def make_table(folder: Path, urls: list[str], name: str = "tasks.db") -> str:
    """The table of the specification with a row for each URL, ids from 1; the database's URL."""
    path = folder / name
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE crawl_task (id INTEGER PRIMARY KEY, url TEXT NOT NULL, batch_status INTEGER NOT NULL DEFAULT 0, "
            "update_time DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )
        db.executemany("INSERT INTO crawl_task (url) VALUES (?)", [(url,) for url in urls])
    return f"sqlite:///{path}"


def query(folder: Path, sql: str, name: str = "tasks.db") -> list[tuple[Any, ...]]:
    """Rows of the task table's database."""
    with closing(sqlite3.connect(folder / name, timeout=20)) as db, db:
        return db.execute(sql).fetchall()


def states(folder: Path) -> dict[int, int]:
    """How many tasks are in which state."""
    return dict(query(folder, "SELECT batch_status, count(*) FROM crawl_task GROUP BY batch_status"))


def records(folder: Path) -> list[tuple[int, int, int, int]]:
    """(done, failed, total, is_done) of each batch."""
    return [
        tuple(row)
        for row in query(
            folder,
            "SELECT done_count, fail_count, total_count, is_done FROM crawl_task_batch_record ORDER BY id",
        )
    ]


def done_without_rows(run: FaultRun) -> set[str]:
    """Tasks that are done in the table and whose rows are in no sink: there must be none at any time."""
    done = {url for (url,) in query(run.folder, "SELECT url FROM crawl_task WHERE batch_status = 1")}
    return done - set(run.stored())


def run_elsewhere(run: FaultRun, code: str, **env: str) -> str:
    """Run lines after the spider's class, in a process of their own; what they print."""
    source = run._source.partition('if __name__ == "__main__"')[0] + code + "\n"
    values = {"NETSPY_REDIS_URL": run.redis_url, "SITE": "http://site.invalid", **env}
    return run_script(source, env=values, cwd=run.folder).check().stdout
