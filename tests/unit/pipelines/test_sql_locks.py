"""A table that somebody holds locked: the rows wait for it as for a store that is away; none is dead-lettered. Writers
of the same rows get into no deadlock.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest
from sql_rig import Database, pipeline

from netspy.messages.row import Row
from netspy.pipelines import sql
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings

LOCKS = {
    "mysql": "SELECT * FROM t WHERE id = 1 FOR UPDATE",
    "postgresql": "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
    "sqlite": "SELECT 1",  # each transaction of ours has the whole file
}


class NoLetters:
    def append(self, rows):
        raise AssertionError(rows)


@pytest.fixture
def db(any_sql, monkeypatch):
    monkeypatch.setattr(sql, "make_engine", partial(sql.make_engine, lock_timeout=0.1))
    made = Database(any_sql)
    made.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)", "INSERT INTO t VALUES (1, 0)")
    yield made
    made.engine.dispose()


async def test_a_locked_table_is_waited_for(db):
    held = ExitStack()
    holder = held.enter_context(db.engine.begin())
    holder.exec_driver_sql(LOCKS[db.dialect.kind], ())
    waiting = []

    async def sleep(_seconds):
        """The lock goes in the first pause of the wait."""
        waiting.append(next(iter(made.waited_for), None))
        held.close()

    values = Settings(ITEM_RETRY_TIMES=0, ITEM_STORE_PATIENCE=60.0)
    made = BatchWriter(
        load_pipelines([sql.SqlPipeline(db.url)], values), values, dead_letter=NoLetters(), sleep=sleep
    )
    with held:
        result = await made.write([Row("t", {"id": n, "n": n}, unique_key=("id",)) for n in (1, 2, 3)])
    await made.close()
    assert (result.stored, waiting) == (3, ["SqlPipeline"])
    assert sorted(db.rows("SELECT * FROM t")) == [(1, 1), (2, 2), (3, 3)]


WRITERS, BATCHES, ROWS = 3, 8, 150


def upserting(url, number):
    """Batches of rows in an order of their own, over a connection of its own. The number of those that failed."""
    values = Settings()
    [made] = load_pipelines([sql.SqlPipeline(url)], values)
    made.open()
    made.describe("t", ("id",))
    shuffled = random.Random(number)
    failed = 0
    for batch in range(BATCHES):
        ids = shuffled.sample(range(ROWS), ROWS)
        try:
            made.save_items("t", [{"id": one, "n": batch} for one in ids])
            made.update_items("t", [{"id": one, "n": batch} for one in ids[: ROWS // 5]], ["id"])
        except sql.SqlTroubleError:
            failed += 1
    made.close()
    return failed


@pytest.mark.parametrize("server", ["mariadb_url", "postgres_url"])
def test_writers_of_the_same_rows_get_into_no_deadlock(server, request):
    url = request.getfixturevalue(server)
    made = Database(url)
    made.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
    with pipeline(url, key=["id"]) as first:
        first.save_items("t", [{"id": one} for one in range(ROWS)])
    with ThreadPoolExecutor(WRITERS) as pool:
        assert list(pool.map(upserting, [url] * WRITERS, range(WRITERS))) == [0] * WRITERS
    assert made.rows("SELECT count(*) FROM t") == [(ROWS,)]
    made.engine.dispose()


def test_a_table_that_counts_its_rows_counts_them_as_they_came(any_sql):
    made = Database(any_sql)
    counter = {
        "mysql": "INT AUTO_INCREMENT PRIMARY KEY",
        "postgresql": "SERIAL PRIMARY KEY",
        "sqlite": "INTEGER PRIMARY KEY",
    }
    made.run(f"CREATE TABLE t (n {counter[made.dialect.kind]}, id INTEGER UNIQUE)")
    with pipeline(any_sql, key=["id"]) as writes:
        writes.save_items("t", [{"id": one} for one in (3, 1, 2)])
    assert made.rows("SELECT id FROM t ORDER BY n") == [(3,), (1,), (2,)]
    made.engine.dispose()
