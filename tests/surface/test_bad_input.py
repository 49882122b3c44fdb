"""Bad input: one line that says what, which value and what to do; a code that tells; a summary; no traceback, no password."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import netspy as mw
from netspy.assembly import shared
from netspy.cli import main
from netspy.observe.log import without_passwords
from netspy.testing.runner import run_script, start_script
from netspy.testing.servers import RedisServer, free_port

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data/cases/cli.json").read_text(encoding="utf-8"))
}
MARK = "NETSPY_RUN_SUMMARY "


@pytest.fixture(autouse=True)
def _folder(workdir, monkeypatch):
    """Files of a run go to a folder of their own. A start that only this machine makes slow says nothing of that."""
    monkeypatch.setattr(shared, "START_NOTICE_S", 600.0)


@pytest.fixture
def home(site):
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    return site


class Air(mw.AirSpider):
    __custom_setting__ = {"PROGRESS": "off", "RETRY_BACKOFF": 0.0}
    paths = ("/p/1",)

    def start_requests(self):
        for path in self.paths:
            yield mw.Request(self.site.url(path))

    def parse(self, request, response):
        yield {"url": request.url}


class Shared(mw.Spider):
    __custom_setting__ = Air.__custom_setting__
    paths = ("/p/1",)
    start_requests = Air.start_requests
    parse = Air.parse


class Ended:
    """What `start()` left behind."""

    def __init__(self, code, out, err):
        self.code = code
        self.out = out
        self.err = err
        last = out.rstrip("\n").rpartition("\n")[2]
        self.summary = json.loads(last.removeprefix(MARK)) if last.startswith(MARK) else {}

    @property
    def lines(self):
        return self.err.splitlines()


@pytest.fixture
def start(capsys):
    def begin(make, **keywords):
        capsys.readouterr()
        code = 0
        try:
            make().start(**keywords)
        except SystemExit as ended:
            code = ended.code
        return Ended(code, *capsys.readouterr())

    return begin


def assert_one_line(ended, code, outcome, *pieces):
    """One line on stderr that holds all `pieces`, the code, and the summary with its outcome and reason."""
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err + ended.out
    [line] = ended.lines
    assert line.startswith("netspy: error: ")
    for piece in pieces:
        assert piece in line
    assert ended.summary["outcome"] == outcome
    assert ended.summary["exit_code"] == code
    assert ended.summary["reason"] == without_passwords(line.removeprefix("netspy: error: "))


# -- Redis -----------------------------------------------------------------------------------------------------


def redis_spider(home, url, **keywords):
    return lambda: Shared(site=home, REDIS_URL=url, REDIS_START_TIMEOUT=0.3, **keywords)


def test_a_redis_that_is_not_there_case_cli_04_a(start, home):
    assert CASES["CLI-04"]["input"]["a"] == "Redis unreachable at start"
    port = free_port()
    took = []
    for _ in range(2):  # the first may be the one that loads the modules
        began = time.monotonic()
        ended = start(redis_spider(home, f"redis://:hunter2@127.0.0.1:{port}/0"))
        took.append(time.monotonic() - began)
    assert min(took) < 5
    assert_one_line(ended, 5, "store_lost", f"127.0.0.1:{port}", "REDIS_URL", "***")
    assert "hunter2" not in ended.err + ended.out


def test_a_misspelt_setting_as_an_argument_of_the_spider_is_told(start, home):
    ended = start(lambda: Air(site=home, SPIDER_THREAD_COUT=4))
    assert ended.code == 0
    assert any(
        "keyword: SPIDER_THREAD_COUT is no setting; did you mean SPIDER_THREAD_COUNT?" in line
        for line in ended.lines
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_a_start_that_waits_for_redis_says_for_what_and_how_long(start, home, processes, monkeypatch):
    monkeypatch.setattr(shared, "START_NOTICE_S", 0.0)
    spider = Shared(
        site=home, REDIS_URL=f"redis://:hunter2@127.0.0.1:{free_port()}/0", REDIS_START_TIMEOUT=1.0
    )
    ended = start(lambda: spider, processes=processes)
    assert ended.code == 5
    waits, error = ended.lines
    assert "does not answer; waiting for it, at most 1 s (REDIS_START_TIMEOUT)" in waits
    assert error.startswith("netspy: error: Redis at redis://:***@127.0.0.1")
    assert "hunter2" not in ended.err


def test_a_start_that_waits_for_its_task_source_says_so(start, redis_url, monkeypatch):
    class Tasks(mw.TaskSpider):
        def task_requests(self, task):
            return []

    # Time enough to join the run on Redis, else the notice is about that; and as much again for the notice to come.
    monkeypatch.setattr(shared, "START_NOTICE_S", 1.5)
    url = f"amqp://u:hunter2@127.0.0.1:{free_port()}/"
    for patience in (0.3, 3.0):  # the first time loads the modules
        ended = start(lambda: Tasks(REDIS_URL=redis_url, TASK_SOURCE=url, REDIS_START_TIMEOUT=patience))
        assert ended.code == 5
    waits, _ = ended.lines
    assert "the task source does not answer; waiting for it, at most 3 s" in waits
    assert "hunter2" not in ended.err


def test_a_redis_that_is_not_there_for_several_processes(start, home):
    port = free_port()
    ended = start(redis_spider(home, f"redis://127.0.0.1:{port}/0"), processes=2)
    assert_one_line(ended, 5, "store_lost", f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("url", "pieces"),
    [
        ("http://127.0.0.1/", ("http", "redis://")),
        ("127.0.0.1:6379", ("127.0.0.1:6379", "redis://")),
        ("redis://127.0.0.1:65999/0", ("65999",)),
        ("redis://127.0.0.1:6379/first", ("first",)),
        ("", ("REDIS_URL",)),
        ("redis://u:hunter2@[::1/0", ("REDIS_URL",)),
    ],
)
def test_a_redis_url_that_is_none(start, home, url, pieces):
    ended = start(redis_spider(home, url))
    assert_one_line(ended, 3, "config_error", "REDIS_URL", *pieces)
    assert "hunter2" not in ended.err + ended.out


def test_a_database_number_that_the_server_does_not_have(start, home, redis_url):
    ended = start(redis_spider(home, redis_url.rpartition("/")[0] + "/4096"))
    assert_one_line(ended, 3, "config_error", "4096")


def test_a_wrong_password_is_named_without_being_shown(start, home):
    with RedisServer(password="right-one") as server:
        wrong = f"redis://:hunter2@127.0.0.1:{server.port}/0"
        ended = start(redis_spider(home, wrong))
        assert_one_line(ended, 3, "config_error", "password", f"127.0.0.1:{server.port}")
        assert "hunter2" not in ended.err + ended.out
        assert "right-one" not in ended.err + ended.out
        ended = start(redis_spider(home, f"redis://127.0.0.1:{server.port}/0"))
        assert_one_line(ended, 3, "config_error", "password")


def test_a_server_that_is_no_redis(start, home):
    ended = start(redis_spider(home, home.url("/").replace("http", "redis"), REDIS_CONNECT_TIMEOUT=0.5))
    assert ended.code in {3, 5}
    assert_one_line(ended, ended.code, ended.summary["outcome"], str(home.port))


def test_a_job_that_another_class_owns_and_taking_it_over(start, home, redis_url):
    class First(Shared):
        redis_key = "job"

    class Second(Shared):
        redis_key = "job"

    assert start(lambda: First(site=home, REDIS_URL=redis_url)).code == 0
    ended = start(lambda: Second(site=home, REDIS_URL=redis_url))
    assert_one_line(ended, 3, "config_error", "job", "First", "Second", "take_over")
    assert start(lambda: Second(site=home, REDIS_URL=redis_url, take_over=True)).code == 0
    ended = start(lambda: First(site=home, REDIS_URL=redis_url))
    assert_one_line(ended, 3, "config_error", "Second")


@pytest.mark.parametrize("key", ["z_requests", "z_inflight", "z_delayed", "failed_requests", "meta", "nodes"])
def test_a_key_of_another_type_stops_the_start_and_is_not_deleted(start, home, redis_url, redis_server, key):
    client = redis_server.client()
    client.set(f"netspy:Shared:{key}", "something else")
    ended = start(lambda: Shared(site=home, REDIS_URL=redis_url))
    assert_one_line(ended, 3, "config_error", f"netspy:Shared:{key}", "string")
    assert client.get(f"netspy:Shared:{key}") == "something else"
    client.close()


def test_bloom_bits_of_somebody_else_are_not_read_as_seen(start, home, redis_url, redis_server):
    client = redis_server.client()
    client.set("netspy:Shared:dedup:bloom", b"\xff" * 1000)
    client.close()
    ended = start(lambda: Shared(site=home, REDIS_URL=redis_url))
    assert_one_line(ended, 3, "config_error", "netspy:Shared:dedup:bloom")


def test_a_bloom_layer_that_no_redis_string_can_hold_is_refused_with_its_numbers(start, home, redis_url):
    ended = start(lambda: Shared(site=home, REDIS_URL=redis_url, DEDUP_INITIAL_CAPACITY=1_000_000_000))
    assert_one_line(ended, 3, "config_error", "DEDUP_INITIAL_CAPACITY", "1000000000", "512")


@pytest.mark.parametrize("key", ["a{b}", "x:run:1", "y:items", ""])
def test_a_job_name_that_cannot_be_one(start, home, redis_url, key):
    ended = start(lambda: Shared(site=home, REDIS_URL=redis_url, redis_key=key))
    assert_one_line(ended, 3, "config_error", "redis_key", repr(key) if key else "empty")


def test_a_missing_extra_is_told_with_the_command_that_installs_it(tmp_path):
    source = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "redis":
            raise ModuleNotFoundError("No module named 'redis'", name="redis")

sys.meta_path.insert(0, Blocked())
import netspy as mw

class News(mw.Spider):
    start_urls = ["http://127.0.0.1:1/"]

    def parse(self, request, response):
        pass

News().start(processes=int(sys.argv[1]))
"""
    for processes in ("1", "2"):
        result = run_script(source, args=[processes], cwd=tmp_path)
        ended = Ended(result.returncode, result.stdout, result.stderr)
        assert_one_line(ended, 3, "config_error", "pip install '.[redis]'")


# -- the spider ------------------------------------------------------------------------------------------------


def test_no_start_requests_case_cli_04_c(start, redis_url):
    assert CASES["CLI-04"]["input"]["c"] == "start_requests is missing / returns None"

    class NoSeeds(mw.AirSpider):
        def parse(self, request, response):
            """Nothing."""

    class NoSeedsShared(mw.Spider):
        parse = NoSeeds.parse

    assert_one_line(start(NoSeeds), 3, "config_error", "NoSeeds has no start_requests", "start_urls")
    assert_one_line(start(lambda: NoSeedsShared(REDIS_URL=redis_url)), 3, "config_error", "NoSeedsShared")


@pytest.mark.parametrize("kind", [Air, Shared])
def test_start_requests_that_returns_none_case_cli_04_c(start, home, redis_url, kind):
    class Forgets(kind):
        def start_requests(self):
            """Builds a list and forgets to return it."""

    ended = start(lambda: Forgets(site=home, REDIS_URL=redis_url))
    assert ended.code == 4
    assert ended.summary["outcome"] == "seeding_failed"
    assert "Traceback" not in ended.err
    assert "Forgets.start_requests returned None; yield requests from it" in ended.err
    assert "returned None" in ended.summary["reason"]


@pytest.mark.parametrize("kind", [Air, Shared])
def test_start_requests_that_raises(start, home, redis_url, kind):
    class Raises(kind):
        def start_requests(self):
            yield mw.Request(self.site.url("/p/1"))
            raise FileNotFoundError("urls.txt")

    ended = start(lambda: Raises(site=home, REDIS_URL=redis_url))
    assert (ended.code, ended.summary["outcome"]) == (4, "seeding_failed")
    assert "Traceback" not in ended.err
    assert (
        f"test_bad_input.py:{Raises.start_requests.__code__.co_firstlineno + 2}) raised FileNotFoundError"
        in ended.err
    )
    assert ended.summary["request_ok"] == 1


def test_a_spider_without_parse_is_told_so(start, home):
    class NoParse(mw.AirSpider):
        def start_requests(self):
            yield mw.Request(home.url("/p/1"))

    ended = start(lambda: NoParse(PROGRESS="off"))
    assert ended.code == 6
    assert "NoParse has no method 'parse'" in ended.err
    assert ended.summary["reasons"] == {"UnknownCallbackError": 1}


@pytest.mark.parametrize("bad", ["lambda", "nested", "kwargs", "name", "url", "value"])
def test_when_no_seed_can_be_taken_the_run_has_failed(start, home, redis_url, bad):
    class BadSeeds(Shared):
        def start_requests(self):
            def nested(request, response):
                """Not to be found again."""

            url = self.site.url("/p/1")
            yield {
                "lambda": lambda: mw.Request(url, callback=lambda request, response: None),
                "nested": lambda: mw.Request(url, callback=nested),
                "kwargs": lambda: mw.Request(url, cb_kwargs={"lock": object()}),
                "name": lambda: mw.Request(url, callback="prase"),
                "url": lambda: mw.Request("htp//example.com"),
                "value": lambda: 42,
            }[bad]()

    ended = start(lambda: BadSeeds(site=home, REDIS_URL=redis_url))
    assert (ended.code, ended.summary["outcome"]) == (6, "all_failed")
    assert "Traceback" not in ended.err
    [line] = [one for one in ended.lines if "BadSeeds.start_requests (test_bad_input.py:" in one]
    assert {
        "lambda": "a lambda has no name to travel by",
        "nested": "is a function inside a function",
        "kwargs": "lock",
        "name": "did you mean 'parse'?",
        "url": "htp//example.com",
        "value": "yielded int 42",
    }[bad] in line


@pytest.mark.slow
def test_when_no_seed_can_be_taken_a_run_of_several_processes_has_failed_too(tmp_path, redis_url):
    source = """
import netspy as mw

class News(mw.Spider):
    def start_requests(self):
        yield mw.Request("http://127.0.0.1:1/", callback=lambda request, response: None)

News().start(processes=2)
"""
    result = run_script(source, cwd=tmp_path, env={"NETSPY_REDIS_URL": redis_url}).check(6)
    assert result.summary["outcome"] == "all_failed"
    assert "a lambda has no name to travel by" in result.stderr


def test_several_processes_of_an_air_spider(start, home):
    ended = start(lambda: Air(site=home), processes=4)
    assert_one_line(
        ended, 3, "config_error", "processes=4", "AirSpider", "netspy.Spider", "SPIDER_THREAD_COUNT"
    )
    for wrong in (0, -1, "4", 1.5, True):
        assert_one_line(
            start(lambda: Air(site=home), processes=wrong), 3, "config_error", f"processes={wrong!r}"
        )


def test_an_account_pool_is_refused_and_not_ignored(start, home):
    class Accounts(Air):
        def user_pool(self):
            """Not built yet."""

    assert_one_line(start(lambda: Accounts(site=home)), 3, "config_error", "user_pool")


# -- settings --------------------------------------------------------------------------------------------------


def test_a_setting_of_a_wrong_type_names_its_source_its_name_and_its_value(start, home, monkeypatch, workdir):
    class Wrong(Air):
        __custom_setting__ = {"SPIDER_THREAD_COUNT": "eight"}

    assert_one_line(
        start(lambda: Wrong(site=home)),
        3,
        "config_error",
        "Wrong.__custom_setting__",
        "SPIDER_THREAD_COUNT",
        "'eight'",
    )
    ended = start(lambda: Air(site=home, SPIDER_THREAD_COUNT=[8]))
    assert_one_line(ended, 3, "config_error", "keyword", "SPIDER_THREAD_COUNT", "[8]", "int")
    ended = start(lambda: Air(site=home, SPIDER_THREAD_COUNT=0))
    assert_one_line(ended, 3, "config_error", "SPIDER_THREAD_COUNT=0")
    monkeypatch.setenv(
        "NETSPY_SPIDER_THREAD_COUNT", CASES["CLI-01"]["input"]["env"]["NETSPY_SPIDER_THREAD_COUNT (bad)"]
    )
    ended = start(lambda: Air(site=home))
    assert_one_line(ended, 3, "config_error", "NETSPY_SPIDER_THREAD_COUNT", "'eight'", "whole number")
    monkeypatch.delenv("NETSPY_SPIDER_THREAD_COUNT")
    (workdir / "setting.py").write_text("DOWNLOAD_DELAY = 'long'\n")
    ended = start(lambda: Air(site=home))
    assert_one_line(ended, 3, "config_error", "setting.py", "DOWNLOAD_DELAY", "'long'")
    (workdir / "setting.py").write_text("DOWNLOAD_DELAY = \n")
    ended = start(lambda: Air(site=home))
    assert_one_line(ended, 3, "config_error", "setting.py", "SyntaxError")


def test_a_wrong_setting_of_the_command_line(workdir, capsys):
    (workdir / "news.py").write_text(
        "import netspy as mw\nclass News(mw.AirSpider):\n    start_urls = ['http://127.0.0.1:1/']\n"
    )
    assert main(["run", "news.py", "-s", "SPIDER_THREAD_COUNT=eight"]) == 3
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    assert "SPIDER_THREAD_COUNT='eight'" in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "off", ""])
def test_settings_of_the_environment_are_read_by_their_type_case_cli_01(monkeypatch, home, text):
    given = CASES["CLI-01"]["input"]["env"]
    assert text in [
        part.strip().replace("(empty)", "") for part in given["NETSPY_SPIDER_KEEP_ALIVE"].split("|")
    ]
    monkeypatch.setenv("NETSPY_SPIDER_KEEP_ALIVE", text)
    for name in ("SPIDER_THREAD_COUNT", "HEARTBEAT_INTERVAL", "RUN_ID"):
        monkeypatch.setenv(f"NETSPY_{name}", given[f"NETSPY_{name}"])
    found = Shared(site=home).settings
    assert found.SPIDER_KEEP_ALIVE is False
    assert (found.SPIDER_THREAD_COUNT, type(found.SPIDER_THREAD_COUNT)) == (8, int)
    assert (found.HEARTBEAT_INTERVAL, type(found.HEARTBEAT_INTERVAL)) == (1.5, float)
    assert found.RUN_ID == "007"


def test_a_misspelt_setting_of_the_environment_is_warned_of_case_cli_01(start, monkeypatch, home):
    monkeypatch.setenv(
        "NETSPY_SPIDER_THREAD_COUT", CASES["CLI-01"]["input"]["env"]["NETSPY_SPIDER_THREAD_COUT"]
    )
    ended = start(lambda: Air(site=home))
    assert ended.code == 0
    [line] = [line for line in ended.lines if "WARNING" in line]
    assert "NETSPY_SPIDER_THREAD_COUT" in line
    assert "did you mean SPIDER_THREAD_COUNT?" in line
    ended = start(lambda: Air(site=home, STRICT_SETTINGS=True))
    assert_one_line(ended, 3, "config_error", "SPIDER_THREAD_COUT", "did you mean")


def test_a_setting_file_that_is_not_there(start, monkeypatch, home):
    monkeypatch.setenv("NETSPY_SETTING", "missing.py")
    assert_one_line(start(lambda: Air(site=home)), 3, "config_error", "NETSPY_SETTING", "missing.py")


@pytest.mark.parametrize("name", ["ROBOTS_OBEY", "PROXY_ENABLE", "GLOBAL_THROTTLE", "RESPONSE_CACHE_ENABLE"])
def test_a_promise_that_is_not_kept_yet_is_refused_and_not_ignored(start, home, name):
    ended = start(lambda: Air(site=home, **{name: True}))
    assert_one_line(ended, 3, "config_error", f"{name}=True", "not built yet")
    assert home.total == 0


@pytest.mark.parametrize(
    ("setting", "value", "pieces"),
    [
        ("DEDUP_FILTER", "nonsense", ("nonsense",)),
        ("DEDUP_FILTER", "redis", ("AirSpider", "Spider")),
        ("DEDUP_FILTER", "no.such.Filter", ("no.such.Filter",)),
        ("DOWNLOADER", "no.such.Downloader", ("no.such.Downloader",)),
        ("DOWNLOADER", "nonsense", ("nonsense",)),
        ("DOWNLOADER", "collections.OrderedDict", ("collections.OrderedDict",)),
        (
            "ITEM_PIPELINES",
            ["netspy.pipelines.jsonl.JsonlPipelin"],
            ("JsonlPipelin", "did you mean JsonlPipeline"),
        ),
        ("ITEM_PIPELINES", ["netspy.pipelines.hbase.HbasePipeline"], ("hbase", "netspy.pipelines.sqlite")),
        ("ITEM_PIPELINES", ["nonsense"], ("nonsense",)),
        ("ITEM_PIPELINES", ["collections.OrderedDict"], ("collections.OrderedDict", "save_items")),
        ("DOWNLOADER_MIDDLEWARES", ["no.such.Middleware"], ("no.such.Middleware",)),
        ("FAILED_REQUEST_PATH", f"{__file__}/failed.jsonl", (__file__,)),
        ("LOG_LEVEL", "LOUD", ("LOUD", "DEBUG")),
        ("LOG_FILE", "/proc/nowhere/log.txt", ("/proc/nowhere/log.txt",)),
        ("HEARTBEAT_STALE", 1.0, ("HEARTBEAT_STALE", "HEARTBEAT_INTERVAL")),
    ],
)
def test_a_setting_whose_value_cannot_be_used(start, home, setting, value, pieces):
    ended = start(lambda: Air(site=home, **{setting: value}))
    assert_one_line(ended, 3, "config_error", setting if setting != "ITEM_PIPELINES" else "pipeline", *pieces)


def test_a_dedup_filter_that_is_none_on_redis(start, home, redis_url):
    ended = start(lambda: Shared(site=home, REDIS_URL=redis_url, DEDUP_FILTER="nonsense"))
    assert_one_line(ended, 3, "config_error", "DEDUP_FILTER", "nonsense")


# -- how runs end ----------------------------------------------------------------------------------------------


def test_every_page_failing_is_code_6_case_cli_04_b(start, home):
    assert CASES["CLI-04"]["input"]["b"] == "10 urls, all 500 after retries"
    home.route("/bad/", "no", status=500, prefix=True)
    paths = tuple(f"/bad/{n}" for n in range(10))
    ended = start(lambda: Air(site=home, paths=paths, CIRCUIT_FAILURE_THRESHOLD=0))
    assert ended.code == 6
    summary = ended.summary
    assert (summary["request_ok"], summary["request_failed"], summary["outcome"]) == (0, 10, "all_failed")
    assert summary["reasons"] == {"HTTP 500": 10}
    assert sum("WARNING" in line for line in ended.lines) == 10
    assert "ended with nothing but failures" in ended.err


def test_a_store_that_cannot_be_reached_is_no_success_case_cli_04_d(start, home):
    assert CASES["CLI-04"]["input"]["d"] == "pipeline cannot connect to MySQL at start"

    class Mysql:
        def open(self):
            raise ConnectionRefusedError("mysql at localhost:3306 refused the connection")

        def save_items(self, table, items):
            raise AssertionError

    began = time.monotonic()
    ended = start(
        lambda: Air(
            site=home,
            pipelines=[Mysql()],
            ITEM_RETRY_TIMES=1,
            ITEM_RETRY_BACKOFF=0.01,
            ITEM_STORE_PATIENCE=0.5,
        )
    )
    assert time.monotonic() - began < 10
    assert (ended.code, ended.summary["outcome"]) == (6, "all_failed")
    assert "refused the connection" in ended.err
    assert (ended.summary["items"], ended.summary["item_failed"]) == (0, 1)


def test_nothing_new_is_code_0_with_a_warning_case_cli_04_e(start, home, redis_url, redis_server):
    assert CASES["CLI-04"]["input"]["e"] == "normal run with 0 new urls because all are deduplicated"

    def again(**keywords):
        return start(lambda: Shared(site=home, REDIS_URL=redis_url, **keywords))

    assert again().code == 0
    client = redis_server.client()
    client.delete("netspy:Shared:lock:seed")
    client.close()
    ended = again(DEDUP_SCOPE="spider")
    assert (ended.code, ended.summary["outcome"]) == (0, "nothing_to_do")
    assert ended.summary["dedup_dropped"] == 1
    assert any("WARNING" in line and "1 request(s) were known from before" in line for line in ended.lines)
    assert again(FAIL_ON_NOTHING_TO_DO=True).code == 9


def test_the_summary_line_can_be_turned_off(start, home):
    ended = start(
        lambda: Air(
            site=home, RUN_SUMMARY_ENABLE=False, ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"]
        )
    )
    assert ended.code == 0
    assert MARK not in ended.out


# -- CLI-02, beside tests/scenario/test_air_resume.py ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_redis_is_down_is_bounded_and_no_success_case_cli_02_d(home, tmp_path, presses):
    assert CASES["CLI-02"]["input"]["d"] == "SIGINT while Redis is down"
    source = """
import os
import netspy as mw

class News(mw.Spider):
    def start_requests(self):
        for n in range(20):
            yield mw.Request(os.environ["SITE"] + f"/p/{n}")

    def parse(self, request, response):
        yield {"url": request.url}

News().start()
"""
    with RedisServer() as server:
        env = {
            "SITE": home.url("").rstrip("/"), "NETSPY_REDIS_URL": server.url, "NETSPY_DOWNLOAD_DELAY": "60",
            "NETSPY_HEARTBEAT_INTERVAL": "0.3",
        }  # fmt: skip
        with start_script(source, env=env, cwd=tmp_path) as script:
            home.wait_hits(1)
            server.kill()
            script.wait_line("Redis is away")
            began = time.monotonic()
            script.interrupt()
            if presses == 2:
                script.wait_line("Ctrl-C (SIGINT)")
                began = time.monotonic()
                script.interrupt()
            result = script.finish(30)
            took = time.monotonic() - began
    assert took < (10 if presses == 1 else 2)
    # It leaves so quickly that the second press may find it past its last word, which then holds.
    assert result.returncode in ({130} if presses == 1 else {130, 137})
    assert "Traceback" not in result.stderr
    assert result.summary["exit_code"] == result.returncode
    assert result.stdout.splitlines()[-1].startswith(MARK)
