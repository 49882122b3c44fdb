"""A Spider on Redis, run in this process: what travels, what is refused at the yield, what a blocked loop says."""

from __future__ import annotations

import datetime as dt
import threading
import time
from decimal import Decimal

import pytest
from air_support import Memory

import netspy as mw

pytestmark = pytest.mark.usefixtures("workdir")


class Shared(mw.Spider):
    __custom_setting__ = {"PROGRESS": "off", "RETRY_BACKOFF": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 0}

    def start_requests(self):
        yield mw.Request(self.site.url("/p/start"))


@pytest.fixture
def run(home, redis_url):
    def crawl(spider, **keywords):
        memory = Memory()
        made = spider(site=home, pipelines=[memory], REDIS_URL=redis_url, **keywords)
        return made.run(), memory, made

    return crawl


def module_function(request, response):
    """A callback that belongs to no spider."""


class Foreign:
    def detail(self, request, response):
        """A method of something else."""


def test_callbacks_that_have_no_name_to_travel_by_are_refused_at_the_yield_and_the_run_goes_on(
    run, home, capsys
):
    class Refused(Shared):
        def parse(self, request, response):
            def nested(request, response):
                """A function inside a function."""

            yield {"n": 1}
            yield mw.Request(home.url("/p/1"), callback=lambda request, response: None)
            yield mw.Request(home.url("/p/2"), callback=nested)
            yield mw.Request(home.url("/p/3"), callback=module_function)
            yield mw.Request(home.url("/p/4"), callback=Foreign().detail)
            yield mw.Request(home.url("/p/5"), callback="detial")
            yield mw.Request(home.url("/p/6"), errback=lambda request, response, error: None)
            yield mw.Request(home.url("/p/7"), callback=self.detail)
            yield {"n": 2}

        def detail(self, request, response):
            yield {"n": 3}

    summary, memory, _ = run(Refused)
    assert summary.outcome == "finished"
    assert sorted(row["n"] for row in memory.data()) == [1, 2, 3]
    assert home.all_hits() == {"/p/start": 1, "/p/7": 1}
    assert summary.parse_error == 6
    log = capsys.readouterr().err
    first = Refused.parse.__code__.co_firstlineno
    for line, text in (
        (5, "a lambda has no name to travel by"),
        (6, "nested is a function inside a function"),
        (7, "module_function isn't a method of Refused"),
        (8, "Foreign.detail is a method of another object"),
        (9, "did you mean 'detail'?"),
        (10, "errback"),
    ):
        [said] = [one for one in log.splitlines() if f"test_redis_spider.py:{first + line})" in one]
        assert text in said
    assert "Traceback" not in log


VALUES = {
    "date": dt.date(2024, 2, 29),
    "when": dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
    "tuple": (1, (2, 3)),
    "set": {1, 2},
    "bytes": b"\x00\xff",
    "decimal": Decimal("1.10"),
    "big": 2**80,
    "none": None,
    "nested": {"list": [{"tuple": (1,)}], "text": "中文 ⸺ \U0001f600"},
    "float": 0.1,
    "marked": {"!date": "not a date"},
}


def test_values_come_back_as_they_went_in(run, home):
    class Travels(Shared):
        def parse(self, request, response):
            yield mw.Request(
                home.url("/p/1"),
                callback=self.check,
                cb_kwargs=VALUES,
                own=(1, 2),
                method="POST",
                data=b"\xff\x00",
            )

        def check(self, request, response, **values):
            assert request.own == (1, 2)
            yield {
                "same": values == VALUES
                and [type(values[k]) for k in VALUES] == [type(v) for v in VALUES.values()]
            }

    home.route("/p/1", lambda request: str(list(request.body)))
    summary, memory, _ = run(Travels)
    assert summary.outcome == "finished"
    assert memory.data() == [{"same": True}]


def test_values_that_cannot_travel_are_refused_at_the_yield_naming_the_key(run, home, capsys):
    class Refused(Shared):
        def parse(self, request, response):
            yield mw.Request(home.url("/p/1"), cb_kwargs={"lock": threading.Lock()})
            yield mw.Request(home.url("/p/2"), cb_kwargs={"deep": [{"er": object()}]})
            yield mw.Request(home.url("/p/3"), own=lambda: None)
            yield mw.Request(home.url("/p/4"), callback=self.detail)

        def detail(self, request, response):
            yield {"n": 1}

    summary, memory, _ = run(Refused)
    assert summary.outcome == "finished"
    assert len(memory.rows) == 1
    assert summary.parse_error == 3
    log = capsys.readouterr().err
    for key in ("lock", "deep", "own"):
        [said] = [one for one in log.splitlines() if "can't travel" in one and key in one]
        assert "Refused.parse (test_redis_spider.py:" in said


def test_equal_requests_that_bypass_the_filter_are_all_fetched_in_order(run, home):
    class Repeats(Shared):
        def start_requests(self):
            for n in range(5):
                yield mw.Request(home.url("/p/same"), filter_repeat=False)
                yield mw.Request(home.url(f"/p/{n}"))

        def parse(self, request, response):
            """Nothing."""

    summary, _, _ = run(Repeats, SPIDER_THREAD_COUNT=1)
    assert [hit.path for hit in home.log] == [path for n in range(5) for path in ("/p/same", f"/p/{n}")]
    assert summary.request_ok == 10


def test_a_wrong_yield_and_an_error_cost_only_themselves_on_redis_too(run, home, redis_server):
    class Wrong(Shared):
        def parse(self, request, response):
            yield {"n": 1}
            yield 42
            yield mw.Request(home.url("/p/1"), callback=self.raises)

        def raises(self, request, response):
            yield {"n": 2}
            raise ValueError("every time")

    summary, memory, _ = run(Wrong, SPIDER_MAX_RETRY_TIMES=1)
    assert summary.outcome == "finished"
    assert sorted(row["n"] for row in memory.data()) == [1, 2, 2]
    assert summary.reasons == {"ValueError": 1}
    client = redis_server.client()
    [record] = client.lrange("netspy:Wrong:failed_requests", 0, -1)
    client.close()
    assert '"reason":"ValueError"' in record


def test_a_callback_that_blocks_the_loop_is_named_and_loses_no_lease(run, home, monkeypatch, capsys):
    monkeypatch.setattr("netspy.engine.leases.keeper._LOOP_BLOCKED_S", 2.5)

    class Blocks(Shared):
        async def parse(self, request, response):
            time.sleep(4.5)
            yield {"n": 1}

    summary, memory, _ = run(Blocks, HEARTBEAT_INTERVAL=0.2, HEARTBEAT_STALE=2.0, SPIDER_TASK_LEASE=2.0)
    assert (summary.outcome, summary.lease_lost) == ("finished", 0)
    assert memory.data() == [{"n": 1}]
    assert home.total == 1
    warned = [line for line in capsys.readouterr().err.splitlines() if "event loop has been blocked" in line]
    assert len(warned) == 1
    line = Blocks.parse.__code__.co_firstlineno + 1
    assert f"Blocks.parse (test_redis_spider.py:{line})" in warned[0]


def test_a_hung_callback_on_redis_ends_in_failed(run, home):
    release = threading.Event()

    class Hangs(Shared):
        def parse(self, request, response):
            release.wait(60)

    try:
        summary, _, _ = run(Hangs, SPIDER_TASK_MAX_SECONDS=0.4, SPIDER_MAX_RETRY_TIMES=1)
    finally:
        release.set()
    assert summary.reasons == {"CallbackTimeoutError": 1}
    assert summary.exit_code == 6


def test_names_from_the_queue_can_only_call_the_spiders_own_methods(run, home, redis_server):
    """Whoever can write to Redis must not get at more than the callbacks."""
    names = "__class__ start stop _running settings logger __init__ os.system run counters site".split()
    key = "netspy:Target:z_requests"
    crawling = threading.Event()

    class Target(Shared):
        def start_requests(self):
            yield mw.Request(home.url("/p/start"))
            assert crawling.wait(20)
            for n in range(len(names) + 1):
                yield mw.Request(home.url(f"/p/{n}"), callback="detail")

        def parse(self, request, response):
            crawling.set()
            client = redis_server.client()
            while client.zcard("netspy:Target:z_inflight") < 2:  # this one, and the next that is held ready
                time.sleep(0.01)
            while len(members := client.zrange(key, 0, -1, withscores=True)) < len(names):
                time.sleep(0.01)
            for name, (member, score) in zip(names, members, strict=True):
                client.zrem(key, member)
                client.zadd(key, {member.replace('"detail"', f'"{name}"'): score})
            client.close()

        def detail(self, request, response):
            yield {"called": request.url}

    summary, memory, _ = run(
        Target, SPIDER_THREAD_COUNT=1, COLLECTOR_TASK_COUNT=1, SPIDER_MAX_RETRY_TIMES=0, HEARTBEAT_INTERVAL=60.0,
        HEARTBEAT_STALE=120.0,
    )  # fmt: skip
    assert memory.data() == [{"called": home.url("/p/0")}]
    assert summary.reasons == {"UnknownCallbackError": len(names)}
    assert home.all_hits() == {"/p/start": 1, "/p/0": 1}, "the others are not even fetched"
