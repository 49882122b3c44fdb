"""The cases of the area *distributed*: seeding that dies, ends that come too early, Redis that goes away, what travels.

Sleeps are shorter than in the cases and the settings they are measured by (grace, lock, heartbeats) with them. DST-04 with
its own figures is in tests/fault/test_case_figures.py.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import pytest
from air_support import Memory
from scenario_support import SPIDER, urls

import netspy as mw
from netspy.cluster.failed import retry_failed
from netspy.errors import ConfigError
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.runner import start_script
from netspy.testing.servers import RedisServer, free_port
from support.missing import missing

CASES = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "data/cases/distributed.json").read_text(encoding="utf-8")
    )
}
QUICK = {
    "NETSPY_HEARTBEAT_INTERVAL": "0.3",
    "NETSPY_HEARTBEAT_STALE": "1.5",
    "NETSPY_SPIDER_SEEDING_TTL": "1.5",
}


def env(site, redis_url, **more):
    return {"SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url, **QUICK, **more}


@pytest.fixture
def folder(workdir):
    """Dead letters go to a folder of their own."""
    return workdir


# -- DST-01


@pytest.mark.slow
def test_dst_01_the_second_half_of_the_seeds_is_crawled_though_the_seeder_was_killed(
    numbered, redis_url, tmp_path
):
    total = CASES["DST-01"]["expected"]["distinct_pages_crawled_total"]
    in_flight = 20
    common = env(
        numbered, redis_url, PAGES=str(total), SEED_SLEEP="0.02", NETSPY_SPIDER_MAX_UNACKED=str(in_flight)
    )
    with start_script(SPIDER, env=common, cwd=tmp_path) as first:
        numbered.wait_hits(40)
        first.kill()
    assert numbered.total < total
    with start_script(SPIDER, env=common, cwd=tmp_path) as second:
        result = second.finish(60).check()
    assert len(set(urls(tmp_path))) == total
    # Only what was in flight: fetched, and not yet stored and acked.
    again = [path for path, hits in numbered.all_hits().items() if hits > 1]
    assert len(again) <= in_flight
    assert result.summary["outcome"] == "finished"


# -- DST-04

TOO_EARLY = """
import os, time
import netspy as mw

BASE = os.environ["SITE"]


class Early(mw.Spider):
    __custom_setting__ = dict(ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], PROGRESS="off")

    def start_requests(self):
        case = os.environ["CASE"]
        if case == "a":
            yield mw.Request(f"{BASE}/a", callback=self.slow)
        elif case == "b":
            for n in range(3):
                yield mw.Request(f"{BASE}/b/{n}")
                time.sleep(2.5)
        elif case == "c":
            for n in range(50):
                yield mw.Request(f"{BASE}/c/same")
            yield mw.Request(f"{BASE}/c/new")
        else:
            yield mw.Request(f"{BASE}/slow")

    def slow(self, request, response):
        yield {"url": request.url}
        time.sleep(4)
        for n in range(5):
            yield mw.Request(f"{BASE}/a/{n}")

    def parse(self, request, response):
        yield {"url": request.url}


Early(redis_key="early-" + os.environ["CASE"]).start()
"""


@pytest.mark.slow
def test_dst_04_a_queue_that_is_empty_for_the_moment_is_no_end(site, redis_url, tmp_path):
    site.route("/", "x", prefix=True)
    site.route("/slow", "x", delay=4.0)
    began = time.monotonic()
    with ExitStack() as stack:
        nodes = {}
        for case in "abcd":
            folder = tmp_path / case
            folder.mkdir()
            common = env(
                site, redis_url, CASE=case, NETSPY_SPIDER_STARTUP_GRACE="0.5",
                NETSPY_SPIDER_THREAD_COUNT="1" if case == "c" else "4",
            )  # fmt: skip
            started = [
                stack.enter_context(start_script(TOO_EARLY, env=common, cwd=folder))
                for _ in range(1 if case == "c" else 2)
            ]
            nodes[case] = started
        for case, started in nodes.items():
            for node in started:
                node.finish(60).check()
            # The last one has left, so what it said is final.
            assert len(set(urls(tmp_path / case))) == CASES["DST-04"]["expected"]["pages"][case], case
    assert time.monotonic() - began < 40


# -- DST-05

PACED = {
    "PAGES": "60",
    "PARSE_SLEEP": "0.4",
    "NETSPY_SPIDER_THREAD_COUNT": "4",
    "NETSPY_COLLECTOR_TASK_COUNT": "4",
}


def assert_all_of_60(site, folder, result):
    assert CASES["DST-05"]["expected"]["pages"] == len(set(urls(folder))) == 60
    assert result.summary["outcome"] == "finished"
    assert result.stderr.count("\n") < 40
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_dst_05a_a_restart_of_three_seconds_is_waited_out(numbered, tmp_path):
    with RedisServer(appendfsync="always") as server:
        with start_script(SPIDER, env=env(numbered, server.url, **PACED), cwd=tmp_path) as script:
            numbered.wait_hits(10)
            server.stop()
            away = time.monotonic()
            script.wait_line("Redis is away")
            wait_until(lambda: time.monotonic() - away > 3, 10, step=0.05)
            server.start()
            script.wait_line("Redis is back")
            result = script.finish(60).check()
    assert_all_of_60(numbered, tmp_path, result)
    assert result.stderr.count("Redis is away") == 1


@pytest.mark.slow
def test_dst_05b_killed_connections_are_replaced_and_nothing_is_lost(numbered, tmp_path):
    with RedisServer(appendfsync="always") as server:
        client = server.client()
        with start_script(SPIDER, env=env(numbered, server.url, **PACED), cwd=tmp_path) as script:
            for n in range(5):
                numbered.wait_hits(8 + 8 * n)
                # Itself, and those of the node, which the time before had lost them.
                assert wait_until(lambda: len(client.client_list(_type="normal")) >= 1 + 2, 20)
                assert client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 2
            result = script.finish(60).check()
    assert_all_of_60(numbered, tmp_path, result)


@pytest.mark.slow
def test_dst_05c_a_full_server_is_waited_out(site, tmp_path):
    # Each page leads to the next ones, so that writes which need memory are asked for all the time.
    site.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    source = SPIDER.replace('range(int(os.environ.get("PAGES", "24")))', "range(4)").replace(
        '        yield {"url"',
        '        n = int(request.url.rpartition("/")[2])\n'
        '        if n + 4 < 60:\n            yield mw.Request(f"{BASE}/p/{n + 4}")\n        yield {"url"',
    )
    with RedisServer(appendfsync="always") as server:
        client = server.client()
        with start_script(source, env=env(site, server.url, **PACED), cwd=tmp_path) as script:
            site.wait_hits(10)
            client.config_set("maxmemory", "1")
            full = time.monotonic()
            script.wait_line("memory")
            wait_until(lambda: time.monotonic() - full > 5, 10, step=0.05)
            assert site.total < 60
            client.config_set("maxmemory", "0")
            result = script.finish(60).check()
    assert_all_of_60(site, tmp_path, result)
    [told] = [line for line in result.stderr.splitlines() if "memory" in line]
    assert "WARNING" in told or "ERROR" in told


@pytest.mark.slow
def test_dst_05_an_outage_longer_than_allowed_is_no_success(numbered, tmp_path):
    with RedisServer(appendfsync="always") as server:
        common = env(numbered, server.url, NETSPY_REDIS_OUTAGE_TIMEOUT="1.5", **PACED)
        with start_script(SPIDER, env=common, cwd=tmp_path) as script:
            numbered.wait_hits(10)
            server.kill()
            result = script.finish(40).check(5)
    assert result.summary["outcome"] == "store_lost"


# -- DST-06


PASSWORD = CASES["DST-06"]["input"]["server_password"]


def ask(url, **more):
    """The database that a client of ours is connected to."""
    client = sync_client(Settings(REDIS_URL=url, **more))
    try:
        return int(client.client_info()["db"])
    finally:
        client.close()


def test_dst_06_urls_reach_the_database_they_name_or_are_one_clear_error(tmp_path):
    shapes = CASES["DST-06"]["input"]["urls"]
    with RedisServer(password=PASSWORD) as server:
        assert ask(shapes[0].replace("PORT", str(server.port))) == 2
    with RedisServer(unix_socket=True) as server:
        assert ask(shapes[4].replace("/tmp/r.sock", str(server.socket_path))) == 3
    with pytest.raises(ConfigError, match="'x', which is no number"):
        ask(shapes[2].replace("PORT", "6379"))


def test_dst_06_an_ipv6_address(tmp_path):
    with RedisServer() as server:
        try:
            server.client().config_set("bind", "127.0.0.1 ::1")
            socket.create_connection(("::1", server.port), 10).close()
        except Exception:
            missing("no IPv6 on this machine's loopback")
        assert ask(CASES["DST-06"]["input"]["urls"][5].replace("PORT", str(server.port))) == 0


def test_dst_06_tls_without_a_check_of_the_certificate(tmp_path):
    key, certificate, port = tmp_path / "key.pem", tmp_path / "cert.pem", free_port()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    config = {
        "tls-port": str(port), "tls-cert-file": str(certificate), "tls-key-file": str(key),
        "tls-ca-cert-file": str(certificate), "tls-auth-clients": "no",
    }  # fmt: skip
    with RedisServer(config=config):
        assert ask(CASES["DST-06"]["input"]["urls"][3].replace("TLSPORT", str(port))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spelling", "code"),
    [("p%23w%2Fx%40y+z%25", 0), ("p#w", 3), ("wr0ng-secret", 3)],
    ids=["right", "raw #", "wrong"],
)
def test_dst_06_a_wrong_password_is_one_clear_error_and_no_spelling_is_printed(
    numbered, tmp_path, spelling, code
):
    """A password may stand as it is (see `netspy.redisio.address`), so the raw # of the case is no error by itself.
    That `p#w` is not the server's password is one: a single line which says to percent-encode, as the case wants.
    """
    with RedisServer(password=PASSWORD) as server:
        url = f"redis://:{spelling}@127.0.0.1:{server.port}/2"
        with start_script(SPIDER, env=env(numbered, url, PAGES="3"), cwd=tmp_path) as script:
            result = script.finish(30).check(code)
    said = result.stdout + result.stderr
    for secret in (PASSWORD, spelling, "p#w", "x@y"):
        assert secret not in said
    assert "Traceback" not in said
    if code:
        [line] = result.stderr.strip().splitlines()
        assert "password" in line
        assert "percent-encoded" in line


# -- DST-08

TRAVELLERS = {
    "i": {1: "a", 2: "b"},
    "t": (1, (2, [3])),
    "s": {1, 2},
    "b": b"\x00\xff",
    "d": dt.date(2026, 2, 28),
    "dt": dt.datetime(2026, 2, 28, 12, 0, tzinfo=dt.timezone(dt.timedelta(hours=8))),
    "dec": Decimal("10.50"),
    "none": None,
    "big": 2**70,
    "nan": float("nan"),
    "k": {"__type__": "datetime", "__value__": "x"},
    "nested": {"a": [{"b": (1,)}]},
}


def same(one, other):
    """Equal, of equal type, all the way down; nan is nan."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dt.datetime):
        return one == other and one.utcoffset() == other.utcoffset()
    return one == other or (one != one and other != other)


class Shared(mw.Spider):
    __custom_setting__ = {"PROGRESS": "off", "RETRY_BACKOFF": 0.0, "SPIDER_MAX_RETRY_TIMES": 1}


def test_dst_08_the_values_are_those_of_the_case():
    assert set(CASES["DST-08"]["input"]["cb_kwargs"]) == set(TRAVELLERS)


def test_dst_08_values_keep_their_types_through_the_queue_a_retry_and_a_replay(folder, numbered, redis_url):
    seen = []

    class Values(Shared):
        broken = True

        def start_requests(self):
            yield mw.Request(self.site.url("/p/0"), callback=self.check, cb_kwargs=TRAVELLERS)

        def check(self, request, response, **values):
            seen.append(values)
            if self.broken:
                raise ValueError("not yet")

    first = Values(site=numbered, pipelines=[Memory()], REDIS_URL=redis_url)
    assert first.run().outcome == "all_failed"
    assert len(seen) == 2  # the first time and the retry

    settings = Settings(REDIS_URL=redis_url)
    client = sync_client(settings)
    assert retry_failed(client, run_scope(settings, "Values", "Values")).queued == 1
    client.close()
    again = Values(site=numbered, pipelines=[Memory()], REDIS_URL=redis_url)
    again.broken = False
    assert again.run().outcome == "finished"
    assert len(seen) == 3
    for values in seen:
        assert values.keys() == TRAVELLERS.keys()
        for name, value in values.items():
            assert same(value, TRAVELLERS[name]), name


def test_dst_08_what_cannot_travel_is_refused_at_the_yield_and_the_others_go_on(
    folder, numbered, redis_url, tmp_path, capsys
):
    class Bad(Shared):
        def start_requests(self):
            yield mw.Request(self.site.url("/p/start"))

        def parse(self, request, response):
            with (tmp_path / "x").open("w") as file:
                for n, bad in enumerate((threading.Lock(), lambda: 1, file)):
                    yield mw.Request(self.site.url(f"/p/bad{n}"), cb_kwargs={"bad": bad})
            yield mw.Request(self.site.url("/p/good"), callback=self.good)

        def good(self, request, response):
            yield {"n": 1}

    memory = Memory()
    summary = Bad(site=numbered, pipelines=[memory], REDIS_URL=redis_url).run()
    assert (summary.parse_error, memory.data()) == (3, [{"n": 1}])
    refused = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert len(refused) == 3
    # The key path is written as Python writes it.
    assert all("cb_kwargs['bad']" in line for line in refused)


def test_dst_08_two_requests_do_not_share_a_list_after_the_queue(folder, numbered, redis_url):
    got = []

    class Mutable(Shared):
        def start_requests(self):
            shared = [1]
            for n in range(2):
                yield mw.Request(self.site.url(f"/p/{n}"), cb_kwargs={"values": shared})

        def parse(self, request, response, values):
            values.append(request.url[-1])
            got.append(values)

    Mutable(site=numbered, pipelines=[Memory()], REDIS_URL=redis_url).run()
    assert sorted(got) == [[1, "0"], [1, "1"]]


# -- DST-09


def test_dst_09_identical_requests_without_dedup_all_run(folder, numbered, redis_url):
    calls = []
    # The first one goes back to the queue while its twins wait there.
    numbered.route("/p/poll", "x", fail_first=1)

    class Polling(Shared):
        def start_requests(self):
            for _ in range(3):
                yield self.poll()

        def poll(self):
            return mw.Request(self.site.url("/p/poll"), filter_repeat=False)

        def parse(self, request, response):
            calls.append(1)
            if len(calls) == 1:
                yield self.poll()

    spider = Polling(site=numbered, pipelines=[Memory()], REDIS_URL=redis_url, SPIDER_THREAD_COUNT=1)
    assert spider.run().outcome == "finished"
    assert len(calls) == CASES["DST-09"]["expected"]["callback_calls"]
    assert numbered.hits("/p/poll") == len(calls) + 1
