"""`netspy parse`: what one callback yields of one page, of every kind."""

from __future__ import annotations

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
