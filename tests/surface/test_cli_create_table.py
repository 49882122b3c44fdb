"""`netspy create -i NAME --table T --url URL`: the item class fits the table it was made from."""

import importlib.util
import inspect
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal

import pytest

from netspy.cli import main
from netspy.messages.validation import checker
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.sql import SqlPipeline
from netspy.settings import Settings
from netspy.sqlio.engine import make_engine

COUNTER = {
    "mysql": "INT AUTO_INCREMENT PRIMARY KEY",
    "postgresql": "SERIAL PRIMARY KEY",
    "sqlite": "INTEGER PRIMARY KEY",
}
DECIMAL = {"mysql": "DECIMAL(10,2)", "postgresql": "NUMERIC(10,2)", "sqlite": "DECIMAL(10,2)"}
QUOTE = {"mysql": "`", "postgresql": '"', "sqlite": '"'}


def run(url, *statements):
    engine = make_engine(url, pool_size=1)
    with engine.begin() as connection:
        found = [connection.exec_driver_sql(statement) for statement in statements]
        rows = [tuple(row) for row in found[-1]] if found[-1].returns_rows else []
    engine.dispose()
    return rows


@pytest.fixture
def create(workdir, capsys):
    def call(*arguments):
        code = main(["create", *arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def load(monkeypatch):
    """Import a file as a module of its name."""
    return lambda path: _load(path, monkeypatch)


def _load(path, monkeypatch):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def test_the_item_has_the_table_s_fields_types_and_key_and_its_rows_fit(any_sql, create, load, workdir):
    scheme = any_sql.partition(":")[0]
    q = QUOTE[scheme]
    run(
        any_sql,
        f"CREATE TABLE {q}hot products{q} (id {COUNTER[scheme]}, site VARCHAR(50) NOT NULL, sku VARCHAR(50) NOT NULL, "
        f"price {DECIMAL[scheme]} NOT NULL, stock INTEGER, rating DOUBLE PRECISION, seen TIMESTAMP NULL, day DATE, "
        f"status VARCHAR(9) DEFAULT 'new', {q}x-y{q} INTEGER, {q}class{q} TEXT, {q}pipelines{q} TEXT, self TEXT, UNIQUE (site, sku))",
    )
    code, out, err = create("-i", "product", "--table", "hot products", "--url", any_sql)
    assert (code, out, err) == (0, "created product_item.py\n", "")
    kind = load(workdir / "product_item.py").ProductItem
    assert (kind.__table_name__, tuple(sorted(kind.__unique_key__))) == ("hot products", ("site", "sku"))
    assert inspect.get_annotations(kind) == {
        "site": str,
        "sku": str,
        "price": Decimal,
        "stock": int | None,
        "rating": float | None,
        "seen": datetime | None,
        "day": date | None,
    }
    text = (workdir / "product_item.py").read_text("utf-8")
    for line in (
        "# id: int  (a counter)",
        "# status: str  (has a default)",
        '# "x-y": int',
        '# "class": str',
        '# "self": str',
    ):
        assert line in text
    assert '# "pipelines": str' in text.partition("No field can have these names")[2]
    for tool in (["check"], ["format", "--check"]):
        argv = [sys.executable, "-m", "ruff", tool[0], "--isolated", "--quiet", *tool[1:], "."]
        done = subprocess.run(argv, cwd=workdir, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    item = kind(site="a", sku="1", price=Decimal("3.50"), seen=datetime(2026, 1, 1, 8))
    item["x-y"] = 5
    item["self"] = "me"
    checker(kind)(item.to_dict())
    [pipeline] = load_pipelines([SqlPipeline(any_sql)], Settings())
    pipeline.open()
    for _ in range(2):
        pipeline.save_items(item.table_name, [item.to_dict()])
    pipeline.close()
    rows = run(any_sql, f"SELECT id, site, status, {q}x-y{q}, self FROM {q}hot products{q}")
    assert [row[1:] for row in rows] == [("a", "new", 5, "me")]


def test_a_table_with_neither_key_nor_plain_name(sqlite_url, create, load, workdir):
    run(sqlite_url, 'CREATE TABLE "a""b\\\n中" (date DATE, n)')
    assert create("-i", "odd", "--table", 'a"b\\\n中', "--url", sqlite_url)[0] == 0
    kind = load(workdir / "odd_item.py").OddItem
    assert kind.__table_name__ == 'a"b\\\n中'
    assert not kind.__unique_key__
    assert "no unique key" in (workdir / "odd_item.py").read_text("utf-8")


def test_the_database_of_the_settings_needs_no_password_on_the_command_line(mariadb, create, workdir):
    run(mariadb.url(), "DROP TABLE IF EXISTS cli_t", "CREATE TABLE cli_t (url VARCHAR(99) PRIMARY KEY)")
    (workdir / "setting.py").write_text(
        f"MYSQL_HOST, MYSQL_PORT, MYSQL_USER = '127.0.0.1', {mariadb.port}, 'netspy'\nMYSQL_PASSWORD = {'s3c:r/e@t %41#?'!r}\n"
    )
    assert create("-i", "t", "--table", "cli_t", "--mysql", "mysql")[:2] == (0, "created t_item.py\n")
    assert create("-i", "u", "--table", "cli_t", "--url", mariadb.url())[:2] == (0, "created u_item.py\n")
    assert (workdir / "t_item.py").read_text().replace("TItem", "UItem") == (
        workdir / "u_item.py"
    ).read_text()
    run(mariadb.url(), "DROP TABLE cli_t")


def test_without_a_url_the_table_is_that_of_the_project_s_pipelines(any_sql, create, load, workdir):
    run(any_sql, "CREATE TABLE prices (sku VARCHAR(50) PRIMARY KEY, price DOUBLE PRECISION)")
    (workdir / "setting.py").write_text(f"SQL_URL = {any_sql!r}\n")
    code, out, err = create("-i", "price", "--table", "prices")
    assert (code, out) == (0, "created price_item.py\n")
    assert "fields, types and key are those of the table in" in err
    kind = load(workdir / "price_item.py").PriceItem
    assert (kind.__unique_key__, inspect.get_annotations(kind)["price"]) == (("sku",), float | None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("SQL_URL = 'sqlite:///shop.db'", "there is no file shop.db; the fields are examples"),
        (
            "SQL_URL = 'mysql://me:secret@127.0.0.1:1/x'",
            "127.0.0.1:1/x can't be read: Can't connect",
        ),
        ("SQL_URL = ''", ""),
    ],
)
def test_a_table_that_is_not_there_yet_gives_the_item_of_the_template(create, load, workdir, line, said):
    (workdir / "setting.py").write_text(f"{line}\n")
    code, _, err = create("-i", "price", "--table", "prices")
    assert code == 0
    assert said in " ".join(err.split())
    assert "secret" not in err
    assert load(workdir / "price_item.py").PriceItem.__table_name__ == "prices"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["--table", "t", "--url", "mysql://me:secret@127.0.0.1:1/x"],
            3,
            "127.0.0.1:1/x can't be read",
        ),
        (["--table", "t", "--url", "oracle://me:secret@h/x"], 3, "no database that netspy knows"),
        (["--table", "t", "--mysql", "sqlite:///x.db"], 3, "use --url"),
        (["--table", "t", "--url", "sqlite:///x.db"], 3, "there is no file x.db"),
        (["--table", "t", "--url", "sql"], 3, "SQL_URL, which is empty"),
        (["--table", "t", "--url", "sql", "--mysql", "mysql"], 2, "not both"),
        (["--url", "sqlite:///x.db"], 2, "go with --table"),
    ],
)
def test_what_can_not_be_read_is_one_line_without_a_password(create, workdir, arguments, code, words):
    ended, _, err = create("-i", "product", *arguments)
    assert ended == code
    assert words in " ".join(err.split())
    assert "secret" not in err
    assert "Traceback" not in err
    assert not list(workdir.iterdir())
