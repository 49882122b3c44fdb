"""Row 9 of the fault table: SIGTERM ends a node within ten seconds whatever holds it up, and nothing is lost by it."""

from __future__ import annotations

import pytest
from fault_support import slow_store

from netspy.testing.faults import serve_pages

pytestmark = [pytest.mark.slow, pytest.mark.fault]

WITHIN = 10.0  # seconds, with the default settings


def stopped(run, script, within=WITHIN):
    """SIGTERM; the result, after it was checked that it came in time and told the truth."""
    script.terminate()
    run.fault()
    [result] = run.finish(script, code=143)
    assert run.recovered() < within
    assert result.summary["outcome"] == "stopped"
    assert "Traceback" not in result.stderr
    return result


def test_unstarted_requests_go_back_at_once_and_running_ones_end(either_url, begin, site, note):
    """A full item buffer and slow pages at the same time."""
    serve_pages(site, 20, 25, delay=0.6)
    run = begin(
        either_url,
        slow_store(),
        LISTS="20",
        STORE_SLEEP="1",
        ITEM_MAX_CACHED_COUNT="4",
        ITEM_BATCH_SIZE="2",
        COLLECTOR_TASK_COUNT="40",
    )
    node = run.node()
    run.wait(lambda: run.count("z_inflight") >= 30, "much is leased that four workers haven't started")
    node.terminate()
    run.fault()
    # What has not been started: back within moments, while rows of what has still wait for the database.
    run.wait(lambda: run.count("z_inflight") <= 4 + 4 + 2, "what was not started is queued again")
    stored = run.stored().total()
    run.finish(node, code=143)
    assert run.recovered() < WITHIN
    assert run.stored().total() > stored, "rows of what had been started waited for the database meanwhile"
    assert run.count("z_inflight") == 0
    expected = serve_pages(site, 20, 25)
    run.finish(run.node(STORE_SLEEP="0", SPIDER_THREAD_COUNT="16"))
    note("9", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_a_page_that_never_comes_holds_up_no_stop(either_url, begin, site, note):
    expected = serve_pages(site, 4, 5)
    for n in range(5):
        site.route(f"/d/1-{n}", hang=True)
    run = begin(either_url, LISTS="4")
    node = run.node()
    site.wait_hits(4 + 4)
    run.wait(lambda: site.in_flight >= 4, "every worker waits for a page")
    stopped(run, node)
    for n in range(5):
        site.unroute(f"/d/1-{n}")
    run.finish(run.node())
    note("9", run, run.check(expected, fetched_twice=4))


@pytest.mark.faults_full
def test_back_off_waits_hold_up_no_stop(either_url, begin, site, note):
    expected = serve_pages(site, 4, 5)
    site.route("/d/", "at last", prefix=True, fail_first=1, fail_status=503)
    run = begin(either_url, LISTS="4", RETRY_BACKOFF="60", CIRCUIT_FAILURE_THRESHOLD="0")
    node = run.node()
    run.wait(lambda: run.count("z_delayed") == 20, "all pages wait for their next try")
    stopped(run, node, within=5.0)
    assert run.count("z_delayed") == 20
    for member, _ in run.client.zrange("netspy:Pages:z_delayed", 0, -1, withscores=True):
        run.client.zadd("netspy:Pages:z_delayed", {member: 1})
    run.finish(run.node())
    report = run.check(expected, fetched_twice=20)
    note("9", run, report._replace(fetched_twice=report.fetched_twice - 20))


@pytest.mark.faults_full
def test_a_database_that_hangs_holds_up_no_stop_and_no_row_is_lost(either_url, begin, site, note):
    expected = serve_pages(site, 10, 5)
    run = begin(either_url, slow_store(), LISTS="10")
    node = run.node(STORE_SLEEP="300")
    site.wait_hits(40)
    stopped(run, node)
    assert not run.stored()
    run.finish(run.node(STORE_SLEEP="0"))
    # Its last batch could not be stored in time and is in the file of dead letters, for `netspy retry --items`.
    note("9", run, run.check(expected, dead_letters=True))


@pytest.mark.faults_full
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_redis_that_is_away_holds_up_no_stop(how, either_binary, own_server, begin, site, note):
    server = own_server(either_binary, appendfsync="always")
    expected = serve_pages(site, 20, 5, delay=0.05)
    run = begin(server.url, LISTS="20")
    node = run.node()
    site.wait_hits(40)
    (server.kill if how == "killed" else server.pause)()
    if how == "killed":
        node.wait_line("away")
    stopped(run, node)
    (server.start if how == "killed" else server.resume)()
    run.finish(run.node())
    note("9", run, run.check(expected, fetched_twice=50))
