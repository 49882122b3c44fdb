"""A BatchSpider's start in the face of silent servers, its table in other hands, columns of other names, a master in code."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from sqlalchemy.engine import make_url

import netspy as mw
from netspy.core.batch_monitor import BatchMonitor
from netspy.core.batch_store import MemoryBatchStore, SqlBatchStore
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.leash import wait_until
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
@pytest.mark.parametrize(
    "silent", ["redis_url", "mariadb_url", pytest.param("postgres_url", marks=pytest.mark.faults_full)]
)
def test_a_stop_at_the_start_does_not_wait_for_a_silent_server(silent, redis_url, request):
    """Both roles end as stopped, with a summary, in seconds: nothing of theirs is half done."""
    url = make_url(request.getfixturevalue(silent))
    with FaultProxy(url.host, url.port) as proxy:
        proxy.stall()
        through = url.set(port=proxy.port).render_as_string(hide_password=False)
        env = {**ENV, "NETSPY_REDIS_URL": redis_url, "NETSPY_BATCH_STORE_URL": "sqlite:///tasks.db"}
        env["NETSPY_REDIS_URL" if silent == "redis_url" else "NETSPY_BATCH_STORE_URL"] = through
        roles = [
            start_script(SPIDER, args=["Crawl", role], env=env, cwd=".") for role in ("worker", "monitor")
        ]
        with roles[0], roles[1]:
            assert wait_until(lambda: proxy.connections >= 2, 30), "both ask the server"
            began = time.monotonic()
            for role in roles:
                role.terminate()
            for role in roles:
                result = role.finish(30).check(143)
                assert result.summary["outcome"] == "stopped"
                assert "Traceback" not in result.stderr
            assert time.monotonic() - began < 9


# -- one table, two jobs


@pytest.mark.slow
def test_a_table_that_another_jobs_master_works_on_is_refused_until_that_one_has_gone(redis_url, numbered):
    env = {**ENV, "NETSPY_REDIS_URL": redis_url, "NETSPY_BATCH_STORE_URL": table([numbered.url("/p/1")])}
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
    env = {**ENV, "NETSPY_BATCH_STORE_URL": table([numbered.url("/p/1")])}
    masters = [
        start_script(SPIDER, args=["Crawl", "monitor"], env={**env, "NETSPY_REDIS_URL": url}, cwd=".")
        for url in (redis_url, redis62_url)
    ]
    with masters[0], masters[1]:
        assert wait_until(lambda: not all(master.alive for master in masters), 30)
        [left] = [master for master in masters if not master.alive]
        [other] = [master for master in masters if master is not left]
        assert "with a lock of its own" in left.finish(10).check(3).stderr
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
}


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
    with pytest.raises(mw.ConfigError, match=r"has no 'key'.*MemoryBatchStore\(rows, id_field=…\)"):
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
