"""Ways to lose work that crawling frameworks are known for, each with the figures with which it was seen.

W1 is in test_kills.py, W3 and W23 (clocks of nodes, row 29) are in test_slow_and_wrong.py, W13, W14 and W15 in test_yields.py,
those of tasks and batches in test_task_faults.py and test_batch_faults.py.
"""

from __future__ import annotations

import sys
import time

import pytest
from fault_support import AIR_PAGES, HELD, PAGES, SEEDS, held_store, in_parse, serve_seeds

from netspy.testing.children import wait_until
from netspy.testing.faults import serve_pages
from netspy.testing.runner import run_command
from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault]

DEFAULTS = {
    "HEARTBEAT_INTERVAL": "3", "HEARTBEAT_STALE": "15", "SPIDER_SEEDING_TTL": "15", "SPIDER_STARTUP_GRACE": "30",
    "DONE_CHECK_INTERVAL": "2",
}  # fmt: skip
"""Without the haste of the other tests."""


@pytest.mark.faults_full
def test_w6_300_of_300_seeds_when_the_seeder_is_killed_after_3_seconds(either_url, begin, site, note):
    expected = serve_seeds(site, 300)
    run = begin(either_url, SEEDS, LISTS="300", SEED_SLEEP="0.02")
    seeder = run.node()
    site.wait_hits(1)
    time.sleep(3.0)  # the figure
    seeder.kill()
    run.fault()
    assert run.client.get("netspy:Pages:lock:seed").startswith(b"seeding "), "it had more to seed"
    fetched = site.total
    heir = run.node()
    site.wait_hits(fetched + 1)
    assert run.recovered() < 1.5 + 6.0
    run.finish(heir)
    assert len(run.stored()) == 300
    note("W6", run, run.check(expected, fetched_twice=HELD))


def test_w6_30_of_30_when_start_requests_raises_and_is_mended(either_url, begin, site, note):
    expected = serve_seeds(site, 30)
    broken = SEEDS.replace(
        '            time.sleep(env("SEED_SLEEP"))\n',
        '            if n == 10 and env("BROKEN"):\n                raise ValueError("no more")\n',
    )
    run = begin(either_url, broken, LISTS="30")
    [result] = run.finish(run.node(BROKEN="1"), code=4)
    assert result.summary["outcome"] == "seeding_failed"
    assert site.total == 10
    run.fault()
    mended = run.node()
    site.wait_hits(11)
    run.recovered()
    run.finish(mended)
    assert len(run.stored()) == 30
    note("W6", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_w7_pages_are_fetched_during_18_seconds_of_seeding_and_the_other_node_stays(
    either_url, begin, site, note
):
    expected = serve_seeds(site, 180)
    run = begin(either_url, SEEDS, LISTS="180", SEED_SLEEP="0.1", **DEFAULTS)
    first = run.node()
    site.wait_hits(1)
    second = run.node()
    assert wait_until(lambda: site.total >= 120, 40)
    assert run.client.get("netspy:Pages:lock:seed").startswith(b"seeding "), (
        "two thirds fetched, still seeding"
    )
    assert first.alive
    assert second.alive
    results = run.finish(first, second)
    assert all(result.seconds > 15 for result in results)
    note("W7", run, run.check(expected, fetched_twice=0))


@pytest.mark.faults_full
def test_w10_an_outage_of_2_seconds_with_206_in_flight_is_waited_out_in_one_line(
    either_binary, own_server, begin, site, note
):
    server = own_server(either_binary, appendfsync="always")
    expected = serve_seeds(site, 400)
    run = begin(server.url, held_store(SEEDS), LISTS="400", SPIDER_MAX_UNACKED="206")
    node = run.node()
    run.wait(lambda: run.count("z_inflight") >= 206, "206 are in flight: most wait for the database")
    server.kill()
    (run.folder / "there").touch()
    node.wait_line("away")
    time.sleep(2.0)  # the figure
    server.start()
    run.fault()
    fetched = site.total
    site.wait_hits(fetched + 1)
    run.recovered()
    [result] = run.finish(node)
    assert "Traceback" not in result.stderr
    told = [line for line in result.stderr.splitlines() if " WARNING " in line or " ERROR " in line]
    assert len([line for line in told if "away" in line]) == 1
    assert not list(run.folder.glob("failed_requests*")), "nothing goes to a file of one machine"
    # It gives pages back whose links it had put before the restart: the new server might lack them.
    note("W10", run, run.check(expected, fetched_twice=result.summary["released"]))


OUTSIDE = """from netspy.network.middleware import DownloaderMiddleware


class Breaks(DownloaderMiddleware):
    def process_response(self, request, response):
        if request.url.endswith("/2"):
            raise RuntimeError("broken middleware")
        return response


class Page(mw.Item):"""
VALIDATE = """    def validate(self, request, response):
        if request.url.endswith("/1") or env("ALL"):
            raise ValueError("broken validate")

    def parse(self"""


def breaks_outside(source):
    """The spider with a `validate` and a middleware that raise for one page each."""
    source = source.replace('f"{SITE}/l/{n}", callback=self.parse_list', 'f"{SITE}/d/{n}"')
    source = source.replace("class Page(mw.Item):", OUTSIDE).replace("    def parse(self", VALIDATE)
    return source.replace("Pages().start()", 'Pages(DOWNLOADER_MIDDLEWARES=["__main__.Breaks"]).start()')


def counted_and_listed(run, site, note):
    """Two of ten pages break, each in its way; then a job in which every page does."""
    everything = serve_seeds(site, 10)
    [result] = run.finish(run.node(LISTS="10"))
    assert result.summary["request_failed"] == 2
    assert result.summary["reasons"] == {"RuntimeError": 1, "ValueError": 1}
    assert {(record.reason, record.url) for record in run.failed()} == {
        ("ValueError", site.url("/d/1")), ("RuntimeError", site.url("/d/2")),
    }  # fmt: skip
    report = run.check(everything - {site.url("/d/1"), site.url("/d/2")}, failed=2, fetched_twice=0)
    note("W12", run, report)
    # A job of its own, in which every page fails.
    result = run.node(LISTS="2", ALL="1", REDIS_KEY_PREFIX="other").finish()
    assert (result.returncode, result.summary["outcome"]) == (6, "all_failed")


def test_w12_errors_outside_the_callback_are_counted_and_listed_and_all_failed_is_no_success(
    either_url, begin, site, note
):
    counted_and_listed(begin(either_url, breaks_outside(PAGES), SPIDER_MAX_RETRY_TIMES="0"), site, note)


def test_w12_of_an_air_spider(begin_air, site, note):
    counted_and_listed(begin_air(breaks_outside(AIR_PAGES), SPIDER_MAX_RETRY_TIMES="0"), site, note)


@pytest.mark.parametrize("way", ["netspy reset", "DEL"])
def test_w17_50_of_50_rows_are_stored_again_after_a_reset(way, either_url, begin, site, note):
    expected = serve_seeds(site, 50)
    run = begin(either_url, SEEDS, LISTS="50")
    run.finish(run.node())
    assert len(run.stored()) == run.written().total() == 50
    run.finish(run.node())
    assert site.total == 50, "without a reset there is nothing to do"
    run.fault()
    if way == "DEL":
        run.client.delete("netspy:Pages:lock:seed", "netspy:Pages:z_requests")
        run.client.delete(*run.client.keys("netspy:Pages:dedup:*"))
    else:
        argv = [sys.executable, "-m", "netspy.cli", "reset", "--key", "Pages", "--yes"]
        run_command(argv, env={"NETSPY_REDIS_URL": run.redis_url}, cwd=run.folder).check()
        assert not run.client.keys("*"), "nothing stale remains"
    again = run.node()
    site.wait_hits(51)
    run.recovered()
    [result] = run.finish(again)
    assert result.summary["items"] == 50
    assert result.summary["item_dedup_dropped"] == 0
    assert run.written().total() == 100, "stored again: a file has no keys"
    report = run.check(expected, fetched_twice=50)
    # The second crawl is wanted, not a repeat.
    note("W17", run, report._replace(fetched_twice=report.fetched_twice - 50, written_twice=0))


@pytest.mark.faults_full
def test_w21_with_all_defaults_a_dead_nodes_work_is_taken_over_when_its_heartbeat_is_stale(
    either_url, begin, site, note
):
    expected = serve_pages(site, delay=0.5)
    gate = Gate(site, after=40, delay=0.5)
    run = begin(either_url, **DEFAULTS, SPIDER_THREAD_COUNT="16")
    victim, survivor = run.node(), run.node()
    site.wait_hits(40)
    run.wait(lambda: run.leases_of(victim) and run.leases_of(survivor), "both nodes have work")
    victim.kill()
    run.fault()
    gate.open()
    # 15 s without a heartbeat, and the next beat of the survivor.
    assert run.wait_taken_over(victim) < 15 + 3 + 2
    run.finish(survivor)
    note("W21", run, run.check(expected, fetched_twice=HELD))


def test_w21_after_sigterm_of_a_node_with_a_busy_worker_its_work_is_free_when_it_is_gone(
    either_url, begin, site, note
):
    expected = serve_pages(site, 10, 5)
    source = in_parse(
        '        if request.url.endswith("/d/1-1") and env("BUSY"):\n'
        '            print("busy", flush=True)\n            time.sleep(60)\n'
    )
    run = begin(either_url, source, LISTS="10", SPIDER_TASK_LEASE="20")
    busy = run.node(BUSY="1")
    busy.wait_line("busy")
    busy.terminate()
    run.fault()
    run.finish(busy, code=143)
    assert run.recovered() < 10
    assert run.count("z_inflight") == 0
    [result] = run.finish(run.node())
    assert result.summary["reclaimed"] == 0
    note("W21", run, run.check(expected, fetched_twice=1))
