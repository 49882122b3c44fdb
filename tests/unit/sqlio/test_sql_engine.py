"""What a session is like on each server, and what its errors are taken for."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from netspy.errors import ItemError
from netspy.sqlio import errors as sql_errors
from netspy.sqlio.dialects import Dialect, dialect_of
from netspy.sqlio.engine import make_engine
from netspy.testing.proxy import FaultProxy

SECRET = "s3c:r/e@t"


@contextmanager
def connected(url, **options):
    engine = make_engine(url, **options)
    try:
        yield engine
    finally:
        engine.dispose()


def execute(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def failure(engine, *statements):
    with pytest.raises(Exception) as caught:
        execute(engine, *statements)
    return caught.value


def test_importing_netspy_and_the_sql_rooms_loads_no_driver():
    code = (
        "import sys, netspy, netspy.sqlio.engine, netspy.sqlio.dialects, netspy.sqlio.errors;"
        "print([m for m in ('sqlalchemy', 'pymysql', 'psycopg') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_the_server_s_clock_is_read_in_utc(any_sql):
    with connected(any_sql) as engine, engine.begin() as connection:
        dialect = dialect_of(connection)
        assert dialect.version
        now, epoch = connection.exec_driver_sql(f"SELECT {dialect.now}, {dialect.epoch}").one()
        assert abs(epoch - time.time()) < 60
        assert str(now)[:13] == datetime.fromtimestamp(epoch, UTC).isoformat(" ")[:13]


def test_a_name_can_hold_anything_and_injects_nothing(any_sql):
    odd = ["order", "a b", "x-y", "100%", "%s", "%(a)s", "q`t", 'q"t', "a.b", "中", "); DROP TABLE t; --"]
    with connected(any_sql) as engine, engine.begin() as connection:
        dialect = dialect_of(connection)
        table = dialect.quote('t`; "%s')
        columns = ", ".join(f"{dialect.quote(name)} INTEGER" for name in odd)
        connection.exec_driver_sql(f"CREATE TABLE {table} ({columns})", ())
        connection.exec_driver_sql(dialect.insert(table, odd), tuple(range(len(odd))))
        row = connection.exec_driver_sql(f"SELECT * FROM {table}", ()).mappings().one()
        assert dict(row) == dict(zip(odd, range(len(odd)), strict=True))


@pytest.mark.parametrize(
    ("kind", "name"), [("postgresql", "ä" * 32), ("mysql", "x" * 65), ("sqlite", ""), ("mysql", "a\0")]
)
def test_a_name_that_the_server_would_cut_or_refuse_is_refused_here(kind, name):
    with pytest.raises(ItemError):
        Dialect(kind).quote(name)


def test_an_update_counts_the_rows_found_not_those_changed(any_sql):
    with connected(any_sql) as engine, engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
        connection.exec_driver_sql("INSERT INTO t VALUES (1, 5)")
        assert connection.exec_driver_sql("UPDATE t SET n = 5 WHERE id = 1").rowcount == 1
        assert connection.exec_driver_sql("UPDATE t SET n = 5 WHERE id = 2").rowcount == 0


def test_a_duplicate_and_a_missing_table_are_told_from_passing_trouble(any_sql):
    with connected(any_sql) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
        twice = failure(engine, "INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (1, 1)")
        null = failure(engine, "INSERT INTO t VALUES (1, NULL)")
        for error in (twice, null):
            assert sql_errors.data_error(error)
            assert not sql_errors.transient(error)
        for error in (
            failure(engine, "SELECT * FROM nowhere"),
            failure(engine, "INSERT INTO t (zz) VALUES (1)"),
        ):
            assert sql_errors.schema_error(error)
            assert not sql_errors.transient(error)
            assert not sql_errors.data_error(error)


@pytest.mark.parametrize("server", ["mariadb_url", "postgres_url"])
def test_a_value_that_does_not_fit_is_refused_not_cut(server, request):
    with connected(request.getfixturevalue(server)) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (s VARCHAR(3), n SMALLINT)")
        for values in ("'abcd', 1", "'a', 99999"):
            error = failure(engine, f"INSERT INTO t VALUES ({values})")
            assert sql_errors.data_error(error)
            assert not sql_errors.transient(error)


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_a_lost_connection_a_dead_server_and_a_killed_session_pass(server, request):
    running = request.getfixturevalue(server)
    with FaultProxy(running.host, running.port) as proxy, connected(running.url(port=proxy.port)) as engine:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
            proxy.cut()
            with pytest.raises(Exception) as caught:
                connection.exec_driver_sql("SELECT 1")
        assert sql_errors.transient(caught.value)
        with pytest.raises(Exception) as caught, engine.connect():
            pass
        assert sql_errors.transient(caught.value)
        assert not sql_errors.setup_error(caught.value)
        assert SECRET not in sql_errors.one_line(caught.value)
        proxy.resume()
        with engine.begin() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_a_wrong_password_and_a_missing_database_want_a_person(server, request):
    running = request.getfixturevalue(server)
    scheme = running.scheme
    for url in (f"{scheme}://netspy:wrong-one@127.0.0.1:{running.port}/netspy", running.url("nowhere")):
        with connected(url) as engine:
            with pytest.raises(Exception) as caught:
                engine.connect()
            assert sql_errors.setup_error(caught.value), caught.value
            assert not sql_errors.transient(caught.value)
            assert "wrong-one" not in sql_errors.one_line(caught.value)


@pytest.mark.parametrize("server", ["mariadb_url", "postgres_url"])
def test_a_deadlock_and_a_lock_that_is_held_too_long_pass(server, request):
    url = request.getfixturevalue(server)
    change = "UPDATE t SET n = n + 1 WHERE id = {}"
    with connected(url, lock_timeout=1.0) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
            connection.exec_driver_sql("INSERT INTO t VALUES (1, 0), (2, 0)")
        with engine.begin() as holder:
            holder.exec_driver_sql(change.format(1))
            waited = failure(engine, change.format(1))
        assert sql_errors.transient(waited)
        assert (sql_errors.locked(waited), sql_errors.lost_race(waited)) == (True, False)
    with connected(url, lock_timeout=60.0) as engine:  # nobody gives up before the deadlock is found
        with ThreadPoolExecutor(1) as thread, engine.connect() as one, engine.connect() as two:
            one.exec_driver_sql(change.format(1))
            two.exec_driver_sql(change.format(2))
            crossing = thread.submit(one.exec_driver_sql, change.format(2))
            errors = []
            try:
                two.exec_driver_sql(change.format(1))
            except Exception as error:
                errors.append(error)
            two.rollback()
            if (error := crossing.exception()) is not None:
                errors.append(error)
        assert errors
        assert all(sql_errors.transient(error) and sql_errors.lost_race(error) for error in errors)


def test_a_read_only_server_passes_since_a_fail_over_ends(mariadb, mariadb_url, postgres_url):
    with connected(postgres_url) as engine:
        error = failure(engine, "SET TRANSACTION READ ONLY", "CREATE TABLE t (id INTEGER)")
        assert sql_errors.transient(error)
        assert not sql_errors.data_error(error)
    with connected(mariadb_url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (id INTEGER)")
        error = failure(engine, "COMMIT", "START TRANSACTION READ ONLY", "INSERT INTO t VALUES (1)")
        assert sql_errors.transient(error)


def test_a_locked_sqlite_file_passes_and_another_thread_may_use_a_connection(sqlite_url):
    with connected(sqlite_url, lock_timeout=0.05) as engine:
        with engine.begin() as holder:
            holder.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY)")
            error = failure(engine, "SELECT 1")
            assert sql_errors.transient(error)
            with ThreadPoolExecutor(1) as thread:
                thread.submit(holder.exec_driver_sql, "INSERT INTO t VALUES (1)").result()
        with engine.connect() as reader:
            assert reader.exec_driver_sql("SELECT count(*) FROM t").scalar() == 1


def test_an_error_line_shows_neither_the_row_nor_the_statement(any_sql):
    with connected(any_sql) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, s VARCHAR(9))"
            )
            mark = dialect_of(connection).mark
        with pytest.raises(Exception) as caught, engine.begin() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO t VALUES ({mark}, {mark}, {mark})", (77777, None, "private")
            )
        line = sql_errors.one_line(caught.value)
        assert "n" in line
        assert "INSERT" not in line
        assert "private" not in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("action", "kept"), [("update", (1, 20)), ("nothing", (1, 10)), ("error", (1, 10))], ids=lambda v: str(v)
)
def test_upsert_does_what_was_asked_for(any_sql, action, kept):
    with connected(any_sql) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
            dialect = dialect_of(connection)
        sql = dialect.insert("t", ["id", "n"]) + dialect.on_conflict(["id", "n"], ["id"], action)
        with engine.begin() as connection:
            connection.exec_driver_sql(sql, (1, 10))
        if action == "error":
            with pytest.raises(Exception) as caught, engine.begin() as connection:
                connection.exec_driver_sql(sql, (1, 20))
            assert sql_errors.data_error(caught.value)
        else:
            with engine.begin() as connection:
                connection.exec_driver_sql(sql, (1, 20))
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT * FROM t").all() == [kept]


def test_a_locked_row_is_skipped(mariadb_url, postgres_url):
    for url in (mariadb_url, postgres_url):
        with connected(url) as engine:
            with engine.begin() as connection:
                connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY)")
                connection.exec_driver_sql("INSERT INTO t VALUES (1), (2)")
            with engine.begin() as one, engine.begin() as two:
                sql = f"SELECT id FROM t ORDER BY id LIMIT 1{dialect_of(one).skip_locked}"
                assert (one.exec_driver_sql(sql).scalar(), two.exec_driver_sql(sql).scalar()) == (1, 2)


def test_errors_of_sqlite_are_known_by_their_code():
    db = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.Error) as caught:
        db.execute("SELECT * FROM nowhere")
    assert sql_errors.schema_error(caught.value)
    assert "nowhere" in sql_errors.one_line(caught.value)
    db.close()


def test_psycopg_says_nothing_of_an_error_that_it_raises(postgres_url, caplog):
    with connected(postgres_url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        for _ in range(10):  # it warns when the error comes while rows are still being sent
            with pytest.raises(Exception, match="duplicate key"), engine.begin() as connection:
                connection.exec_driver_sql("INSERT INTO t VALUES (%s)", [(1,)] * 2000)
    assert not caplog.records
