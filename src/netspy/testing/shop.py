"""A made-up shop to crawl: list pages, details, and everything that goes wrong on real sites.

    shop = Shop(lists=40, per=25, seed=7)
    with LocalSite() as site:
        shop.mount(site)
        ...                                   # crawl from site.url("/list/1.html")
        assert shop.problems(rows) == []      # rows with the keys of ShopItem

Equal arguments give equal pages. A third of the pages is in GBK (half of these say so in the header, half
only in a meta element), some answer 500 or 503 at first, some links lead to pages that don't exist, some to a
host that is down. As a process: `python -m netspy.testing.shop --port 0 --ready-file FILE`.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from netspy.testing.process import add_process_arguments, serve_until_told
from netspy.testing.site import Answer, Incoming, LocalSite

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

DEAD_HOST = "http://localhost:1"
"""Nobody listens on port 1: a connection is refused at once. Not the shop's own host name, 127.0.0.1."""

_NOUNS = {
    "Kettle": "水壶",
    "Backpack": "双肩包",
    "Desk lamp": "台灯",
    "Notebook": "笔记本",
    "Tea cup": "茶杯",
    "Raincoat": "雨衣",
    "Bicycle bell": "自行车铃",
    "Chess set": "国际象棋",
    "Picnic rug": "野餐垫",
    "Fountain pen": "钢笔",
    "Wall clock": "挂钟",
    "Garden hose": "花园水管",
}
_STYLES = {
    "Plain": "素色",
    "Foldable": "折叠",
    "Enamel": "搪瓷",
    "Walnut": "胡桃木",
    "Striped": "条纹",
    "Sturdy": "结实",
    "Pocket": "口袋",
    "Sunday": "周末",
}
_BRANDS = {
    "Harbour & Sons": "海港父子",
    "Little Owl": "小猫头鹰",
    "North Gate": "北门",
    "Ottilie": "奥蒂莉",
    "Blue Ferry": "蓝渡轮",
    "Quince": "榅桲",
}
_PRAISE = (
    ("It does its one job and keeps doing it.", "它只做一件事，而且一直做得好。"),
    ("Packed in paper; nothing to throw away but string.", "用纸包装，只有绳子需要丢掉。"),
    ("The handle is where your hand expects it.", "把手正好在手想找的地方。"),
    ("Made in a small workshop next to the river.", "产自河边的一家小作坊。"),
    ("Repairs are free as long as we can find the parts.", "只要还能找到零件，维修免费。"),
    ("Customers return for a second one, seldom with the first.", "顾客常回来买第二件，很少退第一件。"),
)


class ShopItem(NamedTuple):
    """What a detail page says, as a spider is to store it."""

    sku: str
    title: str
    brand: str
    price: float
    old_price: float | None
    stock: int
    score: float
    path: str


class _Page(NamedTuple):
    """How a page is delivered."""

    gbk: bool
    header_says_so: bool
    fail_status: int  # at the first request; 0 = never
    delay: float


class Shop:
    """The pages and what is to be found on them."""

    def __init__(
        self,
        lists: int = 40,
        per: int = 25,
        seed: int = 7,
        *,
        delay: tuple[float, float] = (0.0, 0.0),
        missing: int = 4,
        dead: int = 5,
        dead_host: str = DEAD_HOST,
    ) -> None:
        """`lists` pages with `per` items each; `delay` are the bounds of a page's answer time in seconds.

        `missing` links lead to pages that answer 404, `dead` links to `dead_host`, which is to be down.
        """
        self.lists = lists
        self.per = per
        self.seed = seed
        self._delay = delay
        self._items = {number: self._make(number) for number in range(1, lists * per + 1)}
        chance = random.Random(f"{seed} links")
        gone = [(f"/item/sold-out-{number}.html", "Sold out") for number in range(1, missing + 1)]
        away = [(f"{dead_host}/partner/{number}.html", "At our partner's") for number in range(1, dead + 1)]
        self._extra = [(chance.randint(1, lists), href, text) for href, text in gone + away]

    # ---- what is right

    def expected(self) -> dict[str, ShopItem]:
        """Every item that can be had, by sku."""
        return {item.sku: item for item in self._items.values()}

    def pages(self) -> set[str]:
        """The paths that answer 200 and are linked from the start page `/list/1.html`, that one included."""
        return {f"/list/{number}.html" for number in range(1, self.lists + 1)} | {
            item.path for item in self._items.values()
        }

    def missing(self) -> set[str]:
        """The linked paths that answer 404."""
        return {href for _page, href, _text in self._extra if href.startswith("/")}

    def dead(self) -> set[str]:
        """The linked URLs on the host that is down."""
        return {href for _page, href, _text in self._extra if not href.startswith("/")}

    def problems(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """What is wrong with a crawl's rows: lost, repeated, unknown or different ones. [] = all right.

        A row needs `sku`; every other field of ShopItem that it has is compared (numbers also as text).
        """
        expected, found, wrong = self.expected(), Counter[str](), []
        for row in rows:
            sku = str(row.get("sku"))
            found[sku] += 1
            item = expected.get(sku)
            if item is None:
                wrong.append(f"unknown: {dict(row)}")
                continue
            for name, value in item._asdict().items():
                if name in row and not _same(row[name], value):
                    wrong.append(f"{sku}: {name} is {row[name]!r}, not {value!r}")
        wrong += [f"stored {count} times: {sku}" for sku, count in found.items() if count > 1]
        lost = [sku for sku in expected if sku not in found]
        if lost:
            wrong.append(f"{len(lost)} of {len(expected)} lost: {' '.join(lost[:10])}")
        return wrong

    # ---- pages

    def mount(self, site: LocalSite) -> str:
        """Add the shop's pages to a site; returns the URL of the first list page."""
        site.route("/", self._home)
        site.route("/list/", self._list, prefix=True)
        site.route("/item/", self._detail, prefix=True)
        return site.url("/list/1.html")

    def _make(self, number: int) -> ShopItem:
        chance = random.Random(f"{self.seed} item {number}")
        chinese = self._page("item", number).gbk
        style, noun = chance.choice(list(_STYLES.items())), chance.choice(list(_NOUNS.items()))
        brand = chance.choice(list(_BRANDS.items()))
        price = chance.randint(150, 99900) / 100
        old = round(price * chance.choice((1.1, 1.25, 1.5)), 2) if chance.random() < 0.4 else None
        return ShopItem(
            sku=f"NS-{number:05d}",
            title=f"{style[1]}{noun[1]} {number}号"
            if chinese
            else f"{style[0]} {noun[0].lower()} No. {number}",
            brand=brand[chinese],
            price=price,
            old_price=old,
            stock=chance.randint(0, 240),
            score=chance.randint(10, 50) / 10,
            path=f"/item/{number}.html",
        )

    def _page(self, kind: str, number: int) -> _Page:
        chance = random.Random(f"{self.seed} {kind} page {number}")
        gbk = chance.random() < 1 / 3
        header_says_so = chance.random() < 0.5
        fails = chance.random() < 0.04
        return _Page(
            gbk=gbk,
            header_says_so=header_says_so,
            fail_status=chance.choice((500, 503)) if fails else 0,
            delay=chance.uniform(*self._delay),
        )

    def _number(self, request: Incoming, last: int) -> int | None:
        stem = request.path.rsplit("/", 1)[1].removesuffix(".html")
        number = int(stem) if stem.isascii() and stem.isdigit() else 0
        return number if 1 <= number <= last else None

    def _home(self, _request: Incoming) -> Answer:
        body = '<p>Welcome. <a href="/list/1.html">See all our goods</a></p>'
        return Answer(_document("The Small Shop", body, "utf-8"))

    def _list(self, request: Incoming) -> Answer | None:
        number = self._number(request, self.lists)
        if number is None:
            return None
        page = self._page("list", number)
        rows = []
        for position in range((number - 1) * self.per + 1, number * self.per + 1):
            item = self._items[position]
            # A list page may be in another encoding than its items, so it shows numbers only.
            rows.append(
                f'<li class="card"><a class="product" href="{item.path}">{item.sku}</a> '
                f'<span class="from">{item.price:.2f}</span></li>'
            )
        rows += [
            f'<li class="card"><a class="product" href="{escape(href)}">{escape(text)}</a></li>'
            for where, href, text in self._extra
            if where == number
        ]
        ahead = range(number + 1, min(number + 3, self.lists) + 1)
        pager = " ".join(f'<a class="next" href="/list/{other}.html">{other}</a>' for other in ahead)
        title = f"商品列表 第{number}页" if page.gbk else f"All goods, page {number}"
        body = f'<ul class="grid">\n{"".join(rows)}</ul>\n<nav class="pager">{pager}</nav>'
        return self._deliver(request, page, title, body)

    def _detail(self, request: Incoming) -> Answer | None:
        number = self._number(request, len(self._items))
        if number is None:
            return None
        item, page = self._items[number], self._page("item", number)
        chance = random.Random(f"{self.seed} text {number}")
        words = [chance.choice(_PRAISE)[page.gbk] for _ in range(chance.randint(8, 30))]
        related = [self._items[chance.randint(1, len(self._items))] for _ in range(4)]
        currency, label = ("￥", "库存：{}件") if page.gbk else ("$", "In stock: {}")
        parts = [
            f'<h1 class="title">{escape(item.title)}</h1>',
            f'<p class="brand">{"品牌" if page.gbk else "By"} <a href="/">{escape(item.brand)}</a></p>',
            f'<p class="sku">{"编号" if page.gbk else "Number"} <b>{item.sku}</b></p>',
            f'<span class="price">{currency}{item.price:.2f}</span>',
            f'<del class="old">{currency}{item.old_price:.2f}</del>' if item.old_price is not None else "",
            f'<p class="stock">{label.format(item.stock)}</p>',
            f'<div class="rating" data-score="{item.score:.1f}">{"★" * round(item.score)}</div>',
            "<section>" + "\n".join(f"<p>{word}</p>" for word in words) + "</section>",
            '<ul class="related">'
            + "".join(f'<li><a href="{other.path}">{other.sku}</a></li>' for other in related)
            + "</ul>",
        ]
        return self._deliver(request, page, item.title, "\n".join(parts))

    def _deliver(self, request: Incoming, page: _Page, title: str, body: str) -> Answer:
        if page.fail_status and request.hits == 1:
            return Answer("busy, come again", page.fail_status, content_type="text/plain", delay=page.delay)
        if not page.gbk:
            return Answer(_document(title, body, "utf-8"), delay=page.delay)
        # A page whose header names the encoding needs no meta element, and the other way round.
        document = _document(title, body, None if page.header_says_so else "gbk").encode("gbk")
        return Answer(document, charset="gbk" if page.header_says_so else None, delay=page.delay)


def _document(title: str, body: str, charset: str | None) -> str:
    meta = f'<meta charset="{charset}">' if charset else ""
    return (
        f"<!DOCTYPE html>\n<html><head>{meta}<title>{escape(title)}</title></head>\n"
        f'<body><header><a href="/">The Small Shop</a></header>\n<main>{body}</main>\n'
        "<footer>No cookies, no newsletter.</footer></body></html>\n"
    )


def _same(stored: Any, value: Any) -> bool:
    """Whether a stored value is the expected one, as a number where that is one."""
    if value is None or stored is None or stored == "":
        return value is None and stored in (None, "")
    if isinstance(value, str):
        return str(stored) == value
    try:
        return bool(abs(float(stored) - value) < 0.005)
    except (TypeError, ValueError):
        return False


class _LoggedSite(LocalSite):
    """Notes each answer in a file, for whoever counts across restarts."""

    def __init__(self, log: Path, *, port: int) -> None:
        super().__init__(port=port, keep_log=False)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def respond(self, request: Incoming) -> Answer | Awaitable[Answer]:
        answer = super().respond(request)
        if isinstance(answer, Answer):  # the shop's handlers are plain functions
            os.write(self._log, f"{answer.status} {request.path}\n".encode())
        return answer

    def stop(self) -> None:
        super().stop()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1


def main(argv: list[str] | None = None) -> int:
    """Serve a shop until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m netspy.testing.shop", description="Serve a made-up shop on loopback, to be crawled."
    )
    parser.add_argument("--lists", type=int, default=40, help="list pages (default: 40)")
    parser.add_argument("--per", type=int, default=25, help="items per list page (default: 25)")
    parser.add_argument("--seed", type=int, default=7, help="another number makes another shop (default: 7)")
    parser.add_argument(
        "--delay-ms", default="20:60", metavar="LOW:HIGH", help="bounds of the answer time (default: 20:60)"
    )
    parser.add_argument("--log", type=Path, help="append a line `STATUS PATH` for each answer to this file")
    add_process_arguments(parser)
    options = parser.parse_args(argv)
    low, _, high = options.delay_ms.partition(":")
    try:
        delay = (float(low) / 1000, float(high or low) / 1000)
    except ValueError:
        parser.error(f"--delay-ms {options.delay_ms!r}: give two numbers, e.g. 20:60")
    site = (
        _LoggedSite(options.log, port=options.port)
        if options.log
        else LocalSite(port=options.port, keep_log=False)
    )
    Shop(options.lists, options.per, options.seed, delay=delay).mount(site)
    return serve_until_told(site, options, path="/list/1.html")


if __name__ == "__main__":
    raise SystemExit(main())
