"""Who can write to the Redis, or to a page, can't run code, stop a node, or read a secret in its output."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safe_support import SPIDER, run

from netspy.messages import codec
from netspy.messages.request import Request
from netspy.policy.failed_record import MAX_ERROR_CHARS, read_failed
from netspy.testing.children import wait_until
from netspy.testing.runner import run_command, start_script

if TYPE_CHECKING:
    from netspy.testing.servers import RedisServer

pytestmark = pytest.mark.slow

NS = "netspy:safe"
GOOD_PAGES = 12


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def stored(folder: Path) -> list[str]:
    import sqlite3

    db = sqlite3.connect(folder / "items.db")
    try:
        return sorted(row[0] for row in db.execute("SELECT * FROM items"))
    finally:
        db.close()


def entry(seq: int, payload: bytes, *, site: str = "0badcafe") -> bytes:
    """A queued member."""
    return b"%015d000%s%s" % (seq, site.encode(), payload)


def lease(seq: int, payload: bytes, *, node: str = "00000099", priority: str = "300") -> bytes:
    """A leased member of a node that is gone."""
    return b"%015d010%s0%s000001%s%s" % (seq, b"0badcafe", node.encode(), priority.encode(), payload)


def delayed(seq: int, payload: bytes, *, priority: str = "300") -> bytes:
    return b"%015d010%s%s%s" % (seq, b"0badcafe", priority.encode(), payload)


def junk(mark: Path) -> dict[str, bytes]:
    """What others may have written."""
    bomb = pickle.dumps(Bomb(mark))
    return {
        "pickle": bomb,
        "pickle after a valid head": entry(900, b"")[:26] + bomb,
        "pickle in braces": entry(901, b"{" + bomb + b"}"),
        "pickle as JSON text": entry(902, json.dumps({"v": 1, "u": bomb.decode("latin-1")}).encode()),
        "python/object": entry(903, b'{"v":1,"u":"http://x/","k":{"!python":["os.system","touch x"]}}'),
        "jsonpickle": entry(904, b'{"py/reduce":[{"py/function":"os.system"},{"py/tuple":["touch x"]}]}'),
        "foreign JSON": b'{"url": "http://127.0.0.1/", "callback": "parse"}',
        "foreign JSON in an entry": entry(905, b'{"url": "http://127.0.0.1/", "callback": "parse"}'),
        "a future version": entry(906, b'{"v":2,"u":"http://127.0.0.1/","new":true}'),
        "not UTF-8": b"\xff\xfe\x00\x80",
        "not UTF-8 in an entry": entry(907, b'{"v":1,"u":"http://\xff\xfe/"}'),
        "one brace": entry(908, b"{"),
        "deep": entry(909, b'{"v":1,"u":"http://x/","k":' + b'{"a":' * 5000 + b"1" + b"}" * 5001),
        "wrong types": entry(910, b'{"v":1,"u":["http://x/"],"r":"many"}'),
        "negative retries": entry(911, b'{"v":1,"u":"http://127.0.0.1/","r":-1000000}'),
        "names of Request itself": entry(
            912, b'{"v":1,"u":"http://127.0.0.1:1/","x":{"pack":1,"site":2,"copy":3,"url":4}}'
        ),
        "options of other types": entry(
            913,
            b'{"v":1,"u":"http://127.0.0.1:1/","o":{"impersonate":7,"encoding":{},"download_midware":["os.system"]}}',
        ),
        "huge": entry(
            914, b'{"v":1,"u":"http://127.0.0.1/","x":{"a":"' + b"x" * (codec.MAX_BYTES + 1) + b'"}}'
        ),
        "a file": entry(915, b'{"v":1,"u":"file:///etc/passwd"}'),
        "no URL": entry(916, b'{"v":1,"u":""}'),
        "wrong keywords": entry(917, b'{"v":1,"u":"http://127.0.0.1:1/","q":{"headers":7,"timeout":"x"}}'),
    }


def test_junk_in_the_queue_runs_no_code_stops_no_node_and_ends_in_the_failed_list(
    pages, redis_server: RedisServer, redis_url, tmp_path
):
    mark = tmp_path / "pickled"
    planted = junk(mark)
    db = redis_server.client(decode_responses=False)
    for at, member in enumerate([*planted.values(), b""]):  # nothing is left of an empty entry
        db.zadd(f"{NS}:z_requests", {member: at})
    result = run(tmp_path, pages, redis_url)
    assert not mark.exists()
    assert not (tmp_path / "x").exists()
    assert stored(tmp_path) == sorted(pages.url(f"/p/{n}") for n in range(GOOD_PAGES))
    assert result.summary["outcome"] == "finished", result.stderr[-3000:]
    records = [read_failed(text) for text in db.lrange(f"{NS}:failed_requests", 0, -1)]
    assert len(records) == len(planted)
    assert all(record.error and record.reason for record in records)
    assert "internal error" not in result.stderr
    assert db.zcard(f"{NS}:z_requests") == db.zcard(f"{NS}:z_inflight") == db.zcard(f"{NS}:z_delayed") == 0
    for text in db.lrange(f"{NS}:failed_requests", 0, -1):
        assert len(text) <= 6 * codec.MAX_BYTES + 4096
        assert len(read_failed(text).error) <= MAX_ERROR_CHARS + 1
    assert len(result.stderr) < 40_000
    shown = run_command(
        [sys.executable, "-m", "netspy.cli", "failed", "list", "--key", "safe"],
        cwd=tmp_path,
        env={"NETSPY_REDIS_URL": redis_url},
    )
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == len(planted) + 1
    again = run_command(
        [sys.executable, "-m", "netspy.cli", "failed", "retry", "--key", "safe"],
        cwd=tmp_path,
        env={"NETSPY_REDIS_URL": redis_url},
    )
    assert again.returncode == 0, again.stderr
    result = run(tmp_path, pages, redis_url)
    assert result.summary["outcome"] == "all_failed", result.stderr[-3000:]
    assert db.llen(f"{NS}:failed_requests") == len(planted)
    assert not mark.exists()


def test_junk_among_leases_and_delayed_entries_costs_no_good_request(
    pages, redis_server: RedisServer, redis_url, tmp_path
):
    """The good ones lie among the junk, so a step that breaks off half way would lose them."""
    mark = tmp_path / "pickled"
    planted = junk(mark)
    db = redis_server.client(decode_responses=False)
    good = {
        kind: [Request(pages.url(f"/p/{kind}{n}")).pack() for n in range(5)] for kind in ("lease", "late")
    }
    bad_leases = [*planted.values(), lease(800, b"{}", priority="nan"), lease(801, b"{}", priority="x")]
    bad_leases += [b"%015d01" % 802 + b"!" + lease(802, b"{}")[18:]]
    for at, member in enumerate(bad_leases):
        db.zadd(f"{NS}:z_inflight", {member: at})
        db.zadd(f"{NS}:z_delayed", {member: at})
    for n in range(5):
        db.zadd(f"{NS}:z_inflight", {lease(n, good["lease"][n]): 2 * n})
        db.zadd(f"{NS}:z_delayed", {delayed(100 + n, good["late"][n]): 2 * n})
    for priority in ("nan", "-nan", "inf", "1e999", "0x10", "", "x", "1 2"):
        db.zadd(f"{NS}:z_delayed", {delayed(700, Request(pages.url("/p/x")).pack(), priority=priority): 3})
    result = run(tmp_path, pages, redis_url, PAGES="3")
    assert not mark.exists()
    assert result.summary["outcome"] == "finished", result.stderr[-3000:]
    wanted = {pages.url(f"/p/{n}") for n in range(3)} | {
        pages.url(f"/p/{kind}{n}") for kind in ("lease", "late") for n in range(5)
    }
    assert wanted <= set(stored(tmp_path))
    assert db.zcard(f"{NS}:z_requests") == db.zcard(f"{NS}:z_inflight") == db.zcard(f"{NS}:z_delayed") == 0
    assert all(read_failed(text).reason for text in db.lrange(f"{NS}:failed_requests", 0, -1))
    assert db.llen(f"{NS}:failed_requests") >= 2 * len(planted)


def test_junk_in_the_records_of_nodes_and_in_the_runs_own_fields_stops_nobody(
    pages, redis_server: RedisServer, redis_url, tmp_path
):
    mark = tmp_path / "pickled"
    bomb = pickle.dumps(Bomb(mark))
    db = redis_server.client(decode_responses=False)
    pages.route("/p/", lambda request: f"<h1>{request.path}</h1>", prefix=True, delay=0.2)
    common = {
        "SITE": pages.url("").rstrip("/"),
        "NETSPY_REDIS_URL": redis_url,
        "PAGES": "60",
        "NETSPY_SPIDER_THREAD_COUNT": "4",
    }
    with start_script(SPIDER, cwd=tmp_path, env=common) as script:
        pages.wait_hits(4)
        # A lock that is overwritten in the middle of the seeding is another node's, and ends it.
        assert wait_until(lambda: (db.get(f"{NS}:lock:seed") or b"").startswith(b"seeded"), 30)
        [node] = [name for name in db.hkeys(f"{NS}:nodes") if b":" not in name]
        values = [
            bomb,
            b"\xff\xfe",
            b"[]",
            b"7",
            b'{"pid":"x","counters":[1],"started":{}}',
            b"[" * 100_000,
            b'{"counters":{"a":"b"}}',
        ]
        for number, value in enumerate(values):
            name = b"\xff\x80%d" % number
            db.hset(f"{NS}:nodes", name, value)
            db.hset(f"{NS}:nodes", b"0000009%d" % number, value)
            db.hset(f"{NS}:nodes", b"+" + name, value)
            db.zadd(f"{NS}:beats", {name: 1, b"0000009%d" % number: 10**15})
        db.hset(f"{NS}:nodes", node, bomb)
        for field in (b":s", b":c", b":p"):
            db.hset(f"{NS}:nodes", node + field, bomb)
        for field in (b"pickled", b"gen", b"history", b"kind", b"class", b"created", b"\xff"):
            db.hset(f"{NS}:meta", field, bomb)
        db.rpush(
            f"{NS}:failed_requests",
            bomb,
            b"[]",
            b"\xff",
            b'{"reason":7}',
            b'{"time":"x","request":{"u":"http://x/"}}',
            b'{"request":"text"}',
        )
        db.rpush(
            f"{NS}:failed_requests",
            b'{"reason":"r","priority":1e400,"site":"' + b"s" * 100 + b'","request":{}}',
        )
        db.set(f"{NS}:lock:seed", bomb)
        for command in (
            ["status", "--key", "safe"],
            ["status", "--key", "safe", "--json"],
            ["failed", "list", "--key", "safe"],
            ["failed", "retry", "--key", "safe"],
        ):
            looked = run_command(
                [sys.executable, "-m", "netspy.cli", *command],
                cwd=tmp_path,
                env={"NETSPY_REDIS_URL": redis_url},
            )
            assert looked.returncode == 0, (command, looked.stderr)
            assert "Traceback" not in looked.stderr
        result = script.finish(90)
    assert not mark.exists()
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    assert result.summary["outcome"] == "finished", result.stderr[-3000:]
    assert set(stored(tmp_path)) == {pages.url(f"/p/{n}") for n in range(60)}


@pytest.mark.parametrize("value", ["pickle", "\xff", "seeding x y", "failed", "{}"])
def test_a_strange_seeding_lock_seeds_nothing_and_runs_nothing(
    pages, redis_server, redis_url, tmp_path, value
):
    mark = tmp_path / "pickled"
    db = redis_server.client(decode_responses=False)
    planted = pickle.dumps(Bomb(mark)) if value == "pickle" else value.encode("latin-1")
    db.set(f"{NS}:lock:seed", planted)
    result = run(tmp_path, pages, redis_url)
    assert not mark.exists()
    assert result.returncode == 3, result.stderr
    assert f"{NS}:lock:seed" in result.stderr
    assert "which netspy did not write" in result.stderr
    assert "Traceback" not in result.stderr
    assert not [sign for sign in result.stderr if not sign.isprintable() and sign != "\n"]
    assert db.get(f"{NS}:lock:seed") == planted


@pytest.mark.parametrize("when", ["1", "9" * 400])
def test_a_seeding_lock_that_nobody_renews_is_taken_over_whatever_time_it_says(
    pages, redis_server, redis_url, tmp_path, when
):
    redis_server.client().set(f"{NS}:lock:seed", f"seeding token {when} somebody")
    run(tmp_path, pages, redis_url).check()
    assert len(stored(tmp_path)) == GOOD_PAGES


FORBIDDEN = [
    "__class__", "__init__", "__call__", "__reduce__", "__getattribute__", "__dict__", "start", "stop", "_running", "logger", "counters",
    "settings", "os.system", "system", "elsewhere", "Other.elsewhere", "Inner", "label", "helper", "built", "attached", "tempting",
    "load_settings", "parse.__globals__", "parse\x00", "", " parse", "lambda", "nobody",
]  # fmt: skip


def test_planted_names_are_never_called(pages, redis_server, redis_url, tmp_path):
    db = redis_server.client(decode_responses=False)
    seq = 1000
    roles = {"c": None, "e": None, "o": "download_midware"}
    for name in FORBIDDEN:
        for role, option in roles.items():
            payload = {
                "v": 1,
                "u": pages.url(f"/p/{role}{seq}"),
                role: {option: name} if option else name,
                "x": {"pipelines": ["os.system"]},
            }
            db.zadd(f"{NS}:z_requests", {entry(seq, json.dumps(payload).encode()): seq})
            seq += 1
    result = run(tmp_path, pages, redis_url)
    assert not (tmp_path / "called.txt").exists(), (tmp_path / "called.txt").read_text()
    assert set(stored(tmp_path)) >= {pages.url(f"/p/{n}") for n in range(GOOD_PAGES)}
    assert result.summary["outcome"] == "finished", result.stderr[-3000:]
    records = [read_failed(text) for text in db.lrange(f"{NS}:failed_requests", 0, -1)]
    assert {record.reason for record in records} == {"UnknownCallbackError"}
    assert {record.attempts for record in records} == {1}
    assert len(records) == len(FORBIDDEN) * len(roles)
    assert not any("/p/" in path and path[3:4] in roles for path in pages.all_hits()), pages.all_hits()


# -- sizes


BIG = """
import netspy as mw


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Safe(mw.Spider):
    redis_key = "safe"
    __custom_setting__ = dict(ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], PROGRESS="off", SPIDER_MAX_RETRY_TIMES=0)

    def start_requests(self):
        url = self.settings.USER_AGENT  # the site's address
        yield mw.Request(url + "/p/large", cb_kwargs={"document": "x" * 4_194_304})
        yield mw.Request(url + "/p/large", data="x" * 4_194_304)
        yield mw.Request(url + "/p/good")
        yield mw.Request(url + "/p/long", callback=self.long)
        yield mw.Request(url + "/p/unprintable", callback=self.unprintable)

    def parse(self, request, response):
        yield {"url": request.url}
        yield mw.Request(request.url + "/child", section="x" * 4_194_304)

    def long(self, request, response):
        raise ValueError("page: " + "y" * 10_000_000)

    def unprintable(self, request, response):
        raise Unprintable


if __name__ == "__main__":
    Safe().start()
"""


def test_what_is_too_large_is_refused_where_it_is_yielded_and_error_texts_are_cut(
    pages, redis_server: RedisServer, redis_url, tmp_path
):
    result = run(tmp_path, pages, redis_url, BIG, NETSPY_USER_AGENT=pages.url("").rstrip("/"))
    refused = [line for line in result.stderr.splitlines() if "over the limit of 4,194,304" in line]
    assert [("start_requests" in line, "parse" in line) for line in refused] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert all("can't travel" in line and "keep large data in a store" in line for line in refused)
    assert stored(tmp_path) == [pages.url("/p/good")]
    assert len(result.stderr) < 10_000
    assert len(result.stdout) < 10_000
    records = {
        record.reason: record
        for record in map(
            read_failed, redis_server.client(decode_responses=False).lrange(f"{NS}:failed_requests", 0, -1)
        )
    }
    assert set(records) == {"ValueError", "Unprintable"}
    assert records["ValueError"].error.startswith("ValueError: page: yyy")
    assert len(records["ValueError"].error) <= MAX_ERROR_CHARS + len("ValueError: ")
    assert "can't be shown" in records["Unprintable"].error
