"""What several files of the fault suite share: changed spiders, a disk that is full, a site that stands still."""

from __future__ import annotations

import resource
import time

from netspy.testing.children import wait_until
from netspy.testing.fault_pages import AIR_PAGES, PAGES, serve_pages
from netspy.testing.runner import Script
from netspy.testing.site import LocalSite

__all__ = ["AIR_PAGES", "PAGES", "SEEDS"]

HELD = 50
"""SPIDER_MAX_UNACKED of these runs: what one dead node can have fetched in vain."""

_PARSE = '        time.sleep(env("PARSE_SLEEP"))\n'


SEEDS = PAGES.replace('f"{SITE}/l/{n}", callback=self.parse_list', 'f"{SITE}/d/{n}"')
"""The spider whose seeds are the pages themselves."""


def serve_seeds(site: LocalSite, number: int) -> set[str]:
    """So many pages, each a seed of SEEDS and a row; their URLs."""
    serve_pages(site)
    return {site.url(f"/d/{n}") for n in range(number)}


def in_parse(code: str, source: str = PAGES) -> str:
    """The spider with further lines at the beginning of `parse`."""
    assert source.count(_PARSE) == 1
    return source.replace(_PARSE, _PARSE + code)


def slow_store(source: str = PAGES) -> str:
    """The spider with a database that takes STORE_SLEEP seconds for each batch."""
    return source.replace(
        "class Page(mw.Item):",
        """from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.sqlite import SqlitePipeline


class Store(SqlitePipeline):
    def save_items(self, table, items):
        time.sleep(env("STORE_SLEEP"))
        return super().save_items(table, items)


class Page(mw.Item):""",
    ).replace("Pages().start()", "Pages(pipelines=[Store, JsonlPipeline]).start()")


def held_store(source: str = PAGES) -> str:
    """The spider with a database that takes nothing until there is a file `there` in the run's folder."""
    return slow_store(source).replace(
        'time.sleep(env("STORE_SLEEP"))', 'while not os.path.exists("there"): time.sleep(0.02)'
    )


def limit_files(script: Script, size: int) -> None:
    """The largest file that a process may write, from now on: a disk that is full, or has room again."""
    resource.prlimit(script.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def wait_stands_still(site: LocalSite, seconds: float = 1.5) -> None:
    """Wait until nothing was fetched for so long."""
    stood = [site.total, time.monotonic()]

    def stands() -> bool:
        if site.total != stood[0]:
            stood[:] = [site.total, time.monotonic()]
        return time.monotonic() - stood[1] > seconds

    assert wait_until(stands, 10 + seconds)
