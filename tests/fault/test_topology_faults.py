"""Row 22 of the fault table, and its kin: the master goes away in mid-crawl, on Sentinel and on Cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from netspy.testing.children import wait_until
from netspy.testing.faults import PAGES, FaultRun, serve_pages
from netspy.testing.redis_server import RedisServer
from netspy.testing.runner import Script, run_script
from netspy.testing.servers import Certificates
from netspy.testing.site import LocalSite
from support.gate import Gate
from support.redis_cluster import RedisCluster
from support.redis_replication import RedisReplication

pytestmark = [pytest.mark.slow, pytest.mark.fault]

LISTS = 40
HELD = 50  # SPIDER_MAX_UNACKED of these runs
SLOT = "{netspy:Pages}"

PATIENT_S = 3.0
"""What sentinels wait for a silent master where they must not act on their own: the machine may be busy."""

ENV = {"SEED_SLEEP": "0.02", "REDIS_CONNECT_TIMEOUT": "2"}


def fetched(site: LocalSite) -> int:
    return sum(site.all_hits().values())


def under_way(run: FaultRun, site: LocalSite, pages: int) -> None:
    run.wait(lambda: fetched(site) >= pages, f"{pages} pages are fetched")


def is_left(server: RedisServer, for_s: float = 1.5) -> bool:
    """Whether no node has asked this server for anything for so long; or it is no master any more, which ends it too."""
    asked = server.client().info("commandstats").get("cmdstat_evalsha")
    time.sleep(for_s)
    return (
        server.ask("ROLE")[0] != b"master"
        or server.client().info("commandstats").get("cmdstat_evalsha") == asked
    )


def run_two(run: FaultRun) -> list[Script]:
    return [run.node(), run.node()]


def test_a_killed_master_is_an_outage_of_seconds(either_binary, begin, site, note):
    expected = serve_pages(site, LISTS, delay=0.02)
    gate = Gate(site, after=60, delay=0.02)
    with RedisReplication(either_binary) as redis:
        run = begin(redis.url, **ENV)
        nodes = run_two(run)
        under_way(run, site, 60)
        run.fault()
        old = redis.kill_master()
        gate.open()
        redis.wait_new_master(old)
        before = fetched(site)
        run.wait(lambda: fetched(site) > before + 5, "the crawl goes on")
        assert run.recovered() < 15
        run.finish(*nodes)
        note("22", run, run.check(expected, fetched_twice=2 * HELD))


def test_a_replica_that_lagged_loses_nothing_also_of_the_seeds(either_binary, begin, site, note):
    """The replica that takes over lacks the last second: seeds, children, acks and the end of the seeding."""
    expected = serve_pages(site, LISTS, delay=0.1)
    gate = Gate(site, after=100, delay=0.1)
    source = PAGES.replace(
        'time.sleep(env("SEED_SLEEP"))', 'while n == 20 and not os.path.exists("go on"): time.sleep(0.02)'
    )
    with RedisReplication(either_binary, password="x", down_after_s=PATIENT_S) as redis:
        run = begin(redis.url, source, **ENV)
        nodes = run_two(run)
        under_way(run, site, 20)
        master, replica = redis.master, redis.replica
        at_cut = fetched(site)
        behind = cut_replication(master, replica)
        kept = replica.client().get("netspy:Pages:lock:seed")
        assert kept.startswith("seeding")
        (run.folder / "go on").touch()
        run.wait(
            lambda: run.client.get("netspy:Pages:lock:seed").startswith(b"seeded"), "the seeding is over"
        )
        assert behind() > 0, "the replica should have missed something"
        run.fault()
        redis.kill_master()
        since = fetched(site) - at_cut
        gate.open()
        assert redis.wait_new_master(master) is replica
        replica.ask("CONFIG", "SET", "masterauth", "x")
        run.finish(*nodes)
        note("22", run, run.check(expected, fetched_twice=since + 2 * HELD))


def cut_replication(master: RedisServer, replica: RedisServer) -> Callable[[], int]:
    """From now on the replica hears nothing more; gives a function that says by how many bytes it is behind."""

    def offset(server: RedisServer) -> int:
        info = server.client().info("replication")
        return int(info["master_repl_offset" if info["role"] == "master" else "slave_repl_offset"])

    replica.ask("CONFIG", "SET", "masterauth", "wrong")
    master.ask("CLIENT", "KILL", "TYPE", "replica")
    assert wait_until(lambda: replica.ask("ROLE")[3] != b"connected", 30)
    return lambda: offset(master) - offset(replica)


def test_a_planned_fail_over_is_followed_while_the_old_master_still_takes_writes(
    either_binary, begin, site, note
):
    """It does so for some ten seconds, and then loses them: all that is done there is done again."""
    expected = serve_pages(site, LISTS, delay=0.1)
    gate = Gate(site, after=300, delay=0.1)
    with RedisReplication(either_binary, down_after_s=PATIENT_S) as redis:
        run = begin(redis.url, **ENV)
        nodes = run_two(run)
        under_way(run, site, 40)
        old = redis.master
        run.fault()
        at_start = fetched(site)
        new = redis.failover()
        run.wait(
            lambda: "cmdstat_evalsha" in new.client().info("commandstats"), "the nodes come to the new master"
        )
        assert run.recovered() < 6
        assert old.ask("ROLE")[0] == b"master", "it takes writes to this moment"
        run.wait(lambda: is_left(old), "the other node comes, too")
        since = fetched(site) - at_start
        gate.open()
        run.finish(*nodes)
        note("22", run, run.check(expected, fetched_twice=since + 2 * HELD))


def test_a_killed_master_of_the_slot_is_an_outage_of_seconds(either_binary, begin, site, note):
    expected = serve_pages(site, LISTS, delay=0.02)
    gate = Gate(site, after=60, delay=0.02)
    with RedisCluster(either_binary, replicas=1) as redis:
        run = begin(redis.url, **ENV)
        run.namespace = SLOT
        nodes = run_two(run)
        under_way(run, site, 60)
        run.fault()
        old = redis.kill_master_of(SLOT)
        gate.open()
        redis.wait_new_master_of(SLOT, old)
        before = fetched(site)
        run.wait(lambda: fetched(site) > before + 5, "the crawl goes on")
        assert run.recovered() < 15
        run.finish(*nodes)
        note("22", run, run.check(expected, fetched_twice=2 * HELD))


def test_a_slot_moved_in_mid_crawl(begin, site):
    expected = serve_pages(site, LISTS, delay=0.02)
    gate = Gate(site, after=60, delay=0.02)
    with RedisCluster() as redis:
        run = begin(redis.url, **ENV)
        run.namespace = SLOT
        nodes = run_two(run)
        under_way(run, site, 60)
        redis.move_slot_of(f"{SLOT}:meta")
        gate.open()
        run.finish(*nodes)
        run.check(expected)


@pytest.mark.parametrize("wrong", ["no CA", "service"])
def test_a_start_that_cannot_work_ends_with_one_line(wrong, workdir):
    source = 'import netspy\n\n\nclass Pages(netspy.Spider):\n    start_urls = ["http://127.0.0.1:9/"]\n\n\nPages().start()\n'
    if wrong == "no CA":
        with Certificates() as certificates, RedisServer(tls=certificates) as server:
            result = run_script(
                source, cwd=workdir, timeout=30, env={"NETSPY_REDIS_URL": server.url.partition("?")[0]}
            )
        told = "ssl_ca_certs"
    else:
        with RedisReplication(sentinels=1, replicas=0) as redis:
            url = redis.url.replace(redis.service, "nobody")
            result = run_script(source, cwd=workdir, timeout=30, env={"NETSPY_REDIS_URL": url})
        told = "knows no service 'nobody'"
    assert result.returncode == 3
    lines = [line for line in result.stderr.splitlines() if told in line]
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
