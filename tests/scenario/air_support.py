"""What tests of an AirSpider in this process share: quiet settings, a pipeline that remembers, one call to crawl."""

from __future__ import annotations

import threading
from typing import Any

import netspy as mw
from netspy.pipelines.base import BasePipeline
from netspy.testing.site import LocalSite

SCRIPT_HEAD = """
import asyncio, os, sys, time
import netspy as mw

BASE = os.environ["SITE"]
"""


class Memory(BasePipeline):
    """Keeps rows and updates; counts batches."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.updates: list[tuple[str, dict[str, Any], tuple[str, ...]]] = []
        self.batches = 0
        self.closed = 0
        self.stored = threading.Event()

    def save_items(self, table, items):
        self.batches += 1
        self.rows += [(table, item) for item in items]
        self.stored.set()

    def update_items(self, table, items, update_keys):
        self.updates += [(table, item, tuple(update_keys)) for item in items]

    def close(self):
        self.closed += 1

    def data(self, table: str = "items") -> list[dict[str, Any]]:
        """The rows of a table, in the order they came."""
        return [row for name, row in self.rows if name == table]


class Air(mw.AirSpider):
    """Starts at `paths` of `site`, quick to retry, quiet."""

    __custom_setting__ = {
        "PROGRESS": "off", "RETRY_BACKOFF": 0.0, "LOG_LEVEL": "INFO", "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
        "ITEM_STORE_PATIENCE": 0.0,
    }  # fmt: skip
    site: LocalSite
    paths: tuple[str, ...] = ("/",)

    def start_requests(self):
        # As one value: no page is done, and nothing stopped by it, before all of them are queued.
        yield [mw.Request(self.site.url(path)) for path in self.paths]

    def url(self, path: str) -> str:
        """An address on the site."""
        return self.site.url(path)


def crawl(spider: type[mw.AirSpider], site: LocalSite, **keywords: Any) -> tuple[Any, Memory, Any]:
    """Run the spider in this process: (summary, what was stored, the spider)."""
    memory = Memory()
    keywords.setdefault("pipelines", [memory])
    made = spider(site=site, **keywords)
    return made.run(), memory, made


def ok(summary: Any) -> Any:
    """The summary of a run that must have finished."""
    assert summary.outcome == "finished"
    assert summary.exit_code == 0
    return summary
