"""The spider that scenarios run as a script, how to read what it stored, and how to wait for its nodes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.children import wait_until

SPIDER = """
import os, sys, time
import netspy as mw

BASE = os.environ["SITE"]


class Pages(mw.Spider):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], LOG_LEVEL="INFO", PROGRESS="off",
        CONCURRENT_REQUESTS_PER_DOMAIN=0, RETRY_BACKOFF=0.1,
        REQUEST_TIMEOUT=100, IDLE_TIMEOUT=0,  # a page that a test holds for longer is not asked for again
    )

    def start_requests(self):
        for n in range(int(os.environ.get("PAGES", "24"))):
            time.sleep(float(os.environ.get("SEED_SLEEP", "0")))
            yield mw.Request(f"{BASE}/p/{n}")

    def parse(self, request, response):
        time.sleep(float(os.environ.get("PARSE_SLEEP", "0")))
        yield {"url": request.url, "node": os.getpid()}


if __name__ == "__main__":
    Pages().start()
"""


def rows(folder: Path, table: str = "items") -> list[tuple]:
    """What the SQLite pipeline stored."""
    with sqlite3.connect(folder / "items.db") as db:
        found = db.execute(f'SELECT * FROM "{table}"').fetchall()
    db.close()
    return found


def urls(folder: Path) -> list[str]:
    """Stored URLs, repeats included."""
    return sorted(row[0] for row in rows(folder))


def lines(path: Path) -> list[dict]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def wait_nodes(redis_url: str, count: int, ns: str = "netspy:Pages") -> None:
    """Wait until so many nodes of a run have joined it: what one has to itself before that is the machine's whim."""
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        assert wait_until(lambda: client.zcard(f"{ns}:beats") >= count, 60, step=0.02)
