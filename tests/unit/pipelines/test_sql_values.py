"""What went in comes out of MariaDB, PostgreSQL and SQLite, or the row fails with the reason."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from uuid import UUID

import pytest
from kinds_of_values import ITEM, Unstorable, XPathText
from sql_rig import Database, pipeline

from netspy.errors import ItemError, RowsFailedError

EAST = timezone(timedelta(hours=8))
MILLION = "中😀'\"\\\n" * 170_000  # more than 1 MB of UTF-8


class Level(IntEnum):
    HIGH = 3


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    made = Database(f"sqlite:///{tmp_path_factory.mktemp('values') / 'test.sqlite'}")
    yield made
    made.engine.dispose()


@pytest.fixture(params=["maria", "pg", "lite"])
def db(request):
    made = request.getfixturevalue(request.param)
    made.run("DROP TABLE IF EXISTS t")
    return made


def stored(db, declared, value, *, given=None):
    """What is read from a column of that type after `value` was stored; the reason as an ItemError when it was not."""
    db.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    with pipeline(db.url) as made:
        try:
            made.save_items("t", [{"id": 1, "v": value}, {"id": 2, "v": given}])
        except RowsFailedError as error:
            assert db.rows("SELECT id FROM t") == [(2,)]  # the good row is there
            return error.failed[0]
        except ItemError as error:
            return error
    return db.rows("SELECT v FROM t WHERE id = 1")[0][0]


SERVERS = {"mysql": 0, "postgresql": 1, "sqlite": 2}
TYPES = {  # MySQL, PostgreSQL, SQLite
    "text": ("LONGTEXT", "TEXT", "TEXT"),
    "int": ("INT", "INT", "INTEGER"),
    "big": ("BIGINT", "BIGINT", "INTEGER"),
    "wide": ("DECIMAL(65,0)", "NUMERIC", "TEXT"),
    "float": ("DOUBLE", "FLOAT8", "REAL"),
    "dec": ("DECIMAL(10,2)", "NUMERIC(10,2)", "TEXT"),
    "exact": ("DECIMAL(40,20)", "NUMERIC(40,20)", "TEXT"),
    "moment": ("DATETIME(6)", "TIMESTAMP", "TEXT"),
    "zoned": ("TIMESTAMP(6)", "TIMESTAMPTZ", "TEXT"),
    "date": ("DATE", "DATE", "TEXT"),
    "time": ("TIME(6)", "TIME", "TEXT"),
    "bytes": ("LONGBLOB", "BYTEA", "BLOB"),
    "json": ("JSON", "JSONB", "TEXT"),
    "bool": ("BOOLEAN", "BOOLEAN", "INTEGER"),
}
AT = datetime(2026, 1, 1, 8, 0, 0, 123456)
ARRIVES = [
    ("text", "emoji 😀 中 \u2028 'q' \"d\" \\ % %s \r\n\t", None),
    ("text", MILLION, None),
    ("text", "", None),
    ("text", " two blanks  ", None),
    ("text", None, None),
    ("text", XPathText("lxml"), "lxml"),
    ("text", 12, "12"),
    ("text", 1.5, "1.5"),
    ("text", True, "true"),
    ("text", Decimal("1.10"), "1.10"),
    ("text", datetime(2026, 1, 1, 8, tzinfo=EAST), "2026-01-01T08:00:00+08:00"),
    ("text", {"a": [1, {"b": "中"}]}, '{"a":[1,{"b":"中"}]}'),
    ("text", ["x"], '["x"]'),
    ("text", {"x"}, '["x"]'),
    ("text", UUID(int=1), str(UUID(int=1))),
    ("int", 2147483647, None),
    ("int", True, 1),
    ("int", Level.HIGH, 3),
    ("int", "007", 7),
    ("int", 5.0, 5),
    ("big", -(2**63), None),
    ("wide", 2**63, None),
    ("wide", 2**200, None),
    ("float", 0.1, None),
    ("float", 1e300, None),
    ("float", 2**53, float(2**53)),
    ("exact", Decimal("12345678901234567890.12345678901234567890"), None),
    ("exact", Decimal("1E+5"), Decimal(100000)),
    ("moment", AT, None),
    ("bytes", b"\xff\xfe\0'\\%s", None),
    ("bytes", b"", None),
    ("bytes", bytearray(b"ab"), b"ab"),
    ("bool", False, None),
    ("bool", 1, True),
]


def comparable(db, value):
    """SQLite has text for what it has no type for."""
    if db.dialect.kind == "sqlite" and isinstance(value, datetime):
        return value.isoformat()
    return value


@pytest.mark.parametrize(("kind", "value", "arrives"), ARRIVES, ids=lambda v: f"{v!r:.30}")
def test_a_value_arrives_exactly(db, kind, value, arrives):
    found = stored(db, TYPES[kind][SERVERS[db.dialect.kind]], value)
    wanted = comparable(db, value if arrives is None else arrives)
    if db.dialect.kind == "sqlite" and kind in {"wide", "exact"}:
        assert Decimal(found) == wanted
    else:
        assert found == wanted
        assert isinstance(found, type(wanted)) or isinstance(wanted, bool | int)


REFUSED = [
    ("text", "half a pair \ud83d", "surrogate"),
    ("text", {"a": float("nan")}, "JSON has no nan"),
    ("text", ["\udc00"], "surrogate"),
    ("text", Unstorable(), "Unstorable"),
    ("int", "12 EUR", "whole numbers"),
    ("int", 1.5, "whole numbers"),
    ("int", "1.5", "whole numbers"),
    ("int", {"a": 1}, "whole numbers"),
    ("int", 2**31, "range"),
    ("big", 2**63, "range"),
    ("float", 2**53 + 1, "digits"),
    ("float", "abc", "numbers"),
    ("dec", Decimal("123456789012.5"), "range|overflow"),
    ("moment", "yesterday", "dates and times|[Ii]ncorrect datetime"),
    ("moment", 1767225600, "dates and times"),
    ("date", datetime(2026, 1, 1, 8), "lose the time"),
    ("time", time(8, tzinfo=UTC), "without a zone"),
    ("bytes", 5, "bytes"),
    ("json", float("inf"), "JSON has no inf"),
    ("bool", "perhaps", "boolean|integer|[Ii]ncorrect|whole numbers"),
]


@pytest.mark.parametrize(("kind", "value", "why"), REFUSED, ids=lambda v: f"{v!r:.30}")
@pytest.mark.parametrize("server", ["maria", "pg"])
def test_what_a_column_can_not_hold_is_refused_with_the_reason(request, server, kind, value, why):
    db = request.getfixturevalue(server)
    found = stored(db, TYPES[kind][SERVERS[db.dialect.kind]], value)
    assert isinstance(found, ItemError), found
    assert re.search(why, str(found))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("TEXT", "\ud83d"),
        ("REAL", float("nan")),
        ("INTEGER", 2**63),
        ("REAL", 2**53 + 1),
        ("NUMERIC", "0.1000000000000000055"),
    ],
)
def test_what_sqlite_would_alter_is_refused(lite, declared, value):
    assert isinstance(stored(lite, declared, value), ItemError)


def test_nan_is_refused_by_mysql_and_kept_by_postgres(maria, pg):
    for value in (float("nan"), float("inf")):
        assert "MySQL has no" in str(stored(maria, "DOUBLE", value))
        assert repr(stored(pg, "FLOAT8", value)) == repr(value)
    assert stored(pg, "NUMERIC", Decimal("NaN")).is_nan()
    assert "U+0000" in str(stored(pg, "TEXT", "a\0b"))
    assert stored(maria, "TEXT", "a\0b") == "a\0b"


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, 16, tzinfo=EAST),
        datetime(2026, 1, 1, 8),
        "2026-01-01T08:00:00Z",
        "2026-01-01 16:00+08:00",
    ],
)
def test_a_moment_is_utc_in_every_kind_of_column(maria, pg, value):
    maria.run("SET GLOBAL time_zone = '+05:00'")
    wanted = datetime(2026, 1, 1, 8)
    try:
        assert stored(maria, "DATETIME", value) == wanted
        assert stored(maria, "TIMESTAMP NULL", value) == wanted
        assert stored(pg, "TIMESTAMP", value) == wanted
        assert stored(pg, "TIMESTAMPTZ", value) == wanted.replace(tzinfo=UTC)
    finally:
        maria.run("SET GLOBAL time_zone = SYSTEM")


def test_the_scale_of_a_column_rounds_since_that_is_what_it_declares(maria, pg):
    for db in (maria, pg):
        for value in (Decimal("19.995"), "19.995", 19.995):
            assert stored(db, "DECIMAL(10,2)", value) == Decimal("20.00")


FINE = datetime(2026, 1, 1, 8, 0, 0, 123456)


@pytest.mark.parametrize(
    ("maria_type", "pg_type", "whole", "more", "text"),
    [
        (
            "DECIMAL(10,2)",
            "NUMERIC(10,2)",
            Decimal("19.990"),
            Decimal("19.995"),
            "keeps 2 digit(s) behind the point",
        ),
        ("DECIMAL(10)", "NUMERIC(10)", 5, "5.25", "keeps 0 digit(s) behind the point"),
        ("DATETIME", "TIMESTAMP(0)", FINE.replace(microsecond=0), FINE, "keeps whole seconds"),
        (
            "TIMESTAMP(3) NULL",
            "TIMESTAMPTZ(3)",
            FINE.replace(microsecond=123000),
            FINE,
            "keeps 3 digit(s) of a second",
        ),
        ("FLOAT", "REAL", 0.1, 3.14159265358979, "keeps six or seven digits"),
    ],
)
def test_what_a_column_drops_because_it_is_declared_so_is_said_once(
    maria, pg, said, maria_type, pg_type, whole, more, text
):
    for db, declared in ((maria, maria_type), (pg, pg_type)):
        said.clear()
        db.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
        with pipeline(db.url) as made:
            made.save_items("t", [{"id": 1, "v": whole}, {"id": 2, "v": None}])
            assert said == [], "nothing is lost"
            for id_ in (3, 4):
                made.save_items("t", [{"id": id_, "v": more}])
        assert len(db.rows("SELECT id FROM t WHERE v IS NOT NULL")) == 3
        [line] = said
        assert "table 't': column 'v'" in line
        assert text in line


def test_columns_that_keep_all_say_nothing(maria, pg, said):
    for db, number, moment in ((maria, "DOUBLE", "DATETIME(6)"), (pg, "DOUBLE PRECISION", "TIMESTAMP")):
        assert stored(db, number, 3.14159265358979) == 3.14159265358979
        assert stored(db, moment, FINE) == FINE
    assert said == []


def test_nested_values_are_json_that_is_not_mangled(db):
    value = {"a": [1, {"b": "中😀"}], "z": None, "t": True, "f": 1.5}
    for given in (value, json.dumps(value)):
        found = stored(db, TYPES["json"][SERVERS[db.dialect.kind]], given)
        assert (json.loads(found) if isinstance(found, str) else found) == value


def test_types_that_only_postgres_has(pg):
    db = pg
    db.run("CREATE TYPE mood AS ENUM ('ok', 'bad')", "CREATE DOMAIN price AS NUMERIC(10,2) CHECK (VALUE > 0)")
    assert stored(db, "TEXT[]", ["a", "中", None]) == ["a", "中", None]
    assert stored(db, "INT[]", [1, 2]) == [1, 2]
    assert stored(db, "UUID", UUID(int=5)) == UUID(int=5)
    assert stored(db, "mood", "ok") == "ok"
    assert isinstance(stored(db, "mood", "great"), ItemError)
    assert stored(db, "price", "3.5") == Decimal("3.50")
    assert isinstance(stored(db, "price", -1), ItemError)
    assert stored(db, "INTERVAL", timedelta(hours=30)) == timedelta(hours=30)
    assert stored(db, "TIMETZ", time(8, tzinfo=EAST)) == time(8, tzinfo=EAST)
    assert str(stored(db, "INET", "10.0.0.1")) == "10.0.0.1"
    assert stored(db, "DATE", date(2026, 1, 2)) == date(2026, 1, 2)


def test_sto06_every_kind_of_value_at_once(maria):
    db = maria
    db.run("DROP TABLE IF EXISTS t")
    db.run(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON, l TEXT, s TEXT, none TEXT, t BOOLEAN, nan DOUBLE, "
        "`dec` DECIMAL(10,2), dt DATETIME, iso DATETIME, `by` BLOB, sur TEXT, big TEXT) CHARACTER SET utf8mb4"
    )
    good = {key: value for key, value in ITEM.items() if key not in {"nan", "sur"}}
    with pipeline(db.url) as made:
        with pytest.raises(RowsFailedError) as caught:
            made.save_items("t", [{**good, "sur": ITEM["sur"]}, good, {**good, "id": 2, "nan": ITEM["nan"]}])
        assert sorted(caught.value.failed) == [0, 2]
        assert "field 'sur'" in str(caught.value.failed[0])
        assert "field 'nan'" in str(caught.value.failed[2])
    [row] = db.dicts("SELECT * FROM t")
    assert row == {
        "id": 1,
        "j": '{"a":[1,{"b":"中"}]}',
        "l": '["x"]',
        "s": '["x"]',
        "none": None,
        "t": 1,
        "nan": None,
        "dec": Decimal("20.00"),
        "dt": datetime(2026, 1, 1),
        "iso": datetime(2026, 1, 1, 8),
        "by": b"\xff\xfe",
        "sur": None,
        "big": str(2**70),
    }


def test_a_table_that_netspy_makes_keeps_every_kind(db):
    items = [
        {
            "id": 1,
            "s": "😀",
            "big": MILLION,
            "i": 2**63,
            "f": 0.1,
            "d": Decimal("19.995"),
            "b": b"\xff",
            "bo": True,
            "j": {"a": ["中"]},
            "z": datetime(2026, 1, 1, 8, tzinfo=EAST),
            "n": AT,
            "day": date(2026, 1, 2),
            "clock": time(8, 1),
            "none": None,
            "mixed": 1,
        },
        {"id": 2, "i": 1, "mixed": "one"},
    ]
    with pipeline(db.url, key=["id"], ITEM_AUTO_CREATE_TABLE=True) as made:
        made.save_items("t", items)
        made.save_items("t", items)
    first, second = db.dicts("SELECT * FROM t ORDER BY id")
    assert (first["s"], first["big"], first["f"], first["b"], first["bo"], first["none"]) == (
        "😀",
        MILLION,
        0.1,
        b"\xff",
        True,
        None,
    )
    assert (int(first["i"]), Decimal(first["d"])) == (2**63, Decimal("19.995"))
    assert (first["mixed"], second["mixed"]) in {("1", "one"), (1, "one")}
    assert (json.loads(first["j"]) if isinstance(first["j"], str) else first["j"]) == {"a": ["中"]}
    moments = {
        "mysql": (datetime(2026, 1, 1), AT, date(2026, 1, 2), timedelta(hours=8, minutes=1)),
        "postgresql": (datetime(2026, 1, 1, tzinfo=UTC), AT, date(2026, 1, 2), time(8, 1)),
        "sqlite": ("2026-01-01T08:00:00+08:00", AT.isoformat(), "2026-01-02", "08:01:00"),
    }
    assert (first["z"], first["n"], first["day"], first["clock"]) == moments[db.dialect.kind]
    assert second["s"] is None
