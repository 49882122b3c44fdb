"""TaskSpider on a real Redis: tasks pushed from anywhere, served as often as they were pushed, by as many nodes as wished."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3

import pytest

import netspy as mw
from netspy.errors import SerializationError
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.runner import run_script, start_script

QUICK = {
    "TASK_POLL_INTERVAL": 0.05,
    "TASK_EXHAUST_POLLS": 2,
    "DONE_CHECK_INTERVAL": 0.05,
    "HEARTBEAT_INTERVAL": 0.3,
    "HEARTBEAT_STALE": 10.0,
    "SPIDER_RETRY_INTERVAL": 0.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "PROGRESS": "off",
}
QUICK_ENV = {f"NETSPY_{name}": str(value) for name, value in QUICK.items()}

SHOP = """
import os, sys
import netspy as mw

SITE = os.environ["SITE"]


class Shop(mw.TaskSpider):
    task_key = "catalogue"
    redis_key = "shop"
    __custom_setting__ = dict(REDIS_KEY_PREFIX="pfx", ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"])

    def task_requests(self, task):
        yield mw.Request(f"{SITE}/p/{task['id']}", callback=self.parse, cb_kwargs={"task": task})

    def parse(self, request, response, task):
        yield {"id": task["id"], "text": response.css("h1::text").get(), "node": os.getpid()}


if sys.argv[1:] == ["push"]:
    print(Shop.push_tasks({"id": 1}, {"id": 2}, {"id": 3}))
elif __name__ == "__main__":
    Shop(keep_alive="stay" in sys.argv).start()
"""


@pytest.fixture(autouse=True)
def in_a_folder(workdir):
    return workdir


@pytest.fixture(params=["redis_url", "redis62_url"])
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(url):
    with sync_client(Settings(REDIS_URL=url)) as made:
        yield made


@pytest.fixture
def make(redis_url, numbered):
    """`make(cls)`: a spider on an empty Redis; its rows come to `.rows`."""

    def made(cls, **kw):
        rows = []
        spider = cls(item_handler=rows.extend, REDIS_URL=redis_url, **{**QUICK, **kw})
        spider.rows = rows
        return spider

    return made


def shop_of(site):
    class Shop(mw.TaskSpider):
        def task_requests(self, task):
            yield mw.Request(site.url(f"/p/{task}"), cb_kwargs={"task": task})

        def parse(self, request, response, task):
            yield {"task": task}

    return Shop


def served(spider):
    return sorted((row["task"] for row in spider.rows), key=lambda task: (str(type(task)), task))


# -- pushing


def test_tasks_pushed_by_another_process_are_crawled_and_both_go_by_the_class(url, client, numbered):
    """Keys and prefix stand in the class; the run's id doesn't move the task list."""
    env = {"SITE": numbered.url(""), "NETSPY_REDIS_URL": url, "NETSPY_RUN_ID": "r1", **QUICK_ENV}
    pushed = run_script(SHOP, args=["push"], env=env, cwd=".").check()
    assert pushed.stdout.strip() == "3"
    assert [json.loads(text) for text in client.lrange("pfx:catalogue:tasks", 0, -1)] == [
        {"id": 1}, {"id": 2}, {"id": 3},
    ]  # fmt: skip
    result = run_script(SHOP, env=env, cwd=".").check()
    assert result.summary["tasks_taken"] == 3
    with sqlite3.connect("items.db") as db:
        assert sorted(db.execute("SELECT id, text FROM items")) == [(1, "/p/1"), (2, "/p/2"), (3, "/p/3")]
    db.close()
    assert client.exists("pfx:catalogue:tasks", "pfx:catalogue:tasks:inflight") == 0
    assert client.exists("pfx:shop:run:r1:meta") == 1


def test_push_tasks_works_where_a_loop_runs_and_on_objects_with_keys_of_their_own(make, numbered):
    cls = shop_of(numbered)
    spider = make(cls, task_key="mine")

    async def main():
        return spider.push_tasks(1, 2)

    assert asyncio.run(main()) == 2
    spider.push_tasks(3, task_key="others")
    with sync_client(spider.settings) as client:
        assert (client.llen("netspy:mine:tasks"), client.llen("netspy:others:tasks")) == (2, 1)
    spider.run()
    assert served(spider) == [1, 2]


def test_a_push_that_cannot_travel_pushes_nothing(make, numbered):
    spider = make(shop_of(numbered))
    with pytest.raises(SerializationError):
        spider.push_tasks(1, object())
    assert spider.push_tasks() == 0
    with sync_client(spider.settings) as client:
        assert client.dbsize() == 0


def test_without_a_server_the_tasks_wait_in_the_embedded_one(embedded_dir, numbered):
    cls = shop_of(numbered)
    rows = []
    kw = {**QUICK, "REDIS_URL": "embedded", "DATA_DIR": str(embedded_dir)}
    assert cls(**kw).push_tasks(*range(5)) == 5
    summary = cls(item_handler=rows.extend, **kw).run()
    assert sorted(row["task"] for row in rows) == [0, 1, 2, 3, 4]
    assert summary.outcome == "finished"


def test_no_task_says_where_it_looked_and_how_to_push(make, numbered, capfd):
    summary = make(shop_of(numbered)).run()
    assert (summary.outcome, summary.exit_code) == ("nothing_to_do", 0)
    told = capfd.readouterr().err
    assert "no tasks in netspy:Shop:tasks" in told
    assert "Shop.push_tasks(" in told


# -- what counts as a repeat


def test_a_task_is_served_as_often_as_it_is_pushed_and_pages_found_on_the_way_once(make, numbered):
    class Shop(shop_of(numbered)):
        def task_requests(self, task):
            yield mw.Request(numbered.url("/p/same"), cb_kwargs={"task": task})

        def parse(self, request, response, task):
            yield {"task": task}
            yield mw.Request(numbered.url("/p/child"), callback=self.child)

        def child(self, request, response):
            yield {"task": "child"}

    first = make(Shop)
    first.push_tasks("a", "a", "b")
    first.run()
    assert served(first) == ["a", "a", "b", "child"]
    assert (numbered.hits("/p/same"), numbered.hits("/p/child")) == (3, 1)
    second = make(Shop)
    second.push_tasks("a")
    second.run()
    assert served(second) == ["a"], "the task is new, the child is known"
    assert (numbered.hits("/p/same"), numbered.hits("/p/child")) == (4, 1)


# -- task_requests and fetch_tasks that misbehave


def test_task_requests_that_always_raises_ends_in_the_failed_list_and_is_told_of(make, numbered):
    told, tries = [], []

    class Shop(shop_of(numbered)):
        def task_requests(self, task):
            if task == "bad":
                tries.append(task)
                raise KeyError("no such shop")
            return super().task_requests(task)

        def task_failed(self, task):
            told.append(task)
            yield {"task": f"failed {task}"}

        def task_done(self, task):
            told.append(task)

    spider = make(Shop, SPIDER_MAX_RETRY_TIMES=1)
    spider.push_tasks("bad", "good")
    summary = spider.run()
    assert served(spider) == ["failed bad", "good"]
    assert (len(tries), sorted(told)) == (2, ["bad", "good"])
    assert (summary.tasks_done, summary.tasks_failed) == (1, 1)
    with sync_client(spider.settings) as client:
        [record] = map(json.loads, client.lrange("netspy:Shop:tasks:failed", 0, -1))
        assert client.exists("netspy:Shop:tasks:inflight", "netspy:Shop:open_tasks") == 0
    assert (record["task"], "KeyError" in record["error"]) == ('"bad"', True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_fetch_tasks_that_raises_now_and_then_is_asked_again(make, numbered, asynchronous):
    left, asked = list(range(25)), []

    def take(limit):
        asked.append(limit)
        if len(asked) % 2:
            raise OSError("database is away")
        some, left[:limit] = left[:limit], []
        return some

    class Shop(shop_of(numbered)):
        if asynchronous:

            async def fetch_tasks(self, limit):
                await asyncio.sleep(0)
                return take(limit)

            async def task_requests(self, task):
                await asyncio.sleep(0)
                for request in super().task_requests(task):
                    yield request

        else:

            def fetch_tasks(self, limit):
                return take(limit)

    spider = make(Shop, TASK_BATCH_SIZE=10)
    summary = spider.run()
    assert served(spider) == list(range(25))
    assert set(asked) == {10}
    assert summary.exit_code == 0
    with sync_client(spider.settings) as client:
        assert client.exists("netspy:Shop:tasks:inflight") == 0


def test_fetch_tasks_beside_another_task_source_is_refused(make, numbered):
    class Shop(shop_of(numbered)):
        def fetch_tasks(self, limit):
            return []

    with pytest.raises(mw.ConfigError, match="choose one of them"):
        make(Shop, TASK_SOURCE="sqlite:///rows.db?table=row").run()


class Half:
    """A source of one's own that lacks a part of the contract."""

    holds = reusable = False

    def __init__(self, settings=None, name=""):
        if settings is not None and name == "broken":
            raise KeyError("no such folder")

    async def open(self):
        pass


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        (
            {"task_source": Half()},
            "task_source=Half has no take, keep, settled, failed, release, add, backlog",
        ),
        ({"TASK_SOURCE": f"{__name__}.Half"}, "Half' has no take, keep, settled"),
        (
            {"TASK_SOURCE": f"{__name__}.Half", "task_key": "broken"},
            "making it raised KeyError: 'no such folder'",
        ),
        ({"TASK_SOURCE": f"{__name__}.Absent"}, "Absent' can't be loaded"),
    ],
)
def test_a_source_of_ones_own_that_lacks_something_is_one_clear_error(make, numbered, keywords, told):
    with pytest.raises(mw.ConfigError, match=re.escape(told)):
        make(shop_of(numbered), **keywords).run()


# -- nodes


def test_tasks_in_the_memory_of_one_process_are_not_for_several(numbered, capfd):
    with pytest.raises(SystemExit) as left:
        shop_of(numbered)(TASK_SOURCE="memory").start(processes=2)
    assert left.value.code == 3
    assert "the tasks of Shop are in the memory of one process" in capfd.readouterr().err


@pytest.mark.slow
def test_a_node_that_stays_serves_what_comes_later_and_leaves_when_told(redis_url, numbered):
    env = {"SITE": numbered.url(""), "NETSPY_REDIS_URL": redis_url, **QUICK_ENV}
    with (
        sync_client(Settings(REDIS_URL=redis_url)) as client,
        start_script(SHOP, args=["stay"], env=env, cwd=".") as node,
    ):
        client.rpush("pfx:catalogue:tasks", '{"id": 1}')
        numbered.wait_hits(1, path="/p/1")
        assert wait_until(lambda: not client.exists("pfx:shop:z_inflight"), 30)
        assert not wait_until(lambda: not node.alive, 0.6), "three empty polls and more"
        client.rpush("pfx:catalogue:tasks", '{"id": 2}')
        numbered.wait_hits(1, path="/p/2")
        node.terminate()
        result = node.finish(20).check(143)
    assert result.summary["tasks_taken"] == 2


@pytest.mark.slow
def test_two_nodes_share_the_tasks_and_none_is_served_twice(redis_url, numbered):
    numbered.route("/p/", "<h1>slow</h1>", prefix=True, delay=0.2)
    env = {"SITE": numbered.url(""), "NETSPY_REDIS_URL": redis_url, **QUICK_ENV}
    env |= {"NETSPY_TASK_BATCH_SIZE": "4", "NETSPY_SPIDER_SEED_AHEAD": "4", "NETSPY_SPIDER_THREAD_COUNT": "2"}
    with (
        sync_client(Settings(REDIS_URL=redis_url)) as client,
        start_script(SHOP, args=["stay"], env=env, cwd=".") as one,
        start_script(SHOP, args=["stay"], env=env, cwd=".") as two,
    ):
        assert wait_until(lambda: client.zcard("pfx:shop:beats") == 2, 60)
        client.rpush("pfx:catalogue:tasks", *(json.dumps({"id": n}) for n in range(60)))
        numbered.wait_hits(60)
        # All are fetched; the acks of the last ones follow.
        assert wait_until(lambda: client.hget("pfx:shop:meta", "tasks_done") == b"60", 30)
        for node in (one, two):
            node.terminate()
        results = [node.finish(20).check(143) for node in (one, two)]
    assert sum(result.summary["tasks_taken"] for result in results) == 60
    # Who turns a task into requests doesn't matter (either node may find room in the queue first): who crawls them does.
    pages = [result.summary["pages"] for result in results]
    assert sum(pages) == 60
    assert min(pages) >= 15, "the load is shared"
    assert set(numbered.all_hits().values()) == {1}
