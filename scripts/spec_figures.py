"""Measure what the docs promise of crashes, sharing and dedup, and print it as Markdown tables.

    python scripts/spec_figures.py              # all of them, about two minutes
    python scripts/spec_figures.py kill bloom   # some of them

Real node processes, real signals, a private Redis, a local site that counts every fetch. Nothing is computed that can
be run, except the memory table, which is arithmetic.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from netspy.errors import ConfigError
from netspy.frontier.dedup import BloomFilter
from netspy.frontier.redis.frontier import RedisFrontier
from netspy.frontier.redis.membership import Owner
from netspy.messages.request import Request
from netspy.policy.bloom import MAX_LAYER_BYTES, memory_table, plan
from netspy.policy.run_scope import run_scope
from netspy.settings import Settings
from netspy.testing.children import wait_until
from netspy.testing.runner import Result, Script, start_script
from netspy.testing.servers import RedisServer
from netspy.testing.site import LocalSite

SPIDER = """
import glob, os, time
import netspy as mw
from netspy.pipelines.sqlite import SqlitePipeline


STUCK_FROM = int(os.environ.get("STUCK_FROM", "1000000"))


class SlowPipeline(SqlitePipeline):
    def save_items(self, table, items):
        time.sleep(float(os.environ.get("WRITE_SECONDS", "0")))
        return super().save_items(table, items)


class Page(mw.Item):
    __unique_key__ = "url"


class Pages(mw.Spider):
    __custom_setting__ = dict(PROGRESS="off", HEARTBEAT_INTERVAL=0.5, HEARTBEAT_STALE=2.0)

    def start_callback(self):
        open(f"started-{os.getpid()}", "w").close()

    def start_requests(self):
        while len(glob.glob("started-*")) < int(os.environ.get("NODES", "1")):
            time.sleep(0.01)
        time.sleep(float(os.environ.get("SEED_SECONDS", "0")))
        for n in range(int(os.environ["PAGES"])):
            yield mw.Request(f"{os.environ['SITE']}p/{n}")

    def parse(self, request, response):
        stuck = int(request.url.rpartition("/")[2]) >= STUCK_FROM
        time.sleep(3600 if stuck else float(os.environ.get("PAGE_SECONDS", "0")))
        yield Page(url=request.url)


Pages(pipelines=[SlowPipeline]).start()
"""


class Figure(NamedTuple):
    """One table; every row has as many cells as `columns`."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def markdown(self) -> str:
        """The table with its title."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(
            [f"### {self.title}", "", *("| " + " | ".join(map(str, line)) + " |" for line in lines), ""]
        )


class Bench:
    """A site, a Redis and a folder for one experiment."""

    def __init__(self, site: LocalSite, redis: RedisServer, folder: Path, pages: int) -> None:
        self.site = site
        self.redis = redis
        self.folder = folder
        self.pages = pages

    def node(self, **env: str) -> Script:
        """One node process more."""
        common = {"SITE": self.site.url(), "NETSPY_REDIS_URL": self.redis.url, "PAGES": str(self.pages)}
        return start_script(SPIDER, cwd=self.folder, env={**common, **env})

    def in_flight(self) -> int:
        """Leases in Redis."""
        with closing(self.redis.client()) as client:
            return int(client.zcard("netspy:Pages:z_inflight"))

    def wait_in_flight(self, count: int) -> None:
        """Wait for that many leases. Raises TimeoutError."""
        if not wait_until(lambda: self.in_flight() == count, 30, step=0.02):
            raise TimeoutError(f"{self.in_flight()} leases after 30 s, not {count}")

    def failed(self) -> int:
        """Requests on the list of those that failed."""
        with closing(self.redis.client()) as client:
            return int(client.llen("netspy:Pages:failed_requests"))

    def stored(self) -> int:
        """Rows in the database."""
        with closing(sqlite3.connect(self.folder / "items.db")) as db:
            found: int = db.execute("SELECT count(*) FROM page").fetchone()[0]
        return found

    def fetched_again(self) -> int:
        """Fetches beyond the first one of each page."""
        return self.site.total - len(self.site.all_hits())


@contextmanager
def bench(pages: int) -> Iterator[Bench]:
    """An empty Redis, a site with `/p/N`, a folder; all gone afterwards."""
    with (
        LocalSite() as site,
        RedisServer() as redis,
        tempfile.TemporaryDirectory(prefix="netspy-figures-") as folder,
    ):
        site.route("/p/", "<p>page</p>", prefix=True)
        yield Bench(site, redis, Path(folder), pages)


def _done(result: Result) -> int:
    done: int = result.summary["request_ok"]
    return done


# -- the figures


def kill(leases: tuple[float, ...] = (600.0, 0.0)) -> Figure:
    """A node is killed in the middle of 24 pages, and another one goes on."""
    rows = []
    for lease in leases:
        with bench(24) as b:
            env = {
                "NETSPY_SPIDER_THREAD_COUNT": "4",
                "PAGE_SECONDS": "0.2",
                "NETSPY_SPIDER_TASK_LEASE": f"{lease:g}",
            }
            with b.node(**env) as first:
                b.site.wait_hits(10)
                first.kill()
            with b.node(**env) as second:
                second.finish().check()
            rows.append(
                (
                    f"{lease:g} s" if lease else "0 (off)",
                    f"{b.stored()} / 24",
                    b.failed(),
                    24 - b.stored() - b.failed(),
                )
            )
    return Figure(
        "A node is killed with SIGKILL, the next one goes on",
        ("lease", "pages crawled and stored", "listed as failed", "lost without a word"),
        rows,
    )


def two_nodes(graces: tuple[float, ...] = (10.0, 0.0)) -> Figure:
    """Two nodes start in the same second, and seeding takes one."""
    rows = []
    for grace in graces:
        with bench(63) as b:
            env = {
                "PAGE_SECONDS": "0.5",
                "NODES": "2",
                "SEED_SECONDS": "1",
                "NETSPY_SPIDER_STARTUP_GRACE": f"{grace:g}",
            }
            with b.node(**env) as one, b.node(**env) as two:
                first, second = one.finish().check(), two.finish().check()
            split = f"{_done(first)} + {_done(second)} = {_done(first) + _done(second)}"
            rows.append((f"{grace:g} s", split, b.fetched_again(), f"{b.stored()} / 63"))
    return Figure(
        "Two nodes start in the same second",
        ("SPIDER_STARTUP_GRACE", "requests", "overlap", "rows"),
        rows,
    )


def renewal() -> Figure:
    """One node holds five pages of 0.6 s under a lease of 2 s; another one waits for something to do."""
    held = {
        "NETSPY_SPIDER_THREAD_COUNT": "5",
        "NETSPY_CALLBACK_MAX_THREADS": "1",
        "PAGE_SECONDS": "0.6",
        "NETSPY_SPIDER_TASK_LEASE": "2",
        "NETSPY_SPIDER_STARTUP_GRACE": "30",
    }
    with bench(5) as b, b.node(**held) as owner:
        b.site.wait_hits(5)  # it has all of them
        with b.node(**held) as other:
            owner_result, other_result = owner.finish().check(), other.finish().check()
        stolen = _done(other_result) + owner_result.summary["lease_lost"] + b.fetched_again()
    dying = {**held, "NETSPY_CALLBACK_MAX_THREADS": "5", "STUCK_FROM": "2"}
    with bench(5) as b, b.node(**dying) as owner:
        b.site.wait_hits(5)
        b.wait_in_flight(3)
        owner.kill()
        with b.node(**held) as other:
            recovered = _done(other.finish().check())
        rows = b.stored()
    return Figure(
        "Five pages of 0.6 s each under a lease of 2 s",
        ("taken from a healthy node", "recovered of a dead node's 3", "rows"),
        [(f"{stolen} / 5", recovered, f"{rows} / 5")],
    )


def slow_pipeline(seconds: tuple[float, ...] = (0.3, 1.5), *, unacked: int = 100) -> Figure:
    """400 pages; the node is killed while batches wait for the database, and another one goes on.

    `unacked` bounds the pages whose rows aren't stored yet, and with them those that are fetched again.
    """
    rows = []
    for each in seconds:
        with bench(400) as b:
            env = {
                "WRITE_SECONDS": f"{each:g}",
                "NETSPY_ITEM_BATCH_SIZE": "50",
                "NETSPY_SPIDER_MAX_UNACKED": str(unacked),
            }
            with b.node(**env) as first:
                b.site.wait_hits(250)
                first.kill()
            with b.node(**env) as second:
                second.finish(120).check()
            rows.append(
                (f"{each:g} s", f"{b.stored()} / 400", 400 - b.stored() - b.failed(), b.fetched_again())
            )
    return Figure(
        f"Each batch write is slow, and the node is killed in between (SPIDER_MAX_UNACKED={unacked})",
        ("per batch", "rows", "lost without a word", "pages fetched again"),
        rows,
    )


def fingerprints(start: int, stop: int) -> list[bytes]:
    """Different 16-byte digests, the same in each run."""
    return [blake2b(b"%d" % n, digest_size=16).digest() for n in range(start, stop)]


class Shape(NamedTuple):
    """A filter: capacity and error of its first layer, and how many layers it may have."""

    capacity: int
    error: float
    layers: int


def _share_known(known: list[bool]) -> float:
    return sum(known) / len(known)


async def _redis_rates(
    redis: RedisServer, shape: Shape, steps: list[int], probes: list[bytes]
) -> list[float]:
    """Share of new fingerprints taken for known ones by the filter on Redis, after each number of insertions."""
    redis.flush()
    settings = Settings(
        REDIS_URL=redis.url,
        DEDUP_INITIAL_CAPACITY=shape.capacity,
        DEDUP_ERROR_RATE=shape.error,
        DEDUP_MAX_LAYERS=shape.layers,
    )
    frontier = RedisFrontier(
        settings,
        run_scope(settings, "Figures"),
        Owner("Figures", "spider"),
        pack=Request.pack,
        unpack=Request.unpack,
    )
    await frontier.open()
    try:
        filter_ = frontier.item_filter()
        rates, done = [], 0
        for step in steps:
            await filter_.mark(fingerprints(done, step))
            done = step
            rates.append(_share_known(await filter_.seen(probes)))
    finally:
        await frontier.close()
    return rates


def _memory_rates(shape: Shape, steps: list[int], probes: list[bytes]) -> list[float]:
    filter_ = BloomFilter(plan(*shape))
    rates, done = [], 0
    for step in steps:
        filter_.mark(fingerprints(done, step))
        done = step
        rates.append(_share_known(filter_.seen(probes)))
    return rates


def bloom(capacity: int = 10_000, probes: int = 50_000, times: tuple[int, ...] = (1, 3, 5, 8, 15)) -> Figure:
    """One layer beyond its capacity, beside layers that grow; for a coarse target, so that errors can be counted."""
    steps = [capacity * n for n in times]
    new = fingerprints(10**9, 10**9 + probes)
    with RedisServer() as redis:
        columns = [
            _memory_rates(Shape(capacity, 1e-6, 1), steps, new),
            asyncio.run(_redis_rates(redis, Shape(capacity, 1e-6, 1), steps, new)),
            asyncio.run(_redis_rates(redis, Shape(capacity, 1e-6, 4), steps, new)),
            _memory_rates(Shape(capacity, 0.01, 4), steps, new),
            asyncio.run(_redis_rates(redis, Shape(capacity, 0.01, 4), steps, new)),
        ]
    rows: list[tuple[Any, ...]] = [
        (f"{step:,}", f"{n}×", *(f"{column[at]:.2%}" for column in columns))
        for at, (step, n) in enumerate(zip(steps, times, strict=True))
    ]
    return Figure(
        f"New URLs taken for known ones: one layer for {capacity:,} against four layers (together {15 * capacity:,})",
        (
            "inserted",
            "of the first layer",
            "one layer, 1e-6",
            "same on Redis",
            "layered on Redis, 1e-6",
            "layered, 1 %",
            "same on Redis",
        ),
        rows,
    )


REFERENCE_MIB = {1: 3, 4: 57, 6: 260, 8: 1126}
"""What a filter whose bits lie anywhere needs for these numbers of layers, as the reference gives it, in MiB."""


def memory() -> Figure:
    """Memory by number of layers. Rows of a plan that netspy refuses say so."""
    rows: list[tuple[Any, ...]] = []
    for row in memory_table(layers=tuple(REFERENCE_MIB)):
        ours, reference = row.megabytes * 1e6 / 2**20, REFERENCE_MIB[row.layers]
        try:
            plan(1_000_000, 1e-6, row.layers)
        except ConfigError:
            size = f"refused: a layer over {MAX_LAYER_BYTES // 2**20} MiB is no Redis string"
        else:
            size = f"{ours:,.1f} MiB"
        ratio = f"{ours / reference:.2f}"
        rows.append(
            (
                row.layers,
                f"{row.capacity / 1e6:g} M",
                size,
                f"{reference:,} MiB",
                ratio,
                f"{row.error_bound:.2e}",
            )
        )
    return Figure(
        "Memory of the layered filter (1,000,000 at 1e-6 in the first layer)",
        ("layers", "capacity", "memory", "reference", "ratio", "error, at most"),
        rows,
    )


FIGURES: dict[str, Callable[[], Figure]] = {
    "kill": kill,
    "nodes": two_nodes,
    "renewal": renewal,
    "pipeline": slow_pipeline,
    "bloom": bloom,
    "memory": memory,
}


def main(argv: list[str] | None = None) -> int:
    """Print the figures named, or all."""
    parser = argparse.ArgumentParser(description="Measure what the docs promise; print Markdown tables.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(FIGURES)} (default: all)")
    names = parser.parse_args(argv).names or list(FIGURES)
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        parser.error(f"{unknown[0]!r} is no figure; there are {', '.join(FIGURES)}")
    for name in names:
        sys.stdout.write(FIGURES[name]().markdown() + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
