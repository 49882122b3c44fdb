"""Rows 12, 13, 15, 29, 31, 35, 36, 41–43 of the fault table: slow parts, wrong clocks, full disks, comings and goings."""

from __future__ import annotations

import resource
from datetime import UTC, datetime, timedelta

import pytest
from fault_support import HELD, in_parse, limit_files, slow_store, wait_stands_still

from netspy.testing.faults import serve_pages
from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.faults_full]

PATIENT = "20"
"""HEARTBEAT_STALE where nobody dies: a busy machine may keep a node from its heartbeat for longer than 1.5 s."""


def test_a_loop_blocked_longer_than_the_lease_keeps_it_and_the_callback_is_named(
    either_url, begin, site, note
):
    expected = serve_pages(site, 4, 5)
    source = in_parse('        if request.url.endswith("/d/1-1"):\n            time.sleep(6.5)\n').replace(
        "def parse(", "async def parse("
    )
    # Between the busy machine, which may hold up a heartbeat, and the blocked loop, which must not.
    run = begin(either_url, source, LISTS="4", SPIDER_TASK_LEASE="3", HEARTBEAT_STALE="4")
    run.fault()
    nodes = [run.node(), run.node()]
    results = run.finish(*nodes)
    run.recovered()
    assert any(
        "Pages.parse" in line
        for result in results
        for line in result.stderr.splitlines()
        if "blocked" in line
    )
    # A claim under way when the loop stopped lapses unread and unstarted: that moves requests, and repeats none.
    note("12", run, run.check(expected, fetched_twice=0))


def test_a_callback_that_hangs_for_ever_ends_in_the_failed_list_and_the_run_ends(
    either_url, begin, site, note
):
    expected = serve_pages(site, 4, 5) - {site.url("/d/1-1")}
    source = in_parse('        if request.url.endswith("/d/1-1"):\n            time.sleep(3600)\n')
    run = begin(either_url, source, LISTS="4", SPIDER_TASK_MAX_SECONDS="3", SPIDER_MAX_RETRY_TIMES="1")
    run.fault()
    [result] = run.finish(run.node())
    run.recovered()
    assert result.summary["request_failed"] == 1
    [record] = run.failed()
    assert (record.reason, record.url) == ("CallbackTimeoutError", site.url("/d/1-1"))
    report = run.check(expected, failed=1, fetched_twice=1)
    note("13", run, report)


def test_entries_that_nobody_can_read_are_moved_aside_and_the_node_lives(either_url, begin, site, note):
    expected = serve_pages(site, 10, 5, delay=0.02)
    gate = Gate(site, after=5, delay=0.02)
    run = begin(either_url, LISTS="10")
    node = run.node()
    site.wait_hits(5)
    run.fault()
    planted = {
        b"\x80\x04\x95junk": 1,
        b'0000000000000019900aaaaaaaa{"v":2,"u":"http://from.the.future/"}'[:15]
        + b'000aaaaaaaa{"v":2,"u":"http://future/"}': 2,
        b"v9:" + b"x" * 2000: 3,
    }
    run.client.zadd("netspy:Pages:z_requests", planted)
    gate.open()
    run.wait(lambda: run.count("failed_requests") == 3, "all three are in the failed list")
    run.recovered()
    run.finish(node)
    assert {record.reason for record in run.failed()} == {"unreadable"}
    note("15", run, run.check(expected, failed=3, fetched_twice=0))


def test_clocks_that_are_an_hour_wrong_have_no_effect(either_url, begin, site, note):
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=60, delay=0.05)
    run = begin(either_url, SPIDER_TASK_LEASE="2", SEED_SLEEP="0.02", HEARTBEAT_STALE=PATIENT)
    ahead, behind, right = run.node(clock_shift=3600), run.node(clock_shift=-3600), run.node()
    site.wait_hits(60)
    run.wait(lambda: all(run.leases_of(node) for node in (ahead, behind, right)), "all three have work")
    gate.open()
    results = run.finish(ahead, behind, right)
    now = datetime.now(UTC)
    told = [datetime.fromisoformat(result.summary["started"]) - now for result in results]
    assert told[0] > timedelta(minutes=50), "the clock was ahead"
    assert told[1] < timedelta(minutes=-50), "the clock was behind"
    assert [result.summary["lease_lost"] for result in results] == [0, 0, 0]
    report = run.check(expected, fetched_twice=0)
    note("29", run, report)
    note("W23", run, report)


def test_batches_that_take_longer_than_the_lease_repeat_nothing_and_little_is_held(
    either_url, begin, site, note
):
    expected = serve_pages(site, 20, 8)
    run = begin(
        either_url,
        slow_store(),
        LISTS="20",
        SPIDER_TASK_LEASE="1",
        STORE_SLEEP="2.5",
        HEARTBEAT_STALE=PATIENT,
    )
    nodes = [run.node(), run.node()]
    most = [0]

    def all_ended() -> bool:
        most[0] = max(most[0], run.count("z_inflight"))
        return not any(node.alive for node in nodes)

    run.wait(all_ended, "both nodes have ended", 90)
    results = run.finish(*nodes)
    assert [result.summary["lease_lost"] for result in results] == [0, 0]
    assert HELD < most[0] <= 2 * HELD
    note("31", run, run.check(expected, fetched_twice=0))


@pytest.mark.parametrize(
    ("patience", "told"),
    [("2700", "stores nothing at the moment"), ("0", "not even as dead letters")],
    ids=["stores are waited for", "no dead letters either"],
)
def test_on_a_full_disk_nothing_is_acked_and_nothing_claimed_until_there_is_room(
    patience, told, either_url, begin, site, note
):
    expected = serve_pages(site, 20, 10, delay=0.02)
    gate = Gate(site, after=60, delay=0.02)
    run = begin(
        either_url, LISTS="20", ITEM_RETRY_TIMES="1", ITEM_RETRY_BACKOFF="0.05", ITEM_STORE_PATIENCE=patience
    )
    node = run.node()
    site.wait_hits(60)
    limit_files(node, 1)
    gate.open()
    node.wait_line(told)
    run.wait(lambda: site.in_flight == 0 and run.count("z_inflight") >= 4, "the running pages have ended")
    wait_stands_still(site)  # no claim and no fetch from now on
    assert site.total < 200
    stored = len(run.stored())
    assert run.count("z_inflight") > 0, "their pages are not acked"
    limit_files(node, resource.RLIM_INFINITY)
    run.fault()
    run.wait(lambda: len(run.stored()) > stored, "rows are stored again", 40)
    run.recovered()
    [result] = run.finish(node)
    waited = patience != "0"
    if waited:
        assert result.summary["item_failed"] == 0
        assert not run.dead_letters()
    # Without patience, what was being given up when there was room again is in the file of dead letters.
    note("35", run, run.check(expected, fetched_twice=0, dead_letters=not waited))


@pytest.mark.parametrize("cut", [1, 17, 40])
def test_a_line_torn_by_a_crash_is_cut_and_its_page_crawled_again(cut, either_url, begin, site, note):
    expected = serve_pages(site, 10, 5)
    run = begin(either_url, LISTS="10")
    run.wait_killed(run.node(crash_at="after_store:2"))
    lines = run.folder / "lines" / "page.jsonl"
    whole = lines.read_bytes()
    lines.write_bytes(whole[:-cut])
    run.fault()
    last = run.node()
    run.wait(lambda: lines.stat().st_size > len(whole), "the file grows again")
    run.recovered()
    run.finish(last)
    assert lines.read_bytes().endswith(b"}\n")
    note("36", run, run.check(expected, fetched_twice=HELD))


@pytest.mark.timeout(240)
def test_twenty_nodes_starting_together_share_the_work_and_none_leaves_during_a_slow_seeding(
    either_url, begin, site, note
):
    expected = serve_pages(site, 60, 10, delay=0.1)
    gate = Gate(site, delay=0.1)
    run = begin(
        either_url, LISTS="60", SEED_SLEEP="0.25", SPIDER_THREAD_COUNT="2", HEARTBEAT_INTERVAL="2", HEARTBEAT_STALE="30",
        SPIDER_SEEDING_TTL="30", SPIDER_STARTUP_GRACE="1", REQUEST_TIMEOUT="120",
    )  # fmt: skip
    nodes = [run.node() for _ in range(20)]
    run.wait(lambda: run.client.zcard("netspy:Pages:beats") == 20, "all are there", 100)
    gate.open()
    run.wait(lambda: site.hits("/l/59"), "the last seed is fetched", 150)
    early = [node.pid for node in nodes if not node.alive]
    assert early == [], "left while another node was seeding"
    results = run.finish(*nodes, timeout=90)
    done = [result.summary["request_ok"] for result in results]
    assert sum(done) == 660
    assert sum(n > 0 for n in done) >= 15
    assert max(done) < 660 / 3
    note("41", run, run.check(expected, fetched_twice=0))


def test_a_rolling_restart_of_all_nodes_repeats_nothing(either_url, begin, site, note):
    expected = serve_pages(site, 80, 15, delay=0.1)
    run = begin(
        either_url, LISTS="80", SPIDER_THREAD_COUNT="2", SPIDER_STARTUP_GRACE="20", HEARTBEAT_STALE=PATIENT
    )
    nodes = [run.node() for _ in range(3)]
    site.wait_hits(30)
    for old in nodes:
        new = run.node()
        run.wait(lambda new=new: run.leases_of(new), "the new node has work")
        old.terminate()
        run.fault()
        run.finish(old, code=143)
        run.recovered()
    run.finish(*run.nodes[len(nodes) :])
    note("42", run, run.check(expected, fetched_twice=0))


def test_nobody_leaves_while_the_last_request_may_still_yield_another(either_url, begin, site, note):
    expected = serve_pages(site, 2, 1) | {site.url("/d/late")}
    late = Gate(site, "/d/late")
    source = in_parse(
        '        if request.url.endswith("/d/1-0"):\n            time.sleep(2.5)\n'
        '            yield response.follow("/d/late")\n'
    )
    run = begin(either_url, source, LISTS="2", SPIDER_STARTUP_GRACE="0.5", HEARTBEAT_STALE=PATIENT)
    nodes = [run.node() for _ in range(3)]
    site.wait_hits(1, path="/d/1-0")
    run.fault()
    site.wait_hits(1, path="/d/late")
    assert all(node.alive for node in nodes)
    late.open()
    run.recovered()
    run.finish(*nodes)
    note("43", run, run.check(expected, fetched_twice=0))


def test_w3_200_of_200_beside_a_node_that_stays_alive_under_a_lease_of_4_seconds(
    either_url, begin, site, note
):
    expected = serve_pages(site, 16, 12, delay=0.05)
    assert len(expected) == 200
    gate = Gate(site, after=40, delay=0.05)
    run = begin(either_url, LISTS="16", SPIDER_KEEP_ALIVE="1", SPIDER_TASK_LEASE="4")
    victim, survivor = run.node(), run.node()
    site.wait_hits(40)
    run.wait(lambda: run.leases_of(victim) and run.leases_of(survivor), "both nodes have work")
    victim.kill()
    run.fault()
    gate.open()
    run.wait_taken_over(victim)
    run.wait(lambda: set(run.stored()) == expected, "everything is stored")
    run.wait(lambda: not run.count("z_inflight"), "everything is acked")
    survivor.terminate()
    run.finish(survivor, code=143)
    note("W3", run, run.check(expected, fetched_twice=HELD))
