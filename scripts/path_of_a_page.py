# ruff: noqa: INP001, T201, D102, D103, RUF012 - a script, no part of a package; it prints
"""Through how many of our files does one page go, from its claim to its ack? In memory, and on Redis.

    .venv/bin/python scripts/path_of_a_page.py [--files]

One request at a time, default settings, no rows. A profile hook on all threads counts, from the call that claims the third
page to the moment when the book of leases lets it go: files, calls, and moves from one file to another.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import netspy as mw
from netspy.testing import LocalSite, RedisServer

ROOT = f"{Path(mw.__file__).parent}/"
ONE_AT_A_TIME = {"SPIDER_THREAD_COUNT": 1, "COLLECTOR_TASK_COUNT": 1}
QUIET = {"PROGRESS": "off", "LOG_LEVEL": "ERROR", "HEARTBEAT_INTERVAL": 60.0, "HEARTBEAT_STALE": 600.0}
PAGES = 8
CLAIM, TAKEN, DONE = ("Frontier.claim",), ("HeldLeases.took",), ("HeldLeases.done",)


class Walk:
    """What is called while one page is at work."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.moves = 0
        self._last = ""
        self._claimed = 0
        self._on = False
        self._lease: Any = None
        self._lock = threading.Lock()

    def __call__(self, frame: Any, event: str, _argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        code = frame.f_code
        begins = frame.f_lineno == code.co_firstlineno  # else a coroutine goes on
        if begins and code.co_qualname.endswith(TAKEN) and (leases := frame.f_locals["leases"]):
            self._claimed += 1
            if self._on and self._lease is None:
                [self._lease] = leases
        if begins and code.co_qualname.endswith(CLAIM) and self._claimed == 2 and self._lease is None:
            self.files.clear()  # the last one before brought nothing
            self.moves = 0
            self._on = True
        if self._on:
            self._count(code.co_filename.removeprefix(ROOT))
        if code.co_qualname.endswith(DONE) and frame.f_locals["lease"] is self._lease:
            self._on = False

    def _count(self, name: str) -> None:
        with self._lock:
            self.files[name] += 1
            if name != self._last:
                self.moves += 1
                self._last = name


def walk(base: type, urls: list[str], **settings: Any) -> Walk:
    class Pages(base):  # type: ignore[misc]
        __custom_setting__ = {**QUIET, **ONE_AT_A_TIME, **settings}

        def start_requests(self) -> Any:
            yield from map(mw.Request, urls)

        def parse(self, request: Any, response: Any) -> None:
            """Nothing more to crawl, nothing to keep."""

    found = Walk()
    threading.setprofile(found)
    sys.setprofile(found)
    try:
        Pages().run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", action="store_true", help="name them, with the calls into each")
    options = parser.parse_args()
    with LocalSite() as site, RedisServer() as redis:
        urls = [site.url(f"/{number}") for number in range(PAGES)]
        for number in range(PAGES):
            site.route(f"/{number}", "<title>a page</title>")
        walks = {
            "memory": walk(mw.AirSpider, urls),
            "Redis": walk(mw.Spider, urls, REDIS_URL=redis.url),
        }
    for kind, found in walks.items():
        print(f"{kind}: {len(found.files)} files, {sum(found.files.values())} calls, {found.moves} moves")
        if options.files:
            for name, calls in sorted(found.files.items()):
                print(f"  {calls:4} {name}")


main()
