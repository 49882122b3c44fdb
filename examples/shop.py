"""From list pages to detail pages, with two kinds of rows in two kinds of files.

python shop.py    # product.csv, and the tables product and review in items.db
"""

from decimal import Decimal

import netspy as mw


class Product(mw.Item):
    __unique_key__ = "sku"  # SQLite stores a product once, and a later crawl updates it
    __pipelines__ = [
        "netspy.pipelines.csv.CsvPipeline",
        "netspy.pipelines.sqlite.SqlitePipeline",
    ]

    # Declaring fields is optional. These are defaults: every row has these columns.
    name = ""
    price = None
    stars = None

    def pre_to_db(self):
        # Called before the row is stored: the place to clean fields.
        self.name = " ".join(self.name.split())


class Review(mw.Item):
    __unique_key__ = ("sku", "author")
    __pipelines__ = ["netspy.pipelines.sqlite.SqlitePipeline"]


class ShopSpider(mw.AirSpider):
    __custom_setting__ = dict(SQLITE_PATH="items.db", CSV_OUTPUT_DIR=".")

    def start_requests(self):
        yield mw.Request("https://example.com/shop?page=1", callback=self.parse_list)

    def parse_list(self, request, response):
        for card in response.css("li.product"):
            # Smaller priority comes first (300 if not said): finish products before opening more lists.
            yield response.follow(
                card.css("a")[0],
                callback=self.parse_product,
                priority=200,
                cb_kwargs={"stars": card.css(".stars::text").re_first(r"\d")},
            )
        yield from response.follow_all(css="a.next", callback=self.parse_list)

    def parse_product(self, request, response, stars):
        sku = response.css("[data-sku]::attr(data-sku)").get()
        yield Product(
            sku=sku,
            name=response.css("h1::text").get(default=""),
            price=Decimal(response.css(".price::text").re_first(r"[\d.]+")),
            stars=int(stars) if stars else None,
        )
        for review in response.css(".review"):
            yield Review(
                sku=sku, author=review.css(".author::text").get(), text=review.css(".text::text").get()
            )


if __name__ == "__main__":
    ShopSpider().start()
