"""A spider whose Redis others can write to, too, run as a script."""

from __future__ import annotations

from pathlib import Path

from netspy.testing.runner import Result, run_script
from netspy.testing.site import LocalSite

SPIDER = """
import os, sys, time
import netspy as mw

BASE = os.environ["SITE"]


def called(name):
    with open("called.txt", "a") as file:
        file.write(name + "\\n")


class Other(mw.Spider):
    def elsewhere(self, request, response):
        called("elsewhere")


class Safe(mw.Spider):
    redis_key = "safe"
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], PROGRESS="off", CONCURRENT_REQUESTS_PER_DOMAIN=0,
        RETRY_BACKOFF=0.01, HEARTBEAT_INTERVAL=0.2, HEARTBEAT_STALE=1.0, SPIDER_MAX_RETRY_TIMES=1, DONE_CHECK_INTERVAL=0.1,
    )
    _running = called
    label = "not callable"
    helper = os.system
    built = print

    class Inner:
        def __init__(self, *args, **keywords):
            called("Inner")

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.attached = lambda *args: called("attached")

    def __call__(self, *args):
        called("__call__")

    @property
    def tempting(self):
        called("tempting")
        return called

    def start_requests(self):
        for n in range(int(os.environ.get("PAGES", "12"))):
            yield mw.Request(f"{BASE}/p/{n}")

    def parse(self, request, response):
        yield {"url": request.url}


if __name__ == "__main__":
    Safe().start()
"""


def run(folder: Path, site: LocalSite, url: str, source: str = SPIDER, **env: str) -> Result:
    return run_script(
        source, cwd=folder, env={"SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": url, **env}, timeout=90
    )
