"""The same crawl by many processes and machines: queue and dedup are in Redis.

python news.py    # on machine A
python news.py    # on machine B, which joins by itself

Stop a node as you like, with Ctrl-C or harder: the others take its work over, and a later start goes on.
To crawl everything once more, give the run a name of its own: NETSPY_RUN_ID=$(date +%s) python news.py
"""

import netspy as mw


class NewsSpider(mw.Spider):
    __custom_setting__ = dict(
        REDIS_URL="redis://localhost:6379/0",
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"],
    )

    def start_requests(self):
        # Called on one node only: the first that comes. The others help from the first page on.
        for page in range(1, 100):
            yield mw.Request(f"https://example.com/news?p={page}", callback=self.parse)

    def parse(self, request, response):
        for link in response.css("h2 a"):
            # What cb_kwargs holds travels through Redis with the request and arrives as it was.
            yield response.follow(
                link, callback=self.parse_article, cb_kwargs={"headline": link.css("::text").get()}
            )

    def parse_article(self, request, response, headline):
        yield Article(url=response.url, headline=headline, text=" ".join(response.css("p::text").getall()))


class Article(mw.Item):
    # After a crash a page may be fetched again. With a key, its row is stored once all the same.
    __unique_key__ = "url"


if __name__ == "__main__":
    NewsSpider().start()
