"""TaskSpiders whose tasks come from RabbitMQ, Kafka, a Redis stream and a SQL table: settled when their last page is, whoever dies."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3

import pytest

from netspy.assembly.sources import make_source
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.runner import run_script, start_script
from support.gate import Gate
from support.kafka_mock import KafkaMock
from support.missing import missing
from support.rabbitmq_server import RabbitServer, find_rabbitmq_server

SPIDER = """
import os, sys, time
import netspy as mw

SITE = os.environ["SITE"]


class Shop(mw.TaskSpider):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0,
        TASK_POLL_INTERVAL=0.2, TASK_EXHAUST_POLLS=3, DONE_CHECK_INTERVAL=0.1, HEARTBEAT_INTERVAL=0.3, HEARTBEAT_STALE=1.5,
        RETRY_BACKOFF=0.1,
    )

    def task_requests(self, task):
        yield mw.Request(f"{SITE}/p/{task['id']}", cb_kwargs={"id": task["id"]})

    def parse(self, request, response, id):
        yield mw.Request(f"{SITE}/p/{id}/more", callback=self.more, cb_kwargs={"id": id})

    def more(self, request, response, id):
        time.sleep(60 if id >= int(os.environ.get("STUCK_FROM", "1000")) else float(os.environ.get("SLOW", "0")))
        yield Page(id=id)


class Page(mw.Item):
    __table_name__ = "pages"
    __unique_key__ = "id"


if __name__ == "__main__":
    Shop().start()
"""

UNHURRIED = SPIDER.replace("HEARTBEAT_STALE=1.5", "HEARTBEAT_STALE=10")
"""Where no node dies: who gets no processor for a while doesn't count as dead."""


def stored(folder):
    if not (folder / "items.db").exists():
        return []
    with sqlite3.connect(folder / "items.db") as db:
        try:
            found = [row[0] for row in db.execute('SELECT id FROM "pages" ORDER BY id')]
        except sqlite3.OperationalError:
            found = []
    db.close()
    return found


def asked(settings, call):
    async def run():
        source = make_source(settings, "Shop")
        try:
            await source.open()
            return await call(source)
        finally:
            await source.close()

    return asyncio.run(run())


def table_of(path, count):
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE tasks (id INTEGER PRIMARY KEY, batch_status INTEGER NOT NULL DEFAULT 0, "
            "update_time TEXT DEFAULT CURRENT_TIMESTAMP)"
        )
        db.executemany("INSERT INTO tasks (id) VALUES (?)", [(n,) for n in range(count)])
    db.close()


class Place:
    """One task source with `count` tasks in it, and how to see that none is left."""

    def __init__(self, kind, request, count):
        self.kind = kind
        name = f"q{secrets.token_hex(4)}"
        folder = request.getfixturevalue("workdir")
        if kind == "rabbitmq":
            self.source = f"{request.getfixturevalue('rabbit_url')}?queue={name}"
        elif kind == "kafka":
            mock = request.getfixturevalue("kafka")
            mock.topic(name, 4)
            mock.topic(f"{name}.failed", 1)
            self.source = f"kafka://{mock.servers}/{name}?group={name}&partition.assignment.strategy=range&session.timeout.ms=6000"
        elif kind == "stream":
            self.source = f"stream:{name}"
        else:
            self.path = folder / "tasks.db"
            table_of(self.path, count)
            self.source = f"sqlite:///{self.path}?table=tasks"
        self.env = {
            "SITE": request.getfixturevalue("numbered").url("").rstrip("/"),
            "NETSPY_REDIS_URL": request.getfixturevalue("redis_url"),
            "NETSPY_TASK_SOURCE": self.source,
        }
        self.settings = Settings(
            REDIS_URL=self.env["NETSPY_REDIS_URL"],
            TASK_SOURCE=self.source,
            HEARTBEAT_INTERVAL=0.3,
            HEARTBEAT_STALE=1.5,
        )
        if kind != "table":
            asked(self.settings, lambda source: source.add([{"id": n} for n in range(count)]))

    def left(self):
        """How many tasks the source still has."""
        if self.kind == "table":
            with sqlite3.connect(self.path) as db:
                found = db.execute("SELECT count(*) FROM tasks WHERE batch_status <> 1").fetchone()[0]
            db.close()
            return found
        return asked(self.settings, lambda source: source.backlog()).waiting


KINDS = ["rabbitmq", "kafka", "stream", "table"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_is_served_and_none_is_left_in_the_source(kind, request, workdir):
    place = Place(kind, request, 40)
    result = run_script(UNHURRIED, env=place.env, cwd=workdir, timeout=100).check(0)
    assert stored(workdir) == list(range(40))
    assert result.summary["tasks_taken"] == 40
    assert place.left() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_killed_in_the_middle_leaves_no_task_undone(kind, request, workdir):
    place = Place(kind, request, 60)
    with start_script(SPIDER, env={**place.env, "SLOW": "0.1", "STUCK_FROM": "50"}, cwd=workdir) as node:
        assert wait_until(lambda: len(stored(workdir)) >= 5, 60)
        node.kill()
        node.finish()
    assert len(stored(workdir)) < 60
    run_script(SPIDER, env=place.env, cwd=workdir, timeout=100).check(0)
    assert stored(workdir) == list(range(60))
    assert place.left() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rabbitmq", "kafka"])
def test_a_broker_that_is_killed_and_comes_back_loses_nothing_and_hangs_nothing(
    kind, request, workdir, numbered, redis_url
):
    if kind == "rabbitmq" and find_rabbitmq_server() is None:
        missing("no rabbitmq-server on this machine")
    with RabbitServer() if kind == "rabbitmq" else KafkaMock() as broker:
        if kind == "rabbitmq":
            source, kept = f"{broker.url}?queue=shop", {}
        else:
            quick = "session.timeout.ms=1500&heartbeat.interval.ms=200"
            source, kept = f"kafka://{broker.servers}/shop?group=crawl&{quick}", {"groups": ["crawl"]}
        env = {
            "SITE": numbered.url("").rstrip("/"),
            "NETSPY_REDIS_URL": redis_url,
            "NETSPY_TASK_SOURCE": source,
            "NETSPY_REQUEST_TIMEOUT": "100",
            "NETSPY_IDLE_TIMEOUT": "0",
        }
        # The node must not be done with what there is before there is more.
        last_pages = Gate(
            numbered, "/p/", holds=lambda page: page.path in {f"/p/{n}/more" for n in range(40, 60)}
        )
        settings = Settings(TASK_SOURCE=source)
        asked(settings, lambda made: made.add([{"id": n} for n in range(60)]))
        with start_script(UNHURRIED, env={**env, "SLOW": "0.1"}, cwd=workdir) as node:
            # Pages, not rows: these are written in batches, when on a busy machine few tasks are left in hand.
            assert wait_until(lambda: numbered.total >= 5, 60)
            broker.kill(**kept)
            broker.start()
            asked(settings, lambda made: made.add([{"id": n} for n in range(60, 90)]))
            last_pages.open()
            node.finish(120).check(0)
        assert stored(workdir) == list(range(90))
        assert set(numbered.all_hits().values()) == {1}, "what came again was recognised"
        assert asked(settings, lambda made: made.backlog()).waiting == 0
