from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kinds_of_values import ITEM, Unstorable, XPathText
from test_jsonl_pipeline import run_side_by_side

from netspy.errors import ItemError
from netspy.pipelines import sqlite as sqlite_pipeline
from netspy.pipelines.errors import UnusableError
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.sqlite import SqlitePipeline

if TYPE_CHECKING:
    from netspy.settings import Settings


@pytest.fixture
def pipeline(settings: Settings):
    [made] = load_pipelines([SqlitePipeline], settings)
    made.open()
    yield made
    made.close()


@pytest.fixture
def db(settings: Settings, pipeline):
    with closing(sqlite3.connect(settings.SQLITE_PATH, isolation_level=None)) as connection:
        yield connection


def types(db: sqlite3.Connection, table: str) -> dict[str, str]:
    return dict(db.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall())


def test_every_kind_of_value_is_kept_without_loss(pipeline, db) -> None:
    pipeline.save_items("t", [ITEM, {"id": 2}])
    db.row_factory = sqlite3.Row
    first, second = map(dict, db.execute("SELECT * FROM t ORDER BY id").fetchall())
    assert first == {
        "id": 1,
        "j": '{"a":[1,{"b":"中"}]}',
        "l": '["x"]',
        "s": '["x"]',
        "none": None,
        "t": 1,
        "nan": None,
        "dec": "19.995",
        "dt": "2026-01-01T08:00:00+08:00",
        "iso": "2026-01-01T08:00:00Z",
        "by": b"\xff\xfe",
        "sur": "a\ufffd",
        "big": str(2**70),
    }
    assert second == dict.fromkeys(first) | {"id": 2}


def test_types_are_inferred_from_what_all_rows_share(pipeline, db) -> None:
    pipeline.save_items(
        "t", [{"i": 1, "r": 1.5, "s": "x", "b": b"", "mixed": 1, "n": None}, {"mixed": "x", "i": True}]
    )
    assert types(db, "t") == {"i": "INTEGER", "r": "REAL", "s": "TEXT", "b": "BLOB", "mixed": "", "n": ""}


def test_keys_of_all_rows_become_columns_and_late_ones_are_added(pipeline, db) -> None:
    pipeline.save_items("t", [{"a": 1}, {"a": 2, "title": "x"}])
    pipeline.save_items("t", [{"a": 3, "late": 1.5}])
    assert db.execute("SELECT a, title, late FROM t").fetchall() == [
        (1, None, None),
        (2, "x", None),
        (3, None, 1.5),
    ]


def test_a_keyed_row_delivered_twice_is_stored_once_and_keeps_fields_it_does_not_bring(pipeline, db) -> None:
    pipeline.describe("t", ("url", "day"))
    pipeline.save_items("t", [{"url": "u", "day": 1, "a": 1, "b": 1}, {"url": "u", "day": 2, "a": 1}])
    pipeline.save_items(
        "t", [{"url": "u", "day": 1, "a": 2}, {"day": 1, "url": "u", "a": 3}, {"url": "u", "day": 1}]
    )
    assert db.execute("SELECT url, day, a, b FROM t ORDER BY day").fetchall() == [
        ("u", 1, 3, 1),
        ("u", 2, 1, None),
    ]


def test_rows_whose_key_is_missing_are_all_kept(pipeline, db) -> None:
    pipeline.describe("t", ("url",))
    pipeline.save_items("t", [{"a": 1}, {"a": 2, "url": None}])
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_a_key_over_rows_that_repeat_it_already_is_refused_in_words(pipeline, db) -> None:
    pipeline.save_items("t", [{"id": 1}, {"id": 1}])
    pipeline.describe("t", ("id",))
    with pytest.raises(ItemError, match="holds rows with equal"):
        pipeline.save_items("t", [{"id": 2}])
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)


@pytest.mark.parametrize(
    "schema", ["id INTEGER PRIMARY KEY, a", "id, a, UNIQUE (id)", "id TEXT PRIMARY KEY, a"]
)
def test_a_table_of_the_user_with_its_own_key_gets_no_second_index(pipeline, db, schema) -> None:
    db.execute(f"CREATE TABLE t ({schema})")
    pipeline.describe("t", ("id",))
    for a in (1, 2):
        pipeline.save_items("t", [{"id": 7, "a": a}])
    assert db.execute("SELECT a FROM t").fetchall() == [(2,)]
    assert not db.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'netspy%'").fetchall()


STO_01 = {"id": 1, "order": 1, "key": "k", "desc": "100%", "group": 3, "pct%": 4, "a b": 5, "x-y": 6, "q`t": 7, 'd"q': 8, "": 9, "x.y": 10, "[b]": 11, "中": 12, "?": 13, ":n": 14}  # fmt: skip


def test_names_like_sql_words_and_with_odd_characters_are_plain_names(pipeline, db) -> None:
    pipeline.describe("order", ("id",))
    pipeline.save_items("order", [STO_01])
    pipeline.save_items("order", [STO_01 | {"order": 2}])
    db.row_factory = sqlite3.Row
    assert [dict(row) for row in db.execute('SELECT * FROM "order"')] == [STO_01 | {"order": 2}]
    pipeline.update_items("order", [{'d"q': 8, "q`t": "new"}], ['d"q'])
    assert db.execute('SELECT "q`t" FROM "order"').fetchone()[0] == "new"


def test_sql_in_a_column_or_table_name_is_not_run(pipeline, db) -> None:
    pipeline.save_items("t", [{"id": 1, "desc": "x"}])
    pipeline.save_items(
        "t", [{"id": 10, "desc`) values (11, 'pwn') -- ": 1}, {"id": 12, "desc\") VALUES (11, 'pwn') -- ": 1}]
    )
    for table in ("t`; DROP TABLE t; -- ", 't"; DROP TABLE t; -- '):
        pipeline.save_items(table, [{"id": 20}])
    assert db.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (10,), (12,)]
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone() == (3,)


def test_two_fields_that_sqlite_takes_for_one_are_the_items_fault(pipeline, db) -> None:
    pipeline.save_items("T", [{"ID": 1}])
    pipeline.save_items("t", [{"id": 2}])
    assert db.execute("SELECT ID FROM T").fetchall() == [(1,), (2,)]
    with pytest.raises(ItemError, match="ignores case"):
        pipeline.save_items("t", [{"id": 3, "ID": 4}])
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)


@pytest.mark.parametrize(
    ("first", "later", "kept"),
    [
        (5, "007", "007"),
        (5, " 5 ", " 5 "),
        (5, "1e3", "1e3"),
        (5, "9" * 30, "9" * 30),
        (5, 2**64, str(2**64)),
        (1.5, 2**60 + 1, 2**60 + 1),
        (1.5, "1.50", "1.50"),
        ("x", 0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_a_column_gives_up_its_type_rather_than_change_a_value(pipeline, db, first, later, kept) -> None:
    pipeline.describe("t", ("id",))
    db.execute("CREATE TABLE seen (id)")
    pipeline.save_items("t", [{"id": 1, "v": first}])
    db.execute("CREATE VIEW look AS SELECT id, v FROM t")
    db.execute("CREATE TRIGGER watch AFTER INSERT ON t BEGIN INSERT INTO seen VALUES (new.id); END")
    db.execute("CREATE INDEX by_v ON t (v)")

    pipeline.save_items("t", [{"id": 2, "v": later}, {"id": 3, "v": None}])
    pipeline.save_items("t", [{"id": 1, "v": first}])  # the unique index is still there

    assert db.execute("SELECT v FROM look ORDER BY id").fetchall() == [(first,), (kept,), (None,)]
    assert {i for (i,) in db.execute("SELECT id FROM seen")} >= {2, 3}
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'by_v'").fetchone() == (1,)


def test_numbers_as_text_that_mean_the_same_leave_the_type_alone(pipeline, db) -> None:
    pipeline.save_items("t", [{"v": 5}])
    pipeline.save_items("t", [{"v": "17"}, {"v": "N/A"}, {"v": 1.5}])
    assert types(db, "t") == {"v": "INTEGER"}
    assert db.execute("SELECT v FROM t").fetchall() == [(5,), (17,), ("N/A",), (1.5,)]


def test_a_number_that_a_column_of_the_user_would_round_is_refused(pipeline, db) -> None:
    db.execute("CREATE TABLE t (v INTEGER)")
    with pytest.raises(ItemError, match="64 bits"):
        pipeline.save_items("t", [{"v": 2**64}])


@pytest.mark.parametrize("declared", ["REAL", "NUMERIC", "DECIMAL(10,2)", "INTEGER"])
@pytest.mark.parametrize(
    "value", ["1.23456789012345678901", Decimal("0.12345678901234567890"), "1e400", "1e-400", "1e99999999999999999999"]
)  # fmt: skip
def test_digits_that_a_column_of_the_user_would_drop_are_refused(pipeline, db, declared, value) -> None:
    db.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    pipeline.save_items("t", [{"id": 1, "v": "1.10"}, {"id": 2, "v": "007"}, {"id": 3, "v": "n/a"}])
    assert db.execute("SELECT v FROM t").fetchall() == [(1.1,), (7,), ("n/a",)]
    with pytest.raises(ItemError, match="would keep"):
        pipeline.save_items("t", [{"id": 1, "v": value}])
    with pytest.raises(ItemError, match="would keep"):
        pipeline.update_items("t", [{"id": 1, "v": value}], ["id"])


def test_a_whole_number_that_a_column_of_the_user_would_round_is_refused(pipeline, db) -> None:
    db.execute("CREATE TABLE t (v REAL)")
    pipeline.save_items("t", [{"v": 2**53}])
    with pytest.raises(ItemError, match="9007199254740993 as"):
        pipeline.save_items("t", [{"v": 2**53 + 1}])


def test_text_of_a_str_subclass_is_text_and_an_object_is_the_items_fault(pipeline, db) -> None:
    pipeline.save_items("t", [{"a": XPathText("é")}])
    assert db.execute("SELECT a FROM t").fetchall() == [("é",)]
    with pytest.raises(ItemError, match="Unstorable"):
        pipeline.save_items("t", [{"a": "ok"}, {"a": Unstorable()}])
    assert db.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_one_bad_row_takes_back_the_whole_batch_and_its_new_column(pipeline, db) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT CHECK (v <> 'bad'))")
    with pytest.raises(ItemError, match="CHECK"):
        pipeline.save_items("t", [{"id": 1, "v": "good", "new": 1}, {"id": 2, "v": "bad"}])
    assert db.execute("SELECT * FROM t").fetchall() == []
    pipeline.save_items("t", [{"id": 1, "v": "good", "new": 1}])
    assert db.execute("SELECT * FROM t").fetchall() == [(1, "good", 1)]


def test_an_update_changes_what_it_finds_and_adds_columns(pipeline, db) -> None:
    pipeline.save_items("t", [{"id": 1, "a": 1}, {"id": 2, "a": 1}, {"id": None, "a": 1}])
    assert pipeline.update_items("t", [{"id": 1, "a": 5, "b": "x"}, {"id": None, "a": 7}], ("id",))
    assert db.execute("SELECT id, a, b FROM t").fetchall() == [(1, 5, "x"), (2, 1, None), (None, 7, None)]


@pytest.mark.parametrize(
    ("table", "item", "keys", "words"),
    [
        ("t", {"id": 9, "a": 1}, ("id",), "no row of table 't' has id=9"),
        ("t", {"id": 9}, ("id",), "no row"),
        ("t", {"nokey": 1, "a": 1}, ("nokey",), "doesn't exist yet"),
        ("other", {"id": 1, "a": 1}, ("id",), "doesn't exist yet"),
        ("t", {"a": 1}, ("id",), "no value for its key"),
        ("t", {"a": 1}, (), "names no __update_key__"),
    ],
)
def test_an_update_that_finds_no_row_fails_and_takes_its_batch_back(
    pipeline, db, table, item, keys, words
) -> None:
    pipeline.save_items("t", [{"id": 1, "a": 1}])
    with pytest.raises(ItemError, match=words):
        pipeline.update_items(table, [{"id": 1, "a": 2, "nokey": 0}, item], keys)
    assert db.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_a_locked_database_is_an_error_that_may_pass(settings, pipeline, db, monkeypatch) -> None:
    monkeypatch.setattr(sqlite_pipeline, "_BUSY_S", 0.05)
    pipeline.open()
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        pipeline.save_items("t", [{"a": 1}])
    db.execute("COMMIT")
    pipeline.save_items("t", [{"a": 1}])
    assert db.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_a_database_file_that_was_moved_away_is_made_anew(settings, pipeline, db, tmp_path) -> None:
    pipeline.save_items("t", [{"a": 1}])
    for file in Path(settings.SQLITE_PATH).parent.iterdir():
        file.rename(tmp_path / file.name)
    pipeline.save_items("t", [{"a": 2}])
    with closing(sqlite3.connect(settings.SQLITE_PATH)) as fresh:
        assert fresh.execute("SELECT a FROM t").fetchall() == [(2,)]


def test_a_table_dropped_or_changed_by_others_is_seen(pipeline, db) -> None:
    pipeline.describe("t", ("a",))
    pipeline.save_items("t", [{"a": 1}])
    db.execute("ALTER TABLE t ADD COLUMN b")
    pipeline.save_items("t", [{"a": 2, "b": 2}])
    db.execute("DROP TABLE t")
    pipeline.save_items("t", [{"a": 3}, {"a": 3}])
    assert db.execute("SELECT * FROM t").fetchall() == [(3,)]


def test_a_file_that_is_no_database_is_said_at_open(settings, out) -> None:
    out.mkdir(parents=True)
    Path(settings.SQLITE_PATH).write_text("hello " * 1000)
    [made] = load_pipelines([SqlitePipeline], settings)
    with pytest.raises(UnusableError, match="not a database"):
        made.open()


def test_commits_are_synced_and_readers_are_not_blocked(pipeline) -> None:
    assert pipeline._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert pipeline._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_processes_and_threads_share_the_database_while_it_grows_columns(out) -> None:
    expected = run_side_by_side("netspy.pipelines.sqlite.SqlitePipeline", out)
    with closing(sqlite3.connect(out / "t.db")) as db:
        ids = [i for (i,) in db.execute("SELECT id FROM t").fetchall()]
    assert len(ids) == len(expected)
    assert set(ids) == expected
