"""Rows 16, 17, 40 and 51: Redis comes back as it was, or in an earlier state; a run that ended before its queue was empty.

What each call answers then: tests/contract/test_store_went_back.py. Here processes meet it.
"""

from __future__ import annotations

import json

import pytest
from fault_support import HELD, SEEDS, held_store, serve_seeds
from task_support import HEAD, make_table, serve_tasks, states

from netspy.testing.faults import serve_pages
from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault]

full = pytest.mark.faults_full

SNAPSHOTS = {"save": "3600 1000000"}


def alive(run):
    return [node for node in run.nodes if node.alive]


def seeded(run):
    run.wait(
        lambda: (run.client.get(f"{run.namespace}:lock:seed") or b"").startswith(b"seeded"),
        "the seeding is over",
    )


def everywhere(run):
    return run.count("z_requests") + run.count("z_inflight")


def ids_of_pids(run):
    records = run.client.hgetall(f"{run.namespace}:nodes")
    live = run.client.zrange(f"{run.namespace}:beats", 0, -1)
    return {name: json.loads(records[name])["pid"] for name in live if name in records}


def test_nodes_that_joined_after_the_snapshot_share_no_id_when_redis_is_back(
    either_binary, own_server, begin, site, note
):
    """F1: ids counted in Redis were given to two live nodes, which then answered each other's calls."""
    server = own_server(either_binary, **SNAPSHOTS)
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=60, delay=0.05)
    run = begin(server.url)
    run.node()
    site.wait_hits(10)
    at_snapshot = site.total
    run.client.save()
    for _ in range(3):
        run.node()
    run.wait(lambda: len(ids_of_pids(run)) == 4, "all nodes have joined")
    site.wait_hits(60)
    run.wait(lambda: all(run.leases_of(node) for node in run.nodes), "all have work")
    server.kill()
    since = site.total - at_snapshot
    server.start()
    run.fault()
    pids: dict[bytes, set[int]] = {}

    def all_joined():
        now = ids_of_pids(run)
        for name, pid in now.items():
            pids.setdefault(name, set()).add(pid)
        return set(now.values()) == {node.pid for node in run.nodes}

    run.wait(all_joined, "all have joined again")
    assert all(len(found) == 1 for found in pids.values()), "an id that two of them have"
    run.recovered()
    gate.open()
    run.finish()
    note("17", run, run.check(expected, fetched_twice=since + 4 * HELD))


RAISING = held_store().replace(
    "            yield Page(url=request.url)\n\n    def parse(",
    "            yield Page(url=request.url)\n        raise RuntimeError('after its links')\n\n    def parse(",
)


@pytest.mark.parametrize("ends", ["given up", pytest.param("acked", marks=full)])
def test_links_of_a_page_that_failed_for_good_are_not_lost_with_redis_last_seconds(
    ends, either_binary, own_server, begin, site, note
):
    """F7: the snapshot knows the lists and not their links, which were put while their rows waited for the database."""
    assert held_store() != RAISING
    server = own_server(either_binary, **SNAPSHOTS)
    expected = serve_pages(site, 4, 10)
    lists = Gate(
        site,
        "/l/",
        body=lambda r: "".join(f'<a href="{r.path.replace("/l/", "/d/")}-{i}">x</a>' for i in range(10)),
    )
    gives_up = ends == "given up"
    pages = Gate(site, "/d/")
    run = begin(
        server.url,
        RAISING if gives_up else held_store(),
        LISTS="4",
        SPIDER_MAX_RETRY_TIMES="0",
        COLLECTOR_TASK_COUNT="1",
    )
    node = run.node()
    run.wait(lambda: run.count("z_inflight") == 4, "all lists are leased")
    seeded(run)
    run.client.save()
    lists.open()
    # Two lists have rows, which wait; the other two are done with (given up, or acked).
    run.wait(lambda: everywhere(run) == 42, "all links are there, and two lists whose rows wait")
    node.pause()  # it is quick to put them again
    server.kill()
    server.start()
    run.fault()
    assert everywhere(run) == 4, "the links are forgotten"
    node.cont()
    (run.folder / "there").touch()
    pages.open()
    run.finish(node)
    run.recovered()
    note("17", run, run.check(expected, fetched_twice=4 + 40, failed=4 if gives_up else 0))


def test_a_restart_that_lost_nothing_repeats_no_page_whose_rows_wait(
    either_binary, own_server, begin, site, note
):
    """Their links were put before; the server that knows them is another process, and knows them all the same."""
    server = own_server(either_binary, appendfsync="always")
    expected = serve_pages(site, 20, 5)
    run = begin(server.url, held_store(), LISTS="20", SPIDER_MAX_UNACKED="200")
    node = run.node()
    run.wait(lambda: site.total == 120, "every page was fetched")
    run.wait(lambda: run.count("z_requests") == 0, "all of them are held")
    waiting = run.count("z_inflight")
    assert waiting >= 100
    for _ in range(2):
        server.kill()
        server.restart()
        run.fault()
        run.wait(lambda: run.client.ping(), "Redis is back")
    assert run.count("z_inflight") == waiting
    (run.folder / "there").touch()
    run.finish(node)
    run.recovered()
    note("16", run, run.check(expected, fetched_twice=0))


@pytest.mark.parametrize("kind", ["lite", pytest.param("memory", marks=full)])
def test_links_known_to_a_filter_in_the_process_are_queued_again_when_redis_forgot_them(
    kind, either_binary, own_server, begin, site, note
):
    """F2: the page comes again, and the process thought that its links were queued."""
    server = own_server(either_binary, **SNAPSHOTS)
    expected = serve_pages(site, 6, 10)
    gate = Gate(site, "/d/")
    run = begin(server.url, LISTS="6", DEDUP_FILTER=kind, COLLECTOR_TASK_COUNT="1")
    lists = Gate(
        site,
        "/l/",
        body=lambda r: "".join(f'<a href="{r.path.replace("/l/", "/d/")}-{i}">x</a>' for i in range(10)),
    )
    node = run.node()
    seeded(run)
    run.client.save()
    lists.open()
    run.wait(lambda: everywhere(run) == 60, "all lists are done and their links queued")
    server.kill()
    server.start()
    run.fault()
    gate.open()
    run.finish(node)
    run.recovered()
    note("17", run, run.check(expected, fetched_twice=6 + 60 + 2 * HELD))


ENDS = {"stopped": 143, "killed": -9, "all failed": 6}


@pytest.mark.parametrize("filter_", ["redis", pytest.param("redis-set", marks=full)])
@pytest.mark.parametrize("how", ["stopped", "killed", "all failed"])
def test_the_next_run_crawls_what_an_earlier_one_queued_and_never_crawled(
    how, filter_, either_url, begin, site, note
):
    """F11: DEDUP_SCOPE=spider. It fetched nothing and said that all was well."""
    expected = serve_pages(site, 20, 10, delay=0.02)
    broken = []
    gate = Gate(site, "/d/", after=60)
    if how == "all failed":
        site.route("/l/", lambda _request: broken.append(1) or (500, "down"), prefix=True)
    common = {"DEDUP_SCOPE": "spider", "DEDUP_FILTER": filter_, "SPIDER_MAX_RETRY_TIMES": "0"}
    run = begin(either_url, LISTS="20", **common)
    first = run.node(RUN_ID="one")
    if how != "all failed":
        site.wait_hits(60)
        first.terminate() if how == "stopped" else first.kill()
        gate.open()
    result = first.finish()
    assert result.returncode == ENDS[how]
    run.fault()
    before = len(run.stored())
    assert before < len(expected)
    if how == "all failed":
        assert broken
        expected = serve_pages(site, 20, 10)
    run.namespace = "netspy:Pages:run:two"
    [told] = run.finish(run.node(RUN_ID="two"))
    run.recovered()
    assert "queued again" in told.stderr
    report = run.check(expected, fetched_twice=20 if how == "all failed" else HELD)
    note("51", run, report)
    if how == "stopped":
        crawled = site.total
        run.namespace = "netspy:Pages:run:three"
        run.finish(run.node(RUN_ID="three"))
        assert site.total == crawled, "what earlier runs crawled is not crawled again"


def test_a_run_that_is_under_way_keeps_its_queue_when_another_one_starts(either_url, begin, site):
    expected = serve_seeds(site, 40)
    gate = Gate(site, "/d/", after=5)
    run = begin(
        either_url, SEEDS, LISTS="40", DEDUP_SCOPE="spider", SPIDER_MAX_UNACKED="8", COLLECTOR_TASK_COUNT="2"
    )
    run.namespace = "netspy:Pages:run:one"
    first = run.node(RUN_ID="one")
    site.wait_hits(6)
    seeded(run)
    second = run.node(RUN_ID="two", HEARTBEAT_STALE="5")
    run.finish(second)
    assert run.count("z_requests") > 0, "it is the first one's"
    gate.open()
    run.finish(first)
    assert set(run.stored()) == expected
    assert site.total == 40


TABLE = (
    HEAD
    + """\
class Shop(mw.TaskSpider):
    def task_requests(self, task):
        yield mw.Request(task["url"])

    def parse(self, request, response):
        yield Page(url=request.url)


if __name__ == "__main__":
    Shop().start()
"""
)


def test_a_node_killed_with_rows_of_a_table_in_its_hands_loses_none(either_url, begin, site, note):
    """Of what it held others may have crawled the pages; only it could say so to the table, so they are crawled again."""
    batch = 20
    expected = serve_tasks(site, 300, delay=0.02)
    gate = Gate(site, "/t/", after=120, delay=0.02)
    run = begin(
        either_url, TABLE, TASK_POLL_INTERVAL="0.1", TASK_EXHAUST_POLLS="25", TASK_BATCH_SIZE=str(batch),
        BATCH_LOST_TASK_STALE="2", SPIDER_TASK_LEASE="4",
    )  # fmt: skip
    run.namespace = "netspy:Shop"
    run._env["TASK_SOURCE"] = f"{make_table(run.folder, sorted(expected))}?table=crawl_task"
    victim, survivor = run.node(), run.node()
    site.wait_hits(110)
    run.wait(lambda: run.leases_of(victim) and run.leases_of(survivor), "both have work")
    victim.kill()
    run.fault()
    gate.open()
    run.finish(survivor)
    run.recovered()
    report = run.check(expected, fetched_twice=10 * batch + HELD)
    assert states(run.folder) == {1: 300}
    note("40", run, report)
