"""W13, W14 and W15: what a callback yields arrives as it was yielded, or is refused there, with its place."""

from __future__ import annotations

import pytest
from fault_support import PAGES, SEEDS, in_parse, serve_seeds

pytestmark = [pytest.mark.slow, pytest.mark.fault]

FIRST = '        if request.url.endswith("/d/0"):\n'


def told_of(result, text):
    """The one line of the log that has this text."""
    [line] = [line for line in result.stderr.splitlines() if text in line]
    return line


def test_w13_a_lambda_is_refused_where_it_is_yielded_and_costs_only_itself(either_url, begin, site, note):
    expected = serve_seeds(site, 10)
    yields = (
        f'{FIRST}            yield mw.Request(SITE + "/d/never", callback=lambda request, response: None)\n'
    )
    run = begin(either_url, in_parse(yields, SEEDS), LISTS="10")
    [result] = run.finish(run.node())
    line = told_of(result, "a lambda has no name to travel by")
    assert "Pages.parse (" in line
    assert ".py:" in line, "the line of the yield"
    assert result.summary["parse_error"] == 1
    assert site.hits("/d/never") == 0
    assert run.count("failed_requests") == 0
    note("W13", run, run.check(expected, fetched_twice=0))


VALUES = """
import datetime as dt
from decimal import Decimal

VALUES = {
    "when": dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), "day": dt.date(2024, 2, 29), "pair": (1, (2, 3)),
    "marks": {1, 2}, "raw": b"\\x00\\xff", "price": Decimal("1.10"), "big": 2**80, "nothing": None,
}


def shape(value):
    return (type(value), [shape(one) for one in value] if isinstance(value, (tuple, list)) else value)


class Page(mw.Item):"""
TRAVELS = f"""{FIRST}            yield mw.Request(
                SITE + "/d/echo", method="POST", data=b"\\xff\\x00", callback=self.compare, cb_kwargs=VALUES
            )
            yield mw.Request(SITE + "/d/never", cb_kwargs={{"lock": object()}})
"""
COMPARE = """    def compare(self, request, response, **values):
        if {k: shape(v) for k, v in values.items()} == {k: shape(v) for k, v in VALUES.items()}:
            yield Page(url=request.url)

    def parse(self"""


def test_w14_values_come_back_as_they_went_in_or_are_refused_where_they_are_yielded(
    either_url, begin, site, note
):
    expected = serve_seeds(site, 10) | {site.url("/d/echo")}
    bodies = []
    site.route("/d/echo", lambda request: bodies.append(bytes(request.body)) or "got it")
    source = (
        in_parse(TRAVELS, SEEDS)
        .replace("class Page(mw.Item):", VALUES)
        .replace("    def parse(self", COMPARE)
    )
    run = begin(either_url, source, LISTS="10")
    [result] = run.finish(run.node())
    assert bodies == [b"\xff\x00"]
    line = told_of(result, "can't travel")
    assert "lock" in line
    assert "Pages.parse (" in line
    assert result.summary["parse_error"] == 1
    assert site.hits("/d/never") == 0
    note("W14", run, run.check(expected, fetched_twice=0))


def test_w15_three_equal_requests_that_bypass_the_filter_are_three_fetches_in_order(
    either_url, begin, site, note
):
    expected = serve_seeds(site, 5) | {site.url("/d/same")}
    seeds = '            yield mw.Request(f"{SITE}/d/{n}")\n'
    twin = '            if n < 3:\n                yield mw.Request(f"{SITE}/d/same", filter_repeat=False)\n'
    source = PAGES.replace(
        '            yield mw.Request(f"{SITE}/l/{n}", callback=self.parse_list)\n', twin + seeds
    )
    assert source != PAGES
    run = begin(either_url, source, LISTS="5", SPIDER_THREAD_COUNT="1")
    run.finish(run.node())
    twins = [path for n in range(3) for path in ("/d/same", f"/d/{n}")]
    assert [hit.path for hit in site.log] == [*twins, "/d/3", "/d/4"]
    report = run.check(expected, fetched_twice=2)
    # Both further fetches, and the rows of them, are wanted.
    note("W15", run, report._replace(fetched_twice=report.fetched_twice - 2, written_twice=0))
