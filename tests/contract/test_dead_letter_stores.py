"""Where dead letters are kept: a file, a SQLite file, a list in Redis. One suite for all."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from frontier_rig import Clock, Rig

from netspy.errors import ConfigError, ItemError, PipelineError
from netspy.messages.row import DeadRow, Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters import redis as letters_redis
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.dead_letters.redis import RedisLetters
from netspy.pipelines.dead_letters.replay import Again, Wanted, replay
from netspy.pipelines.dead_letters.shared import SharedLetters, open_store
from netspy.pipelines.dead_letters.sqlite import SqliteLetters
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
from netspy.testing.children import wait_until

JOB = "netspy:Shop"


@pytest.fixture(params=["file", "sqlite", "redis", "redis62"])
def make(request, tmp_path):
    """Makes stores that share what they keep, as processes do."""
    made = []

    def store():
        if request.param == "file":
            return DeadLetterFile(tmp_path / "failed_items.jsonl")
        if request.param == "sqlite":
            return SqliteLetters(tmp_path / "some" / "failed.db")
        url = request.getfixturevalue(f"{request.param}_url")
        made.append(RedisLetters(Settings(REDIS_URL=url), JOB))
        return made[-1]

    yield store
    for one in made:
        one.close()


@pytest.fixture
def store(make):
    return make()


@pytest.fixture
def settings(tmp_path):
    return Settings(SQLITE_PATH=str(tmp_path / "items.db"), ITEM_RETRY_TIMES=0, ITEM_STORE_DOWN="spill")


class Memory(BasePipeline):
    def __init__(self, refuse=()):
        self.kept = []
        self.refuse = set(refuse)

    def save_items(self, table, items):
        if any(item["id"] in self.refuse for item in items):
            raise ItemError("refused")
        self.kept += [item["id"] for item in items]


def letters(*ids, table="t", time=5.0, **more):
    return [DeadRow(Row(table, {"id": i}, **more), "away", time) for i in ids]


def ids(store):
    return [dead.row.data["id"] for dead in store.read()]


def again(store, settings, *pipelines, **more):
    async def run():
        back = Again()
        writer = BatchWriter(load_pipelines(pipelines, settings), settings, dead_letter=back)
        try:
            return await replay(store, writer, again=back, **more)
        finally:
            await writer.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_letters_come_back_as_they_went_in_and_in_their_order(make):
    first, second = make(), make()
    full = DeadRow(
        Row("t", {"id": 1, "at": b"\x00", "text": "Größe 书 \ud800"}, ("a.B",), ("id",), ("id", "at")),
        "no",
        7.5,
        "shop.Book",
    )
    first.append([full])
    second.append(letters(2, 3))
    assert list(first.read()) == [full, *letters(2, 3)]


def test_nothing_there_is_nothing_to_do(store, settings):
    assert list(store.read()) == []
    assert again(store, settings, Memory()) == (0, 0, 0, 0)


def test_survivors_stay_successes_leave(store, settings):
    store.append(letters(*range(10)))
    memory = Memory(refuse={3, 4})
    seen = []
    done = again(store, settings, memory, batch_size=4, progress=lambda at, total: seen.append((at, total)))
    assert done == (8, 2, 0, 0)
    assert sorted(memory.kept) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert [(d.row.data["id"], d.error) for d in store.read()] == [
        (3, "ItemError: refused"),
        (4, "ItemError: refused"),
    ]
    assert seen == [(4, 10), (8, 10), (10, 10)]
    memory.refuse.clear()
    assert again(store, settings, memory) == (2, 0, 0, 0)
    assert ids(store) == []


def test_equal_letters_are_each_written(store, settings):
    store.append(letters(1, 1, 1))
    memory = Memory()
    assert again(store, settings, memory).stored == 3
    assert memory.kept == [1, 1, 1]
    assert ids(store) == []


def test_what_is_not_wanted_stays(store, settings):
    store.append(letters(1, table="a") + letters(2, table="b") + letters(3, table="a", time=500.0))
    memory = Memory()
    assert again(store, settings, memory, wanted=Wanted(table="a", since=100.0)) == (1, 0, 2, 0)
    assert memory.kept == [3]
    assert sorted(ids(store)) == [1, 2]
    assert again(store, settings, memory, wanted=Wanted(pipeline="Nobody")) == (0, 0, 2, 0)
    assert sorted(ids(store)) == [1, 2]


def test_letters_that_come_while_a_replay_runs_wait_for_the_next(make, settings):
    store, other = make(), make()
    store.append(letters(1, 2))

    class Busy(Memory):
        def save_items(self, table, items):
            other.append(letters(100))
            super().save_items(table, items)

    memory = Busy()
    assert again(store, settings, memory).stored == 2
    assert memory.kept == [1, 2]
    assert ids(store) == [100]


def test_a_stopped_replay_has_its_rest_left(store, settings):
    store.append(letters(*range(6)))
    memory = Memory()
    assert again(store, settings, memory, batch_size=2, stopped=lambda: len(memory.kept) >= 4) == (4, 0, 0, 2)
    assert ids(store) == [4, 5]
    assert again(store, settings, memory).stored == 2
    assert sorted(memory.kept) == list(range(6))


def test_two_replays_at_once_are_refused(make, settings, monkeypatch):
    now = count(0.0, 0.25)  # whoever waits for the lock asks, and asks again, in no time
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _s: None)
    monkeypatch.setattr(letters_redis, "time", clock)
    monkeypatch.setattr(letters_redis, "_LOCK_S", 6.0)
    store, other = make(), make()
    store.append(letters(1))

    class Nested(Memory):
        def save_items(self, table, items):
            if isinstance(store, RedisLetters):  # its lock would run out, and is kept alive
                store._client.pexpire(store._lock, 5000)
                assert wait_until(lambda: store._client.pttl(store._lock) > 5000, 30)
            with pytest.raises(PipelineError, match="being replayed by another process"), other.claim():
                raise AssertionError
            super().save_items(table, items)

    memory = Nested()
    assert again(store, settings, memory).stored == 1
    assert memory.kept == [1]


def test_a_refused_item_is_made_and_checked_again(store, settings):
    store.append([DeadRow(Row("book", {"id": "1"}), "wrong", 5.0, "shop.Book"), *letters(2)])
    memory = Memory()
    found = []

    def lost(path):
        found.append(path)
        raise ItemError(f"{path} can't be imported here")

    assert again(store, settings, memory, find_class=lost) == (1, 1, 0, 0)
    assert found == ["shop.Book"]
    [dead] = store.read()
    assert (dead.error, dead.item) == ("shop.Book can't be imported here", "shop.Book")


KILLED = """
import asyncio, os, signal, sys
sys.path[:0] = [sys.argv[1]]
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.dead_letters.redis import RedisLetters
from netspy.pipelines.dead_letters.sqlite import SqliteLetters
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.dead_letters.replay import Again, replay
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.settings import Settings

kind, where, when, database = sys.argv[1:]
settings = Settings(SQLITE_PATH=database, **({"REDIS_URL": where} if kind == "redis" else {}))
store = (
    RedisLetters(settings, "netspy:Shop") if kind == "redis" else (SqliteLetters if kind == "sqlite" else DeadLetterFile)(where)
)
again = Again()
writer = BatchWriter(load_pipelines(["netspy.pipelines.sqlite.SqlitePipeline"], settings), settings, dead_letter=again)

class Killer:
    calls = 0
    async def write(self, batch):
        Killer.calls += 1
        if Killer.calls == 3 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await writer.write(batch)
        if Killer.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

asyncio.run(replay(store, Killer(), again=again, batch_size=10))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replay_killed_in_the_middle_loses_nothing_and_keyed_rows_stand_once(
    store, settings, when, monkeypatch
):
    monkeypatch.setattr(letters_redis, "_LOCK_PAUSE_S", 0.02)
    store.append(letters(*range(60), unique_key=("id",)))
    kind = type(store).__name__.removesuffix("Letters").lower()
    where = str(store.path) if hasattr(store, "path") else _url_of(store)
    kind = kind if kind in {"sqlite", "redis"} else "file"
    argv = [sys.executable, "-c", KILLED, kind, where, when, settings.SQLITE_PATH]
    env = {key: value for key, value in os.environ.items() if not key.startswith("NETSPY_")}
    assert subprocess.run(argv, timeout=60, check=False, env=env).returncode == -signal.SIGKILL
    assert ids(store) == list(range(20, 60))
    if kind == "redis":
        store._client.pexpire(store._lock, 50)  # the dead replay's lock, which runs out by itself in 15 s
    done = again(store, settings, "netspy.pipelines.sqlite.SqlitePipeline", batch_size=10)
    assert done == (40, 0, 0, 0)
    with closing(sqlite3.connect(settings.SQLITE_PATH)) as db:
        assert [i for (i,) in db.execute("SELECT id FROM t ORDER BY id")] == list(range(60))
    assert ids(store) == []


def _url_of(store):
    options = store._client.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/{options.get('db', 0)}"


def test_many_processes_may_append_at_once(make):
    def append(who, mine):
        for n in range(20):
            mine.append(letters(who * 100 + n))

    threads = [threading.Thread(target=append, args=(who, make())) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids(make())) == [who * 100 + n for who in range(4) for n in range(20)]


# -- the shared store with the file behind it --------------------------------------------------------------------


class Flaky:
    name = "the store"

    def __init__(self):
        self.down = True
        self.kept = []

    def append(self, rows):
        if self.down:
            raise ConnectionError("refused")
        self.kept += rows


def test_while_the_store_is_away_letters_go_to_the_file_and_it_is_said_once(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("netspy.pipelines.dead_letters.shared.time.monotonic", lambda: now[0])
    store, file, said = Flaky(), DeadLetterFile(tmp_path / "failed_items.jsonl"), []
    shared = SharedLetters(store, file, said.append)
    for n in range(3):
        shared.append(letters(n))
    now[0] = 20.0
    shared.append(letters(3))
    assert ids(file) == [0, 1, 2, 3]
    assert len(said) == 1
    assert "the store takes no dead letters (ConnectionError: refused)" in said[0]
    store.down, now[0] = False, 40.0
    shared.append(letters(4))
    assert [dead.row.data["id"] for dead in store.kept] == [4]
    assert ids(file) == [0, 1, 2, 3]


def test_a_redis_without_memory_leaves_letters_to_the_file(redis_server, tmp_path):
    redis_server.flush()
    settings = Settings(REDIS_URL=redis_server.url)
    store = RedisLetters(settings, JOB)
    file = DeadLetterFile(tmp_path / "failed_items.jsonl")
    shared = SharedLetters(store, file, lambda _: None)
    store._client.config_set("maxmemory", "1")
    try:
        shared.append(letters(1, 2))
    finally:
        store._client.config_set("maxmemory", "0")
    assert ids(file) == [1, 2]
    assert ids(store) == []
    store.close()


@pytest.mark.parametrize("url", ["ftp://x", "sqlite://x.db", "failed.db", "sqlite:///"])
def test_a_url_that_names_no_store_is_refused(url):
    with pytest.raises(ConfigError, match="none that netspy knows"):
        open_store(Settings(FAILED_ITEM_URL=url), JOB)


def test_urls_name_their_store(tmp_path, redis_url):
    assert open_store(Settings(), JOB) is None
    relative = open_store(Settings(FAILED_ITEM_URL="sqlite:///x/y.db"), JOB)
    absolute = open_store(Settings(FAILED_ITEM_URL=f"sqlite:///{tmp_path}/y.db"), JOB)
    assert (relative.path, absolute.path) == (Path("x/y.db"), tmp_path / "y.db")
    own = open_store(Settings(FAILED_ITEM_URL="redis", REDIS_URL="redis://:secret@127.0.0.1:1/0"), JOB)
    assert own.name == "netspy:Shop:failed_items in redis://:***@127.0.0.1:1/0"
    other = open_store(Settings(FAILED_ITEM_URL=redis_url), JOB)
    other.append(letters(1))
    assert ids(other) == [1]
    for one in (own, other):
        one.close()
    with pytest.raises(ConfigError, match="outlives the run"):
        open_store(Settings(FAILED_ITEM_URL="redis", REDIS_URL="embedded"), JOB)


async def test_a_reset_leaves_the_letters_of_the_job(redis_url):
    from netspy.cluster.reset import reset

    rig = Rig("redis", Clock(), redis_url)
    node = await rig.node()
    store = RedisLetters(rig.settings(), node.scope.job)
    store.append(letters(1))
    reset(store._client, node.scope, rig.settings(), force=True)
    assert ids(store) == [1]
    store.close()
    await rig.close()
