"""Every documented value of every setting that has a few: each starts, and finishes a crawl, on each kind of spider."""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args, get_origin

import pytest

import netspy as mw
from netspy.core.batch_store import MemoryBatchStore
from netspy.errors import ConfigError
from netspy.launch import SpiderExit
from netspy.pipelines.base import BasePipeline
from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.settings.declared import FIELDS
from netspy.settings.values import base_type
from netspy.tasks.memory import MemoryTaskSource
from support.pairwise import pairs_of, pairwise

PAGES = 3
QUICK = {
    "TASK_POLL_INTERVAL": 0.01,
    "TASK_EXHAUST_POLLS": 1,
    "DONE_CHECK_INTERVAL": 0.02,
    "SPIDER_STARTUP_GRACE": 0.0,
    "BATCH_MONITOR_INTERVAL": 0.05,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "BUFFER_FLUSH_INTERVAL": 0.01,
    "DOWNLOAD_DELAY": 0.0,
    "DEDUP_INITIAL_CAPACITY": 1000,
}
KINDS = ("air", "spider", "tasks", "tasks in memory", "batch")
SHARED = ("redis", "redis-bloom", "redis-set")


def documented(name):
    """The values of a setting that has a few; () for others."""
    kind = base_type(name)
    if kind is bool:
        return (False, True)
    if name == "DEDUP_FILTER":
        return ("auto", "memory", "lite", "bloom", *SHARED)
    return get_args(kind) if get_origin(kind) is Literal else ()


VALUES = {"kind": KINDS, **{name: documented(name) for name in FIELDS if documented(name)}}


def allowed(row):
    """Without the combinations that are refused, each of which has a test of its own."""
    return not (row.get("kind") in {"air", "tasks in memory"} and row.get("DEDUP_FILTER") in SHARED)


@cache
def rows_of_values():
    return pairwise(VALUES, allowed=allowed)


class Kept(BasePipeline):
    rows: list

    def save_items(self, table, items):
        self.rows += items


class Pages:
    def pages(self):
        real = not self.settings.BLOCK_PRIVATE_ADDRESSES  # the site is on this machine
        for n in range(PAGES):
            yield mw.Request(self.site.url(f"/p/{n}"), auto_request=real, cb_kwargs={"n": n})

    def parse(self, request, response, n, task=None):
        if response is not None:
            assert response.css("h1::text").get()
        yield {"n": n}
        if task is not None:
            self.update_task(task["id"])


class Air(Pages, mw.AirSpider):
    def start_requests(self):
        return self.pages()


class Shared(Pages, mw.Spider):
    def start_requests(self):
        return self.pages()


class Tasks(Pages, mw.TaskSpider):
    def task_requests(self, task):
        return self.pages()


class Batch(Pages, mw.BatchSpider):
    def task_requests(self, task):
        return self.pages()


def crawl(kind, site, redis_url, **settings):
    """Run a spider of this kind in this process: its summary, and the rows."""
    kept = Kept()
    kept.rows = []
    given = {"site": site, "pipelines": [kept, "netspy.pipelines.jsonl.JsonlPipeline"], **QUICK, **settings}
    if settings.get("SPIDER_KEEP_ALIVE") and kind != "batch":  # whose master ends it
        given["SPIDER_MAX_ITEMS"] = PAGES
    if kind not in {"air", "tasks in memory"}:
        given["REDIS_URL"] = redis_url
    if kind == "tasks":
        Tasks(redis_key="Tasks", REDIS_URL=redis_url).push_tasks("one")
    try:
        if kind == "batch":
            store = MemoryBatchStore([{"id": 1}])
            return Batch(batch_store=store, **given).start_monitor(once=True), kept.rows
        if kind == "tasks in memory":
            spider = Tasks(task_source=MemoryTaskSource(["one"]), **given)
        else:
            spider = {"air": Air, "spider": Shared, "tasks": Tasks}[kind](**given)
        return spider.run(), kept.rows
    except SpiderExit as left:
        return left.summary, kept.rows


@pytest.mark.parametrize("part", range(2))
def test_hv_09_every_two_documented_values_start_and_finish_a_crawl(numbered, redis_url, workdir, part):
    """case HV-09, its whole kind: a new setting of a few values is among them by itself."""
    for at, row in enumerate(rows_of_values()):
        if at % 2 != part:
            continue
        with sync_client(Settings(REDIS_URL=redis_url)) as client:
            client.flushdb()
        for file in workdir.iterdir():
            file.unlink()
        settings = {name: value for name, value in row.items() if name != "kind"}
        summary, rows = crawl(row["kind"], numbered, redis_url, **settings)
        assert sorted(one["n"] for one in rows) == list(range(PAGES)), row
        assert summary.outcome in {"finished", "limit"}, row
        assert summary.exit_code == 0, row


def test_every_value_of_every_such_setting_is_in_a_row():
    order = {name: at for at, name in enumerate(VALUES)}
    covered = set().union(*(pairs_of(row, order) for row in rows_of_values()))
    for name, values in VALUES.items():
        for kind in KINDS:
            for value in values:
                if name != "kind" and allowed({"kind": kind, name: value}):
                    assert (("kind", kind), (name, value)) in covered


@pytest.mark.parametrize("kind", ["air", "tasks in memory"])
@pytest.mark.parametrize("value", SHARED)
def test_hv_09_a_filter_in_redis_is_refused_where_there_is_none(numbered, redis_url, workdir, kind, value):
    """case HV-09: one line says why the combination can't be."""
    with pytest.raises(ConfigError, match=f"DEDUP_FILTER='{value}' is for spiders on Redis") as refused:
        crawl(kind, numbered, redis_url, DEDUP_FILTER=value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["memory", "bloom", "lite", "auto"])
def test_hv_09_an_air_spider_may_have_each_filter_in_the_process(numbered, workdir, value):
    """case HV-09"""
    summary, rows = crawl("air", numbered, "", DEDUP_FILTER=value)
    assert (summary.exit_code, len(rows)) == (0, PAGES)


def test_hv_09_a_filling_bloom_filter_of_an_air_spider_is_told_of(numbered, workdir):
    """case HV-09"""
    told = []
    Air.on_alert, before = lambda self, kind, message: told.append(kind), Air.on_alert
    try:
        crawl("air", numbered, "", DEDUP_FILTER="bloom", DEDUP_INITIAL_CAPACITY=2, DEDUP_MAX_LAYERS=1)
    finally:
        Air.on_alert = before
    assert "dedup_full" in told
