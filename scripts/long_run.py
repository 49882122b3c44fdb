"""Crawl a fast local site for very many pages and watch that memory, descriptors and the log stay flat.

    python scripts/long_run.py                           # 200,000 pages with AirSpider, then with Spider on a private Redis
    python scripts/long_run.py --pages 50000 --kind air

The crawl runs in a process of its own, the site in another; its resident memory and open descriptors are sampled every
second. After a warm-up (the first quarter of the pages) a line is fitted to memory against pages. What may grow: the ids of
pages in the process's exact filter (AirSpider only; on Redis they are in the server's Bloom filter), KNOWN_ID_BYTES each.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

from netspy.testing.runner import Result, start_script
from netspy.testing.servers import RedisServer

Kind = Literal["air", "redis"]

KNOWN_ID_BYTES = 90
"""What an id costs in the exact filter of one process (a 16-byte string in a set)."""
SLOPE_MB = 2.0
"""Growth allowed per 50,000 pages, besides the ids."""
MOST_DESCRIPTORS_MORE = 8
MOST_LOG_LINES = 400
CHAINS = 200

SITE = """
import sys
from netspy.testing.site import LocalSite
from netspy.testing.process import add_process_arguments, serve_until_told
import argparse

CHAINS, PAGES = int(sys.argv[1]), int(sys.argv[2])
FILLER = "<p>" + "x" * 2000


def page(request):
    n = int(request.path[3:])
    link = f'<a href="/p/{n + CHAINS}">next</a>' if n + CHAINS < PAGES else ""
    return f"<html><h1>{n}</h1>{link}<a href='/p/{n % CHAINS}'>home</a>{FILLER}"


parser = argparse.ArgumentParser()
add_process_arguments(parser)
site = LocalSite(keep_log=False)
site.route("/p/", page, prefix=True)
site.route("/total", lambda request: str(site.total))
raise SystemExit(serve_until_told(site, parser.parse_args(sys.argv[3:])))
"""

SPIDER = """
import os
import netspy as mw


class Long(mw.{base}):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"], CONCURRENT_REQUESTS_PER_DOMAIN=0,
        SPIDER_THREAD_COUNT=32, PROGRESS="lines",
    )

    def start_requests(self):
        for n in range(int(os.environ["CHAINS"])):
            yield mw.Request(os.environ["SITE"] + f"p/{{n}}")

    async def parse(self, request, response):
        for link in response.css("a"):
            yield response.follow(link)
        yield {{"n": int(response.css("h1::text").get())}}


Long().start()
"""


class Sample(NamedTuple):
    """One look at the process."""

    seconds: float
    pages: int
    rss_mb: float
    descriptors: int
    threads: int


class Report(NamedTuple):
    """What a run came to; `problems` is empty when everything stayed flat."""

    kind: str
    pages: int
    seconds: float
    slope_mb: float
    ids_mb: float
    rss_mb: float
    descriptors: tuple[int, int]
    threads: int
    log_lines: int
    problems: list[str]

    def line(self) -> str:
        """One line for people."""
        return (
            f"{self.kind:5} {'ok' if not self.problems else 'FAILED'}: {self.pages} pages in {self.seconds:.0f} s, "
            f"{self.slope_mb:+.2f} MB per 50,000 pages (ids account for {self.ids_mb:.1f}), {self.rss_mb:.0f} MB at the end, "
            f"{self.descriptors[0]} to {self.descriptors[1]} descriptors, {self.threads} threads, {self.log_lines} lines of log"
        )


def slope(points: list[tuple[float, float]]) -> float:
    """The least-squares slope of y over x; 0 for fewer than two points."""
    n = len(points)
    if n < 2:
        return 0.0
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def look(pid: int, began: float, pages: int) -> Sample:
    """Memory, descriptors and threads of a process. Raises OSError when it is gone."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    rss, threads = re.search(r"VmRSS:\s+(\d+)", status), re.search(r"Threads:\s+(\d+)", status)
    if rss is None or threads is None:
        raise ProcessLookupError(f"process {pid} has ended")
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(time.monotonic() - began, pages, int(rss[1]) / 1024, descriptors, int(threads[1]))


def judge(kind: Kind, pages: int, samples: list[Sample], result: Result, stored: int) -> Report:
    """Compare the samples with what is promised."""
    problems = []
    settled = [sample for sample in samples if sample.pages > pages / 4] or samples[-1:]
    growth = slope([(sample.pages / 50_000, sample.rss_mb) for sample in settled])
    ids = 50_000 * KNOWN_ID_BYTES / 1e6 if kind == "air" else 0.0
    if growth > SLOPE_MB + ids:
        problems.append(f"memory grows by {growth:.1f} MB per 50,000 pages; {SLOPE_MB + ids:.1f} are allowed")
    half = len(settled) // 2 or 1
    first = max(sample.descriptors for sample in settled[:half])
    last = max(sample.descriptors for sample in settled[half:] or settled)
    if last > first + MOST_DESCRIPTORS_MORE:
        problems.append(f"open descriptors grew from {first} to {last}")
    if result.returncode != 0:
        problems.append(f"it ended with {result.returncode}: {result.stderr[-500:]}")
    if result.summary.get("request_ok") != pages or stored != pages:
        problems.append(
            f"{result.summary.get('request_ok')} pages done and {stored} rows stored of {pages}: {result.stderr[-500:]}"
        )
    lines = result.stderr.count("\n")
    if lines > MOST_LOG_LINES:
        problems.append(f"{lines} lines of log")
    end = settled[-1]
    return Report(
        kind, pages, end.seconds, growth, ids, end.rss_mb, (first, last), end.threads, lines, problems
    )  # fmt: skip


def run(kind: Kind, pages: int) -> Report:
    """One crawl of so many pages."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netspy-long-")))
        site = stack.enter_context(start_script(SITE, args=[str(CHAINS), str(pages)], cwd=folder))
        url = site.wait_line("serving ").removeprefix("serving ")
        env = {"SITE": url, "CHAINS": str(CHAINS), "NETSPY_METRICS_LOG_INTERVAL": "10"}
        if kind == "redis":
            env["NETSPY_REDIS_URL"] = stack.enter_context(RedisServer(appendfsync="everysec")).url
        source = SPIDER.format(base="AirSpider" if kind == "air" else "Spider")
        samples: list[Sample] = []
        began = time.monotonic()
        with start_script(source, env=env, cwd=folder) as crawl:
            while crawl.alive:
                with urllib.request.urlopen(url + "total", timeout=30) as answer:  # noqa: S310 - our own site
                    done = int(answer.read()) - len(samples)
                try:
                    samples.append(look(crawl.pid, began, done))
                except (OSError, ProcessLookupError):
                    break
                time.sleep(1.0)
            result = crawl.finish(60)
        stored = 0
        if (folder / "items.jsonl").exists():
            with (folder / "items.jsonl").open("rb") as rows:
                stored = sum(1 for _ in rows)
        return judge(kind, pages, samples, result, stored)


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for; 1 when something didn't stay flat."""
    parser = argparse.ArgumentParser(
        description="Crawl very many pages; memory, descriptors and log must stay flat."
    )
    parser.add_argument("--pages", type=int, default=200_000, help="pages per crawl (default: 200000)")
    parser.add_argument("--kind", choices=["air", "redis"], help="only this one")
    options = parser.parse_args(argv)
    failed = False
    kinds: tuple[Kind, ...] = (options.kind,) if options.kind else ("air", "redis")
    for kind in kinds:
        report = run(kind, max(options.pages, CHAINS))
        sys.stdout.write(report.line() + "\n" + "".join(f"  {problem}\n" for problem in report.problems))
        sys.stdout.flush()
        failed = failed or bool(report.problems)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
