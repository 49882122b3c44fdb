"""A table that somebody holds locked: the rows wait for it as for a store that is away; none is dead-lettered."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import pytest
from sql_rig import Database

from netspy.messages.row import Row
from netspy.pipelines import sql
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.writer import BatchWriter
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
        waiting.append(made.waiting)
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
