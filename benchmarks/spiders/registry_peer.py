import os, sys, common as b
import netspy
from netspy.pipelines.csv import CsvPipeline

DIST = os.environ.get("BENCH_DIST") == "1"


class Csv(CsvPipeline):
    pass


class S(netspy.Spider if DIST else netspy.AirSpider):
    __custom_setting__ = dict(
        LOG_LEVEL="WARNING",
        SPIDER_THREAD_COUNT=b.CONC,
        CONCURRENT_REQUESTS_PER_DOMAIN=0,
        ITEM_PIPELINES=["netspy.pipelines.csv.CsvPipeline"],
        CSV_OUTPUT_DIR=b.OUT,
        USE_SESSION=os.environ.get("BENCH_SESSION", "1") == "1",
        DOWNLOADER_ASYNC=os.environ.get("BENCH_ASYNC") == "1",
        REDIS_URL=b.REDIS,
        DEDUP_FILTER="redis" if DIST else "memory",
        WARNING_ENABLE=False,
        RUN_SUMMARY_ENABLE=False,
    )

    def start_requests(self):
        for u in b.START_URLS:
            yield netspy.Request(u)

    def parse(self, request, response):
        b.page()
        for h in response.css(b.LINKS).getall():
            yield netspy.Request(
                response.urljoin(h) if hasattr(response, "urljoin") else b.BASE + h, callback=self.detail
            )

    def detail(self, request, response):
        b.page()
        b.item()
        yield b.extract(response)


if __name__ == "__main__":
    b.begin()
    S().start()
