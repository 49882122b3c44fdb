"""What people wrote for the documented API of this family of packages runs, or is refused with one line."""

from __future__ import annotations

import importlib
import io
from contextlib import redirect_stderr

import pytest
from air_support import Air, Memory, crawl

import netspy as mw
from netspy import settings
from netspy.cli import main
from netspy.cli.target import load_module
from netspy.errors import ConfigError, ResponseTooLargeError, SpiderError
from netspy.network.middleware import DownloaderMiddleware
from netspy.pipelines.base import BasePipeline
from netspy.settings import Settings
from netspy.testing import LocalSite

pytestmark = pytest.mark.usefixtures("workdir")


@pytest.fixture
def setting():
    """The module, as it was found."""
    module = importlib.import_module("netspy.setting")
    module.reload()
    yield module
    module.reload()


# -- netspy.setting --------------------------------------------------------------------------------------------


def test_an_assigned_setting_holds_for_the_spiders_that_start_after_it(setting, site: LocalSite):
    site.route("/", "<p>hello</p>")
    setting.USER_AGENT = "assigned/1"
    assert mw.setting is setting
    assert setting.USER_AGENT == "assigned/1"
    spider = Air(site=site)
    assert spider.settings.USER_AGENT == "assigned/1"
    assert spider.load_settings().origins["USER_AGENT"] == "netspy.setting"


def test_it_is_a_layer_between_the_file_and_the_spider(setting, workdir, monkeypatch):
    class Own(Air):
        __custom_setting__ = {"LOG_LEVEL": "ERROR"}

    (workdir / "setting.py").write_text("RUN_TTL = 1\nLOG_LEVEL = 'DEBUG'\nITEM_BATCH_SIZE = 7\n")
    monkeypatch.setenv("NETSPY_METRICS_LOG_INTERVAL", "3")
    setting.apply({"RUN_TTL": 2, "LOG_LEVEL": "WARNING"}, METRICS_LOG_INTERVAL=9)
    found = Own().settings
    assert (found.RUN_TTL, found.LOG_LEVEL, found.METRICS_LOG_INTERVAL, found.ITEM_BATCH_SIZE) == (
        2,
        "ERROR",
        3.0,
        7,
    )


def test_a_wrong_value_stops_the_start_with_one_line(setting):
    setting.SPIDER_THREAD_COUNT = "many"
    with pytest.raises(ConfigError, match=r"netspy\.setting: SPIDER_THREAD_COUNT='many'"):
        Air().load_settings()
    del setting.SPIDER_THREAD_COUNT
    assert Air().settings.SPIDER_THREAD_COUNT == 16
    with pytest.raises(AttributeError, match="was not assigned"):
        del setting.SPIDER_THREAD_COUNT


def test_names_can_be_imported_and_a_wrong_one_is_an_import_error(setting):
    from netspy.setting import SPIDER_THREAD_COUNT

    assert SPIDER_THREAD_COUNT == 16
    assert "SPIDER_THREAD_COUNT" in dir(setting)
    with pytest.raises(ImportError):
        exec("from netspy.setting import NO_SUCH_SETTING")
    with pytest.raises(AttributeError, match="NO_SUCH_SETTING"):
        _ = setting.NO_SUCH_SETTING


def test_while_a_spider_runs_its_own_values_are_shown_and_a_late_assignment_is_told_of(
    setting, site: LocalSite
):
    site.route("/", "<p>hello</p>")
    seen = []

    class Custom(Air):
        __custom_setting__ = {"MY_KEY": "mine", "RETRY_BACKOFF": 0.25}
        paths = ("/",)

        def parse(self, request, response):
            seen.append((setting.MY_KEY, setting.RETRY_BACKOFF))
            setting.RETRY_BACKOFF = 9.0
            setting.RETRY_BACKOFF = 8.0
            seen.append(self.settings.RETRY_BACKOFF)

    with redirect_stderr(io.StringIO()) as said:
        crawl(Custom, site)
    assert seen == [("mine", 0.25), 0.25]
    assert said.getvalue().count("setting.RETRY_BACKOFF was assigned while Custom runs") == 1
    assert setting.RETRY_BACKOFF == 8.0
    with pytest.raises(AttributeError):
        _ = setting.MY_KEY


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("PROXY_ENABLED", "PROXY_ENABLE"),
        ("ROBOTS_OBAY", "ROBOTS_OBEY"),
        ("ANTIBOT_DETECTS", "ANTIBOT_DETECT"),
    ],
)
def test_a_misspelt_name_of_what_is_not_built_is_noticed_too(wrong, right):
    assert settings.load(project={wrong: False}, environ={}).warnings == (
        f"setting.py: {wrong} is no setting; did you mean {right}?",
    )


# -- spiders ---------------------------------------------------------------------------------------------------


def test_a_spider_may_set_its_name_its_stats_and_its_settings(site: LocalSite):
    """A name is for people: the job's keys keep the class's."""
    site.route("/", "<p>hello</p>")

    class Own(Air):
        paths = ("/",)

        def __init__(self, **arguments):
            self.stats = {"before": 1}
            super().__init__(**arguments)
            self.name = "shop of books"
            self.stats = {"pages": 0}
            self.settings = {"depth": 3}

        def parse(self, request, response):
            self.stats["pages"] += self.settings["depth"]

    summary, _, spider = crawl(Own, site)
    assert (summary.spider, spider.stats, spider.job_name) == ("shop of books", {"pages": 3}, "Own")


def test_a_name_changes_no_key():
    class Shared(mw.Spider):
        name = "books"

    class Tasks(mw.TaskSpider):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.name = "tasks of books"

    from netspy.assembly.shared import scope_of

    assert scope_of(Shared(), Settings()).ns == "netspy:Shared"
    assert Tasks().list_name == "Tasks"


def test_an_attribute_that_netspy_needs_says_so_at_the_users_line():
    with pytest.raises(SpiderError, match=r"Air\.counters = \{\}: netspy counts there"):
        Air().counters = {}


def test_counters_by_the_scheduler(site: LocalSite):
    site.route("/", "<p>hello</p>")

    class Counting(Air):
        paths = ("/",)

        def parse(self, request, response):
            self.scheduler.stats.inc("books")
            assert self.scheduler.stats.get("books") == 1

    summary, _, _ = crawl(Counting, site)
    assert summary.user == {"books": 1}


def test_tasks_are_pushed_by_a_class_whose_constructor_wants_more():
    class Tasks(mw.TaskSpider):
        __custom_setting__ = {"TASK_SOURCE": "memory"}

        def __init__(self, city, **arguments):
            super().__init__(**arguments)
            self.city = city

    with pytest.raises(ConfigError, match=r"Tasks\.push_tasks: TASK_SOURCE='memory'"):
        Tasks.push_tasks({"id": 1})


# -- pipelines, middlewares ------------------------------------------------------------------------------------


class Signing(DownloaderMiddleware):
    def process_request(self, request):
        self.logger.info("signing {}", request.url)
        request.requests_kwargs["headers"] = {"X-Sign": "1"}
        request.requests_kwargs["params"] = {"sign": "abc"}


def test_pipelines_and_middlewares_have_a_logger_and_params_of_a_middleware_are_sent(site: LocalSite):
    """Also when the page is tried again: then they are there once."""
    site.route("/", lambda request: f"<p>{request.target[2:]}</p>", fail_first=1, fail_status=503)

    class Logging(Memory):
        def save_items(self, table, items):
            self.logger.info("{} rows", len(items))
            return super().save_items(table, items)

    class Signed(Air):
        __custom_setting__ = {"DOWNLOADER_MIDDLEWARES": [f"{__name__}.Signing"], "RETRY_BACKOFF": 0.01}

        def start_requests(self):
            yield mw.Request(self.url("/"), params={"q": "tea"})

        def parse(self, request, response):
            yield {"query": response.css("p::text").get()}

    memory = Logging()
    with redirect_stderr(io.StringIO()) as said:
        Signed(site=site, pipelines=[memory], PROGRESS="off").run()
    assert memory.data() == [{"query": "q=tea&sign=abc"}]
    assert "Logging: 1 rows" in said.getvalue()
    assert "Signing: signing" in said.getvalue()


def test_params_that_are_set_later_belong_to_the_identity():
    first, second = mw.Request("http://a/?q=1"), mw.Request("http://a/?q=1")
    second.requests_kwargs["params"] = {"page": 2}
    assert second.fingerprint == mw.Request("http://a/?q=1&page=2").fingerprint != first.fingerprint


class Plain(BasePipeline):
    pass


def test_a_logger_of_ones_own_stays():
    pipeline = Plain()
    pipeline.logger = "mine"
    assert pipeline.logger == "mine"
    assert (Plain().logger.name, Signing().logger.name) == ("Plain", "Signing")


def test_what_a_pipeline_is_given_goes_before_the_settings(tmp_path):
    from netspy.db.mysqldb import MysqlDB
    from netspy.pipelines.csv import CsvPipeline
    from netspy.pipelines.elasticsearch import ElasticsearchPipeline
    from netspy.pipelines.jsonl import JsonlPipeline
    from netspy.pipelines.kafka import KafkaPipeline
    from netspy.pipelines.loader import load_pipelines
    from netspy.pipelines.mongo import MongoPipeline
    from netspy.pipelines.mysql import MysqlPipeline
    from netspy.pipelines.postgres import PostgresPipeline

    own = Settings(MYSQL_HOST="db1", MYSQL_DB="shop", POSTGRES_DB="shop", POSTGRES_HOST="db1")
    made = [
        CsvPipeline(output_dir=tmp_path / "csv"),
        JsonlPipeline(output_dir="json"),
        MysqlPipeline(host="db2", port=3307, db="books"),
        MysqlPipeline(db=MysqlDB(host="db3", db="authors")),
        PostgresPipeline(user="me", password="x"),
        MongoPipeline("mongodb://db4", "books"),
        ElasticsearchPipeline("http://db5:9200"),
        KafkaPipeline("k1:9092,k2:9092"),
    ]
    csv, jsonl, mysql, by_db, postgres, mongo, elastic, kafka = load_pipelines(made, own)
    assert csv.where() == str(tmp_path / "csv" / "*.csv")
    assert jsonl.where() == "json/*.jsonl"
    assert (mysql.where(), by_db.where()) == ("mysql://root@db2:3307/books", "mysql://root@db3:3306/authors")
    assert postgres.where() == "postgresql://me@db1:5432/shop"
    assert mongo.where() == "mongodb://db4 (books)"
    assert elastic.where() == "http://db5:9200"
    assert "k1:9092" in kafka.where()
    with pytest.raises(ConfigError, match="MysqlPipeline: MYSQL_PORT='x'"):
        MysqlPipeline(port="x")


# -- requests, responses ---------------------------------------------------------------------------------------


def answer(body: bytes = b"{}", **more) -> mw.Response:
    return mw.Response(url="http://a/d/", status_code=200, content=body, **more)


def test_a_body_that_is_no_json_is_a_value_error():
    with pytest.raises(ValueError, match="is not JSON") as raised:
        answer(b"<p>").json()
    assert isinstance(raised.value, mw.ResponseError)
    assert answer(b'{"a": 1.5}').json(parse_float=str) == {"a": "1.5"}
    assert answer().urljoin(url="x") == "http://a/d/x"


def test_an_attribute_of_ones_own_on_a_response():
    response = answer()
    response.seen_at = 5
    assert response.seen_at == 5


def test_an_error_of_size_needs_no_words():
    assert ResponseTooLargeError().reason == "too_large"


def test_a_page_that_needs_a_browser_is_refused_not_fetched_plainly(site: LocalSite):
    site.route("/", "<p>hello</p>")

    class Rendered(Air):
        def start_requests(self):
            yield mw.Request(self.url("/"), render=True)

        def parse(self, request, response):
            raise AssertionError("it was fetched")

    summary, _, _ = crawl(Rendered, site)
    assert (summary.reasons, summary.retry, site.hits("/")) == ({"render": 1}, 0, 0)


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ("text/", True),
        ("text/html", True),
        ("TEXT/HTML; charset=utf-8", True),
        ("text/*", True),
        ("application/", False),
        ("", False),
    ],
)
def test_a_content_type_is_allowed_by_its_beginning(wanted, passes, site: LocalSite):
    site.route("/", "<p>hello</p>")

    class Pages(Air):
        __custom_setting__ = {"ALLOWED_CONTENT_TYPES": [wanted]}
        paths = ("/",)

        def parse(self, request, response):
            yield {"url": response.url}

    _, memory, _ = crawl(Pages, site)
    assert len(memory.rows) == passes


def test_downloads_outside_a_spider_share_a_session_where_they_ask_for_it(site: LocalSite):
    site.route("/login", "in", headers={"Set-Cookie": "sid=1; Path=/"})
    site.route("/me", lambda request: request.headers.get("cookie") or "please log in")

    def me(shares: bool) -> str:
        mw.Request(site.url("/login"), use_session=shares).download()
        return mw.Request(site.url("/me"), use_session=shares).download().text

    assert me(False) == "please log in"
    assert me(True) == "sid=1"


# -- import paths, databases -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("netspy.network.request", "Request"),
        ("netspy.network.response", "Response"),
        ("netspy.network.item", "Item"),
        ("netspy.network.item", "UpdateItem"),
        ("netspy.core.base_parser", "BaseParser"),
        ("netspy.core.spiders", "AirSpider"),
        ("netspy.core.spiders", "Spider"),
        ("netspy.core.spiders", "TaskSpider"),
        ("netspy.core.spiders", "BatchSpider"),
    ],
)
def test_a_documented_path_leads_to_the_same_class(path, name):
    assert getattr(importlib.import_module(path), name) is getattr(mw, name)


def test_a_database_by_url(tmp_path):
    from netspy.db.sqldb import SqlDB

    with SqlDB(f"sqlite:///{tmp_path / 'own.db'}") as db:
        assert db.execute("CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT)") <= 0
        assert db.insert("books", {"id": 1, "title": "a"}) == 1
        assert db.insert("books", [{"id": 2, "title": "b"}, {"id": 3, "title": "c"}]) == 2
        assert db.executemany("UPDATE books SET title = ? WHERE id = ?", [("x", 1), ("y", 2)]) == 2
        assert db.query("SELECT * FROM books WHERE id < ? ORDER BY id", (3,)) == [
            {"id": 1, "title": "x"},
            {"id": 2, "title": "y"},
        ]
        assert db.query_one("SELECT title FROM books WHERE id = ?", [3]) == {"title": "c"}
        assert db.query_one("SELECT title FROM books WHERE id = ?", [9]) is None
        assert (db.insert("books", []), db.executemany("DELETE FROM books WHERE id = ?", [])) == (0, 0)
        with pytest.raises(ConfigError, match="give a tuple or a dict"):
            db.query("SELECT ?", "abc")


def test_a_client_of_the_settings_redis(redis_url):
    from netspy.db.redisdb import get_redis

    client = get_redis(redis_url)
    client.set("compat", "tee")
    assert client.get("compat") == "tee"
    client.delete("compat")
    client.close()
    with pytest.raises(ConfigError, match="give get_redis"):
        get_redis("embedded")


# -- commands --------------------------------------------------------------------------------------------------


def test_retry_without_a_spider_is_about_items(capsys):
    assert main(["retry"]) == 0
    assert "failed requests belong to a spider" in capsys.readouterr().err


def test_create_overwrites_one_file_when_it_is_told_to(workdir, capsys):
    assert main(["create", "-s", "news"]) == 0
    (workdir / "news_spider.py").write_text("old = 1\n")
    assert main(["create", "-s", "news"]) == 3
    assert "-f overwrites it" in capsys.readouterr().err
    assert main(["create", "-s", "news", "--force"]) == 0
    assert load_module("news_spider.py").NewsSpider
    assert main(["create", "-p", "shop", "--force"]) == 2


def test_the_prompt_has_mw(site: LocalSite, monkeypatch):
    import code

    site.route("/", "<p>hello</p>")
    seen = {}
    monkeypatch.setattr(code, "interact", lambda banner, local, exitmsg: seen.update(local))
    assert main(["shell", site.url("/")]) == 0
    assert seen["mw"] is mw
