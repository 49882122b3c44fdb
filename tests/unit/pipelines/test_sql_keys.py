"""Keys as the database compares them: what it takes for equal keeps its order, what it can't go by is no key."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pytest
from sql_rig import Database, pipeline

from netspy.errors import ItemError
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.relational.equality import UNSURE, alike
from netspy.pipelines.relational.plan import Line, Shape, by_key, repeats
from netspy.pipelines.sqlite import SqlitePipeline
from netspy.settings import Settings
from netspy.sqlio.reflection import Column, Table, reflect
from netspy.sqlio.sqlite_file import has_other_collation

GENERAL = "utf8mb4_general_ci"


def text(collation: str = "", **more) -> Column:
    return Column("k", "text", "TEXT", collation=collation, folds=bool(collation), **more)


@pytest.mark.parametrize(
    ("column", "one", "two"),
    [
        (text(GENERAL), "Cafe", "cafe "),
        (text(), "a", "a  "),
        (Column("k", "integer", "INT"), 1, True),
        (Column("k", "binary", "BINARY(2)"), b"a", b"a\0"),
        (Column("k", "date", "DATE"), dt.date(2026, 1, 1), dt.date(2026, 1, 1)),
        (
            Column("k", "datetimetz", "TIMESTAMPTZ"),
            dt.datetime(2026, 1, 1, 8, tzinfo=dt.timezone(dt.timedelta(hours=8))),
            dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        ),
        (Column("k", "uuid", "UUID"), UUID(int=7), "{00000000-0000-0000-0000-000000000007}"),
    ],
)
def test_what_a_database_takes_for_equal_is_alike(column, one, two) -> None:
    assert alike(one, column) == alike(two, column)
    assert alike(one, column) is not UNSURE


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (text(GENERAL), "café"),
        (text(GENERAL), "stra\u00dfe"),
        (text(GENERAL), "ａ"),
        (text(GENERAL), "a\u200b"),
        (text(GENERAL), "a\t"),
        (text("utf8mb4_swedish_ci"), "v"),
        (text("utf8mb4_lithuanian_ci"), "y"),
        (Column("k", "text", "citext", folds=True), "a"),
        (Column("k", "decimal", "DECIMAL(5,2)", scale=2), Decimal("1.001")),
        (Column("k", "float", "FLOAT"), 1),
        (Column("k", "datetime", "DATETIME"), dt.datetime(2026, 1, 1, 0, 0, 0, 1)),
        (Column("k", "other", "INET"), "10.0.0.1"),
        (Column("k", "json", "JSONB"), "{}"),
    ],
)
def test_what_only_the_server_can_compare_is_unsure(column, value) -> None:
    assert alike(value, column) is UNSURE


def test_one_value_that_may_equal_any_other_keeps_all_in_their_order() -> None:
    table = Table("t", {"k": text(GENERAL), "n": Column("n", "integer", "INT")})
    shape = Shape(("k", "n"), [Line(0, ("café", 1)), Line(1, ("cafe", 2))])
    assert repeats([shape], table, [("k",)])
    assert not repeats([shape], table, [("k", "n")])  # the number tells them apart
    assert not repeats([Shape(("k",), [Line(0, ("é",))])], table, [("k",)])
    assert repeats(
        [Shape(("k", "n"), [Line(0, ("é", 1))]), Shape(("k",), [Line(1, ("e",))])], table, [("k",)]
    )


def test_a_default_may_be_what_another_row_has_and_a_counter_is_not() -> None:
    columns = {"k": Column("k", "integer", "INT", filled=True), "v": Column("v", "integer", "INT")}
    shapes = [Shape(("k", "v"), [Line(0, (0, 1))]), Shape(("v",), [Line(1, (2,))])]
    assert repeats(shapes, Table("t", columns), [("k",)])
    columns["k"] = columns["k"]._replace(counter=True)
    assert not repeats(shapes, Table("t", columns), [("k",)])


def test_nulls_are_equal_only_where_the_index_says_so() -> None:
    shapes = [Shape(("k",), [Line(0, (None,)), Line(1, (None,))])]
    assert not repeats(shapes, Table("t", {"k": text()}), [("k",)])
    assert repeats(shapes, Table("t", {"k": text()}, null_keys=(("k",),)), [("k",)])


def test_rows_that_are_told_apart_are_sorted_by_their_key() -> None:
    table = Table("t", {"k": text()})
    shape = Shape(("k",), [Line(0, ("b",)), Line(1, (None,)), Line(2, ("a",))])
    assert [line.place for line in by_key(shape, table, ("k",)).lines] == [1, 2, 0]
    assert by_key(shape, table, ("missing",)) is shape


PAIRS = [
    ("café", "cafe"),
    ("straße", "strasse"),
    ("ａ", "a"),
    ("É", "e"),
    ("a\u200b", "a"),
    ("b", "B"),
    ("ñ", "n"),
    ("z ", "z"),
]


@pytest.mark.parametrize(
    "collation", ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_uca1400_ai_ci", "utf8mb4_swedish_ci"]
)
def test_the_later_of_two_rows_that_mysql_takes_for_one_wins(maria, said, collation) -> None:
    """Case HO-09: whatever the server takes for equal, in both orders; and the warning names accents."""
    pairs = [*PAIRS, ("v", "w"), *[(two, one) for one, two in PAIRS]]
    maria.run(
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t (k VARCHAR(50) COLLATE {collation} PRIMARY KEY, n INT, m INT)",
    )
    with pipeline(maria.url, key=["k"]) as made:
        for one, two in pairs:
            maria.run("DELETE FROM t")
            made.save_items(
                "t", [{"k": one, "n": 1}, {"k": "x", "n": 1}, {"k": two, "m": 2}, {"k": two, "n": 3}]
            )
            # Compared by the server, whichever of the two texts it kept.
            assert maria.rows(f"SELECT n FROM t WHERE k = '{two}'") == [(3,)], (one, two)
    assert any("differ only in case, accents or the like" in line for line in said)


@pytest.mark.parametrize("kind", ["citext", 'text COLLATE "ci"', 'text COLLATE "numbers"', "char(8)"])
def test_the_later_of_two_rows_that_postgres_takes_for_one_wins(pg, kind) -> None:
    """As case HO-09: citext, and collations that are not deterministic."""
    pg.run(
        "DROP TABLE IF EXISTS t",
        "CREATE EXTENSION IF NOT EXISTS citext" if kind == "citext" else "SELECT 1",
        "CREATE COLLATION IF NOT EXISTS ci (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        "CREATE COLLATION IF NOT EXISTS numbers (provider = icu, locale = 'und-u-kn-true-ka-shifted', deterministic = false)",
        f"CREATE TABLE t (k {kind} PRIMARY KEY, n INT)",
    )
    pairs = [("b", "B"), ("e", "é"), ("2", "02"), ("a-b", "ab"), ("x ", "x")]
    with pipeline(pg.url, key=["k"]) as made:
        for first, then in [*pairs, *[(two, one) for one, two in pairs]]:
            pg.run("DELETE FROM t")
            made.save_items("t", [{"k": first, "n": 1}, {"k": "q", "n": 0}, {"k": then, "n": 2}])
            assert pg.rows(f"SELECT n FROM t WHERE k = '{then}'") == [(2,)], (first, then)


def test_values_that_a_column_rounds_to_one_keep_their_order(maria) -> None:
    maria.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (k DECIMAL(6,2) PRIMARY KEY, n INT)")
    with pipeline(maria.url, key=["k"]) as made:
        made.save_items("t", [{"k": Decimal("1.002"), "n": 1}, {"k": Decimal("1.001"), "n": 2}])
    assert maria.rows("SELECT n FROM t") == [(2,)]


def test_rows_of_several_fields_keep_their_order_in_sqlite(sqlite_url) -> None:
    lite = Database(sqlite_url)
    lite.run("CREATE TABLE t (k INTEGER COLLATE NOCASE PRIMARY KEY, n INT, m INT)")
    with pipeline(sqlite_url, key=["k"]) as made:
        made.save_items("t", [{"k": 5, "n": 1}, {"k": "5", "n": 2, "m": 2}, {"k": 5, "n": 3}])
    assert lite.rows("SELECT n FROM t") == [(3,)]
    lite.engine.dispose()


LATE = [
    "UNIQUE (u) DEFERRABLE INITIALLY IMMEDIATE",
    "UNIQUE (u) DEFERRABLE INITIALLY DEFERRED",
    "PRIMARY KEY (u) DEFERRABLE",
]


@pytest.mark.parametrize("action", ["update", "nothing"])
@pytest.mark.parametrize("constraint", LATE)
def test_a_deferrable_constraint_is_no_key(pg, said, constraint, action) -> None:
    """Case HO-11: one warning, the rows are stored, and a duplicate is that row's own failure."""
    pg.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (u TEXT, n INT, {constraint})")
    with pipeline(pg.url, key=["u"], SQL_ON_CONFLICT=action) as made:
        made.save_items("t", [{"u": "a", "n": 1}, {"u": "b", "n": 2}])
        made.save_items("t", [{"u": "c", "n": 3}])
        with pytest.raises(ItemError, match="duplicate key"):
            made.save_items("t", [{"u": "a", "n": 4}])
    assert sorted(pg.rows("SELECT * FROM t")) == [("a", 1), ("b", 2), ("c", 3)]
    assert sum("no unique index over ['u']" in line for line in said) == 1


@pytest.mark.parametrize("action", ["update", "nothing"])
def test_a_deferrable_constraint_beside_a_key_is_no_obstacle(pg, action) -> None:
    pg.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (id INT PRIMARY KEY, u TEXT UNIQUE DEFERRABLE, n INT)")
    for key in (["id"], []):
        with pipeline(pg.url, key=key, SQL_ON_CONFLICT=action) as made:
            for n in (1, 2):
                made.save_items("t", [{"id": 1, "u": "a", "n": n}])
    assert pg.rows("SELECT n FROM t") == [(2 if action == "update" else 1,)]


@pytest.mark.parametrize(
    "index",
    [
        "CREATE UNIQUE INDEX i ON t (u) WHERE n > 0",
        "CREATE UNIQUE INDEX i ON t (lower(u))",
        "CREATE UNIQUE INDEX i ON t (u, (n + 1))",
    ],
)
def test_partial_and_expression_indexes_are_no_key(pg, said, index) -> None:
    pg.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (u TEXT, n INT)", index)
    with pipeline(pg.url, key=["u"]) as made:
        made.save_items("t", [{"u": "a", "n": 1}, {"u": "b", "n": 2}])
    assert sorted(pg.rows("SELECT u FROM t")) == [("a",), ("b",)]
    assert sum("no unique index over ['u']" in line for line in said) == 1


@pytest.mark.parametrize(
    "index",
    ["(u COLLATE NOCASE)", "(u) WHERE n > 0", "(lower(u))"],
)
def test_an_index_that_sqlite_can_not_go_by_is_no_key(sqlite_url, said, index) -> None:
    """One of another collation than its column makes the statement an error, too."""
    lite = Database(sqlite_url)
    lite.run("CREATE TABLE t (u TEXT, n INT)", f"CREATE UNIQUE INDEX i ON t {index}")
    with pipeline(sqlite_url, key=["u"]) as made:
        made.save_items("t", [{"u": "a", "n": 1}, {"u": "b", "n": 2}])
    assert lite.rows("SELECT u FROM t") == [("a",), ("b",)]
    assert sum("no unique index over ['u']" in line for line in said) == 1
    path = lite.url.removeprefix("sqlite:///")
    lite.engine.dispose()
    [plain] = load_pipelines([SqlitePipeline(path)], Settings())
    plain.open()
    plain.describe("t", ("u",))
    for n in (7, 8):
        plain.save_items("t", [{"u": "c", "n": n}])
    plain.close()
    again = Database(sqlite_url)
    assert again.rows("SELECT n FROM t WHERE u = 'c'") == [(8,)]
    again.engine.dispose()


@pytest.mark.parametrize(
    ("index", "table", "other"),
    [
        (None, "CREATE TABLE t (u TEXT COLLATE NOCASE UNIQUE)", False),
        ("CREATE UNIQUE INDEX i ON t (u)", "CREATE TABLE t (u TEXT COLLATE NOCASE)", False),
        ("CREATE UNIQUE INDEX i ON t (u collate nocase)", "CREATE TABLE t (u TEXT COLLATE NOCASE)", False),
        ("CREATE UNIQUE INDEX i ON t (u COLLATE BINARY)", "CREATE TABLE t (u TEXT)", False),
        ("CREATE UNIQUE INDEX i ON t (u COLLATE BINARY)", "CREATE TABLE t (u TEXT COLLATE NOCASE)", True),
        ('CREATE UNIQUE INDEX i ON t (u COLLATE "NOCASE")', "CREATE TABLE t (u TEXT)", True),
    ],
)
def test_the_collation_of_an_index(index, table, other) -> None:
    assert has_other_collation(index, table) is other


def test_a_row_with_a_null_in_its_key_is_told_once(any_sql, said) -> None:
    """Case HO-10: SQL takes NULLs for different, so such a row is always new."""
    db = Database(any_sql)
    db.run("CREATE TABLE t (site VARCHAR(9) NOT NULL, code VARCHAR(9), n INT, UNIQUE (site, code))")
    with pipeline(any_sql, key=["site", "code"]) as made:
        made.save_items("t", [{"site": "a", "code": "x", "n": 0}])
        assert not [line for line in said if "NULL" in line]
        for n in (1, 2):
            made.save_items("t", [{"site": "a", "code": None, "n": n}])
            made.save_items("t", [{"site": "b", "n": n}])
    assert db.rows("SELECT count(*) FROM t") == [(5,)]
    db.engine.dispose()
    assert sum("a row has no 'code', a part of its key" in line for line in said) == 1


def test_nulls_that_an_index_takes_for_equal_are_no_news(pg, said) -> None:
    pg.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (u TEXT, n INT, UNIQUE NULLS NOT DISTINCT (u))")
    with pipeline(pg.url, key=["u"]) as made:
        made.save_items("t", [{"u": None, "n": 1}, {"n": 3}, {"u": None, "n": 2}])
    assert pg.rows("SELECT n FROM t") == [(2,)]
    assert not [line for line in said if "NULL" in line]


def test_what_postgres_tells_of_a_table(pg) -> None:
    pg.run(
        "DROP TABLE IF EXISTS t",
        'CREATE TABLE t ("a%%b" TEXT, u TEXT UNIQUE DEFERRABLE, PRIMARY KEY ("a%%b"))',
    )
    with pg.engine.connect() as connection:
        table = reflect(connection, pg.dialect, "t")
    assert table is not None
    assert (table.primary, table.uniques, table.deferred, table.null_keys) == (("a%b",), (), True, ())


def test_sqlite_files_tell_of_a_null_in_a_key_once(tmp_path, said) -> None:
    """As case HO-10, for SqlitePipeline."""
    [made] = load_pipelines([SqlitePipeline(tmp_path / "t.db")], Settings())
    made.open()
    made.describe("t", ("u",))
    made.save_items("t", [{"u": "a"}])
    for _ in range(2):
        made.save_items("t", [{"u": None}, {"n": 1}])
    made.close()
    assert sum("has no 'u', a part of its key" in line for line in said) == 1
