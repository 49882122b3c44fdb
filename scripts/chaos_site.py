"""What a chaos run crawls: the spider, and a site on which one lost link loses all that follows."""
# ruff: noqa: INP001 - part of a script

from __future__ import annotations

from typing import Any

from netspy.testing.site import Answer, Incoming, LocalSite

CHAINS = 3
DETAILS = 8
LIST_SECONDS = 0.25

SPIDER = """
import faulthandler, os, signal, time
import netspy as mw

faulthandler.register(signal.SIGUSR1, all_threads=True)
SITE = os.environ["SITE"]


class Page(mw.Item):
    __unique_key__ = "path"


class Chaos(mw.Spider):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], PROGRESS="off", SPIDER_THREAD_COUNT=4,
        CONCURRENT_REQUESTS_PER_DOMAIN=0, CIRCUIT_FAILURE_THRESHOLD=0, RETRY_BACKOFF=0.1, SPIDER_STOP_TIMEOUT=4,
        HEARTBEAT_INTERVAL=0.3, HEARTBEAT_STALE=1.5, SPIDER_TASK_LEASE=6, SPIDER_SEEDING_TTL=2, SPIDER_STARTUP_GRACE=1,
        REDIS_START_TIMEOUT=60, DEDUP_INITIAL_CAPACITY=20000,
    )

    def start_requests(self):
        for n in range(int(os.environ["CHAINS"])):
            yield mw.Request(f"{SITE}/list/{n}/0", priority=0)
        for n in range(int(os.environ["SEEDS"])):
            time.sleep(0.05)
            yield mw.Request(f"{SITE}/seed/{n}")

    def parse(self, request, response):
        yield Page(path=request.url.removeprefix(SITE))
        for link in response.css("a"):
            first = link.attrib["href"].startswith("/list/")
            yield response.follow(link, callback=self.parse, priority=0 if first else 300)


Chaos().start()
"""


def answers_late(path: str) -> bool:
    """Whether a page answers at the second try only."""
    return path.startswith("/item/") and sum(path.encode()) % 9 == 0


class Site:
    """Chains of list pages; each one is found only on the one before, so one lost link loses all that follows."""

    def __init__(self, seconds: float) -> None:
        self.lists = max(4, int(seconds / LIST_SECONDS))
        self.seeds = int(seconds * 8)
        self.web = LocalSite(keep_log=False)
        self.web.route("/list/", self._list, prefix=True, delay=LIST_SECONDS * 0.7)
        self.web.route("/seed/", self._seed, prefix=True, delay=0.02)
        self.web.route("/item/", self._item, prefix=True, delay=0.02)

    def links(self, path: str) -> list[str]:
        """The links on a page."""
        what, *rest = path.strip("/").split("/")
        if what == "seed":
            return [f"/item/seed/{rest[0]}", f"/item/common/{int(rest[0]) % 7}"]
        if what != "list":
            return []
        chain, n = map(int, rest)
        found = [f"/item/{chain}/{n}/{i}" for i in range(DETAILS)] + [f"/item/common/{n % 7}"]
        return found + ([f"/list/{chain}/{n + 1}"] if n + 1 < self.lists else [])

    def expected(self) -> set[str]:
        """Every path that can be reached from the seeds."""
        todo = [f"/list/{n}/0" for n in range(CHAINS)] + [f"/seed/{n}" for n in range(self.seeds)]
        found: set[str] = set()
        while todo:
            path = todo.pop()
            if path not in found:
                found.add(path)
                todo += self.links(path)
        return found

    def fetched_twice(self) -> int:
        """Fetches beyond those that each page needs."""
        hits = self.web.all_hits()
        return sum(hits.values()) - sum(1 + answers_late(path) for path in hits)

    def _page(self, path: str) -> str:
        return "<p>" + "".join(f'<a href="{link}">x</a>' for link in self.links(path))

    def _list(self, request: Incoming) -> str:
        return self._page(request.path)

    def _seed(self, request: Incoming) -> str:
        return self._page(request.path)

    def _item(self, request: Incoming) -> Any:
        # Some pages answer at the second try only, so that delayed requests are at stake, too.
        if request.hits == 1 and answers_late(request.path):
            return Answer("later", 503)
        return self._page(request.path)
