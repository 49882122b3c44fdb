"""Rows 1-5, 16 and 21 of the fault table on the Redis servers that users have, beside the plain ones of the other files.

Which row runs where:

- rows 1-5 (a node killed, one place each): on every variant;
- row 16 (Redis killed and back): on every single server that keeps something on disk. What Sentinel and Cluster make of a
  killed master is row 22, in test_topology_faults.py; without any file it is row 18, in test_outages.py;
- row 21 (a lost reply): on every variant. Sentinels and cluster nodes are made to give out the proxy's address. The proxy
  reads requests to know whose reply to lose, which TLS hides: there it loses whichever comes next.

The two servers with `maxmemory` have room enough; one that is full is row 24, in test_outages.py.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from netspy.frontier.redis.calls import script
from netspy.testing.children import wait_until
from netspy.testing.faults import serve_pages
from netspy.testing.proxy import FaultProxy
from netspy.testing.servers import Certificates, RedisServer, find_redis_server, find_valkey_server
from support.gate import Gate
from support.missing import missing
from support.redis_cluster import RedisCluster
from support.redis_replication import RedisReplication

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.faults_full]

HELD = 50  # SPIDER_MAX_UNACKED of these runs: what one dead node can have fetched in vain
STALE = 1.5
SLACK = 6.0  # seconds; the machine may be busy
ODD = "p@ s:w/o#r?d%25\"\\'é"
PLAIN, SLOT = "netspy:Pages", "{netspy:Pages}"


@dataclass(frozen=True)
class Variant:
    """A Redis that runs: `name` stands in the table, `admin_url` is of a user that may read what a check needs."""

    name: str
    url: str
    admin_url: str
    flush: Callable[[], None]
    through: Callable[[FaultProxy], AbstractContextManager[str]]
    """The URL by which a client comes to the server through this proxy, meanwhile."""
    target: Callable[[], RedisServer]
    """The server that has the run's keys."""
    server: RedisServer | None = None
    namespace: str = PLAIN


def least_rights() -> str:
    """The rule of the user `crawler`, as docs/redis-topologies.md tells users to write it."""
    text = (Path(__file__).resolve().parents[2] / "docs/redis-topologies.md").read_text("utf-8")
    return re.search(r"^user crawler on >password (.*)$", text, re.M)[1]


SINGLE = {
    "AOF always": lambda: {"appendfsync": "always"},
    "AOF everysec": lambda: {"appendfsync": "everysec"},
    "RDB only": lambda: {"save": "3600 1000000"},
    "noeviction": lambda: {"maxmemory": "64mb", "policy": "noeviction", "appendfsync": "everysec"},
    "evicting": lambda: {"maxmemory": "64mb", "policy": "allkeys-lru", "appendfsync": "everysec"},
    "password": lambda: {"password": ODD, "appendfsync": "everysec"},
    "ACL": lambda: {
        "username": "crawler",
        "password": ODD,
        "rules": least_rights(),
        "appendfsync": "everysec",
    },
}
if find_valkey_server() not in (None, find_redis_server()):
    SINGLE["Valkey"] = lambda: {"binary": find_valkey_server(), "appendfsync": "everysec"}

LASTING = [*SINGLE, "TLS"]
ALL = [*LASTING, "Sentinel", "Cluster"]


def start(name: str, stack: ExitStack) -> Variant:
    """Start the variant, to be ended with the stack."""
    if name == "Sentinel":
        group = stack.enter_context(RedisReplication(password=ODD, down_after_s=3.0))

        @contextmanager
        def as_another_service(proxy: FaultProxy) -> Iterator[str]:
            for sentinel in group.sentinels:
                sentinel.ask("SENTINEL", "MONITOR", "proxied", proxy.host, str(proxy.port), "2")
                sentinel.ask("SENTINEL", "SET", "proxied", "auth-pass", ODD)
            yield group.url.replace(f"/{group.service}/", "/proxied/")
            for sentinel in group.sentinels:
                sentinel.ask("SENTINEL", "REMOVE", "proxied")

        return Variant(
            name, group.url, group.url, lambda: group.master.flush(), as_another_service, lambda: group.master
        )
    if name == "Cluster":
        nodes = stack.enter_context(RedisCluster(password=ODD))

        holder = nodes.master_of(f"{SLOT}:meta")

        def announces(port: int) -> None:
            holder.ask("CONFIG", "SET", "cluster-announce-port", str(port))
            told = f", {port or holder.port}, "
            assert wait_until(
                lambda: all(told in repr(node.ask("CLUSTER", "SLOTS")) for node in nodes.nodes), 20
            )

        @contextmanager
        def announced(proxy: FaultProxy) -> Iterator[str]:
            announces(proxy.port)
            yield nodes.url
            announces(0)

        return Variant(name, nodes.url, nodes.url, nodes.flush, announced, lambda: holder, namespace=SLOT)
    if name == "TLS":
        if shutil.which("openssl") is None:
            missing("no openssl on PATH to make certificates with")
        own = stack.enter_context(Certificates())
        options = {"password": ODD, "tls": own, "client_certificate": True, "appendfsync": "everysec"}
    else:
        options = SINGLE[name]()
    server = stack.enter_context(RedisServer(**options))

    @contextmanager
    def by_port(proxy: FaultProxy) -> Iterator[str]:
        yield server.url.replace(f":{server.port}/", f":{proxy.port}/")

    return Variant(name, server.url, server.admin_url, server.flush, by_port, lambda: server, server)


@pytest.fixture(scope="session", params=ALL)
def running(request):
    """One variant, for all tests that want it one after the other."""
    with ExitStack() as stack:
        yield start(request.param, stack)


@pytest.fixture
def variant(running):
    """The variant, without a key in it."""
    running.flush()
    return running


@pytest.fixture
def begin_on(begin, variant):
    """`begin_on(SETTING="value")`: a run on the variant. Its nodes have no more rights than the variant's user."""

    def make(**env: str):
        run = begin(variant.admin_url, **env)
        run.namespace = variant.namespace
        return run

    return make


@pytest.fixture
def note_variant(record_property, variant):
    """`note_variant(row, report)`: a line for the table, with the variant's name for the server's version."""

    def write(row, report):
        record_property("fault", json.dumps({"row": row, "redis": variant.name, **report._asdict()}))

    return write


@pytest.mark.parametrize(
    ("row", "crash_at"),
    [
        ("1", "after_claim:2"),
        ("2", "in_fetch:5"),
        ("3", "after_callback:3"),
        ("4", "after_children:1"),
        ("5", "before_ack:2"),
    ],
)
def test_a_node_killed_at_any_step_loses_nothing_on_any_redis(
    row, crash_at, running, variant, begin_on, site, note_variant
):
    expected = serve_pages(site, 5, 4, delay=0.02)
    run = begin_on(LISTS="5", SEED_SLEEP="0.02")
    victim = run.node(redis_url=variant.url, crash_at=crash_at)
    run.wait_killed(victim)
    assert run.leases_of(victim), "it died with work in its hands"
    began = time.monotonic()
    heir = run.node(redis_url=variant.url)
    run.wait(lambda: run.node_ids(heir), "the heir is there")
    start = time.monotonic() - began
    assert run.wait_taken_over(victim) < start + STALE + SLACK
    [result] = run.finish(heir)
    assert "Traceback" not in result.stderr
    note_variant(row, run.check(expected, fetched_twice=HELD))


def inflight(run):
    """What is leased; fetches alone go on also while Redis is away."""
    return set(run.client.zrange(f"{run.namespace}:z_inflight", 0, -1))


@pytest.mark.parametrize("running", LASTING, indirect=True)
def test_redis_killed_and_back_with_its_files_loses_nothing(running, variant, begin_on, site, note_variant):
    """The server that has only snapshots takes one just before the kill: what came after it is crawled again."""
    expected = serve_pages(site, 20, delay=0.05)
    gate = Gate(site, after=40, delay=0.05)
    run = begin_on(LISTS="20", SEED_SLEEP="0.02")
    nodes = [run.node(redis_url=variant.url) for _ in range(2)]
    site.wait_hits(40)
    run.wait(lambda: inflight(run), "something is leased")
    if variant.name == "RDB only":
        variant.server.client().save()
    at_snapshot = site.total
    variant.server.kill()
    since = site.total - at_snapshot
    gate.open()
    variant.server.start()
    run.fault()
    held = inflight(run)
    assert held, "the files know of the work under way"
    run.wait(lambda: held - inflight(run), "something of that work is settled")
    run.recovered()
    results = run.finish(*nodes)
    assert [result.summary["outcome"] for result in results] == ["finished"] * 2
    note_variant("16", run.check(expected, fetched_twice=since + 2 * HELD))


def test_lost_replies_of_every_call_repeat_and_orphan_nothing(running, variant, begin_on, site, note_variant):
    """One reply each to claim, enqueue, ack, give_up and delay; under TLS six of whichever calls."""
    expected = serve_pages(site, 10, 4, delay=0.1)
    gate = Gate(site, after=40, delay=0.1)
    site.route("/d/3-1", "not here", status=404)
    site.route("/d/4-1", "at last", fail_first=1, fail_status=503)
    calls = [script(name).sha.encode() for name in ("claim", "put", "settle")]
    calls += [b"\r\ngive_up\r\n", b"\r\ndelay\r\n"]
    with FaultProxy("127.0.0.1", variant.target().port) as proxy, variant.through(proxy) as url:
        run = begin_on(LISTS="10", SEED_SLEEP="0.02")
        if variant.name == "TLS":
            calls = [None] * 6
        else:
            for call in calls:
                proxy.drop_next_reply(call)
        run.fault()
        node = run.node(redis_url=url)
        if variant.name == "TLS":
            for n in range(1, len(calls) + 1):
                site.wait_hits(6 * n)
                proxy.drop_next_reply()
                proxy.wait_dropped(n)
        gate.open()
        proxy.wait_dropped(len(calls))
        run.recovered()
        [result] = run.finish(node)
        assert proxy.dropped == len(calls)
        report = run.check(expected - {site.url("/d/3-1")}, failed=1, fetched_twice=1)
    assert site.hits("/d/4-1") == 2, "the one repeat is the page that answered 503 at first"
    assert result.summary["request_failed"] == 1
    assert result.summary["lease_lost"] == 0
    note_variant("21", report._replace(fetched_twice=report.fetched_twice - 1))
