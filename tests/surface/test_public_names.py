"""What is public: names, import paths, settings with their defaults, what an import costs, what a wheel holds."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

import netspy
from netspy import settings
from netspy.testing.runner import run_script

ROOT = Path(__file__).parents[2]

# -- names -----------------------------------------------------------------------------------------------------

TOP_LEVEL = """
    AirSpider BaseParser BatchSpider Spider TaskSpider Request Response Item UpdateItem setting get_logger log __version__
    NetspyError ConfigError SpiderError RequestError ResponseError ValidationError NotRetryError ItemError PipelineError DedupError
""".split()
LATER = "User UserPool LocalUserPool GuestUserPool RedisUserPool".split()
"""Documented in this family of packages and not built yet: asking for one is a clear error."""


def test_all_is_what_is_there():
    assert sorted(netspy.__all__) == sorted(TOP_LEVEL)
    assert len(set(netspy.__all__)) == len(netspy.__all__)
    for name in netspy.__all__:
        assert getattr(netspy, name) is not None
        assert name in dir(netspy)


def test_the_type_checker_is_told_of_the_same_names():
    source = (ROOT / "src/netspy/__init__.py").read_text(encoding="utf-8")
    told = source.partition("if TYPE_CHECKING:")[2].partition("__version__ =")[0]
    for name in netspy.__all__:
        assert name == "__version__" or name in told


@pytest.mark.parametrize("name", [*LATER, "Spyder"])
def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it(name):
    with pytest.raises(AttributeError, match=name):
        getattr(netspy, name)


TREE = {
    "ConfigError": "NetspyError", "SpiderError": "NetspyError", "RequestError": "NetspyError", "ResponseError": "NetspyError",
    "ValidationError": "NetspyError", "NotRetryError": "NetspyError", "ItemError": "NetspyError", "PipelineError": "NetspyError",
    "DedupError": "NetspyError", "ContentTypeRejectedError": "NetspyError", "HttpStatusError": "RequestError",
    "ResponseTooLargeError": "RequestError", "AntiBotError": "RequestError", "ProxyUnavailableError": "RequestError",
    "UserUnavailableError": "RequestError",
}  # fmt: skip


def test_exceptions_are_where_they_are_documented_and_of_one_tree():
    exceptions = importlib.import_module("netspy.exceptions")
    errors = importlib.import_module("netspy.errors")
    for name, parent in TREE.items():
        assert issubclass(getattr(exceptions, name), getattr(exceptions, parent))
        assert getattr(exceptions, name) is getattr(errors, name)
    assert sorted(exceptions.__all__) == sorted(
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.NetspyError)
    )
    error = exceptions.HttpStatusError(404, "http://example.com/")
    assert (error.status_code, error.url) == (404, "http://example.com/")


PATH = re.compile(r"\bnetspy(?:\.[a-z_0-9]+)+(?:[.:][A-Z]\w+)?")
NOT_THERE = {"netspy.sh", "netspy.toml", "netspy.log", "netspy.db"}
"""Names of files in the docs, not of modules."""


def paths_in_docs():
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*.*")),
    ]
    found = {path for page in pages for path in PATH.findall(page.read_text(encoding="utf-8"))}
    return sorted(found - NOT_THERE)


@pytest.mark.parametrize("path", paths_in_docs())
def test_every_path_that_the_docs_name_can_be_imported(path):
    """Files move between rooms; what users were told to write stays."""
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        found = importlib.import_module(path)
    except ModuleNotFoundError:
        found = getattr(importlib.import_module(module), name)
    assert found is not None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("netspy.pipelines.base", "BasePipeline"),
        ("netspy.pipelines.console", "ConsolePipeline"),
        ("netspy.pipelines.csv", "CsvPipeline"),
        ("netspy.pipelines.jsonl", "JsonlPipeline"),
        ("netspy.pipelines.sqlite", "SqlitePipeline"),
        ("netspy.core.batch_store", "BatchStore"),
        ("netspy.core.batch_store", "MemoryBatchStore"),
        ("netspy.core.batch_store", "MysqlBatchStore"),
        ("netspy.core.batch_store", "SqlBatchStore"),
        ("netspy.core.batch_monitor", "BatchMonitor"),
        ("netspy.network.middleware", "DownloaderMiddleware"),
        ("netspy.utils.log", "get_logger"),
        ("netspy.testing", "LocalSite"),
        ("netspy.testing", "run_script"),
    ],
)
def test_documented_import_paths_work(path, name):
    assert callable(getattr(importlib.import_module(path), name))


CONSTRUCTORS = {
    "AirSpider": ["thread_count", "item_handler", "pipelines", "debug"],
    "Spider": ["redis_key", "thread_count", "keep_alive", "item_handler", "pipelines"],
    "TaskSpider": ["redis_key", "task_key", "task_source", "thread_count", "keep_alive", "item_handler", "pipelines"],
    "BatchSpider": [
        "redis_key", "task_table", "batch_store", "batch_interval", "thread_count", "keep_alive", "item_handler", "pipelines",
    ],
}  # fmt: skip
HOOKS = {
    "start_requests": [],
    "parse": ["request", "response"],
    "download_midware": ["request"],
    "validate": ["request", "response"],
    "failed_request": ["request", "response"],
    "exception_request": ["request", "response", "exception"],
    "user_pool": [],
    "start_callback": [],
    "end_callback": [],
    "on_alert": ["kind", "message"],
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_spiders_have_the_documented_constructor_and_hooks(name):
    kind = getattr(netspy, name)
    parameters = inspect.signature(kind.__init__).parameters
    for argument in CONSTRUCTORS[name]:
        assert parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[argument].default in {None, False}
    assert issubclass(kind, netspy.BaseParser)
    for hook, arguments in HOOKS.items():
        assert list(inspect.signature(getattr(kind, hook)).parameters) == ["self", *arguments]
    for method in ("start", "run", "stop"):
        assert callable(getattr(kind, method))
    assert kind.__custom_setting__ == {}


TASK_HOOKS = {
    "TaskSpider": {
        "task_requests": ["task"], "fetch_tasks": ["limit"], "task_done": ["task"], "task_failed": ["task"],
        "add_tasks": ["tasks"],
    },
    "BatchSpider": {
        "task_requests": ["task"], "update_task": ["task_id", "ok"], "start_monitor": ["once"],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TASK_HOOKS)
def test_task_and_batch_spiders_have_the_documented_methods(name):
    kind = getattr(netspy, name)
    assert issubclass(kind, netspy.Spider)
    for method, arguments in TASK_HOOKS[name].items():
        assert list(inspect.signature(getattr(kind, method)).parameters) == ["self", *arguments]


def test_tasks_are_pushed_by_the_class_and_by_an_object():
    class Products(netspy.TaskSpider):
        pass

    for owner in (Products, Products(task_key="other")):
        assert list(inspect.signature(owner.push_tasks).parameters) == ["tasks", "task_key"]


def test_a_batch_spiders_table_is_named_after_it_where_nothing_names_it():
    class CrawlTask(netspy.BatchSpider):
        pass

    class Named(netspy.BatchSpider):
        __task_table__ = "jobs"

    assert (CrawlTask().task_table, Named().task_table, Named(task_table="t").task_table) == (
        "crawl_task",
        "jobs",
        "t",
    )


def test_the_states_of_a_task_are_the_documented_numbers():
    store = importlib.import_module("netspy.core.batch_store")
    assert (store.TODO, store.DONE, store.DOING, store.FAILED) == (0, 1, 2, -1)
    counts = store.TaskCounts(10, 1, 2, 3, 4)
    assert (counts.settled, counts.finished) == (7, False)


def test_a_spider_has_a_logger_counters_and_settings():
    spider = netspy.AirSpider()
    assert callable(spider.logger.info)
    assert spider.stats.get("pages") == 0
    assert spider.settings.SPIDER_THREAD_COUNT == 16


REQUEST = """
    url method callback priority retry_times filter_repeat auto_request use_session random_user_agent impersonate render render_time
    wait_for render_script download_midware parser_name cb_kwargs errback encoding
""".split()
RESPONSE_METHODS = "json xpath css re re_first urljoin follow follow_all links to_dict".split()
RESPONSE_FIELDS = (
    "text encoding selector ok headers cookies content elapsed history request status_code url".split()
)


def test_requests_and_responses_have_the_documented_fields():
    parameters = list(inspect.signature(netspy.Request.__init__).parameters)
    assert set(REQUEST) <= set(parameters)
    request = netspy.Request("http://example.com/?a=1", params={"b": 2}, headers={"X": "1"}, page=7)
    assert request.priority == 300
    assert request.page == 7
    assert request.requests_kwargs == {"headers": {"X": "1"}}
    assert netspy.Request.from_dict(request.to_dict()).fingerprint == request.fingerprint
    assert len(request.fingerprint) == 32
    assert request < netspy.Request("http://example.com/", priority=301)
    response = netspy.Response(url="http://example.com/", status_code=200, content=b"<p>x", request=request)
    for name in RESPONSE_METHODS:
        assert callable(getattr(response, name))
    for name in RESPONSE_FIELDS:
        assert hasattr(response, name)
    assert response.css("p::text").extract_first() == "x"


# -- settings --------------------------------------------------------------------------------------------------

DOCUMENTED = {
    # run and scheduler
    "SPIDER_THREAD_COUNT": 4, "SPIDER_MAX_RETRY_TIMES": 3, "SPIDER_RETRY_INTERVAL": 0.0, "COLLECTOR_TASK_COUNT": 100,
    "REQUEST_BUFFER_MAX_CACHED": 1000, "BUFFER_FLUSH_INTERVAL": 0.1, "DONE_CHECK_TIMES": 3, "DONE_CHECK_INTERVAL": 0.5,
    "SPIDER_MAX_RUNTIME": 0.0, "DUMP_UNFINISHED_ON_EXIT": True, "FAILED_REQUEST_PATH": "failed_requests.jsonl",
    "RETRY_FAILED_ON_START": False, "RUN_SUMMARY_ENABLE": True, "DEBUG": False, "PROJECT_NAME": "netspy",
    # distributed
    "REDIS_URL": "redis://localhost:6379/0", "REDIS_KEY_PREFIX": "netspy", "SPIDER_KEEP_ALIVE": False,
    "SPIDER_SEED_LOCK_TTL": 86400, "SPIDER_STARTUP_GRACE": 10.0, "SPIDER_TASK_LEASE": 600.0, "HEARTBEAT_INTERVAL": 3.0,
    "HEARTBEAT_STALE": 15.0, "RUN_ID": "", "DEDUP_SCOPE": "auto", "RUN_TTL": 604800,
    # tasks and batches
    "TASK_POLL_INTERVAL": 2.0, "TASK_BATCH_SIZE": 100, "TASK_EXHAUST_POLLS": 3, "BATCH_INTERVAL": 7.0,
    "BATCH_INTERVAL_UNIT": "day", "BATCH_MONITOR_INTERVAL": 10.0, "BATCH_LOST_TASK_STALE": 600.0, "BATCH_PUSH_LIMIT": 5000,
    "BATCH_TASK_ID_FIELD": "id", "BATCH_TASK_STATE_FIELD": "batch_status", "BATCH_TASK_TIME_FIELD": "update_time",
    # requests and downloads
    "REQUEST_TIMEOUT": 22.0, "RANDOM_USER_AGENT": True, "USE_SESSION": False, "SESSION_CACHE_SIZE": 16,
    "SESSION_SHARD_THREADS": 32, "CURL_SESSION_SHARD_THREADS": 16, "DOWNLOADER_ASYNC": False,
    "DOWNLOADER_ASYNC_CONCURRENCY": 200, "ASYNC_THREADS_PER_LOOP": 16, "HTTPX_HTTP2": False, "DOWNLOADER_IMPERSONATE": "",
    "ANTIBOT_DETECT": True, "DOWNLOADER_MIDDLEWARES": [], "MAX_RESPONSE_SIZE": 33554432, "ALLOWED_CONTENT_TYPES": [],
    "RESPONSE_CACHE_ENABLE": False, "RESPONSE_CACHE_PATH": ".netspy_cache", "RESPONSE_CACHE_EXPIRE": 3600.0,
    # politeness
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8, "DOWNLOAD_DELAY": 0.0, "RANDOMIZE_DOWNLOAD_DELAY": True, "GLOBAL_THROTTLE": False,
    "ROBOTS_OBEY": False, "ROBOTS_USER_AGENT": "*", "ROBOTS_CACHE_TTL": 3600.0, "CHECK_STATUS_CODE": True,
    "RETRY_STATUS_CODES": [429, 500, 502, 503, 504], "ACCEPT_STATUS_CODES": [], "RETRY_AFTER_MAX": 60.0, "RETRY_BACKOFF": 0.0,
    "CIRCUIT_FAILURE_THRESHOLD": 10, "CIRCUIT_COOLDOWN": 60.0,
    # proxies and users
    "PROXY_ENABLE": False, "PROXY_POOL": "netspy.network.proxy_pool.api.ApiProxyPool", "PROXY_EXTRACT_API": "",
    "PROXY_MAX_USE_TIMES": 100, "PROXY_MIN_INTERVAL": 1.0, "PROXY_WAIT_TIMEOUT": 30.0, "PROXY_BAN_SECONDS": 60.0,
    "PROXY_BAN_MAX_SECONDS": 900.0, "PROXY_SUSPECT_BAN_AFTER": 3, "PROXY_ALLOW_DIRECT": False, "USER_POOL_WAIT_TIMEOUT": 10.0,
    "USER_POOL_ALLOW_ANONYMOUS": False,
    # items and dedup
    "ITEM_PIPELINES": ["netspy.pipelines.console.ConsolePipeline"], "ITEM_DEFAULT_TABLE": "items",
    "ITEM_MAX_CACHED_COUNT": 5000, "ITEM_FILTER_ENABLE": True, "CSV_OUTPUT_DIR": ".", "FAILED_ITEM_PATH": "failed_items.jsonl",
    "DEDUP_FILTER": "memory", "DEDUP_TO_MD5": True, "DEDUP_ERROR_RATE": 1e-6, "DEDUP_INITIAL_CAPACITY": 1000000,
    "DEDUP_WARN_FILL_RATE": 0.8, "DEDUP_MAX_LAYERS": 4,
    # stores
    "MONGO_URI": "mongodb://localhost:27017", "MONGO_DB": "netspy", "MYSQL_HOST": "localhost", "MYSQL_PORT": 3306,
    "MYSQL_USER": "root", "MYSQL_PASSWORD": "", "MYSQL_DB": "netspy", "MYSQL_POOL_SIZE": 5, "MYSQL_UPDATE_ON_DUPLICATE": True,
    "POSTGRES_HOST": "localhost", "POSTGRES_PORT": 5432, "POSTGRES_USER": "postgres", "POSTGRES_PASSWORD": "",
    "POSTGRES_DB": "netspy", "POSTGRES_POOL_SIZE": 5, "POSTGRES_ON_CONFLICT": "nothing", "POSTGRES_CONFLICT_TARGET": [],
    "ELASTICSEARCH_HOSTS": ["http://localhost:9200"], "KAFKA_BOOTSTRAP_SERVERS": ["localhost:9092"],
    # rendering
    "WEBDRIVER": {},
    # operation
    "LOG_LEVEL": "INFO", "LOG_FILE": None, "LOG_COLOR": True, "LOG_ROTATION": "50 MB", "LOG_RETENTION": "10 days",
    "METRICS_ENABLE": False, "METRICS_LOG_INTERVAL": 10.0, "METRICS_PROMETHEUS_PORT": 0, "WARNING_ENABLE": True,
    "WARNING_FEISHU_WEBHOOK": "", "WARNING_DINGTALK_WEBHOOK": "", "WARNING_DINGTALK_SECRET": "", "WARNING_WECHAT_WEBHOOK": "",
    "WARNING_EMAIL": {}, "WARNING_INTERVAL": 300.0, "WARNING_FAILED_RATE": 0.5, "WARNING_MIN_REQUESTS": 50,
    "WARNING_FAILED_COUNT": 1000, "WARNING_STALL_SECONDS": 600.0,
}  # fmt: skip
"""The settings that users of this family of packages know, with the defaults documented there."""

OTHERWISE_HERE = {
    "SPIDER_THREAD_COUNT": 16,  # requests in flight, not threads
    "RANDOM_USER_AGENT": False,  # the default User-Agent names netspy
    "USE_SESSION": True,  # connections and cookies are always shared
    "HTTPX_HTTP2": True,  # costs nothing with libcurl
    "RETRY_BACKOFF": 0.5,  # at once is what hurts a server in trouble
    "DEDUP_FILTER": "auto",  # memory for one process, Redis for several
}
"""Defaults that differ on purpose; the porting guide has a line for each."""


def test_every_documented_setting_is_known():
    known = set(settings.FIELDS) | settings.LEGACY | set(settings.NOT_BUILT)
    assert set(DOCUMENTED) - known == set()
    assert not set(settings.FIELDS) & settings.LEGACY
    assert not set(settings.FIELDS) & set(settings.NOT_BUILT)
    assert (settings.LEGACY | set(settings.NOT_BUILT)) - set(DOCUMENTED) == set(), (
        "only documented names are tolerated"
    )


def test_defaults_are_the_documented_ones_but_for_those_listed():
    defaults = msgspec.structs.asdict(settings.Settings())
    found = {
        name: defaults[name] for name in DOCUMENTED if name in defaults and defaults[name] != DOCUMENTED[name]
    }
    assert found == OTHERWISE_HERE


def test_settings_that_have_no_effect_are_accepted_and_said(workdir):
    loaded = settings.load(custom={name: DOCUMENTED[name] for name in settings.LEGACY})
    assert len(loaded.warnings) == len(settings.LEGACY)
    assert settings.load(custom=dict.fromkeys(settings.NOT_BUILT, False)).warnings == ()


def test_settings_with_their_documented_values_are_accepted(workdir):
    given = {name: DOCUMENTED[name] for name in DOCUMENTED if name in settings.FIELDS}
    assert settings.load(custom=given).settings.SPIDER_THREAD_COUNT == 4


# -- imports ---------------------------------------------------------------------------------------------------

HEAVY = [
    "redis",
    "curl_cffi",
    "lxml",
    "parsel",
    "rich",
    "turbohtml",
    "loguru",
    "typer",
    "uvloop",
    "asyncio",
    "multiprocessing",
    "sqlite3",
    "sqlalchemy",
    "aio_pika",
    "confluent_kafka",
]


def test_importing_the_package_starts_nothing_and_loads_nothing_heavy(tmp_path):
    source = f"""
import os, sys, threading
before = set(sys.modules)
import netspy as mw
loaded = set(sys.modules) - before
mw.AirSpider, mw.Spider, mw.TaskSpider, mw.BatchSpider, mw.Request, mw.Item, mw.UpdateItem, mw.ConfigError, mw.get_logger, mw.setting


class News(mw.Spider):
    def parse(self, request, response):
        yield {{"title": response.css("title::text").get()}}


spider = News()
loaded = sorted(name for name in {HEAVY!r} if name in sys.modules)
assert loaded == [], loaded
assert threading.active_count() == 1
assert os.listdir() == [os.path.basename(__file__)], os.listdir()
"""
    result = run_script(source, cwd=tmp_path, env={"PYTHONDONTWRITEBYTECODE": "1"}).check()
    assert result.stdout == result.stderr == ""


def test_importing_the_package_is_quick(tmp_path):
    source = """
import time
before = time.process_time()  # other work on the machine does not count
import netspy
netspy.Spider
print(time.process_time() - before)
"""
    took = []
    while (
        len(took) < 20 and min(took, default=1.0) >= 0.15
    ):  # a processor that others use, too, is a slower one
        took.append(float(run_script(source, cwd=tmp_path).check().stdout))
    assert min(took) < 0.15, took


# -- the wheel -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_wheel_holds_every_module_script_and_mark(tmp_path):
    subprocess.run(
        [
            sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet",
            "--disable-pip-version-check", "--wheel-dir", str(tmp_path),
        ],
        cwd=ROOT, check=True, timeout=100,
    )  # fmt: skip
    [wheel] = tmp_path.glob("netspy-*.whl")
    assert netspy.__version__ in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        scripts = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "netspy").rglob("*")
        if path.suffix in {".py", ".lua", ".typed"} and "__pycache__" not in path.parts
    }
    assert wanted - names == set()
    assert sum(name.endswith(".lua") for name in wanted) > 10
    assert "netspy = netspy.cli:main" in scripts
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
