"""F4: rows that start_requests and task_requests yield have no request that is acked after them, and are kept all the same."""

from __future__ import annotations

import signal
import sqlite3
import threading

import pytest
from air_support import Air, Memory, crawl

from netspy.testing.runner import start_script

SCRIPT = """
import os, sys
import netspy as mw

SETTINGS = dict(
    ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], PROGRESS="off", BUFFER_FLUSH_INTERVAL=0.05,
    HEARTBEAT_INTERVAL=0.1, HEARTBEAT_STALE=0.5, SPIDER_SEEDING_TTL=0.5, SPIDER_STARTUP_GRACE=0.1,
    TASK_POLL_INTERVAL=0.02, TASK_EXHAUST_POLLS=2, DONE_CHECK_INTERVAL=0.05,
)


class Row(mw.Item):
    __table_name__ = "rows"
    __unique_key__ = "name"

    name: str
    price: int


class Price(mw.UpdateItem):
    __table_name__ = "rows"
    __unique_key__ = "name"
    __update_key__ = "name"

    name: str
    price: int


def rows(prefix):
    for n in range(50):
        yield Row(name=f"{prefix}{n}", price=0)
        yield Price(name=f"{prefix}{n}", price=1)


class Seeds(mw.Spider):
    __custom_setting__ = SETTINGS

    def start_requests(self):
        yield from rows("seed")


class SeedsAsync(Seeds):
    async def start_requests(self):
        for row in rows("seed"):
            yield row


class Tasks(mw.TaskSpider):
    __custom_setting__ = SETTINGS

    def task_requests(self, task):
        yield from rows(f"{task}-")


if sys.argv[1:] == ["push"]:
    Tasks.push_tasks("a", "b", "c")
else:
    globals()[sys.argv[1]]().start()
"""


@pytest.mark.parametrize(("spider", "count"), [("Seeds", 50), ("SeedsAsync", 50), ("Tasks", 150)])
def test_f4_a_node_killed_before_the_rows_are_stored_leaves_them_to_the_next(
    redis_url, tmp_path, spider, count
):
    env = {"NETSPY_REDIS_URL": redis_url}
    if spider == "Tasks":
        with start_script(SCRIPT, args=["push"], env=env, cwd=tmp_path) as script:
            script.finish(30).check()
    with start_script(
        SCRIPT, args=[spider], env=env | {"NETSPY_CRASH_AT": "before_store"}, cwd=tmp_path
    ) as node:
        assert node.finish(30).returncode == -signal.SIGKILL
    with start_script(SCRIPT, args=[spider], env=env, cwd=tmp_path) as node:
        summary = node.finish(30).check().summary
    assert summary["outcome"] == "finished"
    with sqlite3.connect(tmp_path / "items.db") as db:
        found = {name for (name,) in db.execute("SELECT name FROM rows WHERE price = 1")}
    db.close()
    assert len(found) == count


class Stopped(Air):
    """Yields ten rows, and is stopped by what hangs then."""

    __custom_setting__ = {"SPIDER_STOP_TIMEOUT": 2.0, "BUFFER_FLUSH_INTERVAL": 60.0}

    def start_requests(self):
        for n in range(10):
            yield {"n": n}
        threading.Timer(0.05, self.stop).start()
        self.release.wait(20)


class StoppedAsync(Stopped):
    async def start_requests(self):
        for n in range(10):
            yield {"n": n}
        self.stop()
        yield {"n": 10}


class StoppedAfter(Stopped):
    def start_requests(self):
        yield from ({"n": n} for n in range(10))
        self.stop()


@pytest.mark.parametrize("spider", [Stopped, StoppedAsync, StoppedAfter])
@pytest.mark.usefixtures("workdir")
def test_f4_a_graceful_stop_stores_the_rows_of_an_air_spiders_start_requests(home, spider):
    release = threading.Event()
    try:
        summary, memory, _ = crawl(spider, home, release=release)
    finally:
        release.set()
    assert summary.outcome == "stopped"
    assert [row["n"] for row in memory.data()][:10] == list(range(10))


def test_f4_where_not_even_dead_letters_can_be_written_the_seeding_stays_open(home, workdir):
    """An AirSpider that is stopped meanwhile seeds again when it goes on, and its rows come then."""

    class Refuses(Memory):
        def save_items(self, table, items):
            raise ConnectionError("the store is away")

    class Seeded(Air):
        __custom_setting__ = {"SPIDER_STOP_TIMEOUT": 1.0, "ITEM_STORE_DOWN": "spill", "ITEM_RETRY_TIMES": 0}

        def start_requests(self):
            yield {"n": 1}

        def on_alert(self, kind, message):
            if kind == "items_stuck":
                self.stop()

    (workdir / "letters").mkdir()
    summary, _, _ = crawl(Seeded, home, pipelines=[Refuses()], FAILED_ITEM_PATH="letters")
    assert summary.outcome == "stopped"
    assert (workdir / "failed_requests.jsonl.seen").read_bytes().startswith(b"netspy-seen-3 0 ")
    _, memory, _ = crawl(Seeded, home, RETRY_FAILED_ON_START=True)
    assert memory.data() == [{"n": 1}]
