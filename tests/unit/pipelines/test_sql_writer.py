"""The batch writer with the SQL pipeline: what the crawl gets told, and what becomes of bad rows and lost servers."""

from __future__ import annotations

import socket
import time

import pytest
from sql_rig import Database

from netspy.messages.row import Row
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.sql import SqlPipeline
from netspy.settings import Settings
from netspy.testing.proxy import FaultProxy

QUICK = {"ITEM_RETRY_BACKOFF": 0.01, "ITEM_RETRY_TIMES": 2, "ITEM_STORE_PATIENCE": 0.0}


class Letters:
    """Dead letters, kept in a list."""

    def __init__(self):
        self.rows = []

    def append(self, rows):
        self.rows += rows


def writer(url, **settings):
    values = Settings(**{**QUICK, **settings})
    letters = Letters()
    events = []
    made = BatchWriter(
        load_pipelines([SqlPipeline(url)], values), values, dead_letter=letters, on_event=events.append
    )
    return made, letters, events


def rows(*numbers, **fields):
    return [Row("t", {"id": n, "n": n, **fields}, unique_key=("id",)) for n in numbers]


@pytest.fixture
def db(any_sql):
    made = Database(any_sql)
    made.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n < 1000))")
    yield made
    made.engine.dispose()


async def test_w19_rows_that_the_database_refuses_cost_only_themselves(db):
    made, letters, _ = writer(db.url)
    batch = rows(*range(40))
    batch[7].data["n"] = None
    batch[23].data["n"] = 5000
    del batch[30].data["n"]
    result = await made.write(batch)
    await made.close()
    assert result.failed_at == (7, 23, 30)
    assert {n for (n,) in db.rows("SELECT id FROM t")} == set(range(40)) - {7, 23, 30}
    assert [letter.row.data["id"] for letter in letters.rows] == [7, 23, 30]
    assert all(letter.row.pipelines == ("netspy.pipelines.sql.SqlPipeline",) for letter in letters.rows)
    assert "INSERT" not in "".join(letter.error for letter in letters.rows)


async def test_sto_05_texts_longer_than_their_column_are_dead_letters_with_the_servers_number(mariadb_url):
    maria = Database(mariadb_url)
    maria.run("CREATE TABLE t (id INT PRIMARY KEY, `desc` TEXT) CHARACTER SET utf8mb4")
    made, letters, _ = writer(mariadb_url)
    texts = {1: "x" * 65535, 2: "x" * 65536, 3: "中" * 21845, 4: "中" * 21846}
    await made.write([Row("t", {"id": n, "desc": text}) for n, text in texts.items()])
    await made.close()
    assert dict(maria.rows("SELECT id, `desc` FROM t")) == {n: texts[n] for n in (1, 3)}
    maria.engine.dispose()
    assert {letter.row.data["id"]: letter.row.data["desc"] for letter in letters.rows} == {
        n: texts[n] for n in (2, 4)
    }
    assert all("1406" in letter.error for letter in letters.rows)


async def test_w8_a_server_that_is_not_there_at_the_start_ends_in_dead_letters_soon():
    for scheme in ("mysql", "postgresql"):
        with socket.socket() as taken:  # bound, so that nobody else gets the port, and listening to nobody
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            made, letters, events = writer(f"{scheme}://me:hidden-word@127.0.0.1:{port}/shop")
            begun = time.monotonic()
            result = await made.write(rows(1, 2, 3))
            await made.close()
        assert (result.stored, result.failed, len(letters.rows)) == (0, 3, 3)
        assert time.monotonic() - begun < 20
        assert {event.kind for event in events} >= {"retry", "down", "dead_letter"}
        assert "hidden-word" not in f"{events}{letters.rows}"


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
async def test_a_connection_that_is_cut_between_batches_or_at_the_commit_doubles_nothing(request, server):
    running = request.getfixturevalue(server)
    url = running.create_database()
    db = Database(url)
    db.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    name = url.rpartition("/")[2]
    with FaultProxy(running.host, running.port) as proxy:
        made, letters, events = writer(running.url(name, port=proxy.port))
        await made.write(rows(1, 2))
        proxy.reset()
        await made.write(rows(3, 4))
        proxy.drop_next_reply(b"COMMIT")
        result = await made.write(rows(5, 6))
        await made.close()
    assert (proxy.dropped, result.stored, letters.rows) == (1, 2, [])
    assert any(event.kind == "retry" for event in events)
    assert sorted(db.rows("SELECT id FROM t")) == [(n,) for n in range(1, 7)]
    db.engine.dispose()
    running.drop_database(name)


async def test_an_outage_is_waited_for_and_the_rows_arrive(own_mariadb):
    url = own_mariadb.create_database()
    db = Database(url)
    db.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    db.engine.dispose()
    own_mariadb.kill()

    async def sleep(_seconds):
        """The server is back by the end of the first pause."""
        if not own_mariadb.alive:
            own_mariadb.start()

    values = Settings(
        **{**QUICK, "ITEM_STORE_PATIENCE": 60.0, "ITEM_RETRY_TIMES": 0, "ITEM_RETRY_BACKOFF": 0.5}
    )
    letters = Letters()
    made = BatchWriter(load_pipelines([SqlPipeline(url)], values), values, dead_letter=letters, sleep=sleep)
    result = await made.write(rows(1, 2))
    await made.close()
    assert (result.stored, letters.rows) == (2, [])
    assert db.rows("SELECT count(*) FROM t") == [(2,)]
    db.engine.dispose()
