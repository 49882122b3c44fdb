"""A first spider: one process, nothing to install. Rows go to article.jsonl.

python news_air.py
"""

import netspy as mw


class NewsSpider(mw.AirSpider):
    __custom_setting__ = dict(
        SPIDER_THREAD_COUNT=8,  # pages at work at the same time
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"],
    )

    def start_requests(self):
        # Where to begin. `callback` is what is called with the page.
        yield mw.Request("https://example.com/news", callback=self.parse)

    def parse(self, request, response):
        # A list page: go to every article on it, and on to the next list page. A page that two lists
        # link to is fetched once.
        yield from response.follow_all(css="h2 a", callback=self.parse_article)
        yield from response.follow_all(css="a.next", callback=self.parse)

    def parse_article(self, request, response):
        yield Article(
            url=response.url,
            title=response.css("h1::text").get(),
            text=" ".join(response.css("p::text").getall()),
        )


class Article(mw.Item):
    # The table is named after the class: article. Two rows with the same key are one.
    __unique_key__ = "url"


if __name__ == "__main__":
    NewsSpider().start()
