"""`netspy retry` as a process: items back to their pipelines, requests crawled again."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing

import pytest
from cli_rig import Rig, one_line, until

from netspy.messages.row import DeadRow, Row
from netspy.pipelines.dead_letters.file import DeadLetterFile

SHOP = """
import os
from dataclasses import dataclass
import netspy as mw
from netspy.errors import ItemError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.sqlite import SqlitePipeline


class Shaky(SqlitePipeline):
    def save_items(self, table, items):
        if os.environ.get("DOWN"):
            raise ConnectionRefusedError("port 3306")
        if any(item.get("n") == int(os.environ.get("BAD", "-1")) for item in items):
            raise ItemError("a bad number")
        return super().save_items(table, items)


class Other(BasePipeline):
    def save_items(self, table, items):
        with open("other.txt", "a") as file:
            file.writelines(f"{item['n']}\\n" for item in items)


@dataclass
class Price:
    __table_name__ = "prices"
    __unique_key__ = "n"
    __validate__ = True
    n: int
    price: float = 1.0

    def pre_to_db(self):
        if isinstance(self.price, str) and os.environ.get("MENDED"):
            self.price = float(self.price.replace(",", "."))


class Shop(mw.%s):
    __custom_setting__ = dict(
        PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0, RETRY_BACKOFF=0.01, SPIDER_MAX_RETRY_TIMES=0,
        ITEM_RETRY_TIMES=0, ITEM_STORE_DOWN="spill", ITEM_PIPELINES=["shop.Shaky", "shop.Other"], HEARTBEAT_INTERVAL=0.3,
    )

    def start_requests(self):
        for n in range(6):
            yield mw.Request(f"{os.environ['SITE']}/p/{n}")

    def parse(self, request, response):
        n = int(request.url.rpartition("/")[2])
        yield Price(n, "1,5" if n == 5 and os.environ.get("COMMA") else 1.5)
"""


@pytest.fixture(params=["AirSpider", "Spider"])
def shop(request, pages, tmp_path):
    url = request.getfixturevalue("redis_url") if request.param == "Spider" else None
    rig = Rig(tmp_path, pages.url(""), url)
    (tmp_path / "shop.py").write_text(SHOP % request.param)
    return rig


@pytest.fixture
def air(pages, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP % "AirSpider")
    return Rig(tmp_path, pages.url(""))


def mend(pages) -> None:
    """The pages that failed are there now, and nothing was asked for yet."""
    pages.clear()
    for n in (3, 4):
        pages.route(f"/p/{n}", "yes")


def prices(rig) -> list[int]:
    with closing(sqlite3.connect(rig.folder / "items.db")) as db:
        return [n for (n,) in db.execute("SELECT n FROM prices ORDER BY n")]


def other(rig) -> list[int]:
    return sorted(map(int, (rig.folder / "other.txt").read_text().split()))


def letters(rig) -> list[dict]:
    path = rig.folder / "failed_items.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_w18_a_retry_writes_only_to_the_pipeline_that_lacks_the_rows(shop):
    """W18: 3 rows became 6 after a retry. Here 6 rows are 6 rows in both pipelines."""
    shop("run", "shop.py", DOWN="1").check(6)
    assert len(letters(shop)) == 6
    assert other(shop) == [0, 1, 2, 3, 4, 5]
    out = shop("retry", "shop.py", "--items").check().stdout
    assert out == "6 items stored, 0 failed again and stay in failed_items.jsonl\n"
    assert prices(shop) == other(shop) == [0, 1, 2, 3, 4, 5]
    assert not (shop.folder / "failed_items.jsonl").exists()
    assert shop("retry", "shop.py", "--items").check().stdout == "no failed item in failed_items.jsonl\n"


def test_survivors_stay_and_successes_leave(air):
    air("run", "shop.py", DOWN="1").check(6)
    result = air("retry", "shop.py", "--items", BAD="3").check(6)
    assert result.stdout == "5 items stored, 1 failed again and stay in failed_items.jsonl\n"
    assert [(one["data"]["n"], one["error"]) for one in letters(air)] == [(3, "ItemError: a bad number")]
    assert result.stderr.count("a bad number") == 1
    assert prices(air) == [0, 1, 2, 4, 5]


def test_a_dry_run_shows_and_changes_nothing(air):
    air("run", "shop.py", DOWN="1").check(6)
    before = (air.folder / "failed_items.jsonl").read_bytes()
    out = air("retry", "shop.py", "--items", "--dry-run").check().stdout
    assert out.splitlines() == [
        "table\tpipeline\titems\terror", "prices\tShaky\t6\tConnectionRefusedError: port …",
    ]  # fmt: skip
    assert (air.folder / "failed_items.jsonl").read_bytes() == before
    assert "nothing to write again" in air("retry", "--items", "--table", "no", "--dry-run").check().stderr


def test_table_time_and_pipeline_choose_and_the_rest_stays(air):
    dead = DeadLetterFile(air.folder / "failed_items.jsonl")
    old, new = 1_700_000_000.0, 1_900_000_000.0
    both = ("shop.Shaky", "shop.Other")
    for n, (table, when, names) in enumerate(
        [("a", old, both), ("b", old, both), ("b", new, ("shop.Other",)), ("b", new, ("shop.Shaky",))]
    ):
        dead.append([DeadRow(Row(table, {"n": n}, names), "away", when)])
    out = air("retry", "shop.py", "--items", "--table", "b", "--since", "2029-01-01").check().stdout
    assert out == "2 items stored, 0 failed again and stay in failed_items.jsonl, 2 left there\n"
    assert other(air) == [2]
    air("retry", "shop.py", "--items", "--pipeline", "Other").check()
    assert other(air) == [0, 1, 2]
    assert [(one["data"]["n"], one["pipelines"]) for one in letters(air)] == [
        (0, ["shop.Shaky"]), (1, ["shop.Shaky"]),
    ]  # fmt: skip
    air("retry", "--items").check()
    assert letters(air) == []


def test_an_item_of_a_wrong_type_is_a_dead_letter_and_is_checked_again(shop):
    result = shop("run", "shop.py", COMMA="1").check()
    assert (result.summary["items"], result.summary["item_failed"]) == (5, 1)
    [letter] = letters(shop)
    assert letter["error"].startswith("Price.price: expected `float`, got `str`; price = '1,5'")
    assert letter["item"] == "shop.Price"
    assert letter["pipelines"] is None
    again = shop("retry", "shop.py", "--items").check(6)
    assert "0 items stored, 1 failed again" in again.stdout
    assert letters(shop)[0]["error"].startswith("Price.price: expected `float`")
    shop("retry", "shop.py", "--items", MENDED="1").check()
    assert prices(shop) == other(shop) == [0, 1, 2, 3, 4, 5]


def test_an_item_of_a_script_is_found_in_the_file_that_is_named(air):
    (air.folder / "shop.py").write_text(
        (SHOP % "AirSpider").replace("shop.S", "__main__.S").replace("shop.O", "__main__.O")
    )
    dead = DeadLetterFile(air.folder / "failed_items.jsonl")
    dead.append([DeadRow(Row("prices", {"n": 1, "price": 2.5}), "wrong", 5.0, "__main__.Price")])
    lost = air("retry", "--items").check(6)
    assert "can't be imported here; name the spider" in letters(air)[0]["error"], lost.stderr
    air("retry", "shop.py", "--items", "-o", "x.jsonl").check()
    assert air.rows("x.prices.jsonl") == [{"n": 1, "price": 2.5}]


def test_a_shared_store_gathers_letters_and_gives_them_back(shop, redis_url, tmp_path):
    for url in ("redis" if "NETSPY_REDIS_URL" in shop.env else redis_url, f"sqlite:///{tmp_path}/failed.db"):
        for name in ("items.db", "items.db-wal", "items.db-shm", "other.txt"):
            (shop.folder / name).unlink(missing_ok=True)
        env = {"NETSPY_FAILED_ITEM_URL": url}
        shop("run", "shop.py", "-s", "RETRY_FAILED_ON_START=0", DOWN="1", **env).check(6)
        assert letters(shop) == []
        shown = shop("retry", "shop.py", "--items", "--dry-run", **env).check().stdout
        assert "Shaky\t6" in shown
        out = shop("retry", "shop.py", "--items", **env, BAD="4").check(6).stdout
        assert "5 items stored, 1 failed again" in out.splitlines()[-1]
        assert "1 items" not in shop("retry", "shop.py", "--items", **env).check().stdout
        assert prices(shop) == [0, 1, 2, 3, 4, 5]
        if "NETSPY_REDIS_URL" in shop.env:
            shop("reset", "shop.py", "--yes").check()


def test_letters_go_to_the_file_while_their_store_is_away(air):
    env = {"NETSPY_FAILED_ITEM_URL": "redis://127.0.0.1:1/0"}
    result = air("run", "shop.py", DOWN="1", **env).check(6)
    assert len(letters(air)) == 6
    assert result.stderr.count("takes no dead letters") == 1
    air("retry", "--items").check()
    assert prices(air) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--requests"], 2, "name the spider"),
        (["shop.py", "--spider", "shop.py", "--items"], 2, "two spiders"),
        (["--items", "--since", "soon"], 2, "is no time"),
        (["shop.py", "--table", "t"], 2, "are for items"),
        (["--items", "-s", "FAILED_ITEM_URL=ftp://x"], 3, "none that netspy knows"),
        (["--items", "-s", "FAILED_ITEM_URL=redis"], 3, "name the spider"),
        (["no.py", "--items"], 3, "no such file"),
    ],
)
def test_a_command_line_that_can_not_be_is_said_in_one_line(air, arguments, code, part):
    one_line(air("retry", *arguments), code, part)


@pytest.mark.parametrize("how", ["KILL", "INT"])
def test_a_replay_that_is_ended_in_the_middle_is_gone_on_with(air, how):
    """Killed or interrupted: nothing is lost, and keyed rows stand once."""
    (air.folder / "slow.py").write_text(
        "import time\nfrom pathlib import Path\nfrom netspy.pipelines.sqlite import SqlitePipeline\n\n\n"
        "class Slow(SqlitePipeline):\n    calls = 0\n\n    def save_items(self, table, items):\n        self.calls += 1\n"
        "        while self.calls == 2 and not Path('go_on').exists():\n            time.sleep(0.01)\n"
        "        return super().save_items(table, items)\n"
    )
    dead = DeadLetterFile(air.folder / "failed_items.jsonl")
    dead.append(
        [DeadRow(Row("prices", {"n": n}, ("slow.Slow",), None, ("n",)), "away", 5.0) for n in range(4000)]
    )
    database = air.folder / "items.db"
    with air.start("retry", "--items") as running:
        until(lambda: database.exists() and "prices" in tables(database) and prices(air))
        running.signal(getattr(signal, f"SIG{how}"))
        if how == "KILL":
            running.finish().check(-9)
        (air.folder / "go_on").touch()
        assert running.finish().returncode == (-9 if how == "KILL" else 130)
    some = len(prices(air))
    assert 0 < some < 4000
    air("retry", "--items").check()
    assert prices(air) == list(range(4000))
    assert letters(air) == []


def tables(database) -> list[str]:
    with closing(sqlite3.connect(database)) as db:
        return [name for (name,) in db.execute("SELECT name FROM sqlite_master")]


def test_failed_requests_of_an_air_spider_are_crawled_again_and_nothing_else(air, pages):
    pages.route("/p/3", "no", status=500)
    pages.route("/p/4", "no", status=404)
    air("run", "shop.py").check()
    assert prices(air) == [0, 1, 2, 5]
    shown = air("retry", "shop.py", "--requests", "--dry-run").check().stdout
    assert sorted(shown.splitlines()[1:]) == ["HTTP 404\t1", "HTTP 500\t1"]
    mend(pages)
    assert (
        "no failed request" in air("retry", "shop.py", "--requests", "--since", "2100-01-01").check().stderr
    )
    result = air("retry", "shop.py", "--requests").check()
    assert pages.all_hits() == {"/p/3": 1, "/p/4": 1}
    assert result.summary["items"] == 2
    assert prices(air) == [0, 1, 2, 3, 4, 5]
    assert "no failed request" in air("retry", "shop.py", "--requests").check().stderr


def test_of_an_air_spiders_requests_those_that_are_too_old_stay(air, pages):
    pages.route("/p/3", "no", status=500)
    pages.route("/p/4", "no", status=404)
    air("run", "shop.py").check()
    path = air.folder / "failed_requests.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["reason"] == "HTTP 404":
            record["time"] = 5.0
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    mend(pages)
    air("retry", "shop.py", "--requests", "--since", "1h").check()
    assert pages.all_hits() == {"/p/3": 1}
    assert [json.loads(line)["reason"] for line in path.read_text().splitlines()] == ["HTTP 404"]
    assert not path.with_name(path.name + ".replaying").exists()


def test_failed_requests_of_a_spider_go_back_to_its_queue_and_are_crawled(pages, tmp_path, redis_url):
    rig = Rig(tmp_path, pages.url(""), redis_url)
    (tmp_path / "shop.py").write_text(SHOP % "Spider")
    pages.route("/p/3", "no", status=500)
    rig("run", "shop.py").check()
    assert (
        rig("retry", "shop.py", "--requests", "--dry-run").check().stdout == "reason\trequests\nHTTP 500\t1\n"
    )
    assert (
        "0 failed requests queued"
        in rig("retry", "shop.py", "--requests", "--since", "2100-01-01").check().stdout
    )
    mend(pages)
    out = rig("retry", "--requests", "--key", "Shop").check().stdout
    assert "1 failed request queued again" in out
    assert "the next node to start takes them" in out
    rig("run", "shop.py").check()
    assert pages.all_hits() == {"/p/3": 1}
    assert prices(rig) == [0, 1, 2, 3, 4, 5]


def test_without_flags_both_are_retried_items_first(air, pages):
    pages.route("/p/3", "no", status=500)
    air("run", "shop.py", DOWN="1").check(6)
    mend(pages)
    result = air("retry", "shop.py").check()
    assert result.stdout.startswith("5 items stored, 0 failed again")
    assert prices(air) == [0, 1, 2, 3, 4, 5]
