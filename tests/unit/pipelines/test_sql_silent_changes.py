"""Values that a server would take, and give back as others: each is refused, or it comes back as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from loguru import logger
from sql_rig import Database, pipeline

from netspy.errors import ItemError, RowsFailedError
from netspy.pipelines.relational import tables as sql_tables

EAST = timezone(timedelta(hours=8))


def stored(db, declared, *values):
    """What is read from columns of that type after each value was stored in a row of its own; a refusal as None."""
    db.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    found = dict.fromkeys(range(len(values)))
    refused = {}
    with pipeline(db.url) as made:
        try:
            made.save_items("t", [{"id": at, "v": value} for at, value in enumerate(values)])
        except RowsFailedError as error:
            refused = error.failed
    assert all(isinstance(why, ItemError) and str(why).startswith("field 'v': ") for why in refused.values())
    found.update(db.rows("SELECT id, v FROM t"))
    return list(found.values())


MYSQL = [
    # an index in the place of a member; another member that the collation takes for equal
    ("ENUM('red','1','3')", ["red", "1", "3", "2", "4", "red ", "", "blue", 1], ["red", "1", "3"] + 5 * [None] + ["1"]),
    ("ENUM('é','it''s')", ["é", "e", "it's"], ["é", None, "it's"]),
    ("SET('a','b')", ["a,b", "", "3", "a,c", "a ,b", 0], ["a,b", "", None, None, None, None]),
    ("YEAR", [1901, 2155, 0, 5, 70, "12", True, 1900, 2156], [1901, 2155, 0] + 6 * [None]),
    ("CHAR(4)", ["ab", "", "ab ", " ", "abcde"], ["ab", "", None, None, None]),
    ("BINARY(3)", [b"abc", b"ab", b"", "abc"], [b"abc", None, None, b"abc"]),
    ("TINYTEXT", ["x" * 255, "x" * 254 + " ", "x" * 255 + "  "], ["x" * 255, "x" * 254 + " ", None]),
    ("TEXT", ["中" * 21845, "中" * 21845 + " "], ["中" * 21845, None]),
    ("BIT(8)", [5, "5", b"\x07", True, 0.5, Decimal("1.1"), -1, ""], [b"\x05", b"\x05", b"\x07", b"\x01"] + 4 * [None]),
    ("TIMESTAMP NOT NULL", [datetime(2026, 1, 1), None], [datetime(2026, 1, 1), None]),
    ("DOUBLE", [Decimal("1.10"), Decimal("1.234567890123456789"), "1e-400", Decimal("1E+400")], [1.1, None, None, None]),
    ("FLOAT", [123456, 1234567, 1230000000, 1.5], [123456.0, None, 1230000000.0, 1.5]),
    (
        "DATETIME",
        ["2026-01-02", "2026/1/2 3:04", "10.11.12", "26-1-2", "01/02/2026"],
        [datetime(2026, 1, 2), datetime(2026, 1, 2, 3, 4), None, None, None],
    ),
    (
        "TIME(6)",
        ["11:12", "-1:02:03.5", timedelta(minutes=-30), timedelta(hours=30), "12", "1112", "2026", "2026-01-02 03:04:05"],
        [
            timedelta(hours=11, minutes=12),
            -timedelta(hours=1, minutes=2, seconds=3.5),
            timedelta(minutes=-30),
            timedelta(hours=30),
            *4 * [None],
        ],
    ),
    ("INET6", ["::1", Decimal("NaN")], ["::1", None]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values", "wanted"), MYSQL, ids=[case[0] for case in MYSQL])
def test_mysql_s_own_conversions_do_not_happen(maria, declared, values, wanted):
    assert stored(maria, declared, *values) == wanted


POSTGRES = [
    (
        "FLOAT8",
        [Decimal("1.10"), Decimal("1E+400"), "1e400", "1e-400", Decimal("1.234567890123456789"), Decimal("Infinity")],
        [1.1, None, None, None, None, float("inf")],
    ),
    ("REAL", [1 << 24, (1 << 24) + 1, 10**8], [float(1 << 24), None, 1e8]),
    ("BOOLEAN", [1, 0, True, 2, [1], {}], [True, False, True, None, None, None]),
    (
        "TIME",
        ["11:12", "11:12:13.5", "10:00+08", "2026", "1112"],
        [datetime(1, 1, 1, 11, 12).time(), datetime(1, 1, 1, 11, 12, 13, 500000).time(), None, None, None],
    ),
    (
        "TIMESTAMPTZ",
        ["Thu, 01 Jan 2026 10:00:00 GMT", "2026-01-01 18:00 Asia/Shanghai", "10.11.12", "01/02/2026", "today"],
        [datetime(2026, 1, 1, 10, tzinfo=UTC)] * 2 + [None, None, None],
    ),
    ("INTERVAL", ["1 day", "PT5S", "2026", "1.5"], [timedelta(days=1), timedelta(seconds=5), None, None]),
    ("MONEY", ["1.50", 5, "", "1,5"], ["$1.50", "$5.00", None, None]),
    ("INT[]", [[1, 2.0, "3"], [[1], [2]], [None, 4], [1.5], ["x"]], [[1, 2, 3], [[1], [2]], [None, 4], None, None]),
    ("VARCHAR(3)[]", [["abc"], ["abc "]], [["abc"], None]),
    (
        "TIMESTAMP[]",
        [[datetime(2026, 1, 1, 8, tzinfo=EAST)], ["2026-01-01T08:00:00+08:00"], ["soon"]],
        [[datetime(2026, 1, 1)], [datetime(2026, 1, 1)], None],
    ),
    ("DATE[]", [[date(2026, 1, 2)], [datetime(2026, 1, 2, 8)]], [[date(2026, 1, 2)], None]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values", "wanted"), POSTGRES, ids=[case[0] for case in POSTGRES])
def test_postgres_s_own_conversions_do_not_happen(pg, declared, values, wanted):
    assert stored(pg, declared, *values) == wanted


def test_a_type_that_sqlalchemy_does_not_know_takes_text(pg):
    assert stored(pg, "POINT", "(1,2)") == [
        "(1,2)"
    ]  # and no warning of SQLAlchemy's, which would be an error here


def test_a_value_that_the_server_can_not_convert_is_the_row_s_fault(pg, maria):
    for db, declared, value in ((pg, "OID", Decimal("NaN")), (maria, "INET6", 5)):
        db.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
        with pipeline(db.url) as made, pytest.raises(ItemError):
            made.save_items("t", [{"id": 1, "v": value}])


def test_a_number_without_end_is_no_infinity_in_sqlite(sqlite_url):
    lite = Database(sqlite_url)
    assert stored(lite, "INTEGER", Decimal("1E+400"), "1e400", "7") == [None, None, 7]
    assert stored(lite, "REAL", float("inf")) == [float("inf")]
    assert stored(lite, "TEXT", [Decimal("1E+400")], {1: "a", "1": "b"}, {1: "a"}) == [
        '["1E+400"]',
        None,
        '{"1":"a"}',
    ]
    lite.engine.dispose()


def test_a_counter_keeps_the_number_nought_that_it_is_given(maria):
    maria.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    with pipeline(maria.url) as made:
        for v in (1, 2):
            made.save_items("t", [{"id": 0, "v": v}])
        made.save_items("t", [{"id": None, "v": 3}])
    assert maria.rows("SELECT * FROM t") == [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    ("collation", "kept", "times"), [("utf8mb4_general_ci", 1, 1), ("utf8mb4_bin", 2, 0)]
)
def test_a_key_that_takes_different_rows_for_one_is_told_once(maria, collation, kept, times):
    lines = []
    number = logger.add(lambda message: lines.append(str(message)), level="INFO", format="{message}")
    maria.run(
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t (url VARCHAR(99) CHARACTER SET utf8mb4 COLLATE {collation} PRIMARY KEY)",
    )
    with pipeline(maria.url, key=["url"]) as made:
        made.save_items("t", [{"url": "https://a.example/A"}])
        made.save_items("t", [{"url": "https://a.example/a"}])
    logger.remove(number)
    assert maria.rows("SELECT count(*) FROM t") == [(kept,)]
    assert sum("differ only in case" in line for line in lines) == times


def test_a_column_that_became_text_meanwhile_keeps_the_text(maria, pg, monkeypatch):
    for db in (maria, pg):
        db.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (zip INT PRIMARY KEY)")
        with pipeline(db.url) as made:
            made.save_items("t", [{"zip": "01234"}])
            db.run(
                "ALTER TABLE t ALTER COLUMN zip TYPE TEXT"
                if db is pg
                else "ALTER TABLE t MODIFY zip VARCHAR(9)"
            )
            monkeypatch.setattr(sql_tables, "_STALE_S", 0.0)
            made.save_items("t", [{"zip": "01235"}])
        assert sorted(db.rows("SELECT zip FROM t")) == [("01235",), ("1234",)]
        monkeypatch.undo()
