"""Rows 1–5, 7, 8, 11b, 14, 14b and W1 of the fault table: nodes killed at every step of a request's way."""

from __future__ import annotations

import time

import pytest

from netspy.testing.faults import PAGES, serve_pages
from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault]

HELD = 50  # SPIDER_MAX_UNACKED of these runs: what one dead node can have fetched in vain
STALE = (
    3.0  # a survivor that misses its own beats for half of it judges nobody: that long a machine may be busy
)
SLACK = 6.0  # seconds; the machine may be busy

TOLD = PAGES.replace(
    '            time.sleep(env("SEED_SLEEP"))\n',
    '            time.sleep(env("SEED_SLEEP"))\n            while not os.path.exists("go"): time.sleep(0.01)\n',
)
"""Its first request comes when the test says `go`: the start of an interpreter is nothing that netspy promises."""


def go(run, *nodes):
    """Let the crawl begin when all of these nodes are there."""
    assert TOLD != PAGES
    for node in nodes:
        run.wait(lambda node=node: run.node_ids(node), "the node is there")
    (run.folder / "go").touch()


@pytest.mark.parametrize(
    ("row", "crash_at"),
    [
        ("1", "after_claim:3"),
        ("2", "in_fetch:9"),
        ("3", "after_callback:2"),
        ("3", "after_callback:1"),
        ("4", "after_children:1"),
        ("4", "before_store:2"),
        ("5", "after_store:2"),
        ("5", "before_ack:3"),
        ("5", "after_settle:2"),
    ],
)
def test_a_node_killed_at_any_step_loses_nothing(row, crash_at, either_url, begin, site, note):
    expected = serve_pages(site, delay=0.02)
    # Most of the crawl is left for the victim, however slow it is.
    gate = Gate(site, after=60, delay=0.02, holds=lambda request: request.headers["user-agent"] == "survivor")
    run = begin(either_url, TOLD, SEED_SLEEP="0.02", HEARTBEAT_STALE=str(STALE))
    victim = run.node(crash_at=crash_at)
    survivor = run.node(USER_AGENT="survivor")
    go(run, victim, survivor)
    run.wait_killed(victim)
    gate.open()
    assert run.wait_taken_over(victim) < STALE + SLACK
    run.finish(survivor)
    note(row, run, run.check(expected, fetched_twice=HELD))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_seeder_killed_half_way_is_replaced_and_every_seed_is_crawled_once(
    count, either_url, begin, site, note
):
    expected = serve_pages(site, 40, 2)
    run = begin(either_url, TOLD, SEED_SLEEP="0.03", SPIDER_SEEDING_TTL="2.0")

    def lock():
        return run.client.get("netspy:Pages:lock:seed") or b""

    seeder = run.node(crash_at=f"seed_put:{count}")
    run.wait(lambda: lock().startswith(b"seeding "), "it seeds")
    whose = lock()
    heir = run.node()
    go(run, heir)
    run.wait_killed(seeder)
    assert not lock().startswith(b"seeded"), "not all seeds are put"
    run.wait(lambda: lock() not in {b"", whose}, "somebody else seeds")
    assert run.recovered() < 2.0 + SLACK
    [result] = run.finish(heir)
    report = run.check(expected, fetched_twice=HELD)
    assert result.summary["dedup_dropped"] >= 1, "what the dead seeder had put is known"
    note("7", run, report)


def test_when_every_node_is_killed_a_new_one_resumes_and_finishes(either_url, begin, site, note):
    expected = serve_pages(site, delay=0.02)
    gate = Gate(site, after=200, delay=0.02)
    run = begin(either_url)
    nodes = [run.node() for _ in range(3)]
    site.wait_hits(60)
    for node in nodes:
        node.kill()
    run.fault()
    gate.open()
    for node in nodes:
        node.finish(10).check(-9)
    fetched = site.total
    last = run.node()
    site.wait_hits(fetched + 1)
    run.recovered()
    run.finish(last)
    note("8", run, run.check(expected, fetched_twice=3 * HELD))


def test_with_the_default_lease_of_ten_minutes_the_dead_nodes_work_is_taken_over_in_seconds(
    either_url, begin, site, note
):
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=60, delay=0.05)
    run = begin(either_url, SPIDER_TASK_LEASE="600", HEARTBEAT_STALE=str(STALE))
    victim, survivor = run.node(), run.node()
    site.wait_hits(40)
    run.wait(lambda: run.leases_of(victim) and run.leases_of(survivor), "both nodes have work, and keep it")
    victim.kill()
    run.fault()
    gate.open()
    assert run.wait_taken_over(victim) < STALE + SLACK
    run.finish(survivor)
    note("11b", run, run.check(expected, fetched_twice=HELD))


@pytest.mark.faults_full
def test_a_node_started_on_the_same_machine_takes_over_at_once(either_url, begin, site, note):
    """Under the default heartbeats: the process is gone, which the next one can see."""
    expected = serve_pages(site, 10, 10, delay=0.3)
    run = begin(either_url, LISTS="10", HEARTBEAT_INTERVAL="3", HEARTBEAT_STALE="15", SPIDER_THREAD_COUNT="8")
    victim = run.node()
    site.wait_hits(30)
    run.wait(
        lambda: (run.client.get("netspy:Pages:lock:seed") or b"").startswith(b"seeded"), "the seeding is over"
    )
    victim.kill()
    run.fault()
    victim.finish(10).check(-9)
    assert run.leases_of(victim)
    heir = run.node()
    assert run.wait_taken_over(victim) < 3 + SLACK, "neither HEARTBEAT_STALE nor the lease was waited for"
    [result] = run.finish(heir)
    assert result.summary["reclaimed"] > 0
    note("11c", run, run.check(expected, fetched_twice=HELD))


POISON = PAGES.replace(
    '        time.sleep(env("PARSE_SLEEP"))\n',
    '        time.sleep(env("PARSE_SLEEP"))\n'
    "        if request.url.endswith('/d/2-1'):\n            os.kill(os.getpid(), 9)\n",
)


def test_a_page_that_kills_its_process_every_time_ends_in_the_failed_list_and_its_neighbours_do_not(
    either_url, begin, site, note
):
    assert POISON != PAGES
    expected = serve_pages(site, 5, 4) - {site.url("/d/2-1")}
    run = begin(
        either_url,
        POISON,
        LISTS="5",
        HEARTBEAT_INTERVAL="0.15",
        HEARTBEAT_STALE="0.5",
    )
    run.fault()
    # The last node may have nothing but the deadly page, which it gives up: code 6.
    killed = run.finish_by_restarts(at_most=10, codes=(0, 6))
    run.recovered()
    report = run.check(expected, failed=1)
    [record] = run.failed()
    assert (record.reason, record.url) == ("poison", site.url("/d/2-1"))
    assert killed == 6, "once by chance, twice beside other suspects, then three times alone"
    assert all(count <= killed + 1 for count in site.all_hits().values())
    note("14", run, report)


@pytest.mark.faults_full
@pytest.mark.timeout(240)
def test_ten_kills_each_just_after_a_take_over_condemn_no_request(either_url, begin, site, note):
    """The rhythm of a supervisor that restarts what is killed again and again: the same requests would always be hit."""
    expected = serve_pages(site, 40, 20, delay=0.15)
    run = begin(either_url)
    for _ in range(10):
        with run.node() as node:
            run.wait(
                lambda node=node: (
                    any(lease[17:18] > b"0" for lease in run.leases_of(node))
                    or (run.count("z_inflight") and len(run.nodes) == 1)
                ),
                "it has what a dead node held",
            )
            node.kill()
        run.fault()
    fetched = site.total
    last = run.node(SPIDER_THREAD_COUNT="16")
    run.wait(lambda: site.total > fetched, "it fetches")
    run.recovered()
    run.finish(last, timeout=120)
    note("14b", run, run.check(expected, fetched_twice=10 * HELD))


@pytest.mark.parametrize("kills", [(0.2, 0.5, 0.9)])
def test_w1_list_pages_full_of_links_survive_kills(kills, either_url, begin, site, note):
    crawl_with_kills(kills, 40, 20, either_url, begin, site, note)


@pytest.mark.faults_full
@pytest.mark.timeout(400)
def test_w1_8000_of_8000_at_ten_kill_times(either_url, begin, site, note):
    crawl_with_kills(tuple(0.15 + 0.25 * i for i in range(10)), 40, 200, either_url, begin, site, note)


def crawl_with_kills(kills, lists, links, either_url, begin, site, note):
    """A node killed so many seconds after its first fetch, again and again; the last one finishes."""
    expected = {url for url in serve_pages(site, lists, links, delay=0.02) if "/d/" in url}
    source = PAGES.replace("        if int(request.url", "        if 0 and int(request.url")
    # It can't come to its end before the last kill, should that be late.
    gate = Gate(site, after=lists * links * 7 // 8, delay=0.02)
    run = begin(either_url, source, SPIDER_THREAD_COUNT="8", SPIDER_MAX_UNACKED="2000")
    for seconds in kills:
        fetched = site.total
        with run.node() as node:
            run.wait(lambda: site.total > fetched, "it fetches")
            time.sleep(seconds)
            assert node.alive, "killed in the middle of its work"
            node.kill()
        run.fault()
    gate.open()
    fetched = site.total
    last = run.node()
    run.wait(lambda: site.total > fetched, "it fetches")
    run.recovered()
    run.finish(last, timeout=200)
    report = run.check(expected, fetched_twice=len(kills) * 2000)
    assert len(run.stored()) == lists * links
    note("W1", run, report)
