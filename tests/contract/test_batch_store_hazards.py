"""What goes wrong with task tables: column types, names, set-ups, large tables, dead and frozen processes."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pymysql
import pytest
from loguru import logger
from task_tables import fill, kind_of, run_sql

from netspy.core.batch_store import (
    DONE,
    FAILED,
    MemoryBatchStore,
    MysqlBatchStore,
    SqlBatchStore,
    TaskCounts,
)
from netspy.errors import ConfigError
from netspy.messages import codec
from netspy.tasks.batch_store import BatchStore
from support.batch_tables import CREATE
from support.missing import missing
from support.sql_servers import MariaDbServer, find_mariadb

# Column types

TYPED = {
    "mysql": (
        """CREATE TABLE crawl_task (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, url VARCHAR(100), price DECIMAL(10,2),
           ts DATETIME(6), d DATE, raw BLOB, note TEXT, js JSON, t TIME, emoji VARCHAR(20), f DOUBLE, flag BIT(1),
           batch_status TINYINT NOT NULL DEFAULT 0, update_time TIMESTAMP NULL) CHARACTER SET utf8mb4""",
        """INSERT INTO crawl_task VALUES (18446744073709551615, '/p', 10.50, '2026-02-28 12:00:00.123456', '2026-02-28',
           x'00ff', NULL, '{"a": 1}', '13:14:15', '🕷𠮷', 0.1, b'1', 0, NULL)""",
        18446744073709551615,
        {"js": '{"a": 1}', "t": timedelta(hours=13, minutes=14, seconds=15), "flag": b"\x01"},
    ),
    "postgresql": (
        """CREATE TABLE crawl_task (id NUMERIC(20) NOT NULL PRIMARY KEY, url TEXT, price NUMERIC(10,2), ts TIMESTAMP,
           d DATE, raw BYTEA, note TEXT, js JSONB, host INET, span INT4RANGE, words TEXT[], emoji TEXT, f FLOAT8, u UUID,
           tz TIMESTAMPTZ, batch_status SMALLINT NOT NULL DEFAULT 0, update_time TIMESTAMP)""",
        """INSERT INTO crawl_task VALUES (18446744073709551615, '/p', 10.50, '2026-02-28 12:00:00.123456', '2026-02-28',
           '\\x00ff', NULL, '{"a": 1}', '10.0.0.1', '[1,5)', '{a,b}', '🕷𠮷', 0.1,
           '6ba7b810-9dad-11d1-80b4-00c04fd430c8', '2026-02-28 12:00:00+02', 0, NULL)""",
        Decimal(18446744073709551615),
        {
            "js": {"a": 1}, "host": "10.0.0.1", "span": "[1, 5)", "words": ["a", "b"],
            "tz": datetime(2026, 2, 28, 10, tzinfo=UTC),
        },
    ),
    "sqlite": (
        """CREATE TABLE crawl_task (id INTEGER PRIMARY KEY, url TEXT, price DECIMAL(10,2), ts DATETIME, d DATE, raw BLOB,
           note TEXT, js JSON, emoji TEXT, f DOUBLE, odd DATETIME, batch_status INTEGER NOT NULL DEFAULT 0,
           update_time TIMESTAMP)""",
        """INSERT INTO crawl_task VALUES (9223372036854775807, '/p', 10.50, '2026-02-28 12:00:00.123456', '2026-02-28',
           x'00ff', NULL, '{"a": 1}', '🕷𠮷', 0.1, 'soon', 0, NULL)""",
        9223372036854775807,
        {"js": '{"a": 1}', "odd": "soon"},
    ),
}  # fmt: skip


def test_columns_of_any_type_arrive_as_python_values_and_travel(any_sql, opened):
    """Case BAT-03."""
    create, insert, task_id, special = TYPED[kind_of(any_sql)]
    run_sql(any_sql, create, insert)
    store = opened(any_sql)
    store.ensure_schema()
    [task] = store.claim_tasks(10)
    assert task["id"] == task_id
    assert (task["price"], type(task["price"])) == (Decimal("10.50"), Decimal)
    assert task["ts"] == datetime(2026, 2, 28, 12, 0, 0, 123456)
    assert (task["d"], type(task["d"])) == (date(2026, 2, 28), date)
    assert (task["raw"], task["note"], task["emoji"], task["f"]) == (b"\x00\xff", None, "🕷𠮷", 0.1)
    for name, value in special.items():
        assert task[name] == value, name
    travelled = codec.decode(codec.encode(task))
    assert travelled == task
    assert store.mark_tasks([(travelled["id"], DONE)]) == [True]
    assert store.count_tasks() == TaskCounts(1, 0, 0, 1, 0)


def test_large_ids_given_as_text_or_beside_each_other_are_not_rounded(any_sql, opened):
    run_sql(any_sql, CREATE[kind_of(any_sql)])
    big = 9007199254740993  # 2**53 + 1: as a floating point number it is its neighbour
    run_sql(any_sql, f"INSERT INTO crawl_task (id, url) VALUES ({big - 1}, '/a'), ({big}, '/b')")
    store = opened(any_sql)
    assert store.mark_tasks([(str(big), DONE), ("x", DONE), (None, DONE), (True, DONE), ("1.5", DONE)]) == [
        True, False, False, False, False,
    ]  # fmt: skip
    assert [row["id"] for row in store.claim_tasks(5)] == [big - 1]


def test_ids_that_no_row_can_have_spoil_no_mark_beside_them(any_sql, opened):
    odd = [2**70, -(2**70), "9" * 5000, "\0", "\ud800", [1], {}, 1.0, object()]
    fill(any_sql, 3)
    store = opened(any_sql)
    memory = MemoryBatchStore([{"id": 1}, {"id": 2}, {"id": 3}])
    for each in (store, memory):
        found = each.mark_tasks([(1, DONE), *((id_, DONE) for id_ in odd if id_ != 1.0), (3, FAILED)])
        assert found == [True, *[False] * 8, True]
        assert each.count_tasks() == TaskCounts(3, 1, 0, 1, 1)


def test_a_text_that_is_no_uuid_spoils_no_mark_beside_it(postgres_url, opened):
    run_sql(
        postgres_url,
        "CREATE TABLE crawl_task (id UUID PRIMARY KEY, batch_status SMALLINT DEFAULT 0, update_time TIMESTAMP)",
        *(f"INSERT INTO crawl_task (id) VALUES ('{n}0000000-0000-0000-0000-000000000000')" for n in range(3)),
    )
    store = opened(postgres_url)
    ids = [row["id"] for row in store.claim_tasks(3)]
    assert store.mark_tasks([(ids[0], DONE), ("no uuid", DONE), (str(ids[1]), DONE), (ids[2], FAILED)]) == [
        True, False, True, True,
    ]  # fmt: skip
    assert store.count_tasks() == TaskCounts(3, 0, 0, 2, 1)


def test_ids_of_text_are_compared_as_text(any_sql, opened):
    text = "VARCHAR(40)"
    moment = "TIMESTAMP" if kind_of(any_sql) == "postgresql" else "DATETIME"
    run_sql(
        any_sql,
        f"CREATE TABLE crawl_task (id {text} NOT NULL PRIMARY KEY, batch_status INTEGER DEFAULT 0, update_time {moment})",
        "INSERT INTO crawl_task (id) VALUES ('5'), ('5abc'), ('05')",
    )
    store = opened(any_sql)
    assert store.mark_tasks([(5, DONE), ("6", DONE)]) == [True, False]
    assert sorted(row["id"] for row in store.claim_tasks(5)) == ["05", "5abc"]


def test_one_value_that_cannot_be_read_fails_its_own_row_only(postgres_url, opened):
    run_sql(
        postgres_url,
        "CREATE TABLE crawl_task (id BIGINT PRIMARY KEY, ts TIMESTAMP, batch_status SMALLINT DEFAULT 0, update_time TIMESTAMP)",
        "INSERT INTO crawl_task (id, ts) VALUES (1, '2026-01-01'), (2, 'infinity'), (3, '2026-01-03')",
    )
    store = opened(postgres_url)
    assert [row["id"] for row in store.claim_tasks(5)] == [1, 3]
    assert [id_ for id_, _ in store.refused_tasks()] == [2]
    assert store.failed_tasks() == [2]


def test_a_memory_row_with_a_value_that_cannot_travel_fails_with_its_name():
    store = MemoryBatchStore([{"id": 1, "url": object()}, {"id": 2, "url": "/b"}])
    assert [row["id"] for row in store.claim_tasks(5)] == [2]
    [(id_, why)] = store.refused_tasks()
    assert id_ == 1
    assert "task['url']" in why


# Names


def test_odd_names_of_tables_and_columns_are_quoted(any_sql, opened):
    kind = kind_of(any_sql)
    names = {
        "table": "the `order` %s 表",
        "id": "key",
        "state": 'a"b`c',
        "time": "group by",
        "more": "select %(x)s:y",
    }
    quote = ("`", "``") if kind == "mysql" else ('"', '""')
    q = {k: quote[0] + v.replace(quote[0], quote[1]).replace("%", "%" if kind == "sqlite" else "%%") + quote[0]
         for k, v in names.items()}  # fmt: skip
    moment = "TIMESTAMP" if kind == "postgresql" else "DATETIME"
    run_sql(
        any_sql,
        f"CREATE TABLE {q['table']} ({q['id']} INTEGER NOT NULL PRIMARY KEY, {q['state']} INTEGER NOT NULL DEFAULT 0, "
        f"{q['time']} {moment}, {q['more']} VARCHAR(20))",
        f"INSERT INTO {q['table']} ({q['id']}, {q['more']}) VALUES (1, 'x'), (2, 'y')",
    )
    store = opened(any_sql, names["table"], id_field="key", state_field=names["state"], time_field="group by")
    store.ensure_schema()
    store.use_fence(1)
    [create] = store.index_advice()
    run_sql(
        any_sql,
        create.partition("create one: ")[2].rstrip(";").replace("%", "%" if kind == "sqlite" else "%%"),
    )
    fresh = opened(any_sql, names["table"], id_field="key", state_field=names["state"], time_field="group by")
    assert fresh.index_advice() == []
    batch = store.create_batch(store.now(), 2, 1, "day")
    [task] = fresh.claim_tasks(1)
    assert task["select %(x)s:y"] == "x"
    assert fresh.touch_tasks([1]) == 1
    assert fresh.mark_tasks([(1, DONE), (3, DONE)], batch_id=batch) == [True, False]
    store.update_batch_counts(batch, done=1, failed=0, total=2)
    assert fresh.latest_batch().done_count == 1
    assert store.reset_all_tasks() == 1


# Set-ups


def test_a_missing_table_names_it_and_the_create_table_given_does(any_sql, opened):
    store = opened(any_sql)
    with pytest.raises(ConfigError, match="no task table 'crawl_task'") as caught:
        store.ensure_schema()
    text = str(caught.value)
    assert "s3c" not in text
    statements = text[text.index("CREATE TABLE") :].rstrip(";").split(";\n")
    assert len(statements) == 2
    run_sql(any_sql, *statements)
    run_sql(any_sql, "INSERT INTO crawl_task (url) VALUES ('/a')")
    store.ensure_schema()
    assert store.index_advice() == []
    assert [row["url"] for row in store.claim_tasks(5)] == ["/a"]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (
            "id INTEGER PRIMARY KEY, status INTEGER, update_time TIMESTAMP NULL",
            "no column 'batch_status' .BATCH_TASK_STATE_FIELD",
        ),
        (
            "id INTEGER PRIMARY KEY, batch_status VARCHAR(10), update_time TIMESTAMP NULL",
            "batch_status is of type VARCHAR",
        ),
        (
            "id INTEGER PRIMARY KEY, batch_status INTEGER, update_time INTEGER",
            "update_time is of type INTEGER",
        ),
        ("id INTEGER PRIMARY KEY, batch_status INTEGER, update_time DATE", "update_time is of type DATE"),
        (
            "id INTEGER, batch_status INTEGER, update_time TIMESTAMP NULL",
            "neither the primary key nor unique",
        ),
        (
            "id INTEGER, b INTEGER, batch_status INTEGER, update_time TIMESTAMP NULL, PRIMARY KEY (id, b)",
            "neither the primary key",
        ),
    ],
)
def test_columns_that_will_not_do_are_named(any_sql, opened, columns, complaint):
    run_sql(any_sql, f"CREATE TABLE crawl_task ({columns})")
    with pytest.raises(ConfigError, match=complaint):
        opened(any_sql).ensure_schema()


@pytest.fixture
def warnings_told():
    lines = []
    number = logger.add(lambda message: lines.append(str(message)), level="WARNING")
    yield lines
    logger.remove(number)


STATE_AND_TIME = "batch_status INTEGER DEFAULT 0, update_time TIMESTAMP NULL"
KEYLESS = {
    "sqlite": ("id TEXT UNIQUE", "id TEXT PRIMARY KEY", "id INT PRIMARY KEY"),
    "mysql": ("id INT NULL UNIQUE", "id VARCHAR(20) NULL UNIQUE"),
    "postgresql": ("id INTEGER UNIQUE", "id TEXT UNIQUE NULLS NOT DISTINCT", "id TEXT UNIQUE DEFERRABLE"),
}


@pytest.mark.parametrize("which", range(3))
def test_rows_without_an_id_are_refused_with_the_statement_that_mends_it(any_sql, opened, which):
    """Case HO-02: at the start and by `netspy batch check`; no batch waits for a row that no mark can find."""
    kinds = KEYLESS[kind_of(any_sql)]
    run_sql(
        any_sql,
        f"CREATE TABLE crawl_task ({kinds[which % len(kinds)]}, {STATE_AND_TIME})",
        "INSERT INTO crawl_task (id) VALUES ('1'), (NULL), ('3')",
    )
    with pytest.raises(ConfigError, match=r"1 row\(s\) of crawl_task have no id \(NULL\)") as caught:
        opened(any_sql).ensure_schema()
    mend = str(caught.value).partition("remove them: ")[2]
    run_sql(any_sql, *[statement for statement in mend.split(";") if statement.strip()])
    store = opened(any_sql)
    store.ensure_schema()
    assert store.count_tasks() == TaskCounts(2, 2, 0, 0, 0)


def test_rows_without_an_id_that_come_during_a_batch_are_left_out_and_told_once(
    any_sql, opened, warnings_told
):
    kind = KEYLESS[kind_of(any_sql)][0]
    run_sql(
        any_sql,
        f"CREATE TABLE crawl_task ({kind}, {STATE_AND_TIME})",
        "INSERT INTO crawl_task (id) VALUES ('1')",
    )
    store = opened(any_sql, chunk=2)
    store.ensure_schema()
    run_sql(
        any_sql,
        *["INSERT INTO crawl_task (id) VALUES (NULL)"] * 3,
        "INSERT INTO crawl_task (id) VALUES ('4')",
    )
    run_sql(any_sql, "UPDATE crawl_task SET batch_status = NULL WHERE id IS NULL")
    assert store.reset_all_tasks() == 0
    claimed = store.claim_tasks(10)
    assert sorted(str(task["id"]) for task in claimed) == ["1", "4"]
    assert store.reset_lost_tasks(-60) == 2
    for task in store.claim_tasks(10):
        assert store.mark_task(task["id"], DONE)
    counts = [store.count_tasks() for _ in range(2)]
    assert counts == [TaskCounts(2, 0, 0, 2, 0)] * 2
    assert counts[0].finished
    assert sum("have no id (NULL)" in line for line in warnings_told) == 1


@pytest.mark.parametrize(
    ("server", "columns", "more", "complaint"),
    [
        ("sqlite", "id TEXT", "CREATE UNIQUE INDEX u ON crawl_task (id) WHERE id <> 'x'", "neither the primary key nor unique"),
        ("postgres", "id TEXT", "CREATE UNIQUE INDEX u ON crawl_task (id) WHERE id <> 'x'", "neither the primary key nor unique"),
        ("sqlite", "id TEXT", "CREATE UNIQUE INDEX u ON crawl_task (lower(id))", "neither the primary key nor unique"),
        ("postgres", "id TEXT", "CREATE UNIQUE INDEX u ON crawl_task (lower(id))", "neither the primary key nor unique"),
        ("sqlite", "id TEXT COLLATE NOCASE", "CREATE UNIQUE INDEX u ON crawl_task (id COLLATE BINARY)", "takes for '[aA]1'"),
        ("postgres", 'id TEXT COLLATE "ci"', 'CREATE UNIQUE INDEX u ON crawl_task (id COLLATE "C")', "takes for '[aA]1'"),
        ("mariadb", "id FLOAT PRIMARY KEY", "", "floating-point"),
        ("postgres", "id FLOAT8 PRIMARY KEY", "", "floating-point"),
    ],
)  # fmt: skip
def test_keys_that_do_not_tell_tasks_apart_are_refused(request, opened, server, columns, more, complaint):
    """As case HO-02: a partial or expression index makes nothing unique, and equal is what the database takes for it."""
    url = request.getfixturevalue(f"{server}_url")
    if server == "postgres":
        run_sql(
            url, "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    create = f"CREATE TABLE crawl_task ({columns}, {STATE_AND_TIME})"
    rows = ["INSERT INTO crawl_task (id) VALUES ('A1'), ('a1')"] if "takes" in complaint else []
    run_sql(url, create, *([more] if more else []), *rows)
    with pytest.raises(ConfigError, match=complaint):
        opened(url).ensure_schema()


def test_ids_of_any_kind_in_sqlite_are_found_again(sqlite_url, opened):
    """SQLite keeps any kind of value in any column: none of these may make a batch endless."""
    run_sql(
        sqlite_url,
        f"CREATE TABLE crawl_task (id INT PRIMARY KEY, {STATE_AND_TIME})",
        "INSERT INTO crawl_task (id) VALUES (1), ('abc'), (1.5), (char(97, 0, 98)), (x'ff00')",
    )
    store = opened(sqlite_url)
    store.ensure_schema()
    for task in store.claim_tasks(10):
        store.mark_task(task["id"], DONE)
    assert store.count_tasks().finished


def test_a_row_that_its_own_key_does_not_find_ends_the_master_with_a_line(mariadb_url, opened, monkeypatch):
    """A general net under the checks of the key: no batch goes round for ever with such a row."""
    from netspy.tasks.sql import schema

    run_sql(
        mariadb_url,
        f"CREATE TABLE crawl_task (id FLOAT PRIMARY KEY, {STATE_AND_TIME})",
        "INSERT INTO crawl_task (id) VALUES (0.1)",
    )
    monkeypatch.setattr(schema, "_check_id", lambda *_: None)
    store = opened(mariadb_url)
    store.ensure_schema()
    with pytest.raises(ConfigError, match=r"0 rows of crawl_task are found by id = 0\.1"):
        store.claim_tasks(5)


def test_a_state_column_that_cannot_hold_failed_is_refused(mariadb_url, opened):
    run_sql(
        mariadb_url,
        "CREATE TABLE crawl_task (id INT PRIMARY KEY, batch_status TINYINT UNSIGNED, update_time DATETIME)",
    )
    with pytest.raises(ConfigError, match="UNSIGNED, so it can't hold -1"):
        opened(mariadb_url).ensure_schema()


def test_a_table_without_transactions_is_refused(mariadb_url, opened):
    run_sql(mariadb_url, CREATE["mysql"] + " ENGINE=MyISAM")
    with pytest.raises(ConfigError, match="engine MyISAM, which has no transactions"):
        opened(mariadb_url).ensure_schema()


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_missing_rights_are_one_clear_error(request, opened, server):
    url = request.getfixturevalue(f"{server}_url")
    run = request.getfixturevalue(server)
    fill(url, 1)
    database = url.rpartition("/")[2]
    user = f"reader{os.getpid()}"

    def mariadb_may(rights: int) -> None:
        # The servers' user may not GRANT; 1 is SELECT, 4 is UPDATE.
        run.execute(
            f"UPDATE mysql.global_priv SET Priv = JSON_SET(Priv, '$.access', {rights}) WHERE User = '{user}'"
        )
        run.execute("FLUSH PRIVILEGES")

    if server == "mariadb":
        run.execute(f"CREATE USER {user}@'%' IDENTIFIED BY 'pw'")
        mariadb_may(1)
    else:
        run.execute(f"CREATE USER {user} PASSWORD 'pw'")
        run.execute(f"GRANT USAGE ON SCHEMA public TO {user}", database=database)
        run.execute(f"GRANT SELECT ON crawl_task TO {user}", database=database)
    scheme, _, rest = url.partition("://")
    address = f"{scheme}://{user}:pw@{rest.rpartition('@')[2]}"
    store = later = opened(address)
    try:
        with pytest.raises(
            ConfigError,
            match=r"may not read and update the task table 'crawl_task'.*grant it SELECT and UPDATE",
        ):
            store.ensure_schema()
        if server == "mariadb":
            mariadb_may(5)
        else:
            run.execute(f"GRANT UPDATE ON crawl_task TO {user}", database=database)
        later = opened(address)  # MariaDB looks at rights when one connects
        with pytest.raises(ConfigError, match="have the owner of the database run\nCREATE TABLE"):
            later.ensure_schema()
    finally:
        store.close()
        later.close()
        if server == "postgres":
            run.execute(f"DROP OWNED BY {user}", database=database)
        run.execute(f"DROP USER {user}" + ("@'%'" if server == "mariadb" else ""))


def test_a_wrong_password_is_said_at_once_without_it(mariadb_url, opened):
    scheme, _, rest = mariadb_url.partition("://")
    store = opened(f"{scheme}://netspy:wrong-secret@{rest.rpartition('@')[2]}", patience=3600.0)
    began = time.monotonic()
    with pytest.raises(ConfigError, match="Access denied") as caught:
        store.ensure_schema()
    assert "wrong-secret" not in str(caught.value)
    assert time.monotonic() - began < 30


def test_a_date_column_in_the_record_table_is_refused_with_the_remedy(any_sql, opened):
    """Case BAT-01, date_column."""
    fill(any_sql, 1)
    run_sql(
        any_sql, "CREATE TABLE crawl_task_batch_record (id INTEGER PRIMARY KEY, batch_date DATE NOT NULL)"
    )
    with pytest.raises(
        ConfigError,
        match="batch_date is of type DATE, which can't tell two batches of one day apart; change it",
    ):
        opened(any_sql).ensure_schema()


def test_a_record_of_the_hour_that_the_servers_clock_skips_can_be_written(monkeypatch, opened):
    """Case BAT-01, spring: TIMESTAMP columns on a server that lives by the time of Berlin."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    if find_mariadb() is None:
        missing("mariadbd is not installed")
    with MariaDbServer() as server:
        url = server.create_database()
        database = url.rpartition("/")[2]
        fill(url, 1)
        columns = ", ".join(f"{name} TIMESTAMP NULL" for name in ("batch_date", "create_time", "update_time"))
        run_sql(
            url, f"CREATE TABLE crawl_task_batch_record (id INTEGER AUTO_INCREMENT PRIMARY KEY, {columns})"
        )
        skipped = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
        with pytest.raises(pymysql.err.OperationalError, match="1292"):
            server.execute(
                "INSERT INTO crawl_task_batch_record (batch_date) VALUES (%s)",
                [f"{skipped:%F %T}"],
                database=database,
            )
        store = opened(url)
        store.ensure_schema()
        dates = [skipped, *(datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))]
        ids = []
        for date_ in dates:
            ids.append(store.create_batch(date_, 1, 1, "hour"))
            assert store.latest_batch().batch_date == date_
            store.finish_batch(ids[-1])
        assert ids == sorted(set(ids))
        store.close()


def test_an_older_record_table_gets_the_columns_it_lacks(any_sql, opened):
    fill(any_sql, 1)
    identity = {"mysql": "INTEGER AUTO_INCREMENT", "postgresql": "SERIAL", "sqlite": "INTEGER"}[
        kind_of(any_sql)
    ]
    moment = "TIMESTAMP" if kind_of(any_sql) == "postgresql" else "DATETIME"
    run_sql(
        any_sql,
        f"CREATE TABLE crawl_task_batch_record (id {identity} PRIMARY KEY, batch_date {moment} NOT NULL, total_count INTEGER)",
        "INSERT INTO crawl_task_batch_record (batch_date, total_count) VALUES ('2026-01-01 00:00:00', 7)",
    )
    store = opened(any_sql)
    store.ensure_schema()
    old = store.latest_batch()
    assert (old.total_count, old.is_done, old.batch_date) == (7, False, datetime(2026, 1, 1, tzinfo=UTC))
    store.finish_batch(old.id)
    assert store.create_batch(store.now(), 1, 2, "minute") > old.id


def test_several_processes_may_set_up_at_once(any_sql, opened):
    fill(any_sql, 1)
    stores = [opened(any_sql) for _ in range(6)]
    errors: list[BaseException] = []

    def set_up(store: SqlBatchStore) -> None:
        try:
            store.ensure_schema()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=set_up, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stores[0].latest_batch() is None


def test_mysql_stays_a_name_and_reads_its_settings(monkeypatch, workdir):
    monkeypatch.setenv("NETSPY_MYSQL_HOST", "db.example")
    monkeypatch.setenv("NETSPY_MYSQL_DB", "crawls")
    store = MysqlBatchStore("crawl_task")
    assert store.shown == "mysql://root@db.example:3306/crawls"
    store.close()


# Rows that people left behind


def test_rows_of_other_states_are_left_out_and_rows_without_one_are_done(any_sql, opened):
    run_sql(any_sql, CREATE[kind_of(any_sql)].replace("NOT NULL DEFAULT 0", "NULL"))
    run_sql(
        any_sql,
        "INSERT INTO crawl_task (id, url, batch_status) VALUES (1, '/a', 9), (2, '/b', NULL), (3, '/c', 0)",
    )
    store = opened(any_sql)
    assert store.count_tasks() == TaskCounts(2, 2, 0, 0, 0, other=1)
    assert [row["id"] for row in store.claim_tasks(5)] == [3]
    assert store.reset_lost_tasks(60) == 1
    assert [row["id"] for row in store.claim_tasks(5)] == [2]
    assert store.reset_all_tasks() == 2
    assert store.count_tasks().other == 1


def test_a_local_time_in_the_future_is_no_sign_of_life(any_sql, opened):
    fill(any_sql, 3)
    run_sql(
        any_sql, "UPDATE crawl_task SET batch_status = 2, update_time = '2099-01-01 00:00:00' WHERE id = 1"
    )
    store = opened(any_sql)
    store.claim_tasks(1)
    assert store.reset_lost_tasks(600) == 1
    assert store.count_tasks() == TaskCounts(3, 2, 1, 0, 0)


class ClassicStore(BatchStore):
    """A back end as older code has it: the abstract methods alone, on a store in memory."""

    def __init__(self) -> None:
        self.inner = MemoryBatchStore([{"id": 1}, {"id": 2}])

    def ensure_schema(self): ...
    def latest_batch(self):
        return self.inner.latest_batch()

    def batch_age_seconds(self, batch_id):
        return self.inner.batch_age_seconds(batch_id)

    def create_batch(self, batch_date, total, interval, unit):
        return self.inner.create_batch(batch_date, total, interval, unit)

    def update_batch_counts(self, batch_id, *, done, failed, total):
        self.inner.update_batch_counts(batch_id, done=done, failed=failed, total=total)

    def finish_batch(self, batch_id):
        self.inner.finish_batch(batch_id)

    def count_tasks(self):
        return self.inner.count_tasks()

    def reset_all_tasks(self):
        return self.inner.reset_all_tasks()

    def reset_lost_tasks(self, stale):
        return self.inner.reset_lost_tasks(stale)

    def claim_tasks(self, limit):
        return self.inner.claim_tasks(limit)

    def mark_task(self, task_id, state):
        self.inner.mark_task(task_id, state)

    def close(self): ...  # fmt: skip


def test_a_back_end_with_the_classic_methods_alone_works():
    store = ClassicStore()
    store.use_fence(3)
    batch = store.create_batch(store.now(), 2, 1, "day")
    store.claim_tasks(2)
    assert store.touch_tasks([1]) == 0
    assert store.mark_tasks([(1, DONE), (2, FAILED)], batch_id=batch) == [True, True]
    store.finish_batch(batch)
    store.mark_tasks([(2, DONE)], batch_id=batch)
    assert store.count_tasks() == TaskCounts(2, 0, 0, 1, 1)
    assert (store.refused_tasks(), store.failed_tasks(), store.index_advice()) == ([], [], [])


def test_memory_rows_without_an_id_or_with_the_same_one_are_refused():
    with pytest.raises(ConfigError, match="has no 'id'"):
        MemoryBatchStore([{"url": "/a"}])
    with pytest.raises(ConfigError, match="two rows have id=1"):
        MemoryBatchStore([{"id": 1}, {"id": 1}])
    store = MemoryBatchStore([{"id": 1}])
    with pytest.raises(ConfigError, match="two rows"):
        store.add_tasks([{"id": 2}, {"id": 1}])
    assert [row["id"] for row in store.rows] == [1]
