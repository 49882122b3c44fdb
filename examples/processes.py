"""All cores of one machine: four processes, one crawl, one summary. No Redis to install.

python processes.py

The extra `embedded` brings a small Redis server; one that is on your path is used first. Its data is in the
folder .netspy: press Ctrl-C and start again, and the crawl goes on.
"""

import os

import netspy as mw


class ManySpider(mw.Spider):
    __custom_setting__ = dict(
        REDIS_URL="embedded",
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"],
        CONCURRENT_REQUESTS_PER_DOMAIN=4,  # for each process: 4 × 4 requests at once, so be kind
    )

    def start_requests(self):
        for n in range(1, 201):
            yield mw.Request(f"https://example.com/p/{n}")

    def parse(self, request, response):
        self.stats.inc("words", len(response.css("p::text").get(default="").split()))
        yield {"url": request.url, "title": response.css("h1::text").get(), "process": os.getpid()}


if __name__ == "__main__":
    ManySpider().start(processes=4)
