"""What `netspy demo` does: a shop, a Redis, some node processes, and a look at the result."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from netspy import assembly
from netspy.demo import report
from netspy.demo.folder import DemoFolder, Unfinished
from netspy.demo.site import ShopProcess
from netspy.demo.spider import LISTS, PER_LIST, ShopDemo, demo_shop
from netspy.errors import ConfigError
from netspy.launch.fleet import FleetEnd, run_fleet
from netspy.observe import summary as summaries
from netspy.observe.log import is_terminal
from netspy.observe.outcome import ExitCode
from netspy.redisio.embedded.server import EmbeddedRedis

DELAY_MS = "300:700"
_MOST_PROBLEMS = 5

Say = Callable[[str], None]


class Options(NamedTuple):
    """`delay_ms`: bounds of the shop's answer time, e.g. "300:700". `fast`: no waiting anywhere, for tests."""

    folder: Path
    processes: int = 2
    fast: bool = False
    fresh: bool = False
    delay_ms: str = DELAY_MS


class _Standing(NamedTuple):
    """Where the run stands, over all its starts."""

    done: int
    left: int
    failed: int
    reasons: Counter[str]


def check_delay(text: str) -> str:
    """The bounds of the shop's answer time as given. Raises ConfigError."""
    if not re.fullmatch(r"\d{1,6}:\d{1,6}", text):
        raise ConfigError(f"--delay-ms {text!r}: give two whole numbers of milliseconds, e.g. {DELAY_MS}")
    return text


def run_demo(options: Options, say: Say) -> int:
    """Run or go on with the demo; the exit code. Raises ConfigError and other NetspyError: one line each."""
    if options.processes < 1:
        raise ConfigError(f"--processes {options.processes}: give a whole number, 1 or more")
    check_delay(options.delay_ms)
    folder = DemoFolder(options.folder)
    folder.open(
        waiting=lambda: say("The nodes of a demo that was killed are still stopping; waiting for them …")
    )
    try:
        return _run(options, folder, say)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or options.folder}: {error.strerror or error}; see --dir"
        ) from None
    finally:
        folder.close()


def _run(options: Options, folder: DemoFolder, say: Say) -> int:
    old = folder.unfinished()
    if old is not None and options.fresh:
        folder.forget()
        say(f"Forgetting run {old.run_id}; what it stored stays in {display_path(folder.run(old.run_id))}.")
        old = None
    run_id = old.run_id if old is not None else folder.new_run_id()
    here = folder.run(run_id)
    here.mkdir(exist_ok=True)
    server = EmbeddedRedis(folder.redis)
    server.acquire()
    try:
        delay = "0:0" if options.fast else options.delay_ms
        with ShopProcess(here, port=old.port if old is not None else 0, delay_ms=delay) as shop:
            run = Unfinished(run_id, shop.port, old.starts + 1 if old is not None else 1)
            spider = _spider(options, folder, run, shop.url)
            _introduce(say, spider, run, folder, options.processes)
            folder.note(run)
            end = run_fleet(spider, options.processes)
            standing = _standing(spider)
    finally:
        server.release()
    code = _conclude(say, end, standing, run, folder)
    if not is_terminal(sys.stdout):
        say(summaries.line(end.summary))
    return code


def _spider(options: Options, folder: DemoFolder, run: Unfinished, url: str) -> ShopDemo:
    here = folder.run(run.run_id)
    more: dict[str, Any] = {}
    if options.fast:
        more = {"RETRY_BACKOFF": 0.05, "SPIDER_STARTUP_GRACE": 1.0}
    return ShopDemo(
        start_url=url,
        REDIS_URL="embedded",
        EMBEDDED_DATA_DIR=str(folder.redis),
        RUN_ID=run.run_id,
        RUN_TTL=86_400,
        SQLITE_PATH=str(report.database(here)),
        JSONL_OUTPUT_DIR=str(here),
        FAILED_ITEM_PATH=str(here / "failed_items.jsonl"),
        METRICS_LOG_INTERVAL=1.0 if options.fast else 5.0,
        **more,
    )


def _introduce(say: Say, spider: ShopDemo, run: Unfinished, folder: DemoFolder, processes: int) -> None:
    """At most 79 columns wide, where the paths allow it."""
    nodes = f"{processes} node process{'es' if processes > 1 else ''}"
    if run.starts == 1:
        say(f"A shop of {LISTS * PER_LIST:,} products on {LISTS} list pages, crawled by {nodes}.")
    else:
        standing = _standing(spider)
        say(f"Going on with run {run.run_id}, with {nodes}:")
        say(f"{standing.done:,} requests are done and stay done, {standing.left:,} are waiting.")
    say(f"  shop   {spider.start_url} (a process on this machine)")
    say("         a third of the pages in GBK, some fail at first, 4 links lead nowhere,")
    say("         5 links lead to a partner's host that is down")
    say(f"  queue  an embedded Redis, data in {display_path(folder.redis)}")
    say(f"  items  SQLite and JSON lines in {display_path(folder.run(run.run_id))}")
    say("  Ctrl-C stops in good order; started again, it goes on where it was.")


def _standing(spider: ShopDemo) -> _Standing:
    """Ask Redis. The server is held by this process meanwhile."""
    from netspy.cluster.failed import list_failed

    with assembly.embedded_store(spider, spider.settings) as settings:
        view = assembly.ClusterView(spider, settings)
        try:
            cluster = view.look()
            if cluster is None:
                return _Standing(0, 0, 0, Counter())
            reasons = Counter(one.record.reason for one in list_failed(view.client, view.scope))
            left = cluster.queued + cluster.leased + cluster.delayed
            # Every request of the demo has a fingerprint. The counters would lack what a killed node did last.
            done = max(cluster.fingerprints - left - cluster.failed, 0)
            return _Standing(done, left, cluster.failed, reasons)
        finally:
            view.close()


def _conclude(say: Say, end: FleetEnd, standing: _Standing, run: Unfinished, folder: DemoFolder) -> int:
    if end.error:
        raise ConfigError(end.error)
    summary, here = end.summary, folder.run(run.run_id)
    say("")
    say(summaries.human(summary))
    again = "make demo" if os.environ.get("MAKELEVEL") else "netspy demo"
    if summary.outcome not in {"finished", "nothing_to_do"}:
        say("")
        say(
            f"{standing.done:,} requests are done, {standing.left:,} are kept in the queue. To go on: {again}"
        )
        return summary.exit_code
    checked = report.check(here, demo_shop())
    log = report.served(here / "shop.log")
    if run.starts > 1:
        failed = ", ".join(f"{count} × {reason}" for reason, count in standing.reasons.most_common())
        say(
            f"  whole run  {standing.done:,} done, {standing.failed:,} failed ({failed}), in {run.starts} starts"
        )
    once = (
        "none of them twice" if not log.again else f"{log.again} of them twice: in flight at a stop or kill"
    )
    say(f"  the shop   served {log.pages:,} pages, {once}; {log.failed_once} failed at first")
    say("")
    report.show_rows(report.some(checked.rows), total=len(checked.rows), terminal=is_terminal(sys.stdout))
    say("")
    folder.forget()
    if checked.problems:
        for problem in checked.problems[:_MOST_PROBLEMS]:
            say(f"WRONG: {problem}")
        return int(ExitCode.INTERNAL)
    twice = f" ({checked.repeated} lines twice in the JSONL file, by the kill)" if checked.repeated else ""
    say(f"checked: all {len(checked.rows):,} products are there, each with the right values{twice}")
    return summary.exit_code


def display_path(path: Path) -> str:
    """A path as short as can be: relative to here when it is below."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
