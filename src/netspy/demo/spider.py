"""The spider of `netspy demo`: list pages of the made-up shop lead to products.

A node process imports it by this path, so it may serve as an example: everything a spider needs is in this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

from netspy.messages.item import Item
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.spiders.distributed import Spider
from netspy.testing.shop import Shop

LISTS = 40
PER_LIST = 25
SEED = 7

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def demo_shop() -> Shop:
    """The shop that the demo crawls, to compare its rows with."""
    return Shop(LISTS, PER_LIST, SEED)


class Product(Item):
    """One row of the table `product`."""

    __unique_key__: ClassVar[str] = "sku"

    sku: str
    title: str
    brand: str
    price: float
    old_price: float | None = None
    stock: int
    score: float
    path: str


class ShopDemo(Spider):
    """`start_url`: the first list page."""

    start_url: str
    __custom_setting__: ClassVar[dict[str, Any]] = {
        "ITEM_PIPELINES": ["netspy.pipelines.sqlite.SqlitePipeline", "netspy.pipelines.jsonl.JsonlPipeline"],
        # Shorter than the defaults, so that one sees within seconds what happens when a node is killed.
        "HEARTBEAT_INTERVAL": 1.0,
        "HEARTBEAT_STALE": 5.0,
        "SPIDER_STOP_TIMEOUT": 4.0,
        # Nodes claim little ahead: the figures show how they share, and list pages get their turn at once.
        "COLLECTOR_TASK_COUNT": 8,
        # The partner's host refuses every connection: don't let it keep us waiting for a minute.
        "CIRCUIT_COOLDOWN": 2.0,
    }

    def start_requests(self) -> Iterator[Request]:
        """One page; the others are found from there."""
        yield Request(self.start_url, callback=self.parse_list, priority=0)

    def parse_list(self, _request: Request, response: Response) -> Iterator[Request]:
        """The next list pages go first, so that the queue soon shows how much there is to do."""
        for link in response.css("nav.pager a.next"):
            yield response.follow(link, callback=self.parse_list, priority=0)
        for link in response.css("a.product"):
            yield response.follow(link, callback=self.parse_product)

    def parse_product(self, _request: Request, response: Response) -> Iterator[Product]:
        """One product."""
        if response.encoding.lower().startswith("gb"):
            self.stats.inc("pages in GBK")
        yield Product(**read_product(response))


def read_product(response: Response) -> dict[str, Any]:
    """The values on a product's page. Prices are `$12.50` or `￥12.50`."""
    return {
        "sku": response.css("p.sku b::text").get(),
        "title": response.css("h1.title::text").get(),
        "brand": response.css("p.brand a::text").get(),
        "price": _number(response.css("span.price::text").get()),
        "old_price": _number(response.css("del.old::text").get()),
        "stock": int(_number(response.css("p.stock::text").get()) or 0),
        "score": float(response.css("div.rating::attr(data-score)").get() or 0),
        "path": urlsplit(response.url).path,
    }


def _number(text: str | None) -> float | None:
    found = _NUMBER.search(text or "")
    return float(found[0]) if found else None
