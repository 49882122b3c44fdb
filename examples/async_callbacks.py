"""Callbacks with async def: several small downloads for one row, all at the same time.

python async_callbacks.py
"""

import asyncio

import netspy as mw


class PricesSpider(mw.AirSpider):
    __custom_setting__ = dict(ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"])

    def start_requests(self):
        for n in range(1, 6):
            yield mw.Request(f"https://example.com/items/{n}")

    async def parse(self, request, response):
        # Runs on the event loop: await what takes time, and don't block it (a plain `def` may block).
        # A fetch in place isn't queued and not tried again; any status comes here, and what it raises.
        price, stock = await asyncio.gather(
            response.follow(response.css("a.price")[0]).fetch(),
            self.stock_of(response),
        )
        yield {"name": response.css("h1::text").get(), "price": price.json()["price"], "stock": stock}

    async def stock_of(self, response):
        try:
            answer = await response.follow(response.css("a.stock")[0]).fetch()
            return answer.json()["stock"] if answer.ok else None
        except mw.NetspyError as error:  # no connection, or no JSON: the row can do without
            self.logger.warning("no stock for {}: {}", response.url, error)
            return None


if __name__ == "__main__":
    PricesSpider().start()
