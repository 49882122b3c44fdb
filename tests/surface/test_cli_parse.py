"""`netspy parse`: what one callback yields of one page, of every kind."""

from __future__ import annotations

import pytest
from cli_rig import Rig

SPIDER = """
from dataclasses import dataclass
import netspy as mw


@dataclass
class Price:
    __table_name__ = "prices"
    url: str


class Page(mw.Item):
    pass


class Kinds(mw.AirSpider):
    start_urls = ["http://localhost/"]

    def parse(self, request, response):
        yield Price(response.text)
        yield Page(n=1)
        yield {"n": 2}
        yield mw.Request(request.url + "/more", callback=self.one)

    def one(self, request, response):
        return Price("alone")
"""


BROKEN = """
import netspy as mw


class Broken(mw.AirSpider):
    def parse(self, request, response):
        yield {"n": 1}
        raise ValueError("no price on this page")

    async def slowly(self, request, response):
        yield {"n": 2}
        raise KeyError("price")
"""


@pytest.mark.parametrize(
    ("callback", "line", "told"),
    [("parse", 8, "ValueError: no price on this page"), ("slowly", 12, "KeyError: 'price'")],
)
def test_a_callback_that_raises_is_named_with_its_line_after_what_it_had_yielded(
    pages, tmp_path, callback, line, told
):
    (tmp_path / "broken.py").write_text(BROKEN)
    rig = Rig(tmp_path, pages.url(""))
    result = rig("parse", pages.url("/p/1"), "--spider", "broken.py", "-c", callback).check(6)
    assert result.stdout.startswith('item  {"n":')
    assert (
        result.stderr.splitlines()[-1] == f"netspy: error: Broken.{callback} (broken.py:{line}) raised {told}"
    )


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("shop/1", 3, "'shop/1' is not an absolute URL"),
        ("ftp://example.com/", 3, "ftp"),
        ("http://127.0.0.1:1/", 6, "http://127.0.0.1:1/ failed (connect)"),
    ],
)
@pytest.mark.parametrize("command", ["parse", "shell"])
def test_a_page_that_cannot_be_had_is_no_error_inside_netspy(pages, tmp_path, command, url, code, told):
    (tmp_path / "kinds.py").write_text(SPIDER)
    spider = ["--spider", "kinds.py"] if command == "parse" else []
    result = Rig(tmp_path, pages.url(""))(command, url, *spider).check(code)
    [line] = result.stderr.splitlines()
    assert told in line


def test_every_kind_is_shown_with_its_table(pages, tmp_path):
    (tmp_path / "kinds.py").write_text(SPIDER)
    rig = Rig(tmp_path, pages.url(""))
    shown = rig("parse", pages.url("/p/1"), "--spider", "kinds.py").check().stdout.splitlines()
    assert shown == [
        'prices  {"url":"<h1>/p/1</h1>"}',
        'page  {"n":1}',
        'item  {"n":2}',
        f"request  GET {pages.url('/p/1/more')}  ->  one",
    ]
    one = rig("parse", pages.url("/p/1"), "--spider", "kinds.py", "--callback", "one").check().stdout
    assert one == 'prices  {"url":"alone"}\n'
