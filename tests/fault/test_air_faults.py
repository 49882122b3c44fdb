"""The rows of the fault table that an AirSpider can meet: one process, its queue in memory, a file to go on from.

The others are about what it doesn't have: a Redis, leases, further nodes. A page that kills its process every time
(row 14) is not counted from one process to the next: what is promised after `kill -9` is that stored rows stay.
"""

from __future__ import annotations

import json
import resource
import time

import pytest
from fault_support import AIR_PAGES, HELD, in_parse, limit_files, slow_store, wait_stands_still

from netspy.testing.faults import serve_pages

pytestmark = [pytest.mark.slow, pytest.mark.fault]

WITHIN = 10.0  # seconds, with the default settings
GO_ON = {"RETRY_FAILED_ON_START": "1"}


def stop(run, node, within=WITHIN):
    """SIGTERM; the result, after it was checked that it came in time and told the truth."""
    node.terminate()
    run.fault()
    [result] = run.finish(node, code=143)
    assert run.recovered() < within
    assert result.summary["outcome"] == "stopped"
    assert "Traceback" not in result.stderr
    return result


@pytest.mark.parametrize(
    "crash_at",
    [
        "after_claim:3",
        "in_fetch:9",
        "after_callback:2",
        "after_children:1",
        "before_store:2",
        "after_store:2",
        "before_ack:3",
        "after_settle:2",
    ],
)
@pytest.mark.faults_full
def test_killed_at_any_step_keeps_what_was_stored_and_the_next_run_completes_it(
    crash_at, begin_air, site, note
):
    expected = serve_pages(site, 20, 5, delay=0.01)
    run = begin_air(LISTS="20")
    run.wait_killed(run.node(crash_at=crash_at))
    stored, before = set(run.stored()), site.total
    again = run.node()
    site.wait_hits(before + 1)
    run.recovered()
    run.finish(again)
    assert stored <= set(run.stored())
    note("1-5", run, run.check(expected, fetched_twice=before))


def test_stopped_half_way_through_the_seeding_it_seeds_on_and_repeats_nothing(begin_air, site, note):
    expected = serve_pages(site)
    run = begin_air()
    node = run.node(SEED_SLEEP="0.2")
    site.wait_hits(60)
    stop(run, node)
    assert not site.hits("/l/39"), "it was still seeding"
    run.finish(run.node(**GO_ON))
    note("7", run, run.check(expected, fetched_twice=0))


def test_killed_while_it_goes_on_from_a_stop_it_loses_nothing_of_what_was_left(begin_air, site, note):
    expected = serve_pages(site, delay=0.02)
    run = begin_air()
    node = run.node()
    site.wait_hits(60)
    stop(run, node)
    for _ in range(2):
        fetched = site.total
        node = run.node(**GO_ON)
        site.wait_hits(fetched + 60)
        node.kill()
        run.fault()
        node.finish(10).check(-9)
    fetched = site.total
    last = run.node(**GO_ON)
    site.wait_hits(fetched + 1)
    run.recovered()
    run.finish(last)
    note("8", run, run.check(expected))


def test_a_full_buffer_and_slow_pages_hold_up_no_stop_and_the_rest_is_kept(begin_air, site, note):
    expected = serve_pages(site, 20, 5, delay=0.6)
    run = begin_air(
        slow_store(AIR_PAGES), LISTS="20", STORE_SLEEP="0.4", ITEM_MAX_CACHED_COUNT="4", ITEM_BATCH_SIZE="2"
    )
    node = run.node()
    site.wait_hits(40)
    stop(run, node)
    kept = len(run.failed())
    assert {record.reason for record in run.failed()} == {"unfinished"}
    [result] = run.finish(run.node(STORE_SLEEP="0", SPIDER_THREAD_COUNT="16", **GO_ON))
    assert result.summary["request_ok"] >= kept
    note("9", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_a_page_that_never_comes_holds_up_no_stop(begin_air, site, note):
    expected = serve_pages(site, 4, 5)
    for n in range(5):
        site.route(f"/d/1-{n}", hang=True)
    run = begin_air(LISTS="4")
    node = run.node()
    run.wait(lambda: site.in_flight >= 4, "every worker waits for a page")
    stop(run, node)
    for n in range(5):
        site.unroute(f"/d/1-{n}")
    run.finish(run.node(**GO_ON))
    note("9", run, run.check(expected, fetched_twice=4))


@pytest.mark.faults_full
def test_back_off_waits_hold_up_no_stop(begin_air, site, note):
    expected = serve_pages(site, 4, 5)
    site.route("/d/", "at last", prefix=True, fail_first=1, fail_status=503)
    run = begin_air(LISTS="4", RETRY_BACKOFF="60", CIRCUIT_FAILURE_THRESHOLD="0")
    node = run.node()
    site.wait_hits(24)
    run.wait(lambda: site.in_flight == 0, "all pages wait for their next try")
    stop(run, node, within=5.0)
    assert len(run.failed()) == 20
    run.finish(run.node(**GO_ON))
    report = run.check(expected, fetched_twice=20)
    note("9", run, report._replace(fetched_twice=report.fetched_twice - 20))


@pytest.mark.faults_full
def test_a_database_that_hangs_holds_up_no_stop_and_no_row_is_lost(begin_air, site, note):
    expected = serve_pages(site, 10, 5)
    run = begin_air(slow_store(AIR_PAGES), LISTS="10")
    node = run.node(STORE_SLEEP="300")
    site.wait_hits(40)
    stop(run, node)
    assert not run.stored()
    run.finish(run.node(STORE_SLEEP="0", **GO_ON))
    note("9", run, run.check(expected, dead_letters=True))


@pytest.mark.faults_full
def test_frozen_for_a_while_it_goes_on_as_if_nothing_had_been(begin_air, site, note):
    expected = serve_pages(site, delay=0.05)
    run = begin_air(SPIDER_TASK_LEASE="1", HEARTBEAT_INTERVAL="0.3", HEARTBEAT_STALE="0.9")
    node = run.node()
    site.wait_hits(40)
    node.pause()
    wait_stands_still(site, 2.0)  # longer than anything that runs out on Redis
    node.cont()
    run.fault()
    fetched = site.total
    site.wait_hits(fetched + 1)
    run.recovered()
    run.finish(node)
    note("11", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_a_blocked_loop_repeats_nothing(begin_air, site, note):
    expected = serve_pages(site, 4, 5)
    source = in_parse('        if request.url.endswith("/d/1-1"):\n            time.sleep(6.5)\n', AIR_PAGES)
    run = begin_air(source.replace("def parse(", "async def parse("), LISTS="4", SPIDER_TASK_LEASE="3")
    run.fault()
    run.finish(run.node())
    run.recovered()
    note("12", run, run.check(expected, fetched_twice=0))


def test_a_callback_that_hangs_for_ever_ends_in_the_failed_list_and_the_run_ends(begin_air, site, note):
    expected = serve_pages(site, 4, 5) - {site.url("/d/1-1")}
    source = in_parse('        if request.url.endswith("/d/1-1"):\n            time.sleep(3600)\n', AIR_PAGES)
    # Loaded beforehand: the first callback to look for a link would load it within its time.
    source = "import parsel\nparsel.Selector('<a>').css('a')\n" + source
    run = begin_air(source, LISTS="4", SPIDER_TASK_MAX_SECONDS="2", SPIDER_MAX_RETRY_TIMES="1")
    run.fault()
    [result] = run.finish(run.node())
    run.recovered()
    assert result.summary["request_failed"] == 1
    [record] = run.failed()
    assert (record.reason, record.url) == ("CallbackTimeoutError", site.url("/d/1-1"))
    note("13", run, run.check(expected, failed=1, fetched_twice=1))


@pytest.mark.faults_full
def test_records_that_nobody_can_read_cost_only_themselves(begin_air, site, note):
    expected = serve_pages(site, 20, 5, delay=0.02)
    run = begin_air(LISTS="20")
    node = run.node()
    site.wait_hits(30)
    stop(run, node)
    kept = run.folder / "failed_requests.jsonl"
    future = json.dumps({"v": 99, "request": {"u": "http://from.the.future/"}}).encode()
    junk = b"\x80\x04\x95junk\n" + future + b"\n" + b"x" * 2000 + b"\n"
    kept.write_bytes(junk + kept.read_bytes() + b'{"torn": ')
    run.fault()
    fetched = site.total
    last = run.node(**GO_ON)
    site.wait_hits(fetched + 1)
    run.recovered()
    [result] = run.finish(last)
    assert "3 record(s)" in result.stderr
    # What can't be read stays where its owner finds it.
    note("15", run, run.check(expected, fetched_twice=0, keys_empty=False))


@pytest.mark.faults_full
@pytest.mark.parametrize("shift", [3600, -3600])
def test_a_clock_that_is_an_hour_wrong_has_no_effect(shift, begin_air, site, note):
    expected = serve_pages(site, 20, 5, delay=0.02)
    site.route("/d/4-1", "at last", fail_first=1, fail_status=503)
    run = begin_air(LISTS="20")
    node = run.node(clock_shift=shift)
    site.wait_hits(30)
    stop(run, node)
    run.finish(run.node(clock_shift=-shift, **GO_ON))
    report = run.check(expected, fetched_twice=1)
    assert site.hits("/d/4-1") == 2, "the one repeat is the page that answered 503 at first"
    note("29", run, report._replace(fetched_twice=0, seconds=None))


@pytest.mark.faults_full
def test_a_store_slower_than_the_crawl_slows_it_and_repeats_nothing(begin_air, site, note):
    expected = serve_pages(site, 20, 8)
    run = begin_air(slow_store(AIR_PAGES), LISTS="20", SPIDER_TASK_LEASE="1", STORE_SLEEP="1.5")
    node = run.node()
    ahead = [0]

    def ended() -> bool:
        ahead[0] = max(ahead[0], site.total - len(run.stored()))
        return not node.alive

    run.wait(ended, "the node has ended", 90)
    run.finish(node)
    # Ten of the lists give no row.
    assert HELD - 20 < ahead[0] <= 2 * HELD + 10
    note("31", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_on_a_full_disk_nothing_is_fetched_until_there_is_room(begin_air, site, note):
    expected = serve_pages(site, 20, 10, delay=0.02)
    run = begin_air(LISTS="20", ITEM_RETRY_TIMES="1", ITEM_RETRY_BACKOFF="0.05")
    node = run.node()
    site.wait_hits(60)
    limit_files(node, 1)
    node.wait_line("stores nothing at the moment")
    wait_stands_still(site)
    assert site.total < 200
    stored = len(run.stored())
    limit_files(node, resource.RLIM_INFINITY)
    run.fault()
    run.wait(lambda: len(run.stored()) > stored, "rows are stored again", 40)
    run.recovered()
    [result] = run.finish(node)
    assert result.summary["item_failed"] == 0
    note("35", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_torn_by_a_crash_is_cut(cut, begin_air, site, note):
    expected = serve_pages(site, 10, 5)
    run = begin_air(LISTS="10")
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
    note("36", run, run.check(expected))


@pytest.mark.faults_full
def test_restarted_again_and_again_it_repeats_nothing(begin_air, site, note):
    expected = serve_pages(site, delay=0.02)
    run = begin_air()
    node = run.node()
    for _ in range(4):
        fetched = site.total
        site.wait_hits(fetched + 60)
        stop(run, node)
        node = run.node(**GO_ON)
    run.finish(node)
    note("42", run, run.check(expected, fetched_twice=0))


def test_it_does_not_end_while_the_last_request_may_still_yield_another(begin_air, site, note):
    expected = serve_pages(site, 2, 1) | {site.url("/d/late")}
    source = in_parse(
        '        if request.url.endswith("/d/1-0"):\n            time.sleep(2.5)\n'
        '            yield response.follow("/d/late")\n',
        AIR_PAGES,
    )
    run = begin_air(source, LISTS="2")
    node = run.node()
    site.wait_hits(1, path="/d/1-0")
    run.fault()
    site.wait_hits(1, path="/d/late")
    run.recovered()
    run.finish(node)
    note("43", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
@pytest.mark.timeout(300)
def test_w1_8000_of_8000_when_stopped_at_ten_different_times(begin_air, site, note):
    expected = {url for url in serve_pages(site, 40, 200, delay=0.02) if "/d/" in url}
    source = AIR_PAGES.replace("        if int(request.url", "        if 0 and int(request.url")
    run = begin_air(source, SPIDER_THREAD_COUNT="8")
    for number in range(10):
        fetched = site.total
        node = run.node(**(GO_ON if number else {}))
        site.wait_hits(fetched + 1)
        time.sleep(0.15 + 0.25 * number)  # another time at each stop
        stop(run, node)
    run.finish(run.node(**GO_ON), timeout=200)
    report = run.check(expected, fetched_twice=0)
    assert len(run.stored()) == 8000
    note("W1", run, report)
