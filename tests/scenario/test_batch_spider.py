"""BatchSpider as a user meets it: the documented example, roles, ends of batches, wrong set-ups."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import netspy as mw
from netspy.assembly.batch import Marks, _Waiting
from netspy.core.batch_store import MemoryBatchStore
from netspy.errors import StoreUnavailableError
from netspy.launch import SpiderExit
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.tasks.batch_queue import BatchKeys
from netspy.tasks.redis.list import RedisTaskList
from netspy.testing.children import wait_until
from netspy.testing.clock import FakeClock
from netspy.testing.runner import start_script
from support.batch_tables import CREATE, admin
from support.gate import Gate

QUICK = {
    "TASK_POLL_INTERVAL": 0.05,
    "TASK_EXHAUST_POLLS": 2,
    "DONE_CHECK_INTERVAL": 0.05,
    "HEARTBEAT_INTERVAL": 0.3,
    "HEARTBEAT_STALE": 1.5,
    "BATCH_MONITOR_INTERVAL": 0.2,
    "SPIDER_RETRY_INTERVAL": 0.0,
    "SPIDER_MAX_RETRY_TIMES": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "PROGRESS": "off",
}
QUICK_ENV = {f"NETSPY_{name}": str(value) for name, value in QUICK.items()}
UNHURRIED = {**QUICK, "HEARTBEAT_STALE": 10.0}
"""Where nobody dies: who gets no processor for a while doesn't count as dead."""

EXAMPLE = """
import netspy as mw


class CrawlTask(mw.BatchSpider):
    __task_table__ = "crawl_task"

    def task_requests(self, task):                 # 一行任务 -> 请求（必须实现）
        yield mw.Request(task["url"], callback=self.parse)

    def parse(self, request, response, task):      # 框架自动带上 task
        yield {"url": task["url"], "title": response.css("h1::text").get()}
        self.update_task(task["id"], ok=True)      # 关键：回写任务状态


if __name__ == "__main__":
    import sys

    if sys.argv[1:] == ["monitor"]:
        CrawlTask().start_monitor()   # master
    elif sys.argv[1:] == ["once"]:
        CrawlTask().start_monitor(once=True)
    else:
        CrawlTask(keep_alive="stay" in sys.argv).start()   # worker
"""


@pytest.fixture(autouse=True)
def in_a_folder(workdir):
    return workdir


def tasks_of(site, count):
    return [{"id": n, "url": site.url(f"/p/{n}")} for n in range(1, count + 1)]


class Crawl(mw.BatchSpider):
    def task_requests(self, task):
        yield mw.Request(task["url"])

    def parse(self, request, response, task):
        yield {"id": task["id"]}
        self.update_task(task["id"])


@pytest.fixture
def monitor(redis_url):
    """`monitor(cls, store)`: one batch in this process, to its end; (rows, summary)."""

    def run(cls, store, **kw):
        rows = []
        spider = cls(batch_store=store, item_handler=rows.extend, REDIS_URL=redis_url, **{**UNHURRIED, **kw})
        try:
            summary = spider.start_monitor(once=True)
        except SpiderExit as left:
            summary = left.summary
        return rows, summary

    return run


def states(store):
    return [row["batch_status"] for row in store.rows]


def closed(store):
    record = store.records[-1]
    return (record.done_count, record.fail_count, record.total_count, record.is_done)


# -- in one process, with the store in memory


def test_the_documented_example_in_memory_finishes_by_itself_and_the_second_batch_does_it_all_again(
    monitor, numbered
):
    """W4: request dedup must not outlive the batch."""
    clock = FakeClock()
    store = MemoryBatchStore(tasks_of(numbered, 100), clock=lambda: 1_800_000_000 + clock())
    rows, summary = monitor(Crawl, store)
    assert sorted(row["id"] for row in rows) == list(range(1, 101))
    assert closed(store) == (100, 0, 100, True)
    assert (summary.outcome, summary.tasks_done, summary.exit_code) == ("finished", 100, 0)
    rows, summary = monitor(Crawl, store)
    assert (rows, summary.outcome, len(store.records)) == ([], "nothing_to_do", 1), "no batch is due"
    clock.advance(7 * 86_400)
    rows, summary = monitor(Crawl, store)
    assert sorted(row["id"] for row in rows) == list(range(1, 101))
    assert closed(store) == (100, 0, 100, True)
    assert len(store.records) == 2
    assert set(numbered.all_hits().values()) == {2}


def test_a_batch_of_no_tasks_is_done_at_once(monitor):
    """Case BAT-05 b, with a longer pause between two looks than the master's usual one."""
    store = MemoryBatchStore()
    began = time.monotonic()
    rows, summary = monitor(Crawl, store, BATCH_MONITOR_INTERVAL=60.0)
    assert time.monotonic() - began < 10
    assert (rows, summary.exit_code) == ([], 0)
    assert closed(store) == (0, 0, 0, True)


def test_a_batch_of_which_every_task_fails_is_closed_and_has_a_code_of_its_own(monitor, numbered):
    """Case BAT-05 c."""
    numbered.route("/p/", status=404, prefix=True)
    store = MemoryBatchStore(tasks_of(numbered, 3))
    _, summary = monitor(Crawl, store)
    assert states(store) == [-1, -1, -1]
    assert closed(store) == (0, 3, 3, True)
    assert (summary.outcome, summary.exit_code) == ("all_failed", 6)


def test_a_failed_request_is_a_failed_task_also_when_the_hook_is_overridden_without_super(monitor, numbered):
    tokens = []

    class Own(Crawl):
        def failed_request(self, request, response):
            pass

        def task_ended(self, request, response, task, failed, token=""):
            tokens.append(token)
            return super().task_ended(request, response, task, failed, token)

    numbered.route("/p/2", status=404)
    store = MemoryBatchStore(tasks_of(numbered, 3))
    monitor(Own, store)
    assert states(store) == [1, -1, 1]
    assert tokens == ["1.0/2"], "its end says which batch it is about"


def test_the_end_of_an_earlier_batchs_task_changes_nothing_in_this_one():
    """A last request that was still queued when its batch was closed must not fail the task of the next batch."""
    store = MemoryBatchStore([{"id": 1}, {"id": 2}])
    store.finish_batch(store.create_batch(datetime(2026, 1, 1, tzinfo=UTC), 2, 1, "day"))
    store.create_batch(datetime(2026, 1, 2, tzinfo=UTC), 2, 1, "day")
    marks = Marks(Crawl(batch_store=store))
    asyncio.run(marks([("1.0/1", 1, False), ("2.1/2", 2, False)]))
    assert states(store) == [0, -1]


def test_a_callback_that_raises_after_its_report_has_not_reported(monitor, numbered):
    class Raising(Crawl):
        def parse(self, request, response, task):
            yield {"id": task["id"]}
            self.update_task(task["id"])
            raise ValueError("too late")

    store = MemoryBatchStore(tasks_of(numbered, 1))
    monitor(Raising, store)
    assert states(store) == [-1]


def test_update_task_outside_of_a_page_writes_at_once_and_refuses_an_unknown_id(numbered):
    store = MemoryBatchStore(tasks_of(numbered, 2))
    spider = Crawl(batch_store=store)
    spider.update_task(1)
    spider.update_task(2, ok=False)
    assert states(store) == [1, -1]
    with pytest.raises(mw.SpiderError, match=r"update_task\(3\): 'crawl' has no such row"):
        spider.update_task(3)


@pytest.mark.parametrize("first", [True, False])
def test_f4_a_task_that_task_requests_reports_is_done_after_its_items_are_stored(redis_url, numbered, first):
    """F4: a node that is killed in between must leave the row in process."""
    seen = []

    class Reports(mw.BatchSpider):
        def task_requests(self, task):
            if first:
                self.update_task(task["id"])
            yield {"id": task["id"]}
            if not first:
                self.update_task(task["id"])

    store = MemoryBatchStore(tasks_of(numbered, 2))

    def keep(rows):
        seen.extend(states(store)[row["id"] - 1] for row in rows)

    spider = Reports(batch_store=store, item_handler=keep, REDIS_URL=redis_url, **UNHURRIED)
    spider.start_monitor(once=True)
    assert seen == [2, 2]
    assert closed(store) == (2, 0, 2, True)


def test_run_id_is_none_of_a_batchs_business(monitor, numbered, redis_url):
    store = MemoryBatchStore(tasks_of(numbered, 2))
    _, summary = monitor(Crawl, store, RUN_ID="r1")
    assert closed(store) == (2, 0, 2, True)
    assert summary.namespace == "netspy:Crawl"
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        assert client.get("netspy:Crawl:batch_done") == b"1"
        assert [key for key in client.scan_iter() if b":run:" in key] == []
        progress = json.loads(client.get("netspy:Crawl:batch_progress"))
        assert client.exists("netspy:Crawl:batch_monitor_lock") == 0
    assert {name: progress[name] for name in ("batch", "done", "failed", "total", "is_done")} == {
        "batch": 1, "done": 2, "failed": 0, "total": 2, "is_done": True,
    }  # fmt: skip


def test_children_are_deduplicated_within_a_batch(monitor, numbered):
    class Deep(Crawl):
        def parse(self, request, response, task):
            yield mw.Request(numbered.url("/p/child"), callback=self.child)
            self.update_task(task["id"])

        def child(self, request, response, **_):
            yield {"id": "child"}

    rows, _ = monitor(Deep, MemoryBatchStore(tasks_of(numbered, 5)))
    assert [row["id"] for row in rows] == ["child"]


def test_a_page_that_is_dropped_is_no_end_of_its_task_and_that_is_said(monitor, numbered, capfd):
    class Choosy(Crawl):
        tries = 0

        def validate(self, request, response):
            if request.url.endswith("/2") and Choosy.tries < 2:
                Choosy.tries += 1
                return False
            return True

    store = MemoryBatchStore(tasks_of(numbered, 3))
    monitor(Choosy, store, BATCH_LOST_TASK_STALE=0.5)
    assert closed(store) == (3, 0, 3, True)
    assert [numbered.hits(f"/p/{n}") for n in (1, 2, 3)] == [1, 3, 1]
    err = capfd.readouterr().err
    assert err.count("without update_task") == 1
    assert "/p/2 was dropped: validate returned False" in err


# -- types


ODD = """
CREATE TABLE odd (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, url VARCHAR(200), price DECIMAL(10,2), ts DATETIME, d DATE, raw BLOB, note TEXT,
  js JSON, emoji VARCHAR(20) CHARACTER SET utf8mb4, batch_status TINYINT NOT NULL DEFAULT 0,
  update_time DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP)
"""


def test_every_type_of_column_reaches_parse_and_the_row_is_marked(redis_url, mariadb_url, numbered):
    """Case BAT-03, through master, queue and worker."""
    with admin(mariadb_url) as db:
        db.exec_driver_sql(ODD)
        db.exec_driver_sql(
            "INSERT INTO odd (id, url, price, ts, d, raw, js, emoji) VALUES (18446744073709551615, %s, 10.50, "
            "'2026-02-28 12:00:00', '2026-02-28', x'00ff', '{\"a\":1}', '😀'), (18446744073709551614, %s, 0, NULL, NULL, "
            "NULL, NULL, NULL)",
            (numbered.url("/p/1"), numbered.url("/p/2")),
        )
    seen = {}

    class Odd(Crawl):
        __task_table__ = "odd"

        def parse(self, request, response, task):
            seen[task["id"]] = task
            self.update_task(task["id"])

    settings = {"BATCH_STORE_URL": mariadb_url, "REDIS_URL": redis_url, **UNHURRIED}
    run_both(Odd, settings)
    task = seen[18446744073709551615]
    assert (task["price"], task["ts"], task["d"]) == (
        Decimal("10.50"),
        datetime(2026, 2, 28, 12),
        date(2026, 2, 28),
    )
    assert (task["raw"], task["note"], task["emoji"]) == (b"\x00\xff", None, "😀")
    assert json.loads(task["js"]) == {"a": 1}
    with admin(mariadb_url) as db:
        assert db.exec_driver_sql("SELECT id, batch_status FROM odd ORDER BY id").fetchall() == [
            (18446744073709551614, 1), (18446744073709551615, 1),
        ]  # fmt: skip


def run_both(cls, settings):
    """A master in a thread and a worker here, as two processes would be."""
    ended = []
    master = threading.Thread(target=lambda: ended.append(cls(**settings).start_monitor(once=True)))
    master.start()
    worker = cls(keep_alive=True, **settings)

    def stop_then():
        master.join(60)
        worker.stop()

    watcher = threading.Thread(target=stop_then)
    watcher.start()
    worker.run()
    watcher.join(60)
    assert [summary.outcome for summary in ended] == ["finished"]


# -- wrong set-ups


def sqlite_table(sql=CREATE["sqlite"], name="tasks.db"):
    with closing(sqlite3.connect(name)) as db, db:
        db.execute(sql)
    return f"sqlite:///{name}"


@pytest.mark.parametrize("role", ["monitor", "worker"])
@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("CREATE TABLE other (id INTEGER)", "CREATE TABLE"),
        ("CREATE TABLE crawl_task (id INTEGER PRIMARY KEY, url TEXT, update_time DATETIME)", "batch_status"),
    ],
)
def test_a_missing_table_or_column_is_one_error_that_says_what_would_do(redis_url, role, sql, told, capfd):
    class CrawlTask(Crawl):
        pass

    spider = CrawlTask(BATCH_STORE_URL=sqlite_table(sql), REDIS_URL=redis_url, **QUICK)
    with pytest.raises(SystemExit) as left:
        spider.start_monitor(once=True) if role == "monitor" else spider.start()
    assert left.value.code == 3
    out, err = capfd.readouterr()
    [line] = [line for line in err.splitlines() if line.startswith("netspy: error: ")]
    assert "crawl_task" in line
    assert told in err
    assert "Traceback" not in err
    assert json.loads(out.rpartition("NETSPY_RUN_SUMMARY ")[2])["outcome"] == "config_error"


def test_a_worker_without_a_master_says_how_to_start_one(redis_url, capfd):
    class CrawlTask(Crawl):
        pass

    summary = CrawlTask(BATCH_STORE_URL=sqlite_table(), REDIS_URL=redis_url, **QUICK).run()
    assert summary.outcome == "nothing_to_do"
    assert "CrawlTask().start_monitor()" in capfd.readouterr().err


def test_a_spider_without_task_requests_cannot_start(redis_url):
    class Bare(mw.BatchSpider):
        pass

    with pytest.raises(SystemExit) as left:
        Bare(batch_store=MemoryBatchStore(), REDIS_URL=redis_url).start_monitor(once=True)
    assert left.value.code == 3


@pytest.mark.parametrize("start", ["start", "start_monitor"])
def test_a_fetch_tasks_that_would_never_be_called_cannot_start(redis_url, start, capfd):
    class Fetching(Crawl):
        def fetch_tasks(self, limit):
            return []

    with pytest.raises(SystemExit) as left:
        getattr(Fetching(batch_store=MemoryBatchStore(), REDIS_URL=redis_url), start)()
    assert left.value.code == 3
    assert "Fetching defines fetch_tasks(limit)" in capfd.readouterr().err


async def test_a_worker_that_cannot_ask_the_task_table_stays(redis_url):
    class Away(MemoryBatchStore):
        def latest_batch(self):
            raise StoreUnavailableError("the database has not answered for 30 s")

    settings = Settings(REDIS_URL=redis_url)
    keys = BatchKeys("netspy:Crawl")
    source = RedisTaskList(settings, keys.pending)
    waiting = _Waiting(Crawl(batch_store=Away()), source, keys, 0.1)
    assert await waiting() == "the database has not answered for 30 s"
    await source.close()


# -- roles as processes


def begin(role, url, table):
    env = {"NETSPY_REDIS_URL": url, "NETSPY_BATCH_STORE_URL": table, **QUICK_ENV}
    env["NETSPY_ITEM_PIPELINES"] = "netspy.pipelines.sqlite.SqlitePipeline"
    env["NETSPY_BATCH_INTERVAL"], env["NETSPY_BATCH_INTERVAL_UNIT"] = "0.05", "minute"
    return start_script(EXAMPLE, args=[role], env=env, cwd=".")


def fill(site, count):
    table = sqlite_table()
    with closing(sqlite3.connect("tasks.db")) as db, db:
        db.executemany(
            "INSERT INTO crawl_task (url) VALUES (?)", [(site.url(f"/p/{n}"),) for n in range(count)]
        )
    return table


def ask(sql):
    with closing(sqlite3.connect("tasks.db", timeout=20)) as db:
        try:
            return db.execute(sql).fetchall()
        except sqlite3.OperationalError:  # the master has not made its tables yet
            return []


@pytest.mark.slow
def test_the_documented_example_with_a_resident_master_batch_after_batch(redis_url, numbered):
    table = fill(numbered, 30)
    with begin("monitor", redis_url, table) as master, begin("stay", redis_url, table) as worker:
        assert wait_until(
            lambda: len(ask("SELECT 1 FROM crawl_task_batch_record WHERE is_done = 1")) >= 2, 60
        )
        master.terminate()
        master.finish(20).check(143)
        worker.terminate()
        result = worker.finish(20).check(143)
    assert result.summary["tasks_done"] >= 60
    done = ask(
        "SELECT done_count, fail_count, total_count FROM crawl_task_batch_record WHERE is_done = 1 ORDER BY id"
    )
    assert set(done) == {(30, 0, 30)}
    dates = [text for (text,) in ask("SELECT batch_date FROM crawl_task_batch_record ORDER BY id")]
    assert dates == sorted(set(dates)), "batches keep their grid: no two of one date"
    assert min(numbered.all_hits().values()) >= 2


@pytest.mark.slow
def test_a_worker_that_does_not_stay_leaves_when_nothing_is_left_and_no_master_lives(redis_url, numbered):
    table = fill(numbered, 3)
    # The next batch is due by then: the master must not see this one end.
    last_page = Gate(numbered, "/p/2")
    with begin("monitor", redis_url, table) as master:
        master.wait_line("batch 1 is open")
        with begin("worker", redis_url, table) as worker:
            numbered.wait_hits(3)
            master.kill()
            assert wait_until(lambda: not master.alive, 20)
            last_page.open()
            # The last task is still at work, and its end is the worker's own business.
            assert wait_until(
                lambda: ask("SELECT count(*) FROM crawl_task WHERE batch_status = 1") == [(3,)], 30
            )
            result = worker.finish(30).check(0)
    assert result.summary["tasks_done"] == 3


@pytest.mark.slow
def test_a_worker_stays_for_tasks_that_only_a_master_can_give_it_and_says_so(redis_url, numbered):
    table = fill(numbered, 4)
    with begin("monitor", redis_url, table) as master:
        master.wait_line("batch 1 is open")
        assert wait_until(lambda: ask("SELECT count(*) FROM crawl_task WHERE batch_status = 2") == [(4,)], 20)
        master.terminate()
        master.finish(20)
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        assert client.llen("netspy:CrawlTask:batch_pending") == 4
        client.ltrim(
            "netspy:CrawlTask:batch_pending", 0, 1
        )  # two of them are lost, as in a Redis that forgot
    with begin("worker", redis_url, table) as worker:
        worker.wait_line("2 task(s) of batch 1 are not settled and no master lives")
        worker.wait_line("CrawlTask().start_monitor()")
        assert worker.alive
        with closing(sqlite3.connect("tasks.db", timeout=20)) as db, db:
            db.execute("UPDATE crawl_task SET update_time = '2020-01-01 00:00:00' WHERE batch_status = 2")
        with begin("once", redis_url, table) as single:
            single.finish(30).check(0)
        worker.finish(20).check(0)
    assert ask("SELECT done_count, total_count, is_done FROM crawl_task_batch_record") == [(4, 4, 1)]


@pytest.mark.slow
def test_ctrl_c_stops_a_master_with_its_worker_in_one_process(redis_url, numbered):
    numbered.route("/p/", "<h1>slow</h1>", prefix=True, delay=0.1)
    source = EXAMPLE.partition("if __name__")[0] + (
        "from netspy.core.batch_store import MemoryBatchStore\n"
        f"rows = [{{'id': n, 'url': '{numbered.url('/p/')}' + str(n)}} for n in range(500)]\n"
        "CrawlTask(batch_store=MemoryBatchStore(rows)).start_monitor()\n"
    )
    env = {"NETSPY_REDIS_URL": redis_url, **QUICK_ENV, "NETSPY_HEARTBEAT_STALE": "10"}
    with start_script(source, env=env, cwd=".") as one:
        numbered.wait_hits(10)
        one.interrupt()
        result = one.finish(20).check(130)
    assert result.summary["outcome"] == "stopped"
    assert result.summary["items"] == result.summary["tasks_done"] > 0
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        assert client.exists("netspy:CrawlTask:batch_monitor_lock") == 0
