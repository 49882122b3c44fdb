"""The spider of `netspy demo --batch`: a table of product pages, crawled again in every batch.

Master and workers import it by this path, so it may serve as an example: everything a spider needs is in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from netspy.demo.spider import read_product
from netspy.messages.item import Item
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.spiders.batch import BatchSpider


class Visit(Item):
    """One row of the table `visit`: a product as it was in one batch. The key keeps a row single that comes twice."""

    __unique_key__: ClassVar[tuple[str, ...]] = ("batch", "sku")

    batch: int
    sku: str
    title: str
    brand: str
    price: float
    old_price: float | None = None
    stock: int
    score: float
    path: str


class BatchDemo(BatchSpider):
    """Its task table has the columns `id`, `url`, `batch_status`, `update_time`."""

    __task_table__ = "product_page"
    __custom_setting__: ClassVar[dict[str, Any]] = {
        "ITEM_PIPELINES": ["netspy.pipelines.sqlite.SqlitePipeline"],
        # Half a minute instead of seven days, and short times besides, so that one sees soon what happens.
        "BATCH_INTERVAL": 0.5,
        "BATCH_INTERVAL_UNIT": "minute",
        "BATCH_MONITOR_INTERVAL": 1.0,
        "BATCH_PUSH_LIMIT": 200,
        "TASK_POLL_INTERVAL": 0.3,
        "TASK_BATCH_SIZE": 20,
        "HEARTBEAT_INTERVAL": 1.0,
        "HEARTBEAT_STALE": 4.0,
        "SPIDER_STARTUP_GRACE": 2.0,
    }

    def task_requests(self, task: dict[str, Any]) -> Iterator[Request]:
        """One page per task. The batch's number goes along, for the row."""
        latest = self.store.latest_batch()
        number = latest.id if latest is not None else 0
        yield Request(task["url"], callback=self.parse_product, cb_kwargs={"batch": number})

    def parse_product(
        self, _request: Request, response: Response, batch: int, task: dict[str, Any]
    ) -> Iterator[Visit]:
        """The row first, then the word that the task is done; that is written when the row is stored."""
        yield Visit(batch=batch, **read_product(response))
        self.update_task(task["id"])
