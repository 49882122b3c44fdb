"""A BatchSpider's start in the face of silent servers, its table in other hands, columns of other names, a master in code."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import ExitStack, closing

import pytest
from sqlalchemy.engine import make_url

import netspy as mw
from netspy.core.batch_monitor import BatchMonitor
from netspy.core.batch_store import MemoryBatchStore, SqlBatchStore
from netspy.errors import StoreUnavailableError
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.clock import FakeClock
from netspy.testing.proxy import FaultProxy
from netspy.testing.runner import run_script, start_script
from support.batch_tables import CREATE

SPIDER = """
import sys
import netspy as mw


class Crawl(mw.BatchSpider):
    __task_table__ = "crawl_task"

    def task_requests(self, task):
        yield mw.Request(task["url"])

    def parse(self, request, response, task):
        self.update_task(task["id"])


class Other(Crawl):
    pass


if __name__ == "__main__":
    spider = globals()[sys.argv[1]]()
    if sys.argv[2] == "worker":
        spider.start()
    elif sys.argv[2] == "workers":
        spider.start(processes=2)
    else:
        spider.start_monitor(once=sys.argv[2] == "once")
"""
QUICK = {
    "HEARTBEAT_INTERVAL": "0.3",
    "HEARTBEAT_STALE": "1.5",
    "TASK_POLL_INTERVAL": "0.1",
    "TASK_EXHAUST_POLLS": "2",
    "DONE_CHECK_INTERVAL": "0.1",
    "BATCH_MONITOR_INTERVAL": "0.3",
    "PROGRESS": "off",
    "ITEM_PIPELINES": "netspy.pipelines.jsonl.JsonlPipeline",
}
ENV = {f"NETSPY_{name}": value for name, value in QUICK.items()}
UNHURRIED = {**ENV, "NETSPY_HEARTBEAT_STALE": "10"}
"""Where nobody dies: who gets no processor for a while doesn't count as dead."""


@pytest.fixture(autouse=True)
def in_a_folder(workdir):
    return workdir


def table(rows=(), name="tasks.db", sql=CREATE["sqlite"]):
    with closing(sqlite3.connect(name)) as db, db:
        db.execute(sql)
        db.executemany("INSERT INTO crawl_task (url) VALUES (?)", [(url,) for url in rows])
    return f"sqlite:///{name}"


def ask(sql):
    with closing(sqlite3.connect("tasks.db", timeout=20)) as db:
        return db.execute(sql).fetchall()


# -- a server that takes connections and says nothing


@pytest.mark.slow
@pytest.mark.parametrize("silent", ["redis_url", "mariadb_url"])
def test_a_stop_at_the_start_does_not_wait_for_a_silent_server(silent, redis_url, request):
    """Whoever is starting ends as stopped, with a summary, in seconds: nothing of theirs is half done."""
    url = make_url(request.getfixturevalue(silent))
    with ExitStack() as stack:
        starting = []
        for role in ("worker", "monitor", "workers"):
            proxy = stack.enter_context(FaultProxy(url.host, url.port))
            proxy.stall()
            through = url.set(port=proxy.port).render_as_string(hide_password=False)
            env = {**ENV, "NETSPY_REDIS_URL": redis_url, "NETSPY_BATCH_STORE_URL": "sqlite:///tasks.db"}
            env["NETSPY_REDIS_URL" if silent == "redis_url" else "NETSPY_BATCH_STORE_URL"] = through
            script = stack.enter_context(start_script(SPIDER, args=["Crawl", role], env=env, cwd="."))
            starting.append((script, proxy))
        for _, proxy in starting:
            assert wait_until(lambda proxy=proxy: proxy.connections > 0, 30), "it asks the server"
        began = time.monotonic()
        for script, _ in starting:
            script.terminate()
        for script, _ in starting:
            result = script.finish(30).check(143)
            assert result.summary["outcome"] == "stopped"
            assert "Traceback" not in result.stderr
        assert time.monotonic() - began < 9


# -- one table, two jobs


@pytest.mark.slow
def test_a_table_that_another_jobs_master_works_on_is_refused_until_that_one_has_gone(redis_url, numbered):
    env = {
        **UNHURRIED,
        "NETSPY_REDIS_URL": redis_url,
        "NETSPY_BATCH_STORE_URL": table([numbered.url("/p/1")]),
    }
    with start_script(SPIDER, args=["Crawl", "monitor"], env=env, cwd=".") as first:
        first.wait_line("batch 1: 0/1")
        refused = run_script(SPIDER, args=["Other", "once"], env=env, cwd=".", timeout=30).check(3)
        assert "in the hands of another job, netspy:Crawl, whose master works on it" in refused.stderr
        assert "Traceback" not in refused.stderr
        with sync_client(Settings(REDIS_URL=redis_url)) as client:
            assert client.exists("netspy:Other:batch_monitor_lock") == 0
            assert client.exists("netspy:Crawl:batch_monitor_lock") == 1
        first.terminate()
        first.finish(20).check(143)
    with start_script(SPIDER, args=["Other", "once"], env=env, cwd=".") as second:
        second.wait_line("master of Other")
        second.terminate()
        second.finish(20).check(143)


@pytest.mark.slow
def test_two_masters_of_one_name_on_two_redis_servers_do_not_take_turns(redis_url, redis62_url, numbered):
    """Each has a lock of its own, and the database lets one of them write: the other one ends and says why."""
    env = {**UNHURRIED, "NETSPY_BATCH_STORE_URL": table([numbered.url("/p/1")])}
    masters = [
        start_script(SPIDER, args=["Crawl", "monitor"], env={**env, "NETSPY_REDIS_URL": url}, cwd=".")
        for url in (redis_url, redis62_url)
    ]
    with masters[0], masters[1]:
        assert wait_until(lambda: not all(master.alive for master in masters), 30)
        [left] = [master for master in masters if not master.alive]
        [other] = [master for master in masters if master is not left]
        assert "with a lock of its own" in left.finish(30).check(3).stderr
        other.wait_line("master of Crawl")
        token = ask("SELECT token FROM crawl_task_batch_fence")
        passes = other.stderr.count("master of Crawl")
        assert passes == 1
        other.terminate()
        other.finish(20).check(143)
        assert ask("SELECT token FROM crawl_task_batch_fence") == token


# -- names of columns


class Crawl(mw.BatchSpider):
    def task_requests(self, task):
        yield mw.Request(task["url"])

    def parse(self, request, response, task):
        yield {"key": task[self.id_field]}
        self.update_task(task[self.id_field])


IN_PROCESS = {
    name: float(value) for name, value in QUICK.items() if value[0].isdigit() and name != "TASK_EXHAUST_POLLS"
} | {"HEARTBEAT_STALE": 10.0}


def test_a_store_made_in_code_says_which_column_is_the_key(redis_url, numbered):
    rows = [{"key": f"t{n}", "url": numbered.url(f"/p/{n}")} for n in range(3)]
    numbered.route("/p/2", status=404)
    store = MemoryBatchStore(rows, id_field="key", state_field="how", time_field="when")
    kept = []
    spider = Crawl(
        batch_store=store,
        item_handler=kept.extend,
        REDIS_URL=redis_url,
        SPIDER_MAX_RETRY_TIMES=0,
        **IN_PROCESS,
    )
    summary = spider.start_monitor(once=True)
    assert sorted(row["key"] for row in kept) == ["t0", "t1"]
    assert [row["how"] for row in store.rows] == [1, 1, -1]
    assert summary.outcome == "finished"


def test_columns_that_a_store_made_in_code_does_not_name_are_the_settings(monkeypatch):
    monkeypatch.setenv("NETSPY_BATCH_TASK_ID_FIELD", "key")
    monkeypatch.setenv("NETSPY_BATCH_TASK_STATE_FIELD", "how")
    memory = MemoryBatchStore([{"key": 7}])
    assert memory.claim_tasks(1)[0]["how"] == 2
    url = table(
        sql="CREATE TABLE crawl_task (key INTEGER PRIMARY KEY, url TEXT, how INTEGER, update_time DATETIME)"
    )
    table_ = SqlBatchStore("crawl_task", url)
    table_.ensure_schema()
    assert (table_.id_field, table_.count_tasks().total) == ("key", 0)
    table_.close()
    with pytest.raises(mw.ConfigError, match=r"has no 'key'.*MemoryBatchStore\(tasks, id_field=…\)"):
        MemoryBatchStore([{"id": 7}])


# -- a master without its spider


def test_a_batch_monitor_is_the_master_of_a_job_that_it_only_knows_by_name(redis_url, numbered):
    url = table([numbered.url(f"/p/{n}") for n in range(4)])
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        monitor = BatchMonitor(
            store=SqlBatchStore("crawl_task", url), redis=client, ns="netspy:Crawl", batch_interval=2,
            interval_unit="hour", monitor_interval=0.2, lost_stale=30, push_limit=3,
        )  # fmt: skip
    ended = []
    master = threading.Thread(target=lambda: ended.append(monitor.run_once()))
    worker = Crawl(
        BATCH_STORE_URL=url, task_table="crawl_task", REDIS_URL=redis_url, keep_alive=True, **IN_PROCESS
    )
    master.start()

    def stop_then():
        master.join(60)
        worker.stop()

    watcher = threading.Thread(target=stop_then)
    watcher.start()
    worker.run()
    watcher.join(60)
    [summary] = ended
    assert (summary.spider, summary.kind, summary.outcome, summary.tasks_done) == (
        "Crawl",
        "batch_master",
        "finished",
        4,
    )
    assert ask("SELECT done_count, interval, interval_unit, is_done FROM crawl_task_batch_record") == [
        (4, 2, "hour", 1)
    ]


def test_a_batch_monitor_runs_until_it_is_stopped(redis_url):
    store = MemoryBatchStore([{"id": 1, "url": "http://site.invalid/"}])
    monitor = BatchMonitor(store=store, redis=redis_url, ns="netspy:Crawl")
    ended = []
    master = threading.Thread(target=lambda: ended.append(monitor.run()))
    master.start()
    assert wait_until(lambda: store.count_tasks().doing == 1, 20)
    monitor.stop()
    master.join(20)
    assert [summary.outcome for summary in ended] == ["stopped"]
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        assert client.exists("netspy:Crawl:batch_monitor_lock") == 0


@pytest.mark.parametrize("wrong", [{"ns": "CrawlTask"}, {"ns": "netspy:CrawlTask", "redis": object()}])
def test_a_batch_monitor_of_nothing_says_what_to_give(wrong):
    with pytest.raises(mw.ConfigError, match="give"):
        BatchMonitor(store=MemoryBatchStore(), **wrong)


# -- what callbacks and task_requests say


def in_memory(cls, store, redis_url, **settings):
    """One batch in this process, to its end; alerts raised and rows kept."""
    spider = cls(
        batch_store=store, item_handler=lambda _rows: None, REDIS_URL=redis_url, **{**IN_PROCESS, **settings}
    )
    return spider.start_monitor(once=True)


def test_a_task_without_requests_is_warned_of_once_unless_task_requests_reports_it(redis_url, capfd):
    class Picky(mw.BatchSpider):
        tries = 0

        def task_requests(self, task):
            if task["id"] != 1:
                Picky.tries += 1
                if Picky.tries < 3:
                    return
            self.update_task(task["id"])
            yield from ()

    store = MemoryBatchStore([{"id": 1}, {"id": 2}])
    in_memory(Picky, store, redis_url, BATCH_LOST_TASK_STALE=0.3)
    assert [row["batch_status"] for row in store.rows] == [1, 1]
    err = capfd.readouterr().err
    assert err.count("Picky.task_requests gave no request for a task") == 1
    assert "'id': 2}): it stays in process" in err


def test_a_page_that_says_done_and_failed_says_done(redis_url, numbered):
    """The failure would be written at once, and close the batch before the rows of the page are stored."""

    class Both(mw.BatchSpider):
        def task_requests(self, task):
            yield mw.Request(task["url"])

        def parse(self, request, response, task):
            yield {"id": task["id"]}
            self.update_task(task["id"])
            self.update_task(task["id"], ok=False)

    marks = []

    class Noting(MemoryBatchStore):
        def mark_tasks(self, states, *, batch_id=None):
            marks.append(sorted(states))
            return super().mark_tasks(states, batch_id=batch_id)

    store = Noting([{"id": 1, "url": numbered.url("/p/1")}])
    summary = in_memory(Both, store, redis_url)
    assert [row["batch_status"] for row in store.rows] == [1]
    assert marks == [[(1, -1), (1, 1)]]
    assert summary.outcome == "finished"


def test_a_batch_that_is_still_open_when_the_next_one_is_due_raises_an_alert(redis_url):
    alerts, raised = [], threading.Event()

    class Slow(mw.BatchSpider):
        def task_requests(self, task):
            raised.wait(20)
            self.update_task(task["id"])
            yield from ()

        def on_alert(self, kind, message):
            alerts.append((kind, message))
            raised.set()

    clock = FakeClock()
    store = MemoryBatchStore([{"id": 1}], clock=lambda: 1_800_000_000 + clock())
    store.create_batch(store.now(), 1, 1, "hour")
    clock.advance(3600 + 90)
    in_memory(Slow, store, redis_url, BATCH_INTERVAL=1.0, BATCH_INTERVAL_UNIT="hour")
    assert [kind for kind, _ in alerts] == ["batch_overdue"]
    assert "Slow: the next batch is due and batch 1: 0/1" in alerts[0][1]
    assert "overdue by 90 s" in alerts[0][1]


def test_tasks_that_were_alive_before_an_outage_of_the_database_are_not_lost_after_it(redis_url):
    """The master had written their times anew, and was about to look for lost ones when the database went away."""
    over, lost = threading.Event(), []

    class Away(MemoryBatchStore):
        def reset_lost_tasks(self, stale):
            if self.count_tasks().doing and not lost:
                lost.append(0)
                wait_until(lambda: False, 1.0)
                raise StoreUnavailableError("it was away for longer than a task may be stale")
            found = super().reset_lost_tasks(stale)
            if lost:
                lost.append(found)
                over.set()
            return found

    class Waiting(mw.BatchSpider):
        def task_requests(self, task):
            over.wait(20)
            self.update_task(task["id"])
            yield from ()

    store = Away([{"id": 1}])
    in_memory(Waiting, store, redis_url, BATCH_LOST_TASK_STALE=0.6)
    assert sum(lost) == 0
    assert store.count_tasks().done == 1
