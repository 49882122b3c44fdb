"""The cases of the area *schedule*: what callbacks may give back, which callbacks travel, in which order requests run."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from air_support import Memory

import netspy as mw

CASES = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "data/cases/schedule.json").read_text(encoding="utf-8")
    )
}
QUIET = {"PROGRESS": "off", "RETRY_BACKOFF": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 0}
BASES = pytest.mark.parametrize("base", [mw.AirSpider, mw.Spider], ids=["in_process", "redis"])


pytestmark = pytest.mark.usefixtures("workdir")


@pytest.fixture
def home(site):
    site.route("/", lambda request: f"<h1>{request.path}</h1>", prefix=True)
    return site


@pytest.fixture
def run(home, redis_url):
    def crawl(spider, **keywords):
        memory = Memory()
        made = spider(site=home, pipelines=[memory], REDIS_URL=redis_url, **keywords)
        return made.run(), memory, made

    return crawl


# -- SCH-03


def odd(base):
    class Odd(base):
        __custom_setting__ = {**QUIET, "SPIDER_MAX_RETRY_TIMES": 0}

        def start_requests(self):
            names = ["none", "list", "dict", "with_none", "with_text", "with_response", "asynchronous"]
            found = [mw.Request(self.site.url(f"/{name}"), callback=name) for name in names]
            return [*found, mw.Request(self.site.url("/missing"))]

        def none(self, request, response):
            return None

        def list(self, request, response):
            return [{"n": 1}, mw.Request(self.site.url("/a"), callback=self.none)]

        def dict(self, request, response):
            return {"n": 2}

        def with_none(self, request, response):
            yield None
            yield {"n": 3}

        def with_text(self, request, response):
            yield "oops"
            yield {"n": 4}

        def with_response(self, request, response):
            yield response
            yield {"n": 5}

        async def asynchronous(self, request, response):
            yield {"n": 6}

        def parse(self, request, response):
            raise AssertionError("the page is missing")

        def failed_request(self, request, response):
            yield {"n": 7}

    return Odd


@BASES
def test_sch_03_odd_results_are_taken_and_a_wrong_one_costs_only_itself(run, home, capsys, base):
    expected = CASES["SCH-03"]["expected"]
    home.route("/missing", status=404)
    Odd = odd(base)
    summary, memory, _ = run(Odd)
    # The asynchronous generator is supported.
    assert sorted(row["n"] for row in memory.data()) == sorted([*expected["items"], 6])
    assert home.hits("/a") == 1
    assert summary.outcome == "finished"
    log = capsys.readouterr().err.splitlines()
    for callback, kind in (("with_text", "str"), ("with_response", "Response")):
        [said] = [line for line in log if f"Odd.{callback}" in line]
        assert "ERROR" in said
        assert kind in said
        assert home.url(f"/{callback}") in said
    assert summary.parse_error == 2


# -- SCH-04


def module_level(request, response):
    yield {"n": "module"}


class Other:
    def parse(self, request, response):
        yield {"n": "other"}


def travellers(base):
    class _Base(base):
        __custom_setting__ = QUIET

        def __private(self, request, response):
            yield {"n": "private"}

        def private_request(self):
            return mw.Request(self.site.url("/3"), callback=self.__private)

        def parse(self, request, response):
            yield {"n": "overridden"}

        def with_x(self, request, response, x):
            yield {"n": f"x={x}"}

    class Travellers(_Base):
        def start_requests(self):
            yield mw.Request(self.site.url("/start"), callback=self.first)

        def first(self, request, response):
            at = self.site.url
            yield mw.Request(at("/1"), callback=self.parse)
            yield mw.Request(at("/2"), callback="parse")
            yield self.private_request()
            yield mw.Request(at("/4"), callback=lambda request, response: [{"n": "lambda"}])
            yield mw.Request(at("/5"), callback=functools.partial(self.with_x, x=1))
            yield mw.Request(at("/6"), callback=Other().parse)
            yield mw.Request(at("/7"), callback=module_level)
            yield mw.Request(at("/8"), callback=self.last)

        def parse(self, request, response):
            yield {"n": "sub"}

        def last(self, request, response):
            yield {"n": "last"}

    return Travellers


def test_sch_04_on_redis_names_travel_and_what_has_none_is_refused_at_the_yield(run, home, capsys):
    summary, memory, _ = run(travellers(mw.Spider))
    assert sorted(row["n"] for row in memory.data()) == ["last", "private", "sub", "sub"]
    # None was popped and lost: the refused ones were never queued.
    assert summary.parse_error == 4
    assert [home.hits(f"/{n}") for n in range(1, 9)] == [1, 1, 1, 0, 0, 0, 0, 1]
    log = capsys.readouterr().err
    refused = [line for line in log.splitlines() if "ERROR" in line]
    assert len(refused) == 4
    for line, name in zip(refused, ("lambda", "partial", "Other.parse", "module_level"), strict=True):
        assert name in line
        assert "Travellers.first" in line
    assert "AttributeError" not in log


def test_sch_04_in_one_process_all_seven_run(run):
    assert CASES["SCH-04"]["expected"]["in_process"].startswith("all 7 run")
    summary, memory, _ = run(travellers(mw.AirSpider))
    assert sorted(row["n"] for row in memory.data()) == sorted(
        ["sub", "sub", "private", "lambda", "x=1", "other", "module", "last"]
    )
    assert summary.parse_error == 0


# -- SCH-05

ONE_BY_ONE = {**QUIET, "SPIDER_THREAD_COUNT": 1, "COLLECTOR_TASK_COUNT": 1}


def paths(site):
    return [hit.path for hit in site.log]


@BASES
def test_sch_05_equal_priorities_are_first_in_first_out(run, home, base):
    class Ordered(base):
        __custom_setting__ = ONE_BY_ONE

        def start_requests(self):
            for n in range(1, 13):
                yield mw.Request(self.site.url(f"/list?p={n}"))

        def parse(self, request, response):
            """Nothing."""

    run(Ordered)
    assert CASES["SCH-05"]["expected"]["order"] == "1,2,3,...,12"
    assert paths(home) == [f"/list?p={n}" for n in range(1, 13)]


@BASES
def test_sch_05_a_late_key_does_not_starve(run, home, base):
    class Starving(base):
        __custom_setting__ = ONE_BY_ONE
        made = 0

        def start_requests(self):
            yield mw.Request(self.site.url("/zzz"))
            yield mw.Request(self.site.url("/aaa"))

        def parse(self, request, response):
            if "/aaa" in request.url and self.made < 200:
                self.made += 1
                yield mw.Request(self.site.url(f"/aaa?n={self.made}"))

    run(Starving)
    order = paths(home)
    assert len(order) == 202
    assert order.index("/zzz") < 20


@BASES
def test_sch_05_a_better_priority_that_comes_later_overtakes_and_ties_keep_their_order(run, home, base):
    class Overtaking(base):
        __custom_setting__ = ONE_BY_ONE

        def start_requests(self):
            yield mw.Request(self.site.url("/start"), callback=self.first, priority=1)

        def first(self, request, response):
            for n in range(12):
                yield mw.Request(self.site.url(f"/plain/{n}"))
            yield mw.Request(self.site.url("/urgent/0"), priority=5)
            yield mw.Request(self.site.url("/urgent/1"), priority=5)

        def parse(self, request, response):
            if request.url.endswith("/urgent/1"):
                yield mw.Request(self.site.url("/last"), priority=900)
            if request.url.endswith("/plain/1"):
                yield mw.Request(self.site.url("/urgent/2"), priority=5)

    # Slower than the few milliseconds for which new requests are gathered before they are queued.
    home.route("/plain/", "x", prefix=True, delay=0.05)
    # Pages that take a moment, as real ones do: on Redis a link is queued some milliseconds after it was found.
    home.route("/", lambda request: f"<h1>{request.path}</h1>", prefix=True, delay=0.1)
    run(Overtaking)
    order = paths(home)
    assert order[:3] == ["/start", "/urgent/0", "/urgent/1"]
    assert [path for path in order if "/plain/" in path] == [f"/plain/{n}" for n in range(12)]
    # What a node has claimed already is not taken from it: two or three requests at this setting.
    assert order.index("/urgent/2") <= order.index("/plain/1") + 4
    assert order[-1] == "/last"
