"""Rows 10, 11, 16–21, 24, 25 and 27 of the fault table: frozen nodes, and a Redis that is away, full or forgetful."""

from __future__ import annotations

import time

import pytest
from fault_support import held_store

from netspy.frontier.redis.calls import script
from netspy.testing.children import wait_until
from netspy.testing.faults import FaultReport, check_last_line, serve_pages
from netspy.testing.proxy import FaultProxy
from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault]

HELD = 50  # SPIDER_MAX_UNACKED of these runs
STALE = 3.0
"""HEARTBEAT_STALE where a node is taken for dead: the other's own heartbeats must come within half of it meanwhile."""
SLACK = 6.0  # seconds; the machine may be busy


def wait_for_more(run, site, pages=1):
    """Wait until further pages are fetched."""
    fetched = site.total
    run.wait(lambda: site.total >= fetched + pages, f"{pages} more pages are fetched")


def let_pass(seconds):
    """An outage that has to last."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, seconds + 1, step=0.05)


def port_of(url):
    return int(url.rpartition(":")[2].partition("/")[0])


def both_work(run, first, second):
    run.wait(lambda: run.leases_of(first) and run.leases_of(second), "both nodes have work")


def test_a_node_frozen_longer_than_its_lease_breaks_nothing_when_it_wakes(either_url, begin, site, note):
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=40, delay=0.05)
    run = begin(either_url, SPIDER_TASK_LEASE="2", HEARTBEAT_STALE=str(STALE))
    sleeper, worker = run.node(), run.node()
    site.wait_hits(40)
    both_work(run, sleeper, worker)
    sleeper.pause()
    run.fault()
    gate.open()
    assert run.wait_taken_over(sleeper) < STALE + SLACK
    sleeper.cont()
    run.finish(sleeper, worker)
    note("10", run, run.check(expected, fetched_twice=HELD))


def test_a_short_freeze_of_a_healthy_node_repeats_nothing(either_url, begin, site, note):
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=40, delay=0.05)
    run = begin(either_url, HEARTBEAT_STALE="20")
    sleeper, worker = run.node(), run.node()
    site.wait_hits(40)
    both_work(run, sleeper, worker)
    sleeper.pause()
    run.fault()
    gate.open()
    wait_for_more(run, site, 30)
    sleeper.cont()
    run.recovered()
    run.finish(sleeper, worker)
    note("11", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_healthy_nodes_whose_pages_take_longer_than_the_lease_repeat_nothing(either_url, begin, site, note):
    lease = 1.0
    expected = serve_pages(site, 4, 6, delay=2.2 * lease)
    run = begin(either_url, LISTS="4", SPIDER_TASK_LEASE=str(lease), HEARTBEAT_STALE="20")
    nodes = [run.node(), run.node()]
    results = run.finish(*nodes)
    assert [result.summary["lease_lost"] for result in results] == [0, 0]
    assert sum(result.summary["reclaimed"] for result in results) == 0
    note("11", run, run.check(expected, fetched_twice=0))


def test_redis_killed_and_back_with_its_append_only_file_loses_nothing(
    either_binary, own_server, begin, site, note
):
    server = own_server(either_binary, appendfsync="everysec")
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=60, delay=0.05)
    run = begin(server.url, SEED_SLEEP="0.02")
    nodes = [run.node(), run.node()]
    site.wait_hits(60)
    server.kill()
    gate.open()
    server.start()
    run.fault()
    wait_for_more(run, site)
    run.recovered()
    run.finish(*nodes)
    note("16", run, run.check(expected, fetched_twice=2 * HELD))


@pytest.mark.faults_full
@pytest.mark.parametrize("seed_sleep", ["0", "0.05"], ids=["seeded", "seeding"])
def test_redis_back_with_an_old_snapshot_crawls_again_what_came_after_it(
    seed_sleep, either_binary, own_server, begin, site, note
):
    server = own_server(either_binary, save="3600 1000000")
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=150, delay=0.05)
    run = begin(server.url, SEED_SLEEP=seed_sleep)
    nodes = [run.node(), run.node()]
    site.wait_hits(40)
    at_snapshot = site.total
    run.client.save()
    site.wait_hits(120)
    server.kill()
    since = site.total - at_snapshot
    gate.open()
    server.start()
    run.fault()
    wait_for_more(run, site)
    run.recovered()
    run.finish(*nodes)
    assert any("Redis keeps only snapshots" in node.stderr for node in nodes)
    note("17", run, run.check(expected, fetched_twice=since + 2 * HELD))


@pytest.mark.faults_full
def test_a_page_is_not_acked_when_redis_has_forgotten_the_links_that_it_led_to(
    either_binary, own_server, begin, site, note
):
    """The snapshot knows of the page and not of its links, which were put while its row waited for the database."""
    server = own_server(either_binary, save="3600 1000000")

    def ten_links(request):
        return "".join(f'<a href="{request.path.replace("/l/", "/d/")}-{i}">x</a>' for i in range(10))

    expected = serve_pages(site, 4, 10)
    lists = Gate(site, "/l/", body=ten_links)
    run = begin(server.url, held_store(), LISTS="4")
    node = run.node()
    run.wait(lambda: run.count("z_inflight") == 4, "all lists are leased")
    run.wait(lambda: run.client.get("netspy:Pages:lock:seed").startswith(b"seeded"), "the seeding is over")
    run.client.save()
    lists.open()
    run.wait(
        lambda: run.count("z_requests") + run.count("z_inflight") == 42,
        "all links are there, and two lists whose rows wait for the database",
    )
    server.kill()
    server.start()
    run.fault()
    assert run.count("z_requests") + run.count("z_inflight") == 4, "the links are forgotten"
    (run.folder / "there").touch()
    wait_for_more(run, site)
    run.recovered()
    run.finish(node)
    note("17", run, run.check(expected, fetched_twice=4 + 40))


@pytest.mark.faults_full
def test_redis_back_with_nothing_is_a_loud_failure_and_never_finished(
    either_binary, own_server, begin, site, note
):
    server = own_server(either_binary)
    serve_pages(site, delay=0.05)
    gate = Gate(site, after=60, delay=0.05)
    run = begin(server.url)
    nodes = [run.node(), run.node()]
    site.wait_hits(60)
    server.kill()
    gate.open()
    server.start()
    run.fault()
    results = run.finish(*nodes, code=5)
    seconds = run.recovered()
    for result in results:
        assert result.summary["outcome"] == "store_lost"
        assert "gone" in result.summary["reason"] or "no longer holds" in result.summary["reason"]
        assert "Traceback" not in result.stderr
        assert "Redis keeps nothing on disk" in result.stderr
        check_last_line(result)
    assert not any(run.count(name) for name in ("z_requests", "z_inflight", "z_delayed", "failed_requests"))
    # What was stored stays (of a batch under way it may be in one sink only); the rest of the run is gone, which is what
    # the exit code says.
    stored, written, hits = run.stored(), run.written(), site.all_hits()
    twice = [count.total() - len(count) for count in (stored, written)]
    assert twice[0] == 0
    again = sum(hits.values()) - len(hits)
    note("18", run, FaultReport(420 - len(stored), again, *twice, seconds))


@pytest.mark.faults_full
def test_an_outage_with_all_nodes_healthy_moves_no_lease_and_floods_no_log(
    either_binary, own_server, begin, site, note
):
    """The two minutes of the table in proportion: three times the time after which a silent node is dead."""
    server = own_server(either_binary, appendfsync="always")
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=60, delay=0.05)
    run = begin(server.url, SPIDER_TASK_LEASE="600")
    nodes = [run.node(), run.node()]
    site.wait_hits(60)
    server.stop()
    gate.open()
    for node in nodes:
        node.wait_line("away")
    let_pass(3 * 1.5)
    server.start()
    run.fault()
    wait_for_more(run, site)
    run.recovered()
    results = run.finish(*nodes)
    # A node itself gives back a page whose links it had put before the restart: the new server might lack them.
    report = run.check(expected, fetched_twice=sum(result.summary["released"] for result in results))
    for result in results:
        assert result.summary["lease_lost"] == 0
        assert "Traceback" not in result.stderr
        assert sum(" WARNING " in line or " ERROR " in line for line in result.stderr.splitlines()) <= 4
    note("19", run, report)


@pytest.mark.faults_full
def test_a_redis_that_is_down_at_the_start_is_one_clear_error_after_a_set_time(
    either_binary, own_server, begin, site, note
):
    server = own_server(either_binary, password="secret")
    serve_pages(site)
    run = begin(server.url, REDIS_START_TIMEOUT="1.5")
    server.kill()
    at_once = run.node(REDIS_START_TIMEOUT="0").finish()  # what Python itself takes here
    result = run.node().finish()
    assert 1.5 < result.seconds < at_once.seconds + 1.5 + SLACK
    assert result.returncode == 5
    assert "Traceback" not in result.stderr
    assert "secret" not in result.stdout + result.stderr
    assert len([line for line in result.stderr.splitlines() if "Redis" in line]) <= 2
    assert site.total == 0
    run.ended.append(result)
    server.start()
    note("20", run, run.check(set()))


LOST_REPLIES = {
    "claim": [script("claim").sha.encode()],
    "enqueue": [script("put").sha.encode()],
    "ack": [script("settle").sha.encode()],
    "give_up": [b"\r\ngive_up\r\n"],
    "delay": [b"\r\ndelay\r\n"],
}


@pytest.mark.parametrize("call", sorted(LOST_REPLIES))
def test_a_reply_that_is_lost_after_the_call_was_carried_out_repeats_and_orphans_nothing(
    call, either_url, begin, site, note
):
    expected = serve_pages(site, 20, 5)
    site.route("/d/3-1", "not here", status=404)
    site.route("/d/4-1", "at last", fail_first=1, fail_status=503)
    with FaultProxy("127.0.0.1", port_of(either_url)) as proxy:
        run = begin(either_url, LISTS="20", SEED_SLEEP="0.01")
        for wanted in LOST_REPLIES[call]:
            for _ in range(1 if call in ("give_up", "delay") else 3):
                proxy.drop_next_reply(wanted)
        run.fault()
        node = run.node(redis_url=proxy.redis_url())
        proxy.wait_dropped()
        run.recovered()
        [result] = run.finish(node)
        assert proxy.dropped >= (1 if call in ("give_up", "delay") else 2)
    report = run.check(expected - {site.url("/d/3-1")}, failed=1, fetched_twice=1)
    assert site.hits("/d/4-1") == 2, "the one repeat is the page that answered 503 at first"
    assert result.summary["request_failed"] == 1
    assert result.summary["lease_lost"] == 0
    note("21", run, report._replace(fetched_twice=report.fetched_twice - 1))


def test_a_lost_reply_to_a_release_neither_orphans_nor_doubles(either_url, begin, site, note):
    expected = serve_pages(site, 20, 5, delay=0.1)
    gate = Gate(site, after=40, delay=0.1)
    with FaultProxy("127.0.0.1", port_of(either_url)) as proxy:
        run = begin(either_url, LISTS="20")
        first = run.node(redis_url=proxy.redis_url())
        site.wait_hits(40)
        run.wait(lambda: site.in_flight == 4 and run.count("z_inflight") > 4, "some wait for their turn")
        proxy.drop_next_reply(b"\r\nrelease\r\n")
        first.terminate()
        run.fault()
        gate.open()
        proxy.wait_dropped()
        run.recovered()
        run.finish(first, code=143)
    assert run.count("z_inflight") == 0
    run.finish(run.node())
    note("21", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_a_full_redis_makes_enqueueing_wait_while_leases_live_on(
    either_binary, own_server, begin, site, note
):
    server = own_server(either_binary, appendfsync="everysec")
    expected = serve_pages(site, 40, 10, delay=0.05)
    gate = Gate(site, after=30, delay=0.05)
    run = begin(server.url, SPIDER_TASK_LEASE="2", SEED_SLEEP="0.05", HEARTBEAT_STALE="20")
    nodes = [run.node(), run.node()]
    site.wait_hits(30)
    run.client.set("ballast", "x" * 11_000_000)
    run.client.config_set("maxmemory", "6mb")
    run.fault()
    gate.open()
    run.wait(
        lambda: any("memory" in node.stderr.lower() for node in nodes), "a node tells of the full memory"
    )
    let_pass(3.0)  # longer than a lease
    assert all(node.alive for node in nodes)
    run.client.delete("ballast")
    run.client.config_set("maxmemory", "0")
    run.fault()
    wait_for_more(run, site)
    run.recovered()
    results = run.finish(*nodes)
    assert [result.summary["lease_lost"] for result in results] == [0, 0]
    assert sum(result.summary["alerts"] for result in results) >= 1
    note("24", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_an_evicting_redis_is_warned_of_at_the_start(either_binary, own_server, begin, site, note):
    server = own_server(either_binary, maxmemory="200mb", policy="allkeys-lru", appendfsync="everysec")
    expected = serve_pages(site, 4, 2)
    run = begin(server.url, LISTS="4")
    [result] = run.finish(run.node())
    [warning] = [line for line in result.stderr.splitlines() if "evict" in line]
    assert "maxmemory-policy allkeys-lru" in warning
    assert "noeviction" in warning
    note("25", run, run.check(expected, fetched_twice=0))


def test_a_node_cut_off_from_redis_but_not_from_the_web_stops_fetching_and_others_take_over(
    either_url, begin, site, note
):
    lease = 2.0
    expected = serve_pages(site, 20, 25, delay=0.2)
    # The queue stays long until both have their part.
    gate = Gate(site, delay=0.2, holds=lambda request: request.headers["user-agent"] != "cut off")
    with FaultProxy("127.0.0.1", port_of(either_url)) as proxy:
        # A full claim is twice what one worker fetches during a lease.
        run = begin(
            either_url,
            LISTS="20",
            SPIDER_TASK_LEASE=str(lease),
            COLLECTOR_TASK_COUNT="20",
            HEARTBEAT_STALE=str(STALE),
        )
        cut_off = run.node(redis_url=proxy.redis_url(), USER_AGENT="cut off", SPIDER_THREAD_COUNT="1")
        worker = run.node(SPIDER_THREAD_COUNT="12")
        run.wait(lambda: len(run.leases_of(cut_off)) >= 18 and run.leases_of(worker), "both have much to do")
        proxy.cut()
        cut_at = time.monotonic()
        gate.open()
        run.fault()
        assert run.wait_taken_over(cut_off) < STALE + SLACK
        run.finish(worker)
        by_the_cut_off = [hit.time - cut_at for hit in site.log if hit.headers["user-agent"] == "cut off"]
        assert max(by_the_cut_off) < lease + 0.5, "it trusted a lease longer than it lasts"
        proxy.resume()
        run.finish(cut_off)
    note("27", run, run.check(expected, fetched_twice=HELD))
