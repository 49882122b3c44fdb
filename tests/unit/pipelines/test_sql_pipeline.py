"""The SQL pipeline on MariaDB, PostgreSQL and SQLite: keys, columns, updates, names, and what goes wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from sql_rig import Database, pipeline

from netspy.errors import ConfigError, ItemError, MissingExtraError, RowsFailedError
from netspy.pipelines.errors import UnusableError, store_away
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.mysql import MysqlPipeline
from netspy.pipelines.postgres import PostgresPipeline
from netspy.pipelines.relational import tables as sql_tables
from netspy.pipelines.relational.plan import Line, Shape, chunks, in_order, packet_bytes, repeats
from netspy.pipelines.sql import SqlPipeline, SqlTroubleError
from netspy.settings import Settings
from netspy.sqlio.reflection import Column, Table


@pytest.fixture
def db(any_sql):
    made = Database(any_sql)
    yield made
    made.engine.dispose()


@pytest.fixture
def maria(mariadb_url):
    made = Database(mariadb_url)
    yield made
    made.engine.dispose()


@pytest.fixture
def pg(postgres_url):
    made = Database(postgres_url)
    yield made
    made.engine.dispose()


def refused(call, *args):
    with pytest.raises(RowsFailedError) as caught:
        call(*args)
    assert all(isinstance(error, ItemError) for error in caught.value.failed.values())
    return {place: str(error) for place, error in caught.value.failed.items()}


# ---- names


ODD = {
    "id": 1,
    "order": 1,
    "key": "k",
    "desc": "100%",
    "group": 3,
    "pct%": 4,
    "a b": 5,
    "x-y": 6,
    "q`t": 7,
    "%s": 8,
    'd"q': 9,
}


def odd_table(db):
    kinds = {"key": "VARCHAR(20)", "desc": "TEXT"}
    columns = [f"{db.quote(name)} {kinds.get(name, 'INT')}" for name in ODD if name != "id"]
    db.run(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})")


def test_sto01_fields_named_like_keywords_or_with_odd_characters_are_columns(db):
    """The case wants MySQL 8, too. MariaDB stands in for it: the statements hold nothing that only one of them reads."""
    odd_table(db)
    with pipeline(db.url) as made:
        made.save_items("t", [ODD])
        made.save_items("t", [{**ODD, "order": 2}])
        assert db.dicts("SELECT * FROM t") == [{**ODD, "order": 2}]
        made.update_items("t", [{"q`t": 7, "pct%": 44, "group": 33}], ["q`t"])
        assert db.dicts("SELECT * FROM t") == [{**ODD, "order": 2, "group": 33, "pct%": 44}]


def test_sto02_a_field_name_from_the_page_injects_nothing(db, said):
    odd_table(db)
    evil = {
        10: "desc`) values (11, 'pwn') -- ",
        12: "desc\") VALUES (11, 'pwn') -- ",
        13: "id) VALUES (11) -- %s",
    }
    with pipeline(db.url) as made:
        made.save_items("t", [{"id": number, name: 1} for number, name in evil.items()])
    assert sorted(db.rows("SELECT id FROM t")) == [(10,), (12,), (13,)]
    for name in evil.values():
        assert any(repr(name) in line for line in said)


@pytest.mark.parametrize(
    "name",
    [
        "t`; DROP TABLE t; --x",
        't"; DROP TABLE t; --x',
        "t'; DROP TABLE t; --",
        "mysql.user",
        "pg_catalog.pg_class",
        "../x",
        "%s",
        "中",
    ],
)
def test_sto02_a_table_name_from_the_page_injects_nothing_and_reaches_no_other_schema(db, name):
    odd_table(db)
    with pipeline(db.url) as made, pytest.raises(ItemError, match="there is no table"):
        made.save_items(name, [{"id": 1}])
    with pipeline(db.url, ITEM_AUTO_CREATE_TABLE=True) as made:
        made.save_items(name, [{"id": 1}])
    assert db.rows("SELECT * FROM t") == []
    assert db.rows(f"SELECT id FROM {db.quote(name)}") == [(1,)]


@pytest.mark.parametrize("name", ["", "a\0b", "\ud83d"])
def test_a_table_name_that_no_database_can_have_fails_its_rows(db, name):
    with pipeline(db.url, ITEM_AUTO_CREATE_TABLE=True) as made, pytest.raises(ItemError):
        made.save_items(name, [{"id": 1}])


def test_added_columns_are_quoted(db):
    db.run("CREATE TABLE t (id INT)")
    name = "a`b\"c'; DROP TABLE t; -- %s"
    with pipeline(db.url, ITEM_UNKNOWN_COLUMNS="add") as made:
        made.save_items("t", [{"id": 1, name: 5}])
    assert db.dicts("SELECT * FROM t") == [{"id": 1, name: 5}]


# ---- keys


def test_a_row_delivered_twice_is_stored_once_and_the_later_fields_win(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b INT)")
    with pipeline(db.url) as made:
        made.save_items("t", [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1}])
        made.save_items("t", [{"id": 1, "a": 2}, {"id": 1, "b": 3}, {"id": 1, "a": 4}])
    assert sorted(db.rows("SELECT * FROM t")) == [(1, 4, 3), (2, 1, None)]


def test_the_item_s_unique_key_is_used_beside_a_primary_key_that_counts(db):
    counter = {
        "mysql": "INT AUTO_INCREMENT PRIMARY KEY",
        "postgresql": "SERIAL PRIMARY KEY",
        "sqlite": "INTEGER PRIMARY KEY",
    }
    db.run(f"CREATE TABLE t (id {counter[db.dialect.kind]}, url VARCHAR(99) UNIQUE, n INT)")
    for key in (("url",), ()):
        with pipeline(db.url, key=key) as made:
            made.save_items("t", [{"url": "a", "n": 1}, {"url": "b", "n": 1}])
            made.save_items("t", [{"url": "a", "n": 2}])
    assert sorted(db.rows("SELECT url, n FROM t")) == [("a", 2), ("b", 1)]


def test_a_key_of_several_columns(db):
    db.run("CREATE TABLE t (site VARCHAR(20), sku VARCHAR(20), n INT, UNIQUE (site, sku))")
    with pipeline(db.url, key=("sku", "site")) as made:
        made.save_items("t", [{"site": "a", "sku": "1", "n": 1}, {"site": "b", "sku": "1", "n": 1}])
        made.save_items("t", [{"sku": "1", "site": "a", "n": 5}])
    assert sorted(db.rows("SELECT * FROM t")) == [("a", "1", 5), ("b", "1", 1)]


@pytest.mark.parametrize(("action", "kept"), [("nothing", 1), ("update", 2), ("error", 1)])
def test_what_happens_to_a_row_that_is_there_is_a_setting(db, action, kept):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)")
    with pipeline(db.url, SQL_ON_CONFLICT=action) as made:
        made.save_items("t", [{"id": 1, "n": 1}])
        if action == "error":
            with pytest.raises(ItemError, match=r"(?i)duplicate|unique"):
                made.save_items("t", [{"id": 1, "n": 2}])
        else:
            made.save_items("t", [{"id": 1, "n": 2}])
    assert db.rows("SELECT * FROM t") == [(1, kept)]


def test_rows_that_are_there_and_stay_are_told_of(db, said):
    """A repeat that is left alone counts as stored: without a word nobody would know that nothing was written."""
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)")
    with pipeline(db.url, SQL_ON_CONFLICT="nothing") as made:
        made.save_items("t", [{"id": n, "n": 1} for n in range(3)])
        assert not [line for line in said if "stay as they are" in line]
        for _ in range(2):
            made.save_items("t", [{"id": n, "n": 2} for n in range(1, 6)])
    assert [line for line in said if "stay as they are" in line and "2 row(s)" in line]
    assert len([line for line in said if "stay as they are" in line]) == 1
    assert [line for line in said if "7 row(s) were there already and stayed as they were" in line]
    assert db.rows("SELECT COUNT(*) FROM t") == [(6,)]


def test_the_mysql_and_postgres_settings_decide_for_their_pipelines(maria, pg):
    for made_by, db, on, off in (
        (MysqlPipeline, maria, {"MYSQL_UPDATE_ON_DUPLICATE": True}, {"MYSQL_UPDATE_ON_DUPLICATE": False}),
        (PostgresPipeline, pg, {"POSTGRES_ON_CONFLICT": "update"}, {}),
    ):
        db.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1)")
        with pipeline(db.url, made_by, **off) as made:
            made.save_items("t", [{"id": 1, "n": 2}])
        assert db.rows("SELECT n FROM t") == [(1,)]
        with pipeline(db.url, made_by, **on) as made:
            made.save_items("t", [{"id": 1, "n": 3}])
        assert db.rows("SELECT n FROM t") == [(3,)]


def test_the_conflict_target_of_postgres_is_honoured_and_must_be_a_key(pg):
    pg.run("CREATE TABLE t (id INT PRIMARY KEY, url TEXT UNIQUE, n INT)", "INSERT INTO t VALUES (1, 'a', 1)")
    how = {"POSTGRES_ON_CONFLICT": "update"}
    with pipeline(pg.url, PostgresPipeline, POSTGRES_CONFLICT_TARGET=["url"], **how) as made:
        made.save_items("t", [{"id": 1, "url": "a", "n": 2}])
    assert pg.rows("SELECT * FROM t") == [(1, "a", 2)]
    with pipeline(pg.url, PostgresPipeline, POSTGRES_CONFLICT_TARGET=["n"], **how) as made:
        with pytest.raises(ItemError, match=r"no unique index over .*POSTGRES_CONFLICT_TARGET"):
            made.save_items("t", [{"id": 1, "url": "a", "n": 2}])


def test_a_unique_key_without_an_index_is_told_once_and_the_rows_are_stored(db, said):
    db.run("CREATE TABLE t (url VARCHAR(20), n INT)")
    with pipeline(db.url, key=["url"]) as made:
        made.save_items("t", [{"url": "a", "n": 1}])
        made.save_items("t", [{"url": "b", "n": 1}])
    assert sorted(db.rows("SELECT url FROM t")) == [("a",), ("b",)]
    assert len([line for line in said if "no unique index over ['url']" in line]) == 1


# ---- columns


def test_w19_columns_are_the_union_of_the_batch(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, title VARCHAR(20), n INT DEFAULT 7)")
    with pipeline(db.url) as made:
        made.save_items(
            "t", [{"id": 1}, {"id": 2, "title": "two"}, {"id": 3, "n": 3}, {"id": 4, "title": None}]
        )
    assert sorted(db.rows("SELECT * FROM t")) == [(1, None, 7), (2, "two", 7), (3, None, 3), (4, None, 7)]


def test_w19_unknown_fields_are_reported_once_and_the_rest_is_stored(db, said):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pipeline(db.url) as made:
        for number in range(3):
            made.save_items("t", [{"id": number, "colour": "red"}])
        assert (
            "no field of the item is a column" in refused(made.save_items, "t", [{"size": 1}, {"id": 9}])[0]
        )
    assert sorted(db.rows("SELECT * FROM t")) == [(0,), (1,), (2,), (9,)]
    assert len([line for line in said if "has no column 'colour': the field is not stored" in line]) == 1


def test_field_names_without_end_do_not_fill_the_log(sqlite_url, said, monkeypatch):
    monkeypatch.setattr(sql_tables, "_MOST_SAID", 5)
    db = Database(sqlite_url)
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pipeline(db.url) as made:
        made.save_items("t", [{"id": number, f"field {number}": 1} for number in range(50)])
    assert db.rows("SELECT count(*) FROM t") == [(50,)]
    assert len(said) == 6
    assert "further ones are not" in said[-1]
    db.engine.dispose()


def test_a_missing_privilege_and_a_wrong_password_are_no_outage(mariadb, maria):
    maria.run("CREATE TABLE t (id INT PRIMARY KEY)")
    name = maria.url.rpartition("/")[2]
    mariadb.execute("CREATE OR REPLACE USER 'reader'@'%' IDENTIFIED BY 'pw'")
    mariadb.execute(f"GRANT SELECT ON {name}.* TO 'reader'@'%'")
    url = f"mysql://reader:{{}}@127.0.0.1:{mariadb.port}/{name}"
    with pipeline(url.format("pw")) as made:
        with pytest.raises(SqlTroubleError, match="denied") as caught:
            made.save_items("t", [{"id": 1}])
        assert made.is_away(caught.value) is False
    [made] = load_pipelines([SqlPipeline(url.format("wrong-word"))], Settings())
    with pytest.raises(UnusableError, match="denied") as caught:
        made.open()
    assert not store_away(caught.value)
    assert "wrong-word" not in str(caught.value)


def test_unknown_fields_are_kept_as_json_if_wanted(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pipeline(db.url, ITEM_UNKNOWN_COLUMNS="json", ITEM_EXTRA_COLUMN="rest") as made:
        made.save_items("t", [{"id": 1, "colour": "红", "size": {"w": 1}}, {"id": 2}])
        assert "surrogate" in refused(made.save_items, "t", [{"id": 3, "x": "\ud800"}, {"id": 4, "x": 1}])[0]
    found = dict(db.rows("SELECT id, rest FROM t"))
    for number, value in {1: {"colour": "红", "size": {"w": 1}}, 2: None, 4: {"x": 1}}.items():
        kept = found.pop(number)
        assert (json.loads(kept) if isinstance(kept, str) else kept) == value
    assert not found


def test_unknown_fields_are_added_or_refused_if_wanted(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pipeline(db.url, ITEM_UNKNOWN_COLUMNS="error") as made:
        assert "no column 'n'" in refused(made.save_items, "t", [{"id": 1, "n": 1}, {"id": 2}])[0]
    with pipeline(db.url, ITEM_UNKNOWN_COLUMNS="add") as made:
        made.save_items("t", [{"id": 3, "n": 1}, {"id": 4, "s": "x"}])
    assert sorted(db.rows("SELECT * FROM t")) == [(2, None, None), (3, 1, None), (4, None, "x")]


def test_a_column_that_somebody_adds_or_removes_meanwhile_is_noticed(db, monkeypatch):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, old INT)")
    with pipeline(db.url) as made:
        made.save_items("t", [{"id": 1, "fresh": 1, "old": 1}])
        db.run("ALTER TABLE t ADD COLUMN fresh INT")
        monkeypatch.setattr(sql_tables, "_FRESH_S", 0.0)
        made.save_items("t", [{"id": 2, "fresh": 2, "old": 2}])
        db.run("ALTER TABLE t DROP COLUMN old")
        with pytest.raises(SqlTroubleError) as caught:
            made.save_items("t", [{"id": 3, "fresh": 3, "old": 3}])
        assert made.is_away(caught.value) is False
        made.save_items("t", [{"id": 3, "fresh": 3, "old": 3}])
    assert sorted(db.rows("SELECT id, fresh FROM t")) == [(1, None), (2, 2), (3, 3)]


def test_a_missing_table_is_made_only_when_asked_for_with_the_item_s_key(db):
    with pipeline(db.url, key=["url"]) as made, pytest.raises(ItemError, match="ITEM_AUTO_CREATE_TABLE"):
        made.save_items("t", [{"url": "a"}])
    with pipeline(db.url, key=["url"], ITEM_AUTO_CREATE_TABLE=True) as made:
        made.save_items("t", [{"url": "a", "n": 1}, {"url": "A", "n": 1}, {"url": "a ", "n": 1}])
        made.save_items("t", [{"url": "a", "n": 2}])
    assert sorted(db.rows("SELECT url, n FROM t")) == [("A", 1), ("a", 2), ("a ", 1)]


def test_two_processes_may_make_the_same_table_at_once(db):
    def write(number):
        with pipeline(db.url, key=["url"], ITEM_AUTO_CREATE_TABLE=True, ITEM_UNKNOWN_COLUMNS="add") as made:
            made.save_items("t", [{"url": f"u{number}", f"n{number % 2}": number}])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(8)))
    assert db.rows("SELECT count(*) FROM t") == [(8,)]


def test_a_view_and_a_column_that_the_server_fills_are_no_obstacle(maria, pg):
    for db in (maria, pg):
        db.run(
            "CREATE TABLE base (id INT PRIMARY KEY, n INT, twice INT GENERATED ALWAYS AS (n * 2) STORED)",
            "CREATE VIEW t AS SELECT id, n FROM base",
        )
        with pipeline(db.url) as made:
            made.save_items("t", [{"id": 1, "n": 4}])
        assert db.rows("SELECT * FROM base") == [(1, 4, 8)]


def test_a_wide_batch_stays_within_the_parameters_of_a_statement(db):
    columns = [f"c{n}" for n in range(150)]
    db.run(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {', '.join(f'{c} INT' for c in columns)})")
    with pipeline(db.url) as made:
        made.save_items("t", [{"id": number, **dict.fromkeys(columns, number)} for number in range(600)])
    assert db.rows("SELECT count(*), sum(c149) FROM t") == [(600, sum(range(600)))]


# ---- updates


def test_an_update_item_changes_the_rows_found_and_fails_for_none(db):
    db.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, site VARCHAR(9), n INT)",
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2)",
    )
    with pipeline(db.url) as made:
        made.update_items("t", [{"site": "a", "n": 5}], ["site"])
        made.update_items("t", [{"id": 1, "n": 5}, {"id": 2}], ["id"])  # found, though nothing changes
        found = refused(
            made.update_items, "t", [{"id": 9, "n": 1}, {"id": 2, "n": 7}, {"id": None, "n": 1}], ["id"]
        )
        assert found == {0: "no row of table 't' has id=9", 2: "an UpdateItem has no value for its key 'id'"}
        assert "no column 'nix'" in refused(made.update_items, "t", [{"nix": 1, "n": 1}], ["nix"])[0]
    assert sorted(db.rows("SELECT * FROM t")) == [(1, "a", 5), (2, "a", 7)]


def test_an_update_item_that_finds_nothing_is_inserted_if_wanted(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1)")
    with pipeline(db.url, ITEM_UPDATE_UPSERT=True) as made:
        made.update_items("t", [{"id": 1, "n": 2}, {"id": 2, "n": 2}, {"id": 2, "n": 3}], ["id"])
    assert sorted(db.rows("SELECT * FROM t")) == [(1, 2), (2, 3)]


# ---- trouble


def test_a_batch_that_the_database_refuses_leaves_nothing_behind(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT NOT NULL)")
    with pipeline(db.url) as made:
        with pytest.raises(ItemError, match=r"(?i)null"):
            made.save_items("t", [{"id": 1, "n": 1}, {"id": 2, "n": None}])
        assert db.rows("SELECT * FROM t") == []
        made.save_items("t", [{"id": 1, "n": 1}])
    assert db.rows("SELECT * FROM t") == [(1, 1)]


def test_sto05_text_longer_than_its_column_is_refused_and_never_cut(maria, pg):
    maria.run(
        "CREATE TABLE t (id INT PRIMARY KEY, `desc` TEXT) CHARACTER SET utf8mb4", "SET GLOBAL sql_mode=''"
    )
    texts = {1: "x" * 65535, 2: "x" * 65536, 3: "中" * 21845, 4: "中" * 21846}
    with pipeline(maria.url) as made:
        for number, text in texts.items():
            if number in {1, 3}:
                made.save_items("t", [{"id": number, "desc": text}])
            else:
                with pytest.raises(ItemError, match="1406"):
                    made.save_items("t", [{"id": number, "desc": text}])
    assert dict(maria.rows("SELECT id, `desc` FROM t")) == {1: texts[1], 3: texts[3]}


@pytest.mark.parametrize("kind", ["VARCHAR(3)", "CHAR(3)"])
def test_a_text_longer_than_its_column_fails_alone_even_when_only_blanks_stand_out(maria, pg, kind):
    for db in (maria, pg):
        db.run(f"CREATE TABLE t (id INT PRIMARY KEY, s {kind})")
        with pipeline(db.url) as made:
            rows = [
                {"id": 1, "s": "abcd"},
                {"id": 2, "s": "中中中"},
                {"id": 3, "s": "abc "},
                {"id": 4, "s": None},
                {"id": 5, "s": 1234},
            ]
            found = refused(made.save_items, "t", rows)
        assert sorted(found) == [0, 2, 4]
        assert "4 characters are too long for" in found[0]
        assert sorted(db.rows("SELECT id, s FROM t")) == [(2, "中中中"), (4, None)]


def test_a_row_larger_than_the_server_s_packet_fails_alone_and_does_not_look_like_an_outage(maria):
    maria.run("CREATE TABLE t (id INT PRIMARY KEY, s LONGTEXT, b LONGBLOB)")
    limit = maria.rows("SELECT @@max_allowed_packet")[0][0]
    quarter = "'" * (limit // 4)
    with pipeline(maria.url) as made:
        rows = [
            {"id": 1, "s": "x" * limit},
            {"id": 2, "s": "'" * (limit // 2)},
            {"id": 3, "s": quarter},
            {"id": 4, "b": b"\xff" * (limit // 4)},
            {"id": 5, "b": b"\0" * (limit // 2)},
        ]
        found = refused(made.save_items, "t", rows)
        assert set(found) == {0, 1, 4}
        assert "max_allowed_packet" in found[0]
    assert maria.rows("SELECT id, length(coalesce(s, b)) FROM t ORDER BY id") == [
        (3, limit // 4),
        (4, limit // 4),
    ]


def test_after_a_fail_over_the_connections_are_made_anew(pg, postgres):
    pg.run("CREATE TABLE t (id INT PRIMARY KEY)")
    name = pg.url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        with pipeline(pg.url) as made:  # its session stays read-only, as on a server that became a replica
            with pytest.raises(SqlTroubleError, match="read-only") as caught:
                made.save_items("t", [{"id": 1}])
            assert made.is_away(caught.value) is True
            postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            made.save_items("t", [{"id": 1}])
    finally:
        postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert pg.rows("SELECT id FROM t") == [(1,)]


def test_a_column_that_is_widened_takes_what_it_refused(maria, monkeypatch):
    maria.run("CREATE TABLE t (id INT PRIMARY KEY, n TINYINT)")
    with pipeline(maria.url) as made:
        with pytest.raises(ItemError, match="1264"):
            made.save_items("t", [{"id": 1, "n": 1000}])
        maria.run("ALTER TABLE t MODIFY n VARCHAR(20)")
        monkeypatch.setattr(sql_tables, "_FRESH_S", 0.0)
        made.save_items("t", [{"id": 1, "n": "a thousand"}])
    assert maria.rows("SELECT n FROM t") == [("a thousand",)]


def test_updates_of_one_row_with_different_fields_keep_their_order(db):
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 0, 0)")
    with pipeline(db.url) as made:
        made.update_items("t", [{"id": 1, "a": 1}, {"id": 1, "a": 2, "b": 2}, {"id": 1, "a": 3}], ["id"])
    assert db.rows("SELECT * FROM t") == [(1, 3, 2)]


def test_a_wrong_address_or_a_missing_driver_stops_the_start(monkeypatch):
    with pytest.raises(ConfigError, match="SQL_URL is empty"):
        load_pipelines([SqlPipeline], Settings())
    with pytest.raises(ConfigError, match="names no database") as caught:
        load_pipelines([SqlPipeline], Settings(SQL_URL="mysql://me:secret@db"))
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="MYSQL_DB is empty"):
        load_pipelines(["netspy.pipelines.mysql.MysqlPipeline"], Settings(MYSQL_DB=""))
    monkeypatch.setattr("netspy.sqlio.engine.find_spec", lambda name: None if name == "psycopg" else name)
    with pytest.raises(MissingExtraError, match=r"\.\[postgres\]"):
        load_pipelines(["netspy.pipelines.postgres.PostgresPipeline"], Settings())


# ---- the plan of a batch


def test_rows_of_several_shapes_keep_their_order_only_where_it_matters():
    one = Shape(("id", "a"), [Line(0, (1, 1)), Line(2, (3, 1))])
    two = Shape(("id", "b"), [Line(1, (2, 1)), Line(3, (4, 1))])
    table = Table("t", {name: Column(name, "integer", "INT") for name in ("id", "a", "b")})
    assert not repeats([one, two], table, [("id",)])
    assert repeats([one, two], table, [("a",)])
    assert not repeats([one, two], table, [("missing",)])
    text = Table("t", {"k": Column("k", "text", "TEXT", folds=True, collation="utf8mb4_general_ci")})
    assert repeats([Shape(("k",), [Line(0, ("A ",)), Line(1, ("a",))])], text, [("k",)])
    assert not repeats([Shape(("k",), [Line(0, (None,)), Line(1, (None,))])], text, [("k",)])
    assert [(s.columns, [line.place for line in s.lines]) for s in in_order([one, two])] == [
        (("id", "a"), [0]),
        (("id", "b"), [1]),
        (("id", "a"), [2]),
        (("id", "b"), [3]),
    ]


def test_statements_are_bounded_in_rows_and_characters():
    shape = Shape(("a",), [Line(n, ("x" * (1000 if n == 5 else 10),)) for n in range(10)])
    for limits in (
        {"max_rows": 3, "max_chars": 10**6},
        {"max_rows": 100, "max_chars": 25},
        {"max_rows": 1, "max_chars": 1},
    ):
        made = list(chunks(shape, **limits))
        assert [row for chunk in made for row in chunk] == [line.values for line in shape.lines]
        assert all(len(chunk) <= limits["max_rows"] for chunk in made)
        assert all(
            len(chunk) == 1 or sum(len(row[0]) for row in chunk) <= limits["max_chars"] for chunk in made
        )
    assert packet_bytes(("'\\\n中", b"\xff'", None, 5)) >= len("'\\'\\\\\\n中'X'ff27'NULL5".encode())
