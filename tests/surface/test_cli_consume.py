"""`netspy consume`: rows from every kind of queue into a store, with kills, stops and wrong set-ups. Real servers."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from netspy.cli import app
from netspy.messages.row import Row
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.runner import run_command, start_command
from netspy.testing.servers import RedisServer
from support.kafka_mock import KafkaMock
from support.missing import missing
from support.rabbitmq_server import RabbitServer, find_rabbitmq_server

NETSPY = [sys.executable, "-m", "netspy.cli"]
KINDS = ["rabbitmq", "kafka", "list", "stream"]
QUICK = {"NETSPY_HEARTBEAT_STALE": "1", "NETSPY_HEARTBEAT_INTERVAL": "0.3", "NETSPY_SPIDER_TASK_LEASE": "5"}


class Queue:
    """A queue of rows: how a crawl writes to it, and the address by which it is consumed."""

    def __init__(self, kind, request, folder) -> None:
        self.folder = folder
        self.name = name = f"consume-{uuid.uuid4().hex[:12]}"
        self.env = dict(QUICK)
        own = {}
        if kind == "rabbitmq":
            url = request.getfixturevalue("rabbit_url")
            own = {"RABBITMQ_URL": url, "RABBITMQ_QUEUE": name}
            self.address, path = f"{url}?queue={name}", "rabbitmq.RabbitmqPipeline"
        elif kind == "kafka":
            servers = request.getfixturevalue("kafka").servers
            own = {"KAFKA_BOOTSTRAP_SERVERS": [servers], "KAFKA_TOPIC": name}
            quick = "session.timeout.ms=1500&heartbeat.interval.ms=200&partition.assignment.strategy=range"
            self.address, path = f"kafka://{servers}/{name}?group={name}&{quick}", "kafka.KafkaPipeline"
        else:
            url = request.getfixturevalue("redis_url")
            own = {"REDIS_URL": url, "REDIS_ITEMS_KEY": name, "REDIS_ITEMS_TYPE": kind}
            self.env["NETSPY_REDIS_URL"] = url
            self.address, path = f"{kind}:{name}", "redis.RedisPipeline"
        self.settings, self.path = Settings(**own), f"netspy.pipelines.{path}"

    def write(self, rows) -> None:
        async def run():
            letters = DeadLetterFile(self.folder / "not_sent.jsonl")
            writer = BatchWriter(
                load_pipelines([self.path], self.settings), self.settings, dead_letter=letters
            )
            result = await writer.write(rows)
            await writer.close()
            assert result.failed == 0, list(letters.read())

        asyncio.run(run())

    def consume(self, *arguments, **env):
        argv = [*NETSPY, "consume", self.address, *arguments]
        return run_command(argv, cwd=self.folder, env=self.env | env, timeout=60)

    def start(self, *arguments, **env):
        return start_command(
            [*NETSPY, "consume", self.address, *arguments], cwd=self.folder, env=self.env | env
        )

    def stored(self, table="books", column="n", name="out.db"):
        if not (self.folder / name).exists():
            return Counter()
        base = sqlite3.connect(self.folder / name)
        try:
            return Counter(value for (value,) in base.execute(f'SELECT "{column}" FROM "{table}"'))
        except sqlite3.OperationalError:
            return Counter()
        finally:
            base.close()


@pytest.fixture(params=KINDS)
def queue(request, tmp_path):
    return Queue(request.param, request, tmp_path)


@pytest.fixture
def in_list(request, tmp_path):
    return Queue("list", request, tmp_path)


def books(count, *, key=True):
    return [Row("books", {"n": n, "title": f"b{n}"}, unique_key=("n",) if key else ()) for n in range(count)]


def test_rows_of_a_queue_are_stored_with_table_and_key_and_the_queue_is_empty(queue):
    queue.write([*books(700), *books(30), Row("pages", {"n": 1})])
    result = queue.consume("-o", "out.db", "--once").check()
    assert queue.stored() == Counter(range(700))
    assert queue.stored("pages") == Counter([1])
    assert result.summary["kind"] == "consumer"
    assert (result.summary["items"], result.summary["item_failed"], result.summary["outcome"]) == (
        731,
        0,
        "finished",
    )
    assert "consume finished after " in result.stderr
    assert "731 row(s) stored, 0 dead-lettered" in result.stderr
    again = queue.consume("-o", "out.db", "--once").check()
    assert (again.summary["items"], again.summary["outcome"]) == (0, "nothing_to_do")
    assert "consume had nothing to do after " in again.stderr


KILLERS = """
import os
import signal

from netspy.pipelines.sqlite import SqlitePipeline

calls = 0


def die(point, at):
    global calls
    if os.environ.get("DIE") == point:
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)


def clean(row):
    die("read", 250)
    return row


class Store(SqlitePipeline):
    def save_items(self, table, items):
        die("cleaned", 3)
        stored = super().save_items(table, items)
        with open("saved", "a") as file:
            file.write(f"{len(items)}\\n")
        die("stored", 3)
        return stored
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["read", "cleaned", "stored", "before_ack"])
def test_a_consumer_killed_at_any_step_loses_nothing(queue, point):
    queue.write(books(700))
    (queue.folder / "killers.py").write_text(KILLERS)
    command = ["--pipeline", "killers.Store", "--clean", "killers.py:clean", "--once"]
    command += ["-s", "ITEM_BATCH_SIZE=100", "-s", "SQLITE_PATH=out.db"]
    killed = queue.consume(*command, DIE=point, NETSPY_CRASH_AT=f"{point}:3")
    killed.check(-signal.SIGKILL)
    # Lists and streams give full batches; brokers give what has arrived by then.
    saved = [int(line) for line in (queue.folder / "saved").read_text().split()]
    assert sum(queue.stored().values()) == sum(saved)
    assert sum(saved) < 250 if point == "read" else len(saved) == (2 if point == "cleaned" else 3)
    assert max(saved) <= 100
    result = queue.consume(*command).check()
    assert queue.stored() == Counter(range(700))
    # What the killed one had stored and not acknowledged comes again; the key keeps it single.
    assert 700 > result.summary["items"] >= 400 or "kafka" in queue.address


@pytest.mark.slow
def test_sigterm_stores_what_was_read_and_leaves_the_rest(queue):
    queue.write(books(3000, key=False))
    with queue.start("-o", "out.jsonl", "-s", "ITEM_BATCH_SIZE=20", "--table", "x") as running:
        path = queue.folder / "out.books.jsonl"
        assert wait_until(lambda: path.exists() and path.stat().st_size > 1000, 60)
        running.signal(signal.SIGTERM)
        result = running.finish(30)
    result.check(143)
    assert result.summary["outcome"] == "stopped"
    first = [json.loads(line)["n"] for line in path.read_text().splitlines()]
    assert len(first) == result.summary["items"] > 0
    queue.consume("-o", "out.jsonl", "--once", "--table", "x").check()
    everything = Counter(json.loads(line)["n"] for line in path.read_text().splitlines())
    assert set(everything) == set(range(3000))
    if (
        "kafka" not in queue.address
    ):  # Kafka knows but one number per partition: what was settled behind it comes again
        assert max(everything.values()) == 1


def test_progress_says_what_is_stored_and_what_waits(in_list):
    in_list.write(books(50))
    settings = ["-s", "ITEM_BATCH_SIZE=20", "-s", "METRICS_LOG_INTERVAL=0.001"]
    said = in_list.consume("-o", "out.db", "--once", *settings).check().stderr
    for stored, waiting in ((20, 30), (40, 10), (50, 0)):
        assert f"{stored} row(s) stored, 0 dead-lettered, {waiting} waiting" in said


def test_updates_come_after_the_rows_they_change(in_list):
    in_list.write([Row("books", {"n": 1, "title": "old"}, unique_key=("n",))])
    in_list.write([Row("books", {"n": 1, "title": "new"}, update_keys=("n",))])
    in_list.consume("-o", "out.db", "--once").check()
    assert in_list.stored(column="title") == Counter(["new"])


def test_clean_changes_leaves_out_and_refuses_rows(in_list):
    (in_list.folder / "rules.py").write_text(
        "async def clean(row):\n"
        "    if row.data['n'] == 1:\n        return None\n"
        "    if row.data['n'] == 2:\n        raise ValueError('a bad price')\n"
        "    if row.data['n'] == 3:\n        return 7\n"
        "    if row.data['n'] == 4:\n        return row._replace(table='others')\n"
        "    return {**row.data, 'title': 'clean'}\n"
    )
    in_list.write(books(6))
    result = in_list.consume("-o", "out.db", "--once", "--clean", "rules.py:clean").check()
    assert in_list.stored(column="title") == Counter({"clean": 2})
    assert in_list.stored("others") == Counter([4])
    letters = [json.loads(line) for line in (in_list.folder / "failed_items.jsonl").read_text().splitlines()]
    assert [(one["data"]["n"], one["error"]) for one in letters] == [
        (2, "clean(): ValueError: a bad price"),
        (3, "clean(): ItemError: it must return a row, a dict or None, not int"),
    ]
    assert result.summary["user"] == {"dropped_by_clean": 1}
    assert (result.summary["items"], result.summary["item_failed"]) == (3, 2)


def test_a_spider_gives_its_settings_and_its_clean(in_list):
    (in_list.folder / "main.py").write_text(
        "import netspy as mw\n"
        "class Books(mw.AirSpider):\n"
        "    __custom_setting__ = dict(ITEM_PIPELINES=['netspy.pipelines.sqlite.SqlitePipeline'], SQLITE_PATH='own.db')\n"
        "    def start_requests(self):\n        return []\n"
        "    def clean(self, row):\n        return {**row.data, 'title': self.name}\n"
    )
    in_list.write(books(2))
    in_list.consume("--spider", "main.py", "--once").check()
    assert in_list.stored(column="title", name="own.db") == Counter({"Books": 2})


def test_foreign_objects_are_rows_and_what_is_no_row_is_kept_apart(in_list, redis_server):
    client = redis_server.client()
    for text in ('{"n": 5}', "[1, 2]", "{broken", '{"netspy": 9, "table": "t", "data": {}}'):
        client.rpush(in_list.name, text)
    result = in_list.consume("-o", "out.db", "--once", "--table", "books").check()
    assert in_list.stored() == Counter([5])
    assert client.llen(f"{in_list.name}:failed") == 3
    assert result.summary["user"]["unreadable"] >= 2
    client.close()


def test_rows_that_can_be_neither_stored_nor_dead_lettered_are_not_acknowledged(in_list, redis_server):
    in_list.write(books(5))
    (in_list.folder / "failed_items.jsonl").mkdir()
    (in_list.folder / "out.db").mkdir()
    arguments = ["--pipeline", "netspy.pipelines.sqlite.SqlitePipeline", "-s", "SQLITE_PATH=out.db"]
    quick = ["-s", "ITEM_RETRY_TIMES=0", "-s", "ITEM_STORE_PATIENCE=0"]
    with in_list.start(*arguments, *quick) as running:
        running.wait_line("nothing is acknowledged")
        running.signal(signal.SIGINT)
        running.finish(30).check(130)
    (in_list.folder / "out.db").rmdir()
    in_list.consume("-o", "out.db", "--once").check()
    assert in_list.stored() == Counter(range(5))


def test_a_stop_while_the_store_is_away_leaves_the_rows_in_the_queue(in_list):
    in_list.write(books(5))
    (in_list.folder / "away.py").write_text(
        "class Away:\n    def save_items(self, table, items):\n        raise ConnectionError('no store')\n"
    )
    with in_list.start("--pipeline", "away.Away", "-s", "SPIDER_STOP_TIMEOUT=0.3") as running:
        running.wait_line("stores nothing at the moment")
        running.signal(signal.SIGTERM)
        result = running.finish(30).check(143)
    assert "5 row(s) could not be stored in time and stay in the queue" in result.stderr
    assert not (in_list.folder / "failed_items.jsonl").exists()
    assert in_list.consume("-o", "out.db", "--once").check().summary["items"] == 5


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_stop_while_clean_hangs_leaves_the_rows_in_the_queue(in_list, kind):
    in_list.write(books(5))
    wait = "await asyncio.sleep(600)" if kind == "async def" else "threading.Event().wait(600)"
    (in_list.folder / "rules.py").write_text(
        f"import asyncio, sys, threading\n{kind} clean(row):\n    print('cleaning', file=sys.stderr, flush=True)\n    {wait}\n"
    )
    with in_list.start(
        "-o", "out.db", "--clean", "rules.py:clean", "-s", "SPIDER_STOP_TIMEOUT=0.3"
    ) as running:
        running.wait_line("cleaning")
        running.signal(signal.SIGTERM)
        result = running.finish(10).check(143)
    assert "5 row(s) could not be stored in time and stay in the queue" in result.stderr
    assert in_list.consume("-o", "out.db", "--once").check().summary["items"] == 5


def test_the_same_queue_is_not_written_back_into(queue):
    result = queue.consume("--pipeline", queue.path, "--once")
    result.check(3)
    assert "would write the rows back into a queue" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["ftp://host/x"], 3, "is no source of messages; write amqp://"),
        (["redis://:geheim@localhost/0"], 3, "must name one key"),
        (["amqp://u:geheim@localhost/"], 3, "names no queue; add ?queue=NAME"),
        (["kafka://localhost:9092/"], 3, "names no topic"),
        (["kafka://localhost/a b"], 3, "names the topic 'a b'"),
        (["amqp://localhost/?queu=x"], 3, "did you mean queue?"),
        (["kafka://localhost/x?sesion.timeout.ms=5"], 3, "sesion.timeout.ms"),
        (["list:"], 3, "names no key"),
        (["list:k", "--clean", "nothing"], 3, "names no function"),
        (["list:k", "-o", "x.db", "--pipeline", "a.B"], 3, "give one of them"),
        (["amqp://u:geheim@127.0.0.1:1/?queue=x"], 5, "did not answer within 0.3 s"),
        (["kafka://127.0.0.1:1/x"], 5, "did not answer within 0.3 s"),
        (["redis://:geheim@127.0.0.1:1/0?stream=x"], 5, "did not answer within 0.3 s"),
    ],
)
def test_a_wrong_call_is_one_line_and_an_exit_code(arguments, code, text, workdir, capsys):
    assert app.run(["consume", *arguments, "-s", "REDIS_START_TIMEOUT=0.3"]) == code
    said = capsys.readouterr()
    assert text in said.err
    assert said.err.count("\n") == 1, said.err
    assert "geheim" not in said.err
    assert said.out == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_that_answers_nothing_holds_up_no_stop(kind, tmp_path):
    if kind == "rabbitmq" and find_rabbitmq_server() is None:
        missing("no rabbitmq-server on this machine")
    with {"rabbitmq": RabbitServer, "kafka": KafkaMock}.get(kind, RedisServer)() as server:
        found = {
            "rabbit_url": getattr(server, "url", ""),
            "redis_url": getattr(server, "url", ""),
            "kafka": server,
        }
        queue = Queue(kind, SimpleNamespace(getfixturevalue=found.__getitem__), tmp_path)
        queue.write(books(20))
        with queue.start("-o", "out.db", "-s", "SPIDER_STOP_TIMEOUT=2") as running:
            assert wait_until(lambda: len(queue.stored()) == 20, 60)
            server.pause()
            try:
                running.signal(signal.SIGTERM)
                running.finish(10).check(143)
            finally:
                server.resume()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rabbitmq", "kafka"])
def test_a_broker_that_goes_away_while_rows_are_written_and_stored_loses_none(kind, tmp_path):
    if kind == "rabbitmq":
        if find_rabbitmq_server() is None:
            missing("no rabbitmq-server on this machine")
        server = RabbitServer()
    else:
        server = KafkaMock()
    with server:
        urls = {"rabbit_url": getattr(server, "url", ""), "kafka": server}
        queue = Queue(kind, SimpleNamespace(getfixturevalue=urls.__getitem__), tmp_path)
        with queue.start("-o", "out.db", "-s", "ITEM_BATCH_SIZE=50") as running:
            queue.write(books(200))
            assert wait_until(lambda: len(queue.stored()) >= 100, 60)
            server.kill(**({"groups": [queue.name]} if kind == "kafka" else {}))
            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(
                    queue.write, [Row("books", {"n": n}, unique_key=("n",)) for n in range(200, 500)]
                )
                running.wait_line("is away; waiting for it")
                server.start()
                writing.result(60)
            assert wait_until(lambda: len(queue.stored()) == 500, 60)
            running.signal(signal.SIGTERM)
            result = running.finish(30).check(143)
    assert queue.stored() == Counter(range(500))
    assert "is back after" in result.stderr
    assert result.summary["item_failed"] == 0
