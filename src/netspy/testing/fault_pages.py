"""What runs in the fault suite: a spider, the site it crawls, and a clock that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netspy.testing.site import LocalSite

PAGES = """\
import os, sys, time
import netspy as mw

SITE = os.environ["SITE"]


def env(name, default="0"):
    return float(os.environ.get(name, default))


class Page(mw.Item):
    __unique_key__ = "url"

    url: str


class Pages(mw.Spider):
    def start_requests(self):
        for n in range(int(env("LISTS", "40"))):
            time.sleep(env("SEED_SLEEP"))
            yield mw.Request(f"{SITE}/l/{n}", callback=self.parse_list)

    def parse_list(self, request, response):
        for link in response.css("a"):
            yield response.follow(link)
        if int(request.url.rpartition("/")[2]) % 2 == 0:
            yield Page(url=request.url)

    def parse(self, request, response):
        time.sleep(env("PARSE_SLEEP"))
        yield Page(url=request.url)


if __name__ == "__main__":
    Pages().start()
"""
"""The spider of the fault suite, for the site that `serve_pages` makes: lists lead to pages, most give a row."""

AIR_PAGES = PAGES.replace("(mw.Spider)", "(mw.AirSpider)")
"""The same in one process, without Redis."""


def serve_pages(site: LocalSite, lists: int = 40, links: int = 10, *, delay: float = 0.0) -> set[str]:
    """Lists `/l/N` that lead to pages `/d/N-M`; the URLs of which PAGES stores a row: all pages and each even list.

    `delay`: seconds until a page answers.
    """

    def of_list(number: int) -> list[str]:
        return [f"/d/{number}-{i}" for i in range(links)]

    site.route(
        "/l/",
        lambda request: "".join(
            f'<a href="{path}">x</a>' for path in of_list(int(request.path.rpartition("/")[2]))
        ),
        prefix=True,
        delay=delay,
    )
    site.route("/d/", "<h1>a page</h1>", prefix=True, delay=delay)
    paths = [path for n in range(lists) for path in of_list(n)] + [f"/l/{n}" for n in range(0, lists, 2)]
    return {site.url(path) for path in paths}


WRONG_CLOCK = """\
import datetime, time

_shift, _time, _time_ns, _datetime = {shift!r}, time.time, time.time_ns, datetime.datetime


class Shifted(_datetime):
    @classmethod
    def now(cls, tz=None):
        return _datetime.now(tz) + datetime.timedelta(seconds=_shift)


time.time = lambda: _time() + _shift
time.time_ns = lambda: _time_ns() + int(_shift * 1e9)
datetime.datetime = Shifted
"""
"""For `sitecustomize.py`: every way in which netspy and its libraries read the wall clock is off by `shift` seconds."""
