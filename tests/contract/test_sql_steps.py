"""Transactions on a task table's database while it is away, silent or locked: what is said, what is waited for."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, suppress
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from netspy.core.batch_store import DONE, SqlBatchStore
from netspy.sqlio.engine import make_engine
from netspy.sqlio.errors import transient
from netspy.tasks.sql.steps import SqlSteps
from netspy.testing.children import wait_until
from netspy.testing.proxy import FaultProxy


def one(connection):
    return connection.exec_driver_sql("SELECT 1", ()).scalar()


def test_a_file_locked_by_somebody_who_froze_is_waited_for_and_that_is_said(tmp_path, monkeypatch):
    """No process can write into an SQLite file while another one is in the middle of it."""
    monkeypatch.setattr("netspy.tasks.sql.steps._FILE_LOCK_S", 0.2)
    monkeypatch.setattr("netspy.tasks.sql.steps._TOLD_AFTER_S", 0.1)
    path, said, results = tmp_path / "t.db", [], []
    steps = SqlSteps(f"sqlite:///{path}", pool_size=2, patience=60.0, tell=said.append)
    assert steps.run(one) == 1
    with closing(sqlite3.connect(path, isolation_level=None)) as frozen:
        frozen.execute("BEGIN IMMEDIATE")
        others = [threading.Thread(target=lambda: results.append(steps.run(one))) for _ in range(2)]
        for other in others:
            other.start()
        assert wait_until(lambda: bool(said), 20)
        assert results == []
    for other in others:
        other.join(20)
    assert results == [1, 1]
    assert "can't be used now, it is tried again: database is locked" in said[0]
    assert said[-1] == f"sqlite:///{path} can be used again"
    steps.close()


def test_after_a_close_trouble_is_waited_for_as_before(mariadb_url):
    """A spider object may be run again: its store was closed at the end of the first run."""
    url = make_url(mariadb_url)
    with FaultProxy(url.host, url.port) as proxy:
        steps = SqlSteps(
            url.set(port=proxy.port).render_as_string(hide_password=False), pool_size=1, patience=20.0
        )
        assert steps.run(one) == 1
        steps.close()
        proxy.cut()
        timer = threading.Timer(0.3, proxy.resume)
        timer.start()
        assert steps.run(one) == 1
        timer.join()
        steps.close()


@pytest.mark.parametrize("server", ["mariadb_url", "postgres_url"])
def test_a_server_that_takes_connections_and_greets_nobody_is_away(server, request):
    url = make_url(request.getfixturevalue(server))
    with FaultProxy(url.host, url.port) as proxy:
        proxy.stall()
        through = url.set(port=proxy.port).render_as_string(hide_password=False)
        engine = make_engine(through, connect_timeout=2.0, read_timeout=600.0)
        with pytest.raises(DBAPIError) as silent:
            engine.connect()
        assert transient(silent.value)
        engine.dispose()


def test_an_answer_may_take_longer_than_a_greeting(mariadb_url):
    engine = make_engine(mariadb_url, connect_timeout=0.5, read_timeout=20.0)
    connections = []

    def greeted() -> bool:
        with suppress(DBAPIError):  # on a busy machine a greeting may take that long
            connections.append(engine.connect())
        return bool(connections)

    assert wait_until(greeted, 30)
    with connections[0] as connection:
        assert connection.exec_driver_sql("SELECT SLEEP(1.2)", ()).scalar() == 0
    engine.dispose()


@pytest.mark.parametrize(
    ("kind", "stored", "task_id"),
    [
        ("DECIMAL(9,2)", 10.5, Decimal("10.5")),
        ("DECIMAL(9,2)", -3, Decimal(-3)),
        ("DATETIME", "2026-02-28 12:00:00", datetime(2026, 2, 28, 12)),
        ("DATE", "2026-02-28", date(2026, 2, 28)),
        ("TEXT", "123e4567-e89b-12d3-a456-426614174000", UUID("123e4567-e89b-12d3-a456-426614174000")),
    ],
)
def test_what_a_row_of_a_file_shows_as_its_key_marks_that_row(tmp_path, kind, stored, task_id):
    """SQLite keeps texts and numbers only; the declared type makes more of them."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            f"CREATE TABLE crawl_task (id {kind} PRIMARY KEY, batch_status INTEGER DEFAULT 0, update_time DATETIME)"
        )
        db.execute("INSERT INTO crawl_task (id) VALUES (?)", (stored,))
    store = SqlBatchStore("crawl_task", f"sqlite:///{path}")
    store.ensure_schema()
    [row] = store.claim_tasks(5)
    assert row["id"] == task_id if kind != "TEXT" else row["id"] == str(task_id)
    assert store.touch_tasks([task_id]) == 1
    assert store.mark_tasks([(task_id, DONE)]) == [True]
    assert store.count_tasks().done == 1
    store.close()
