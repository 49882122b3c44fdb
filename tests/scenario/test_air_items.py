"""Items of an AirSpider on their way to pipelines: back-pressure, failing stores, dead letters, dedup."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest
from air_support import Air, Memory, crawl

import netspy as mw
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile

pytestmark = pytest.mark.usefixtures("workdir")


def paths(n):
    return tuple(f"/p/{i}" for i in range(n))


class Rows(Air):
    """Each page gives `each` rows."""

    each = 10

    def parse(self, request, response):
        for n in range(self.each):
            yield {"page": request.url.rpartition("/")[2], "n": n}


class Product(mw.Item):
    __table_name__ = "products"
    __unique_key__ = ("sku",)


def everything(pages, each):
    return sorted((str(page), n) for page in range(pages) for n in range(each))


def stored(memory):
    return sorted((row["page"], row["n"]) for row in memory.data())


# -- where items go --------------------------------------------------------------------------------------------


def test_item_handler_gets_raw_lists_in_the_place_of_pipelines(home):
    got = []

    async def later(rows):
        await asyncio.sleep(0)
        got.extend(rows)

    for handler in (got.extend, later):
        got.clear()
        summary, memory, _ = crawl(Rows, home, paths=paths(2), item_handler=handler)
        assert sorted((row["page"], row["n"]) for row in got) == everything(2, 10)
        assert memory.rows == []
        assert summary.items == 20


def test_an_item_handler_that_raises_is_no_lost_row_and_no_hang(home):
    """It is a test's sink: what it refuses is tried again for a while, then kept as dead letters."""
    failures = []

    def flaky(rows):
        if len(failures) < 2:
            failures.append(len(rows))
            raise RuntimeError("not now")
        kept.extend(rows)

    kept = []
    summary, _, _ = crawl(Rows, home, paths=paths(1), item_handler=flaky, ITEM_RETRY_BACKOFF=0.01)
    assert len(kept) == 10
    assert (summary.items, summary.outcome) == (10, "finished")


def test_pipelines_may_be_given_as_classes_paths_and_objects(home, workdir):
    class Own(Memory):
        made = []

        def __init__(self):
            super().__init__()
            self.made.append(self)

    one = Memory()
    summary, _, _ = crawl(
        Rows, home, paths=paths(1), pipelines=[one, Own, "netspy.pipelines.jsonl.JsonlPipeline"]
    )
    assert summary.items == 10
    assert (
        len(one.rows)
        == len(Own.made[0].rows)
        == len((workdir / "items.jsonl").read_text().splitlines())
        == 10
    )
    assert (one.closed, Own.made[0].closed) == (1, 1)
    assert summary.outputs == ["items.jsonl"] or "items.jsonl" in summary.outputs[0]


def test_items_go_to_their_own_table_and_pipeline(home):
    special = Memory()

    class Special(mw.Item):
        __table_name__ = "special"

    class Tables(Air):
        def parse(self, request, response):
            yield {"a": 1}
            yield Special(a=2)
            named = Special(a=3)
            named.table_name = "named"
            yield named

    _, _memory, _ = crawl(Tables, home, paths=("/p/1",), ITEM_DEFAULT_TABLE="things", pipelines=[special])
    assert sorted((table, row["a"]) for table, row in special.rows) == [
        ("named", 3),
        ("special", 2),
        ("things", 1),
    ]


def test_an_item_changed_after_its_yield_is_stored_as_it_was_yielded(home):
    class Reused(Air):
        def parse(self, request, response):
            item = Product(sku="a", price=0)
            row = {"n": 0}
            for n in range(3):
                item.sku, item.price = f"s{n}", n
                yield item
                row["n"] = n
                yield row

    _summary, memory, _ = crawl(Reused, home, paths=("/p/1",))
    assert sorted(row["price"] for row in memory.data("products")) == [0, 1, 2]
    assert sorted(row["n"] for row in memory.data()) == [0, 1, 2]


# -- item dedup ------------------------------------------------------------------------------------------------


class Twice(Air):
    paths = ("/p/1", "/p/2")

    def parse(self, request, response):
        yield Product(sku="a", page=request.url)
        yield Product(sku="a", page=request.url)
        yield Product(sku=request.url[-1], page=request.url)
        yield {"same": 1}
        yield {"same": 1}


def test_an_item_with_a_known_key_is_stored_once_and_dicts_always(home):
    summary, memory, _ = crawl(Twice, home, SPIDER_THREAD_COUNT=1)
    assert sorted(row["sku"] for row in memory.data("products")) == ["1", "2", "a"]
    assert len(memory.data()) == 4
    assert (summary.items, summary.item_dedup_dropped) == (7, 3)


def test_item_dedup_can_be_turned_off(home):
    summary, memory, _ = crawl(Twice, home, ITEM_FILTER_ENABLE=False)
    assert len(memory.data("products")) == 6
    assert summary.item_dedup_dropped == 0


def test_an_item_that_could_not_be_stored_is_not_known_afterwards(home):
    refused = threading.Event()

    class Picky(Memory):
        def save_items(self, table, items):
            if any(item["ok"] is False for item in items):
                refused.set()
                raise ValueError("bad row")
            super().save_items(table, items)

    class Improves(Air):
        def parse(self, request, response):
            if request.url.endswith("2"):
                assert refused.wait(20)  # else both stand in one batch
            yield Product(sku="a", ok=request.url.endswith("2"))

    memory = Picky()
    summary, _, _ = crawl(
        Improves,
        home,
        paths=("/p/1", "/p/2"),
        pipelines=[memory],
        ITEM_RETRY_TIMES=0,
        BUFFER_FLUSH_INTERVAL=0.01,
    )
    assert memory.data("products") == [{"sku": "a", "ok": True}]
    assert summary.item_failed == 1


# -- slow, failing and dead stores -----------------------------------------------------------------------------


def test_a_slow_pipeline_holds_the_callbacks_back_and_memory_stays_bounded(home):
    most = []

    class Slow(Memory):
        def save_items(self, table, items):
            parts = made._running._node._parts
            most.append((len(parts.items), len(parts.held)))
            time.sleep(0.02)
            super().save_items(table, items)

    memory = Slow()
    made = Rows(
        site=home, paths=paths(100), each=50, pipelines=[memory], ITEM_MAX_CACHED_COUNT=200, ITEM_BATCH_SIZE=100,
        CALLBACK_CHUNK=10, SPIDER_THREAD_COUNT=8,
    )  # fmt: skip
    summary = made.run()
    assert stored(memory) == everything(100, 50)
    assert summary.items == 5000
    # A callback waits after each chunk, so at most one chunk per callback comes in over the bound.
    assert max(items for items, _ in most) <= 200 + 8 * 10
    assert max(held for _, held in most) < 60


def test_a_store_that_fails_for_a_while_loses_no_row(home):
    class Away(Memory):
        failures = 0

        def save_items(self, table, items):
            if self.failures < 4:
                self.failures += 1
                raise ConnectionError("database is away")
            super().save_items(table, items)

    memory = Away()
    summary, _, _ = crawl(
        Rows, home, paths=paths(20), pipelines=[memory], ITEM_RETRY_TIMES=5, ITEM_RETRY_BACKOFF=0.01
    )
    assert stored(memory) == everything(20, 10)
    assert (summary.items, summary.item_failed, summary.exit_code) == (200, 0, 0)
    assert summary.pipeline_retry > 0


def test_a_store_that_is_down_for_good_gives_dead_letters_and_an_end(home, workdir):
    alerts = []

    class Down(Memory):
        def save_items(self, table, items):
            refused.append(time.monotonic())
            raise ConnectionError("database is gone")

    class Alerting(Rows):
        async def on_alert(self, kind, message):
            alerts.append(kind)

    refused = []
    summary, _, _ = crawl(
        Alerting, home, paths=paths(20), pipelines=[Down()], ITEM_RETRY_TIMES=1, ITEM_RETRY_BACKOFF=0.01
    )
    assert time.monotonic() - refused[0] < 10
    assert (summary.items, summary.item_failed) == (0, 200)
    assert (summary.outcome, summary.exit_code) == ("all_failed", 6)
    assert "pipeline_down" in alerts
    rows = [dead.row.data for dead in DeadLetterFile(workdir / "failed_items.jsonl").read()]
    assert sorted((row["page"], row["n"]) for row in rows) == everything(20, 10)


def test_one_bad_row_alone_is_dead_lettered(home, workdir):
    class Picky(Memory):
        def save_items(self, table, items):
            if any(item["page"] == "7" and item["n"] == 3 for item in items):
                raise ValueError("bad row")
            super().save_items(table, items)

    memory = Picky()
    summary, _, _ = crawl(Rows, home, paths=paths(20), pipelines=[memory], ITEM_RETRY_TIMES=0)
    assert stored(memory) == [row for row in everything(20, 10) if row != ("7", 3)]
    assert (summary.items, summary.item_failed, summary.exit_code) == (199, 1, 0)
    [dead] = DeadLetterFile(workdir / "failed_items.jsonl").read()
    assert dead.row.data == {"page": "7", "n": 3}


def test_when_not_even_dead_letters_can_be_written_nothing_is_acked_and_a_stop_is_bounded(home, workdir):
    """A full disk and a dead database: pages stay unfinished and are kept, the stop does not hang."""
    (workdir / "dead").mkdir()

    class Down(Memory):
        def save_items(self, table, items):
            raise ConnectionError("database is gone")

    class Stuck(Rows):
        def on_alert(self, kind, message):
            if kind == "items_stuck":
                self.stop("no way to store anything")

    # A folder in the place of the file: no append can succeed.
    summary, _, _made = crawl(
        Stuck, home, paths=paths(5), pipelines=[Down()], ITEM_RETRY_TIMES=0, FAILED_ITEM_PATH=str(workdir / "dead"),
        SPIDER_STOP_TIMEOUT=2.0,
    )  # fmt: skip
    assert summary.outcome == "stopped"
    assert (summary.items, summary.item_failed) == (0, 0)
    assert summary.elapsed < 10
    kept = [json.loads(line) for line in (workdir / "failed_requests.jsonl").read_text().splitlines()]
    assert sorted(record["request"]["u"].rpartition("/")[2] for record in kept) == ["0", "1", "2", "3", "4"]
    assert {record["reason"] for record in kept} == {"unfinished"}


def test_stuck_items_are_stored_when_there_is_room_again(home, workdir):
    (workdir / "dead").mkdir()

    class DownAtFirst(Memory):
        down = True

        def save_items(self, table, items):
            if self.down:
                raise ConnectionError("database is gone")
            super().save_items(table, items)

    memory = DownAtFirst()

    class Mends(Rows):
        def on_alert(self, kind, message):
            if kind == "items_stuck":
                memory.down = False

    summary, _, _ = crawl(
        Mends,
        home,
        paths=paths(5),
        pipelines=[memory],
        ITEM_RETRY_TIMES=0,
        FAILED_ITEM_PATH=str(workdir / "dead"),
    )
    assert stored(memory) == everything(5, 10)
    assert (summary.outcome, summary.items) == ("finished", 50)


def test_a_pipeline_that_cannot_be_opened_is_no_hang(home, workdir):
    class Unopened(BasePipeline):
        def open(self):
            raise ConnectionRefusedError("no database here")

        def save_items(self, table, items):
            raise AssertionError

    summary, _, _ = crawl(
        Rows, home, paths=paths(3), pipelines=[Unopened()], ITEM_RETRY_TIMES=1, ITEM_RETRY_BACKOFF=0.01
    )
    assert (summary.item_failed, summary.exit_code) == (30, 6)


def test_a_hanging_pipeline_ends_at_its_time_limit(home):
    release = threading.Event()

    class Hangs(Memory):
        def save_items(self, table, items):
            release.wait(30)

    try:
        summary, _, _ = crawl(
            Rows,
            home,
            paths=paths(2),
            pipelines=[Hangs()],
            ITEM_RETRY_TIMES=0,
            ITEM_WRITE_TIMEOUT=0.3,
            SPIDER_STOP_TIMEOUT=2.0,
        )
    finally:
        release.set()
    assert summary.item_failed == 20
    assert summary.elapsed < 15


def test_one_page_with_more_rows_than_fit_is_stored_whole(home):
    summary, memory, _ = crawl(
        Rows,
        home,
        paths=paths(1),
        each=3000,
        ITEM_MAX_CACHED_COUNT=100,
        ITEM_BATCH_SIZE=40,
        CALLBACK_CHUNK=25,
    )
    assert stored(memory) == everything(1, 3000)
    assert summary.items == 3000


def test_one_page_with_more_links_than_fit_is_crawled_whole(home):
    class Links(Air):
        paths = ("/p/start",)

        def parse(self, request, response):
            if request.url.endswith("start"):
                for n in range(700):
                    yield mw.Request(self.url(f"/p/{n}"), callback=self.leaf)

        def leaf(self, request, response):
            yield {"page": request.url.rpartition("/")[2], "n": 0}

    summary, memory, _ = crawl(Links, home, REQUEST_BUFFER_MAX_CACHED=50, CALLBACK_CHUNK=20)
    assert stored(memory) == everything(700, 1)
    assert summary.queued == 701
