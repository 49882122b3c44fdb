"""`netspy create`: what it writes runs as it is, passes ruff, and never replaces a file."""

import ast
import os
import subprocess
import sys
import textwrap

import pytest

from netspy import settings
from netspy.cli import main
from netspy.cli.create.command import module_and_class
from netspy.observe.summary import parse_line
from netspy.redisio.keys import BatchNames
from netspy.testing.children import wait_until
from netspy.testing.runner import start_script
from support.batch_tables import CREATE, admin


@pytest.fixture
def create(workdir, capsys):
    """Run `netspy create …` in an empty folder; (code, output, errors)."""

    def call(*arguments):
        code = main(["create", *arguments])
        return code, *capsys.readouterr()

    return call


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def ruff(folder):
    """What ruff says of a folder with its default rules; empty when it is content."""
    for arguments in (["check", "--isolated", "--quiet"], ["format", "--isolated", "--check", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "."],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            return f"{arguments}: {done.stdout}{done.stderr}"
    return ""


def test_a_project_has_all_it_needs_and_passes_ruff(create, workdir):
    code, out, err = create("-p", "shop")
    assert (code, err) == (0, "")
    assert files(workdir) == [
        "shop/.gitignore",
        "shop/README.md",
        "shop/items/__init__.py",
        "shop/main.py",
        "shop/setting.py",
        "shop/spiders/__init__.py",
        "shop/spiders/shop_spider.py",
    ]
    assert out.endswith("Run it: cd shop && netspy run main.py\n")
    assert ruff(workdir) == ""


def test_in_a_project_spiders_and_items_go_to_their_folders(create, workdir, monkeypatch):
    create("-p", "shop")
    monkeypatch.chdir(workdir / "shop")
    assert create("-s", "news")[1].startswith("created spiders/news_spider.py\n")
    assert create("-i", "product")[1] == "created items/product_item.py\n"


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ([], "AirSpider"),
        (["--kind", "air"], "AirSpider"),
        (["--kind", "spider"], "Spider"),
        (["--kind", "task"], "TaskSpider"),
        (["--kind", "batch"], "BatchSpider"),
    ],
)
def test_a_spider_of_each_kind(create, workdir, kind, base):
    assert create("-s", "hot-news", *kind) == (
        0,
        "created hot_news_spider.py\nRun it: netspy run hot_news_spider.py\n",
        "",
    )
    tree = ast.parse((workdir / "hot_news_spider.py").read_text("utf-8"))
    [spider] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert (spider.name, ast.unparse(spider.bases[0])) == ("HotNewsSpider", f"mw.{base}")
    assert ruff(workdir) == ""


def test_a_project_of_the_other_kind(create, workdir):
    create("-p", "shop", "--kind", "spider")
    assert "class ShopSpider(mw.Spider):" in (workdir / "shop/spiders/shop_spider.py").read_text("utf-8")


def test_an_item_with_its_own_table_and_one_without(create, workdir):
    create("-i", "Product", "--table", "goods")
    create("-i", "order_line")
    product, line = (workdir / f"{name}_item.py" for name in ("product", "order_line"))
    assert "class ProductItem(mw.Item):" in product.read_text("utf-8")
    assert '__table_name__ = "goods"' in product.read_text("utf-8")
    assert '__table_name__ = "order_line"' in line.read_text("utf-8")
    assert ruff(workdir) == ""


def test_the_setting_file_changes_nothing_until_a_line_is_uncommented(create, workdir):
    create("--setting")
    text = (workdir / "setting.py").read_text("utf-8")
    assert ruff(workdir) == ""
    assert settings.read_project(workdir / "setting.py") == {}
    (workdir / "setting.py").write_text(
        "\n".join(
            line[2:] if line.startswith("# ") and line[2:].split(" = ")[0] in settings.FIELDS else line
            for line in text.splitlines()
        )
    )
    values = settings.read_project(workdir / "setting.py")
    assert set(values) == set(settings.FIELDS)
    assert settings.load(project=values, environ={}).settings == settings.Settings()


def test_nothing_that_exists_is_overwritten(create, workdir):
    for arguments, name in (
        (("-s", "news"), "news_spider.py"),
        (("-i", "news"), "news_item.py"),
        (("--setting",), "setting.py"),
    ):
        (workdir / name).write_text("precious")
        code, out, err = create(*arguments)
        assert (code, out) == (3, "")
        assert f"{name} exists already" in err
        assert err.count("\n") == 1
        assert (workdir / name).read_text() == "precious"


def test_a_project_is_not_mixed_into_a_folder_that_exists(create, workdir):
    (workdir / "shop").mkdir()
    code, _, err = create("-p", "shop")
    assert code == 3
    assert "shop exists already" in err
    assert files(workdir) == []


def test_a_file_can_be_forced_and_a_project_can_not(create, workdir):
    (workdir / "setting.py").write_text("old")
    assert create("--setting", "-f")[0] == 0
    assert "SPIDER_THREAD_COUNT" in (workdir / "setting.py").read_text("utf-8")
    assert create("-p", "news", "-f")[0] == 2
    assert files(workdir) == ["setting.py"]


@pytest.mark.parametrize("option", ["-p", "-s", "-i"])
@pytest.mark.parametrize(
    "name", ["", "../evil", "a/b", "a b", "1st", "a.b", "-", "_x", "x" * 61, "a'b", 'a"b\n']
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(create, workdir, option, name):
    code, out, err = create(f"{option}{name}" if option == "-p" and name == "" else option, name)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert files(workdir) == []


@pytest.mark.parametrize("table", ["", "a b", "a;drop table x", 'a"', "1st", "x" * 61])
def test_a_table_that_cannot_be_is_refused(create, workdir, table):
    assert create("-i", "product", "--table", table)[0] == 2
    assert files(workdir) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-s", "a", "-i", "b"],
        ["-p", "a", "--setting"],
        ["-i", "a", "--kind", "air"],
        ["-s", "a", "--table", "t"],
        ["-s", "a", "--kind", "other"],
        ["extra"],
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(create, workdir, arguments):
    code, out, err = create(*arguments)
    assert (code, out) == (2, "")
    assert err.endswith("(see netspy create --help)\n")
    assert files(workdir) == []


def test_a_folder_that_cannot_be_written_is_one_line(create, workdir):
    (workdir / "items").mkdir()
    (workdir / "items" / "news_item.py").symlink_to("/proc/nowhere")
    code, _, err = create("-i", "news")
    assert code == 3
    assert err.startswith("netspy: error: items/news_item.py can't be written: ")


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("news", ("news_spider", "NewsSpider")),
        ("News", ("news_spider", "NewsSpider")),
        ("NewsSpider", ("news_spider", "NewsSpider")),
        ("hot_news_spider", ("hot_news_spider", "HotNewsSpider")),
        ("HotNews2Go", ("hot_news2_go_spider", "HotNews2GoSpider")),
        ("spider", ("spider_spider", "SpiderSpider")),
        ("class", ("class_spider", "ClassSpider")),
        ("新闻", ("新闻_spider", "新闻Spider")),
    ],
)
def test_names_of_files_and_classes(name, made):
    assert module_and_class(name, "spider") == made


def crawl(folder, *arguments, **settings_given):
    """Run a script in `folder` as a user would; (its summary, what it said)."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **{f"NETSPY_{name}": value for name, value in settings_given.items()}},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return parse_line(done.stdout.splitlines()[-1]), done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["air", "spider"])
@pytest.mark.parametrize("script", ["main.py", "spiders/shop_spider.py"])
def test_a_new_project_crawls_as_it_is(create, workdir, site, request, kind, script):
    site.route("/", "<title>A shop</title>")
    create("-p", "shop", "--kind", kind)
    spider = workdir / "shop/spiders/shop_spider.py"
    spider.write_text(spider.read_text("utf-8").replace("https://example.com/", site.url("/")))
    given = {"REDIS_URL": request.getfixturevalue("redis_url")} if kind == "spider" else {}
    summary, said = crawl(workdir / "shop", script, **given)
    assert (summary.spider, summary.request_ok, summary.items, summary.outcome) == (
        "ShopSpider",
        1,
        1,
        "finished",
    )
    assert "A shop" in said


def test_a_new_task_spider_works_off_what_is_pushed(create, workdir, site, redis_url):
    site.route("/p/", "<title>A page</title>", prefix=True)
    create("-s", "prices", "--kind", "task")
    (workdir / "main.py").write_text(
        f"from prices_spider import PricesSpider\n\nPricesSpider.push_tasks({{'url': '{site.url('/p/1')}'}})\n"
        "PricesSpider().start()\n"
    )
    summary, said = crawl(workdir, "main.py", REDIS_URL=redis_url, TASK_POLL_INTERVAL="0.1")
    assert (summary.kind, summary.tasks_taken, summary.items, summary.outcome) == ("task", 1, 1, "finished")
    assert "A page" in said


def test_a_new_batch_spider_works_off_the_table_that_it_names(
    create, workdir, site, redis, redis_url, sqlite_url
):
    site.route("/p/", "<title>A page</title>", prefix=True)
    create("-s", "hot-news", "--kind", "batch")
    with admin(sqlite_url) as connection:
        connection.exec_driver_sql(CREATE["sqlite"].replace("crawl_task", "hot_news_task"))
        connection.exec_driver_sql("INSERT INTO hot_news_task (url) VALUES (?)", (site.url("/p/1"),))
    given = {"REDIS_URL": redis_url, "BATCH_STORE_URL": sqlite_url, "BATCH_MONITOR_INTERVAL": "0.2"}
    (workdir / "master.py").write_text(
        "from hot_news_spider import HotNewsSpider\n\nHotNewsSpider().start_monitor(once=True)\n"
    )
    with start_script(
        workdir / "master.py", cwd=workdir, env={f"NETSPY_{name}": value for name, value in given.items()}
    ) as master:
        # A worker that finds neither a master nor a batch has nothing to do.
        assert wait_until(lambda: redis.exists(BatchNames("netspy:HotNewsSpider").lock), 30)
        summary, said = crawl(workdir, "hot_news_spider.py", **given, TASK_POLL_INTERVAL="0.1")
        assert master.finish(30).check().summary["tasks_done"] == 1
    assert (summary.kind, summary.items) == ("batch", 1)
    assert "A page" in said


def test_a_new_item_is_stored_in_its_table_once_per_key(create, workdir, site):
    site.route("/", "<title>A shop</title>")
    create("-i", "product", "--table", "goods")
    (workdir / "main.py").write_text(
        textwrap.dedent(f"""\
        import netspy as mw
        from product_item import ProductItem

        class Shop(mw.AirSpider):
            def start_requests(self):
                yield mw.Request("{site.url("/")}")

            def parse(self, request, response):
                yield ProductItem(url=response.url, title="one")
                yield ProductItem(url=response.url, title="two")

        Shop(ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"]).start()
        """)
    )
    summary, _ = crawl(workdir, "main.py")
    assert (summary.items, summary.item_dedup_dropped) == (1, 1)
    assert (workdir / "goods.jsonl").read_text("utf-8").count("\n") == 1
