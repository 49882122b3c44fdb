"""Runs and their keys: what a RUN_ID separates, what outlives it, and what nodes say about dedup."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from scenario_support import SPIDER, urls, wait_nodes

from netspy.testing.children import wait_until
from netspy.testing.runner import Result, start_script
from netspy.testing.servers import RedisServer
from netspy.testing.site import LocalSite
from support.gate import Gate

pytestmark = pytest.mark.slow

WEEK = 7 * 86400
QUICK = {"NETSPY_HEARTBEAT_INTERVAL": "0.3", "NETSPY_HEARTBEAT_STALE": "1.5"}

LINKS = SPIDER.replace(
    "        yield {",
    '        yield from (mw.Request(response.urljoin(href)) for href in response.css("a::attr(href)").getall())\n        yield {',
)
"""The same spider, which follows the links of each page too."""


def run(
    site: LocalSite, redis_url: str, folder: Path, *, source: str = SPIDER, code: int = 0, **env: str
) -> Result:
    common = {"SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url}
    with start_script(source, env={**common, **env}, cwd=folder) as script:
        return script.finish(60).check(code)


def run_two(
    site: LocalSite, redis_url: str, folder: Path, source: str, gate: Gate, **env: str
) -> list[Result]:
    """Two nodes; the gate opens when both have joined the run."""
    common = {"SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url, **env}
    a = start_script(source, env=common, cwd=folder)
    b = start_script(source, env=common, cwd=folder)
    with a, b:
        wait_nodes(redis_url, 2)
        gate.open()
        return [a.finish(60).check(), b.finish(60).check()]


def lifetimes(server: RedisServer, pattern: str = "*") -> dict[str, int]:
    """Seconds left of each key; -1 = for ever."""
    client = server.client()
    found = {key: client.ttl(key) for key in sorted(client.scan_iter(pattern, count=1000))}
    return {key: left for key, left in found.items() if left != -2}  # gone between the two looks


# -- what a run crawls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["auto", "run"])
def test_each_run_crawls_everything_again(numbered, redis_url, redis_server, tmp_path, scope):
    for run_id in ("one", "two"):
        result = run(numbered, redis_url, tmp_path, NETSPY_RUN_ID=run_id, NETSPY_DEDUP_SCOPE=scope)
        assert result.summary["request_ok"] == 24
        assert "crawled are not crawled again" not in result.stderr
    assert set(numbered.all_hits().values()) == {2}
    client = redis_server.client()
    assert client.exists("netspy:Pages:run:one:dedup:bloom", "netspy:Pages:run:two:dedup:bloom") == 2
    assert not client.exists("netspy:Pages:dedup:bloom")


def test_spider_scope_crawls_only_what_no_earlier_run_has_and_says_so(
    numbered, redis_url, redis_server, tmp_path
):
    done = []
    for run_id, pages in (("one", 24), ("two", 30), ("three", 30)):
        result = run(
            numbered, redis_url, tmp_path, NETSPY_RUN_ID=run_id, NETSPY_DEDUP_SCOPE="spider", PAGES=str(pages)
        )
        done.append((result.summary["request_ok"], result.summary["outcome"]))
        said = [line for line in result.stderr.splitlines() if "DEDUP_SCOPE=spider" in line]
        assert len(said) == 1
        assert "INFO" in said[0]
    assert done == [(24, "finished"), (6, "finished"), (0, "nothing_to_do")]
    assert set(numbered.all_hits().values()) == {1}
    client = redis_server.client()
    assert client.exists("netspy:Pages:dedup:bloom") == 1
    assert list(client.scan_iter("netspy:Pages:run:*:dedup:bloom")) == [
        key for key in client.scan_iter("netspy:Pages:run:*:dedup:bloom") if ":items:" in key
    ]


def test_a_filter_that_is_gone_with_its_process_remembers_nothing_for_a_later_run_and_that_is_told(
    numbered, redis_url, tmp_path
):
    for run_id in ("a", "b"):
        result = run(
            numbered,
            redis_url,
            tmp_path,
            NETSPY_RUN_ID=run_id,
            NETSPY_DEDUP_SCOPE="spider",
            NETSPY_DEDUP_FILTER="lite",
        )
        assert (result.summary["request_ok"], result.summary["outcome"]) == (24, "finished")
        assert "DEDUP_SCOPE=spider has no effect with DEDUP_FILTER='lite'" in result.stderr
        assert "are not crawled again" not in result.stderr


@pytest.mark.parametrize("scope", ["auto", "run", "spider"])
def test_without_a_run_id_the_job_remembers_for_good_whatever_the_scope(
    numbered, redis_url, redis_server, tmp_path, scope
):
    run(numbered, redis_url, tmp_path, NETSPY_DEDUP_SCOPE=scope)
    left = lifetimes(redis_server)
    assert "netspy:Pages:runs" not in left
    assert left.pop("netspy:Pages:lock:seed") > 86000
    assert set(left.values()) == {-1}
    redis_server.client().delete("netspy:Pages:lock:seed")
    result = run(numbered, redis_url, tmp_path, NETSPY_DEDUP_SCOPE=scope)
    assert (result.summary["request_ok"], result.summary["dedup_dropped"]) == (0, 24)
    assert "DEDUP_SCOPE=spider" not in result.stderr


def test_when_the_seeding_mark_has_run_out_the_next_start_seeds_again_under_dedup(
    numbered, redis_url, redis_server, tmp_path
):
    run(numbered, redis_url, tmp_path, NETSPY_SPIDER_SEED_LOCK_TTL="1")
    client = redis_server.client()
    assert wait_until(lambda: not client.exists("netspy:Pages:lock:seed"), 30)
    result = run(numbered, redis_url, tmp_path, PAGES="30")
    assert (result.summary["request_ok"], result.summary["dedup_dropped"]) == (6, 24)


# -- how long keys live ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["run", "spider"])
def test_every_key_of_a_run_has_a_lifetime_and_what_belongs_to_the_job_has_none(
    site, redis_url, redis_server, tmp_path, scope
):
    site.route(
        "/p/", lambda request: 404 if request.path == "/p/3" else f'<a href="{request.path}x">', prefix=True
    )
    site.route("/p/0", "late", fail_first=2)
    site.route("/p/5", "slow", delay=3)
    source = LINKS.replace("yield {", "yield Page(**{").replace("os.getpid()}", "os.getpid()})")
    source = source.replace("class Pages", "class Page(mw.Item):\n    pass\n\n\nclass Pages")
    env = {
        "NETSPY_RUN_ID": "r", "NETSPY_DEDUP_SCOPE": scope, "NETSPY_RETRY_BACKOFF": "30", "NETSPY_SPIDER_THREAD_COUNT": "2",
        "NETSPY_COLLECTOR_TASK_COUNT": "1", "PAGES": "12", "PARSE_SLEEP": "0.2", "SITE": site.url("").rstrip("/"),
        "NETSPY_REDIS_URL": redis_url, **QUICK,
    }  # fmt: skip
    ns = "netspy:Pages:run:r:"
    names = {
        "z_requests",
        "z_inflight",
        "z_delayed",
        "failed_requests",
        "lock:seed",
        "nodes",
        "beats",
        "meta",
        "items:dedup:bloom",
    }
    with start_script(source, env=env, cwd=tmp_path) as script:
        client = redis_server.client()
        assert wait_until(lambda: client.exists(*[ns + name for name in names]) == len(names), 30)
        during = lifetimes(redis_server)
        script.kill()
    seed_lock = during.pop(f"{ns}lock:seed")
    assert 0 < seed_lock <= 86400
    # What is queued under DEDUP_SCOPE=spider waits for a later run, however late it comes.
    stays = {f"{ns}{name}" for name in ("z_requests", "z_inflight", "z_delayed", "failed_requests")}
    if scope == "spider":
        assert {during.pop(key) for key in stays} == {-1}
    of_run = {key: left for key, left in during.items() if key.startswith(ns)}
    assert {key: left for key, left in of_run.items() if not WEEK - 60 < left <= WEEK} == {}
    of_job = {key: left for key, left in during.items() if not key.startswith(ns)}
    dedup = {"netspy:Pages:dedup:bloom", "netspy:Pages:dedup:bloom:count", "netspy:Pages:dedup:layout"}
    assert set(of_job) == {"netspy:Pages:runs"} | (dedup if scope == "spider" else set())
    assert set(of_job.values()) == {-1}


def test_heartbeats_keep_a_run_longer_than_its_ttl_alive_and_afterwards_it_goes(
    numbered, redis_url, redis_server, tmp_path
):
    env = {
        "NETSPY_RUN_ID": "r", "NETSPY_RUN_TTL": "3", "NETSPY_SPIDER_THREAD_COUNT": "1", "NETSPY_COLLECTOR_TASK_COUNT": "1",
        "NETSPY_CALLBACK_MAX_THREADS": "1", "PAGES": "6", "PARSE_SLEEP": "4.5", "NETSPY_SPIDER_MAX_PAGES": "2", **QUICK,
        "SITE": numbered.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url,
    }  # fmt: skip
    client = redis_server.client()
    with start_script(SPIDER, env=env, cwd=tmp_path) as script:
        numbered.wait_hits(2)
        # The first page was 4.5 s without a write: only heartbeats kept the queue, the seeding mark and the fingerprints.
        assert numbered.log[1].time - numbered.log[0].time > 4
        assert client.zcard("netspy:Pages:run:r:z_requests") >= 3
        assert (
            client.exists(
                "netspy:Pages:run:r:lock:seed",
                "netspy:Pages:run:r:dedup:bloom",
                "netspy:Pages:run:r:dedup:layout",
            )
            == 3
        )
        assert script.finish(60).check().summary["outcome"] == "limit"
    assert wait_until(lambda: not list(client.scan_iter("netspy:Pages:run:r:*")), 30)
    assert client.zrange("netspy:Pages:runs", 0, -1) == ["r"]
    # Nothing is left that would call this run seeded: the same id begins again.
    assert run(numbered, redis_url, tmp_path, NETSPY_RUN_ID="r").summary["request_ok"] == 24


def test_a_lifetime_shorter_than_what_makes_a_node_dead_is_refused(numbered, redis_url, tmp_path):
    result = run(numbered, redis_url, tmp_path, code=3, NETSPY_RUN_ID="r", NETSPY_RUN_TTL="15")
    assert "RUN_TTL=15s is not longer than HEARTBEAT_STALE=15s" in result.stderr
    assert numbered.total == 0


def test_the_index_lists_runs_by_their_first_start(numbered, redis_url, redis_server, tmp_path):
    began = time.time()
    for run_id in ("b", "a", "b"):
        run(numbered, redis_url, tmp_path, NETSPY_RUN_ID=run_id, PAGES="2")
    runs = redis_server.client().zrange("netspy:Pages:runs", 0, -1, withscores=True)
    assert [name for name, _ in runs] == ["b", "a"]
    assert runs[0][1] < runs[1][1]
    assert all(began - 1 < score / 1000 < time.time() + 1 for _, score in runs)


# -- dedup that isn't shared, that fills, that can't be --------------------------------------------------------


@pytest.mark.parametrize(("filter_", "fetched"), [("memory", 2), ("lite", 2), ("redis", 1), ("redis-set", 1)])
def test_a_page_that_two_nodes_find_is_fetched_once_only_by_a_shared_filter(
    site, redis_url, tmp_path, filter_, fetched
):
    gate = Gate(site, "/p/", delay=0.3, body=lambda _request: '<a href="/same">x</a>')
    site.route("/same", "<p>")
    env = {
        "NETSPY_DEDUP_FILTER": filter_,
        "NETSPY_SPIDER_THREAD_COUNT": "1",
        "NETSPY_COLLECTOR_TASK_COUNT": "1",
        "PAGES": "8",
    }
    results = run_two(site, redis_url, tmp_path, LINKS, gate, **env)
    assert [result.summary["request_ok"] >= 1 for result in results] == [True, True]
    assert site.hits("/same") == fetched
    for result in results:
        warned = [
            line for line in result.stderr.splitlines() if "DEDUP_FILTER=" in line and "WARNING" in line
        ]
        assert len(warned) == (1 if fetched == 2 else 0)


def test_a_filling_filter_is_told_once_for_the_whole_cluster_and_a_full_one_once_more(
    site, redis_url, tmp_path
):
    gate = Gate(
        site,
        "/p/",
        delay=0.05,
        body=lambda page: "".join(f'<a href="/d/{page.path[3:]}-{i}">x</a>' for i in range(10)),
    )
    site.route("/d/", "<p>", prefix=True, delay=0.05)
    told = tmp_path / "told"
    source = LINKS.replace(
        "    def start_requests",
        f"    def on_alert(self, kind, message):\n        with open({str(told)!r}, 'a') as file:\n            file.write(kind + ' ' + message + '\\n')\n\n    def start_requests",
    )
    env = {
        "NETSPY_DEDUP_INITIAL_CAPACITY": "60",
        "NETSPY_DEDUP_MAX_LAYERS": "2",
        # Far below full: the links of several pages come in one call, and must not lead past both marks at once.
        "NETSPY_DEDUP_WARN_FILL_RATE": "0.4",
        "PAGES": "20",
        "NETSPY_SPIDER_THREAD_COUNT": "4",
    }
    results = run_two(site, redis_url, tmp_path, source, gate, **env)
    assert min(result.summary["request_ok"] for result in results) > 20
    kinds = Counter(line.split()[0] for line in told.read_text().splitlines())
    assert kinds == {"dedup_fill": 1, "dedup_full": 1}
    logged = [
        line
        for result in results
        for line in result.stderr.splitlines()
        if "dedup_fill" in line or "dedup_full" in line
    ]
    assert len(logged) == 2
    assert all("WARNING" in line for line in logged)
    assert sum(result.summary["alerts"] for result in results) == 2
    assert "of its capacity" in told.read_text()


def test_layers_that_no_redis_string_can_hold_are_refused_at_start_with_the_numbers(
    numbered, redis_url, tmp_path
):
    result = run(numbered, redis_url, tmp_path, code=3, NETSPY_DEDUP_MAX_LAYERS="8")
    [line] = [line for line in result.stderr.splitlines() if line.startswith("netspy: error:")]
    assert "DEDUP_MAX_LAYERS=8" in line
    assert "512 MB" in line
    assert "at most 7 layers" in line
    assert numbered.total == 0


# -- servers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["redis_server", "redis62_server"])
def test_a_run_that_loses_a_node_is_completed_on_every_supported_redis(site, tmp_path, request, server):
    redis: RedisServer = request.getfixturevalue(server)
    redis.flush()
    version = redis.client().info("server")["redis_version"]
    assert version.startswith("6.2." if server == "redis62_server" else ("7", "8"))
    for n in range(6):
        site.route(f"/p/{n}", "".join(f'<a href="/d/{n}-{i}">x</a>' for i in range(8)))
    site.route(
        "/d/",
        lambda request: 503 if request.hits == 1 and request.path.endswith("-7") else "<p>",
        prefix=True,
    )
    env = {
        "SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis.url, "NETSPY_RUN_ID": "r", "PAGES": "6", "PARSE_SLEEP": "0.1",
        "NETSPY_SPIDER_THREAD_COUNT": "3", **QUICK,
    }  # fmt: skip
    a = start_script(LINKS, env=env, cwd=tmp_path)
    b = start_script(LINKS, env=env, cwd=tmp_path)
    with a, b:
        site.wait_hits(25)
        a.kill()
        result = b.finish(60).check()
    expected = {site.url(f"/p/{n}") for n in range(6)} | {
        site.url(f"/d/{n}-{i}") for n in range(6) for i in range(8)
    }
    assert set(urls(tmp_path)) == expected
    assert result.summary["outcome"] == "finished"
    client = redis.client()
    assert (
        client.exists(
            "netspy:Pages:run:r:z_requests", "netspy:Pages:run:r:z_inflight", "netspy:Pages:run:r:z_delayed"
        )
        == 0
    )
    assert client.get("netspy:Pages:run:r:dedup:bloom:count") == "54"
