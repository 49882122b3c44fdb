"""The distributed spider's documented programs, settings and shell steps, run as they are written.

Only the host and the address of Redis are replaced. `python main.py` is this interpreter.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest
from scenario_support import wait_nodes

from netspy.testing.children import wait_until
from netspy.testing.runner import run_command, run_script, start_script
from netspy.testing.servers import RedisServer
from netspy.testing.site import LocalSite
from support.gate import Gate

pytestmark = pytest.mark.slow

NEWS = """
import netspy as mw


class NewsSpider(mw.Spider):
    __custom_setting__ = dict(REDIS_URL="redis://localhost:6379/0")

    def start_requests(self):
        for page in range(1, 100):
            yield mw.Request(f"https://example.com/news?p={page}", callback=self.parse)

    def parse(self, request, response):
        ...


if __name__ == "__main__":
    NewsSpider().start()
"""

SETTINGS = """
REDIS_URL = "redis://:password@host:6379/0"
REDIS_KEY_PREFIX = "netspy"      # what all keys begin with
DEDUP_FILTER = "redis"               # redis (Bloom) | redis-set (exact)
# Not memory or lite: those are kept in each process, so that two nodes fetch one page twice
# and rows without a unique key are stored twice. The start warns of it.
SPIDER_SEED_LOCK_TTL = 86400         # seconds
RUN_ID = ""                          # set: each run by itself
DEDUP_SCOPE = "auto"                 # run | spider | auto (run when there is a RUN_ID)
RUN_TTL = 7 * 86400                  # seconds
HEARTBEAT_INTERVAL = 3.0
HEARTBEAT_STALE = 15.0               # a node silent for longer is dead
SPIDER_KEEP_ALIVE = False

DEDUP_INITIAL_CAPACITY = 1_000_000   # of the first layer
DEDUP_MAX_LAYERS = 4                 # at most
DEDUP_WARN_FILL_RATE = 0.8           # warn from here on

SPIDER_TASK_LEASE = 600.0   # seconds; 0 = off
SPIDER_STARTUP_GRACE = 10.0   # seconds; 0 = off
"""

NEW_RUN = """
export NETSPY_RUN_ID=$(date +%s)
python main.py
"""

FORGET_SEEDING = "redis-cli DEL netspy:NewsSpider:lock:seed netspy:NewsSpider:z_requests"
FORGET_PAGES = r"""
redis-cli DEL netspy:NewsSpider:dedup:bloom \
  netspy:NewsSpider:dedup:bloom:1 \
  netspy:NewsSpider:dedup:bloom:2 \
  netspy:NewsSpider:dedup:bloom:3 \
  netspy:NewsSpider:dedup:bloom:count
"""
QUIET = {"NETSPY_PROGRESS": "off", "NETSPY_REQUEST_TIMEOUT": "100", "NETSPY_IDLE_TIMEOUT": "0"}


@pytest.fixture
def news(site: LocalSite) -> LocalSite:
    site.route("/news", lambda request: f"<title>{request.target}</title>")
    return site


def placed(source: str, site: LocalSite, redis: str) -> str:
    """The program with host and Redis replaced."""
    assert "https://example.com" in source
    return source.replace("https://example.com", site.url("").rstrip("/")).replace(
        "redis://localhost:6379/0", redis
    )


def main_py(folder: Path, source: str) -> Path:
    path = folder / "main.py"
    path.write_text(source, encoding="utf-8")
    return path


def shell(text: str, folder: Path, redis: str) -> str:
    """Run shell lines; `python` and `redis-cli` go to this interpreter and to the private server."""
    text = text.replace("redis-cli", f"redis-cli -u {shlex.quote(redis)}").replace(
        "python main.py", f"{shlex.quote(sys.executable)} main.py"
    )
    return run_command(["sh", "-ec", text], cwd=folder, env=QUIET).check().stdout


def assert_each_page(site: LocalSite, times: int) -> None:
    assert site.all_hits() == {f"/news?p={page}": times for page in range(1, 100)}


def test_the_program_runs_as_written_and_on_two_machines(news, redis_url, tmp_path):
    # The default limit of 8 requests per site holds on each node.
    news.unroute("/news")
    gate = Gate(news, "/news", delay=0.25)
    path = main_py(tmp_path, placed(NEWS, news, redis_url))
    a = start_script(path, cwd=tmp_path, env=QUIET)
    b = start_script(path, cwd=tmp_path, env=QUIET)
    with a, b:
        wait_nodes(redis_url, 2, "netspy:NewsSpider")
        gate.open()
        results = [a.finish(60).check(), b.finish(60).check()]
    assert_each_page(news, 1)
    done = [result.summary["request_ok"] for result in results]
    assert sum(done) == 99
    assert min(done) > 30
    assert {result.summary["namespace"] for result in results} == {"netspy:NewsSpider"}
    assert [result.stdout.splitlines()[-1].split()[0] for result in results] == ["NETSPY_RUN_SUMMARY"] * 2


def test_the_same_program_without_a_server_by_changing_the_base_class(news, tmp_path):
    source = placed(NEWS, news, "").replace("mw.Spider", "mw.AirSpider")
    result = run_script(main_py(tmp_path, source), cwd=tmp_path, env=QUIET).check()
    assert result.summary["request_ok"] == 99
    assert_each_page(news, 1)


def test_keep_alive_stays_for_more_work_until_it_is_told_to_go(news, redis_url, redis_server, tmp_path):
    source = placed(NEWS, news, redis_url)
    staying = source.replace("NewsSpider().start()", "NewsSpider(keep_alive=True).start()")
    with start_script(main_py(tmp_path, staying), cwd=tmp_path, env=QUIET) as worker:
        news.wait_hits(99)
        # A node of the plain kind finds the run over and leaves; the worker stays, and helps with what comes later.
        plain = run_script(source, cwd=tmp_path, env={**QUIET, "NETSPY_SPIDER_STARTUP_GRACE": "0"}).check()
        assert plain.summary["request_ok"] == 0
        shell(FORGET_SEEDING, tmp_path, redis_url)
        more = source.replace("range(1, 100)", "range(100, 140)")
        run_script(more, cwd=tmp_path, env=QUIET).check()
        assert news.total == 99 + 40
        assert worker.alive
        worker.terminate()
        result = worker.finish(20)
    assert result.returncode == 143
    assert result.summary["outcome"] == "stopped"
    assert result.summary["request_ok"] >= 99
    assert redis_server.client().zcard("netspy:NewsSpider:z_inflight") == 0


def test_the_settings_are_taken_from_setting_py_as_they_stand(news, tmp_path):
    with RedisServer(password="password") as server:
        settings = SETTINGS.replace("@host:6379/0", f"@{server.host}:{server.port}/0")
        assert server.url in settings
        (tmp_path / "setting.py").write_text(settings, encoding="utf-8")
        source = placed(NEWS, news, "").replace('    __custom_setting__ = dict(REDIS_URL="")\n', "")
        assert "REDIS_URL" not in source
        told = """
    loaded = NewsSpider().load_settings()
    values = {}
    exec(open("setting.py").read(), values)
    for name in [name for name in values if name.isupper()]:
        assert getattr(loaded.settings, name) == values[name], name
        print("read", name, "from", loaded.origins[name])
    assert not loaded.warnings, loaded.warnings
"""
        source = source.replace("    NewsSpider().start()", told + "    NewsSpider().start()")
        result = run_script(main_py(tmp_path, source), cwd=tmp_path, env=QUIET).check()
        assert result.stdout.count("setting.py") == 15
        assert result.summary["request_ok"] == 99
        assert server.client().type("netspy:NewsSpider:dedup:bloom") == "string"
        assert "password" not in result.stdout + result.stderr


def test_an_exact_filter_is_one_set_whose_members_are_the_fingerprints(
    news, redis_url, redis_server, tmp_path
):
    (tmp_path / "setting.py").write_text('DEDUP_FILTER = "redis-set"    # exact\n', encoding="utf-8")
    run_script(main_py(tmp_path, placed(NEWS, news, redis_url)), cwd=tmp_path, env=QUIET).check()
    assert redis_server.client().scard("netspy:NewsSpider:dedup:set") == 99
    assert not redis_server.client().exists("netspy:NewsSpider:dedup:bloom")


def test_a_new_run_id_each_time_crawls_everything_each_time(news, redis_url, redis_server, tmp_path):
    main_py(tmp_path, placed(NEWS, news, redis_url))
    for times in (1, 2):
        began = int(time.time())
        assert wait_until(lambda: int(time.time()) > began, 10)
        shell(NEW_RUN, tmp_path, redis_url)
        assert_each_page(news, times)
    client = redis_server.client()
    runs = client.zrange("netspy:NewsSpider:runs", 0, -1)
    assert len(runs) == 2
    for run in runs:
        assert client.get(f"netspy:NewsSpider:run:{run}:lock:seed").startswith("seeded")
    assert not client.exists("netspy:NewsSpider:lock:seed")


def test_the_del_steps_seed_again_and_then_forget_the_pages_too(news, redis_url, redis_server, tmp_path):
    path = main_py(tmp_path, placed(NEWS, news, redis_url))
    run_script(path, cwd=tmp_path, env=QUIET).check()
    assert (
        redis_server.client().exists(
            "netspy:NewsSpider:lock:seed",
            "netspy:NewsSpider:dedup:bloom",
            "netspy:NewsSpider:dedup:bloom:count",
        )
        == 3
    )
    # Seeded again, but every page is known.
    shell(FORGET_SEEDING, tmp_path, redis_url)
    result = run_script(path, cwd=tmp_path, env=QUIET).check()
    assert (result.summary["request_ok"], result.summary["dedup_dropped"]) == (0, 99)
    assert redis_server.client().get("netspy:NewsSpider:lock:seed").startswith("seeded")
    # The pages forgotten as well.
    shell(FORGET_SEEDING + FORGET_PAGES, tmp_path, redis_url)
    result = run_script(path, cwd=tmp_path, env=QUIET).check()
    assert result.summary["request_ok"] == 99
    assert_each_page(news, 2)


def test_the_documented_keys_hold_what_they_are_documented_to_hold(site, redis_url, redis_server, tmp_path):
    site.route("/news", lambda request: 404 if request.target.endswith("=7") else "<p>", delay=0.2)
    source = placed(NEWS, site, redis_url).replace("range(1, 100)", "range(1, 41)")
    source = source.replace("callback=self.parse", "callback=self.parse, priority=100 + page")
    client = redis_server.client()
    env = {
        **QUIET,
        "NETSPY_REDIS_KEY_PREFIX": "mine",
        "NETSPY_SPIDER_THREAD_COUNT": "2",
        "NETSPY_COLLECTOR_TASK_COUNT": "6",
        "NETSPY_CONCURRENT_REQUESTS_PER_DOMAIN": "2",
    }
    with start_script(main_py(tmp_path, source), cwd=tmp_path, env=env) as script:
        site.wait_hits(9)
        queue = client.zrange("mine:NewsSpider:z_requests", 0, -1, withscores=True)
        in_flight = client.zrange("mine:NewsSpider:z_inflight", 0, -1, withscores=True)
        server_now = client.time()[0]
        script.finish(60).check()
    assert len(queue) > 10
    assert [score for _, score in queue] == sorted({score for _, score in queue})
    assert {100 < score <= 140 for _, score in queue} == {True}
    assert 0 < len(in_flight) <= 8
    assert all(0 < deadline / 1000 - server_now <= 601 for _, deadline in in_flight)
    assert client.llen("mine:NewsSpider:failed_requests") == 1
    assert "/news?p=7" in client.lindex("mine:NewsSpider:failed_requests", 0)
    assert client.exists("mine:NewsSpider:z_requests", "mine:NewsSpider:z_inflight") == 0
    assert 86000 < client.ttl("mine:NewsSpider:lock:seed") <= 86400
