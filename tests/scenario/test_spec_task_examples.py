"""The documented programs of task and batch spiders, run as they are written: on Redis, MariaDB and in memory.

Only the host is replaced, and waiting is made shorter by the environment.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from netspy.testing.children import wait_until
from netspy.testing.runner import run_script, start_script
from netspy.testing.site import LocalSite
from support.batch_tables import admin

pytestmark = pytest.mark.slow

PRODUCTS = """
import netspy as mw


class ProductSpider(mw.TaskSpider):
    def task_requests(self, task):
        yield mw.Request(
            f"https://shop.com/p/{task['id']}",
            callback=self.parse,
            cb_kwargs={"task": task},
        )

    def parse(self, request, response, task):
        yield {"id": task["id"], "price": response.css(".price::text").get()}
"""

PUSH = """
ProductSpider.push_tasks({"id": 1}, {"id": 2}, {"id": 3})
"""

TABLE = """
CREATE TABLE `crawl_task` (
  `id` BIGINT NOT NULL AUTO_INCREMENT,
  `url` VARCHAR(500) NOT NULL,
  `batch_status` TINYINT NOT NULL DEFAULT 0,   -- 0 to do / 1 done / 2 in process / -1 failed
  `update_time` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (`id`)
);
"""

CRAWL_TASK = """
import netspy as mw


class CrawlTask(mw.BatchSpider):
    __task_table__ = "crawl_task"

    def task_requests(self, task):
        yield mw.Request(task["url"], callback=self.parse)

    def parse(self, request, response, task):
        yield {"url": task["url"], "title": response.css("h1::text").get()}
        self.update_task(task["id"], ok=True)


if __name__ == "__main__":
    import sys

    if sys.argv[1:] == ["monitor"]:
        CrawlTask().start_monitor()   # master
    else:
        CrawlTask(keep_alive=True).start()   # worker
"""

IN_MEMORY = """
from netspy.core.batch_store import MemoryBatchStore

store = MemoryBatchStore([{"id": 1, "url": "https://shop.com/p/1"}, {"id": 2, "url": "https://shop.com/p/2"}])
CrawlTask(batch_store=store).start_monitor(once=True)
"""

QUICK = {
    "NETSPY_PROGRESS": "off",
    "NETSPY_TASK_POLL_INTERVAL": "0.2",
    "NETSPY_BATCH_MONITOR_INTERVAL": "0.3",
    "NETSPY_HEARTBEAT_INTERVAL": "0.3",
    "NETSPY_HEARTBEAT_STALE": "10",
    "NETSPY_SPIDER_STARTUP_GRACE": "1",
    "NETSPY_ITEM_PIPELINES": "netspy.pipelines.sqlite.SqlitePipeline",
}


@pytest.fixture
def shop(site: LocalSite) -> LocalSite:
    site.route(
        "/p/", lambda request: f'<h1>{request.path}</h1><b class="price">{request.path[3:]}</b>', prefix=True
    )
    return site


@pytest.fixture
def env(redis_url: str) -> dict[str, str]:
    return {**QUICK, "NETSPY_REDIS_URL": redis_url}


def placed(source: str, site: LocalSite) -> str:
    return source.replace("https://shop.com", site.url("").rstrip("/"))


def written(folder: Path, source: str) -> Path:
    path = folder / "main.py"
    path.write_text(source, encoding="utf-8")
    return path


def test_tasks_are_pushed_by_one_program_and_worked_off_by_two(shop, redis_server, env, tmp_path):
    path = written(
        tmp_path, placed(PRODUCTS, shop) + "\n\nif __name__ == '__main__':\n    ProductSpider().start()\n"
    )
    pusher = "from main import ProductSpider\n" + PUSH
    run_script(pusher, cwd=tmp_path, env=env).check()
    assert redis_server.client().llen("netspy:ProductSpider:tasks") == 3
    nodes = [start_script(path, cwd=tmp_path, env=env) for _ in range(2)]
    with nodes[0], nodes[1]:
        results = [node.finish(60).check() for node in nodes]
    assert sum(result.summary["items"] for result in results) == 3
    assert shop.all_hits() == {f"/p/{n}": 1 for n in (1, 2, 3)}


def test_a_resident_node_waits_for_tasks_that_come_later(shop, env, tmp_path):
    source = placed(PRODUCTS, shop)
    path = written(
        tmp_path, f"{source}\n\nif __name__ == '__main__':\n    ProductSpider(keep_alive=True).start()\n"
    )
    with start_script(path, cwd=tmp_path, env=env) as node:
        run_script(source + PUSH, cwd=tmp_path, env=env).check()
        shop.wait_hits(3)
        run_script(source + PUSH.replace("1}", "4}"), cwd=tmp_path, env=env).check()
        shop.wait_hits(6)  # tasks 2 and 3 once more: pushed again is crawled again
        assert node.alive
        node.terminate()
        assert node.finish(20).check(143).summary["tasks_taken"] == 6
    assert shop.all_hits() == {"/p/1": 1, "/p/2": 2, "/p/3": 2, "/p/4": 1}


def test_fetch_tasks_from_a_database_of_ones_own(shop, env, tmp_path):
    fetch = """
    def fetch_tasks(self, limit):
        rows = db.query("SELECT id FROM crawl_task WHERE status=0 LIMIT %s", limit)
        db.execute("UPDATE crawl_task SET status=1 WHERE id IN ...")
        return [dict(r) for r in rows]
"""
    database = """
class db:
    left = [{"id": n} for n in range(1, 8)]
    taken = []

    @classmethod
    def query(cls, sql, limit):
        cls.taken, cls.left = cls.left[:limit], cls.left[limit:]
        return cls.taken

    @classmethod
    def execute(cls, sql):
        pass


"""
    source = PRODUCTS.replace(
        "class ProductSpider(mw.TaskSpider):\n", f"{database}class ProductSpider(mw.TaskSpider):{fetch}\n"
    )
    result = run_script(
        placed(source, shop) + "\n\nProductSpider().start()\n",
        cwd=tmp_path,
        env={**env, "NETSPY_TASK_BATCH_SIZE": "3"},
        timeout=60,
    ).check()
    assert (result.summary["tasks_taken"], result.summary["items"]) == (7, 7)
    assert shop.all_hits() == {f"/p/{n}": 1 for n in range(1, 8)}


@pytest.fixture
def mysql_settings(mariadb_url):
    """The documented names of settings for the database."""
    url = make_url(mariadb_url)
    with admin(mariadb_url) as connection:
        connection.exec_driver_sql(TABLE.strip().rstrip(";"))
    settings = {
        "HOST": url.host,
        "PORT": url.port,
        "USER": url.username,
        "PASSWORD": url.password,
        "DB": url.database,
    }
    return {f"NETSPY_MYSQL_{name}": str(value or "") for name, value in settings.items()}


@contextmanager
def running(*scripts):
    """All of them; stopped in order at the end."""
    try:
        yield scripts
    finally:
        for script in scripts:
            script.terminate()
        for script in scripts:
            with script:
                script.finish(30)


def test_a_batch_on_mysql_with_a_master_and_two_workers(
    shop, redis_server, env, mariadb_url, mysql_settings, tmp_path
):
    with admin(mariadb_url) as connection:
        for n in range(1, 31):
            connection.exec_driver_sql("INSERT INTO crawl_task (url) VALUES (%s)", (shop.url(f"/p/{n}"),))
    path = written(tmp_path, CRAWL_TASK)
    env |= mysql_settings

    def states() -> dict:
        with admin(mariadb_url) as connection:
            rows = connection.exec_driver_sql(
                "SELECT batch_status, count(*) FROM crawl_task GROUP BY 1"
            ).all()
            return {int(state): count for state, count in rows}

    master = start_script(path, args=("monitor",), cwd=tmp_path, env=env)
    workers = [start_script(path, cwd=tmp_path, env=env) for _ in range(2)]
    client = redis_server.client()
    with running(master, *workers):
        assert wait_until(lambda: client.get("netspy:CrawlTask:batch_done") == "1", 60, step=0.05), (
            master.stderr
        )
        assert states() == {1: 30}
        master.wait_line("batch 1 is done: 30 task(s)")
        # In residence: it waits for the day on which the next batch is due.
        master.wait_line("the next one is due at")
        assert master.alive
        assert all(worker.alive for worker in workers)
    assert client.exists("netspy:CrawlTask:batch_monitor_lock") == 0
    with admin(mariadb_url) as connection:
        [record] = connection.exec_driver_sql(
            "SELECT total_count, done_count, fail_count, is_done, `interval`, interval_unit FROM crawl_task_batch_record"
        ).all()
    assert tuple(record) == (30, 30, 0, 1, 7, "day")
    assert shop.all_hits() == {f"/p/{n}": 1 for n in range(1, 31)}


def test_a_small_batch_in_memory_runs_to_its_end_by_itself(shop, env, tmp_path):
    source = CRAWL_TASK.partition("\n\nif __name__")[0] + "\n" + IN_MEMORY
    result = run_script(placed(source, shop), cwd=tmp_path, env=env, timeout=60).check()
    assert (result.summary["outcome"], result.summary["items"]) == ("finished", 2)
    assert "batch 1: 2/2" in result.stderr
