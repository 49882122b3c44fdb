"""Items on their way through trouble: bad yields, re-seeding, retries, stores that are away or slow."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass

import pytest
from air_support import Air, Memory, crawl

import netspy as mw
from netspy.cluster.reset import reset
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.policy.run_scope import run_scope
from netspy.redisio.client import sync_client
from netspy.testing.runner import start_script

pytestmark = pytest.mark.usefixtures("workdir")


@pytest.fixture
def home(numbered):
    return numbered


class Row(mw.Item):
    __table_name__ = "rows"
    __unique_key__ = "url"


class Shared(mw.Spider):
    __custom_setting__ = {
        "PROGRESS": "off", "RETRY_BACKOFF": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 0, "HEARTBEAT_INTERVAL": 0.3,
        "ITEM_RETRY_TIMES": 1, "ITEM_RETRY_BACKOFF": 0.05,
    }  # fmt: skip
    pages = 50

    def start_requests(self):
        for n in range(self.pages):
            yield mw.Request(self.site.url(f"/p/{n}"))

    def parse(self, request, response):
        yield Row(url=request.url)


class Another(Shared):
    """Yields the same rows."""


@pytest.fixture
def shared(home, redis_url):
    def run(spider=Shared, pipeline=None, **keywords):
        memory = pipeline or Memory()
        made = spider(site=home, pipelines=[memory], REDIS_URL=redis_url, **keywords)
        return made.run(), memory, made

    return run


# -- bad yields --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["AirSpider", "Spider"])
def test_w9_one_bad_yield_is_an_error_of_its_callback_and_costs_no_item(home, shared, kind, capsys):
    """W9: with `yield 42` on one of 2 pages, 0 items were stored and the run was alive at 40 s."""

    def parse(self, request, response):
        yield {"url": request.url, "n": 1}
        if request.url.endswith("/1"):
            yield 42
        yield {"url": request.url, "n": 2}

    began = time.monotonic()
    if kind == "Spider":
        summary, memory, made = shared(type("Bad", (Shared,), {"parse": parse, "pages": 2}))
    else:
        summary, memory, made = crawl(type("Bad", (Air,), {"parse": parse}), home, paths=("/p/0", "/p/1"))
    assert time.monotonic() - began < 30
    assert sorted((row["url"][-1], row["n"]) for row in memory.data()) == [
        ("0", 1),
        ("0", 2),
        ("1", 1),
        ("1", 2),
    ]
    assert (summary.items, summary.parse_error, summary.outcome) == (4, 1, "finished")
    line = parse.__code__.co_firstlineno + 3
    [said] = [one for one in capsys.readouterr().err.splitlines() if "yielded int 42" in one]
    assert f"Bad.parse (test_items_arrive.py:{line}), while handling {made.site.url('/p/1')}" in said


def test_bad_items_are_dead_letters_with_field_and_reason_and_the_crawl_goes_on(home, workdir):
    @dataclass
    class Price:
        url: str
        price: float

    class Prices(Air):
        paths = tuple(f"/p/{n}" for n in range(10))

        def parse(self, request, response):
            yield Price(request.url, "free" if request.url.endswith("/3") else 1.5)

    summary, memory, _ = crawl(Prices, home, ITEM_VALIDATE=True)
    assert (summary.items, summary.item_failed, summary.exit_code) == (9, 1, 0)
    assert len(memory.data("price")) == 9
    [dead] = DeadLetterFile(workdir / "failed_items.jsonl").read()
    assert dead.error.startswith("Price.price: expected `float`, got `str`; price = 'free'")
    assert "Prices.parse (test_items_arrive.py:" in dead.error
    assert dead.row.data == {"url": home.url("/p/3"), "price": "free"}
    assert summary.coverage["price"].filled == {"url": 9, "price": 9}


# -- seeding again -----------------------------------------------------------------------------------------------


def test_w17_a_job_that_was_reset_stores_everything_again(shared, redis_url):
    """W17: after the documented steps 50 requests gave 0 rows, because every spider shared one item filter."""
    first, stored, made = shared()
    assert (first.items, first.item_dedup_dropped) == (50, 0)
    other, _, _ = shared(Another)
    assert (other.items, other.item_dedup_dropped) == (50, 0), "item dedup is of one spider"
    settings = made.load_settings().settings
    scope = run_scope(settings, "Shared")
    with closing(sync_client(settings)) as client:
        before = [key for key in client.scan_iter("*") if b"items" in key]
        assert any(key.startswith(b"netspy:Shared:") for key in before)
        reset(client, scope, settings)
        assert not list(client.scan_iter("netspy:Shared:*"))
        assert list(client.scan_iter("netspy:Another:*")), "of another spider nothing goes"
    again, stored, _ = shared()
    assert (again.request_ok, again.items, again.item_dedup_dropped) == (50, 50, 0)
    assert len(stored.data("rows")) == 50


def test_an_item_is_known_only_after_it_was_stored(shared, workdir):
    class Twice(Shared):
        pages = 6

        def parse(self, request, response):
            yield Row(url="the same", n=request.url[-1])

    class First(Memory):
        calls = 0

        def save_items(self, table, items):
            self.calls += 1
            if self.calls <= 2:
                raise mw.ItemError("not this one")
            super().save_items(table, items)

    # One batch each: what failed in one must not be known in the next.
    summary, memory, _ = shared(Twice, First(), ITEM_BATCH_SIZE=1)
    assert (summary.items, summary.item_failed, summary.item_dedup_dropped) == (1, 2, 3)
    assert len(memory.data("rows")) == 1
    assert len(list(DeadLetterFile(workdir / "failed_items.jsonl").read())) == 2


# -- a store that is away ----------------------------------------------------------------------------------------


def test_row_32_a_store_away_for_a_while_pauses_the_crawl_and_gets_every_row(home, shared):
    """No new claims meanwhile, one alarm at its going and one at its coming, no dead letter."""
    alarms: list[tuple[str, int]] = []
    back = threading.Event()

    class Away(Memory):
        def save_items(self, table, items):
            if not back.is_set():
                raise ConnectionRefusedError("port 3306")
            super().save_items(table, items)

    class Watched(Shared):
        pages = 3000

        def on_alert(self, kind, message):
            alarms.append((kind, home.total))
            if kind == "pipeline_down":
                threading.Thread(target=self.look, daemon=True).start()

        def look(self):
            """What was claimed is crawled; then nothing is asked for any more."""
            last = -1
            while home.total != last:
                last = home.total
                time.sleep(0.7)
            self.paused_at = last
            back.set()

    summary, memory, made = shared(Watched, Away(), COLLECTOR_TASK_COUNT=20, SPIDER_THREAD_COUNT=4)
    assert (summary.items, summary.item_failed, summary.outcome) == (3000, 0, "finished")
    assert len({row["url"] for row in memory.data("rows")}) == 3000
    # What was claimed by then, the claim under way, and one round of workers.
    assert made.paused_at - alarms[0][1] <= 20 + 20 + 4, "it claimed on while its store was away"
    assert [kind for kind, _ in alarms] == ["pipeline_down", "pipeline_up"]
    assert home.total == 3000


def test_waiting_for_a_store_is_no_time_of_a_callback(home):
    """The outage is longer than SPIDER_TASK_MAX_SECONDS, and the callbacks wait for room all that time."""
    back = threading.Event()

    class Away(Memory):
        def save_items(self, table, items):
            if not back.is_set():
                raise ConnectionRefusedError("port 3306")
            super().save_items(table, items)

    class Many(Air):
        paths = tuple(f"/p/{n}" for n in range(12))

        def parse(self, request, response):
            for n in range(60):
                yield {"url": request.url, "n": n}

        def on_alert(self, kind, message):
            if kind == "pipeline_down":
                threading.Timer(4.0, back.set).start()

    summary, _, _ = crawl(
        Many, home, pipelines=[Away()], ITEM_STORE_PATIENCE=60, ITEM_RETRY_TIMES=0, ITEM_RETRY_BACKOFF=0.1,
        SPIDER_TASK_MAX_SECONDS=2.0, ITEM_MAX_CACHED_COUNT=50, ITEM_BATCH_SIZE=20, CALLBACK_CHUNK=10,
    )  # fmt: skip
    assert (summary.items, summary.request_failed, summary.retry, summary.parse_error) == (720, 0, 0, 0)


STOPPED = """
import os
import netspy as mw
from netspy.pipelines.base import BasePipeline


class Away(BasePipeline):
    def save_items(self, table, items):
        raise ConnectionRefusedError("port 3306")


class Pages(mw.{kind}):
    __custom_setting__ = dict(PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0, ITEM_RETRY_TIMES=0)

    def start_requests(self):
        for n in range(30):
            yield mw.Request(os.environ["SITE"] + f"/p/{{n}}")

    def parse(self, request, response):
        yield {{"url": request.url}}

    def on_alert(self, kind, message):
        print("ALERT", kind, flush=True)


Pages(pipelines=[Away]).start()
"""


@pytest.mark.parametrize("kind", ["AirSpider", "Spider"])
def test_a_stop_while_a_store_is_away_takes_ten_seconds_at_most_and_keeps_the_items(
    kind, home, redis_url, workdir
):
    env = {"SITE": home.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url}
    with start_script(STOPPED.format(kind=kind), cwd=workdir, env=env) as script:
        script.wait_line("ALERT pipeline_down")
        began = time.monotonic()
        script.signal(signal.SIGTERM)
        result = script.finish()
        assert time.monotonic() - began < 10
    assert result.returncode == 143
    kept = {dead.row.data["url"] for dead in DeadLetterFile(workdir / "failed_items.jsonl").read()}
    assert result.summary["item_failed"] == len(kept) > 0
    assert result.stdout.count("ALERT pipeline_down") == 1


def test_spill_goes_on_crawling_and_the_rows_wait_as_dead_letters(shared, home, workdir):
    class Away(Memory):
        def save_items(self, table, items):
            raise ConnectionRefusedError("port 3306")

    class Shorter(Shared):
        pages = 120

    summary, _, _ = shared(Shorter, Away(), ITEM_STORE_DOWN="spill", ITEM_RETRY_TIMES=0)
    assert (summary.item_failed, summary.items, home.total) == (120, 0, 120)
    assert len(list(DeadLetterFile(workdir / "failed_items.jsonl").read())) == 120


def test_the_text_of_an_error_is_in_the_log_once_with_its_number(home, capsys):
    class Picky(Memory):
        def save_items(self, table, items):
            raise ValueError(f"row {items[0]['n']}: duplicate entry '{items[0]['n']}' for key 'n'")

    class Many(Air):
        paths = tuple(f"/p/{n}" for n in range(40))

        def parse(self, request, response):
            yield {"n": int(request.url.rpartition("/")[2])}

    summary, _, _ = crawl(Many, home, pipelines=[Picky()], ITEM_RETRY_TIMES=0, ITEM_BATCH_SIZE=4)
    assert summary.item_failed == 40
    letters = [line for line in capsys.readouterr().err.splitlines() if "are dead-lettered" in line]
    assert len(letters) == 2
    assert "more like this" in letters[1]


# -- a store that is slow ----------------------------------------------------------------------------------------

SLOW = """
import os, time
import netspy as mw
from netspy.pipelines.base import BasePipeline

STATM = "/proc/self/statm"


class Slow(BasePipeline):
    rows = 0
    memory = []

    def save_items(self, table, items):
        time.sleep(len(items) / 600)
        Slow.rows += len(items)
        with open(STATM) as file:
            Slow.memory.append((Slow.rows, int(file.read().split()[1]) * 4096))


class Pages(mw.{kind}):
    __custom_setting__ = dict(
        PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0, ITEM_MAX_CACHED_COUNT=500, ITEM_BATCH_SIZE=100, LOG_LEVEL="ERROR",
        SPIDER_MAX_UNACKED=200,
    )

    def start_requests(self):
        for n in range(450):
            yield mw.Request(os.environ["SITE"] + f"/p/{{n}}")

    def parse(self, request, response):
        for n in range(20):
            yield {{"url": request.url, "n": n, "text": "x" * 4000 + str(n)}}


Pages(pipelines=[Slow]).start()
early = max(size for rows, size in Slow.memory if 1500 < rows <= 3500)
late = max(size for rows, size in Slow.memory if rows > 3500)
print("MEMORY", Slow.rows, early, late, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["AirSpider", "Spider"])
def test_memory_stays_flat_with_a_store_ten_times_slower_than_the_crawl(kind, home, redis_url, workdir):
    """9,000 rows of 4 kB (36 MB) at 600 rows/s, where pages alone would give ten times as many."""
    env = {"SITE": home.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url}
    with start_script(SLOW.format(kind=kind), cwd=workdir, env=env) as script:
        result = script.finish(timeout=120)
    assert result.returncode == 0, result.stderr
    [(_, rows, early, late)] = [
        line.split() for line in result.stdout.splitlines() if line.startswith("MEMORY")
    ]
    assert int(rows) == 9_000
    assert int(late) - int(early) < 6_000_000, (early, late)


def test_w18_a_store_that_fails_in_the_middle_of_a_batch_stores_each_row_once(home, workdir):
    """W18: a failure dead-lettered a whole batch with no retry. Here SQLite is locked for a while."""
    path = workdir / "items.db"
    holder = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    holder.execute("CREATE TABLE rows (url TEXT, n INTEGER)")
    holder.execute("BEGIN EXCLUSIVE")
    threading.Timer(1.5, lambda: holder.execute("COMMIT")).start()

    class Rows(Air):
        paths = tuple(f"/p/{n}" for n in range(20))

        def parse(self, request, response):
            for n in range(5):
                yield Row(url=f"{request.url}?{n}", n=n)

    summary, _, _ = crawl(
        Rows, home, pipelines=["netspy.pipelines.sqlite.SqlitePipeline"], ITEM_STORE_PATIENCE=60, ITEM_RETRY_TIMES=0,
        ITEM_RETRY_BACKOFF=0.1, SQLITE_PATH=str(path),
    )  # fmt: skip
    holder.close()
    assert (summary.items, summary.item_failed) == (100, 0)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*), count(DISTINCT url) FROM rows").fetchone() == (100, 100)
