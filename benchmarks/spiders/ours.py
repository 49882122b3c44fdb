import os, sys, common as b
import netspy

DIST = os.environ.get("BENCH_DIST") == "1"


class S(netspy.Spider if DIST else netspy.AirSpider):
    __custom_setting__ = dict(
        LOG_LEVEL="WARNING",
        SPIDER_THREAD_COUNT=b.CONC,
        CONCURRENT_REQUESTS_PER_DOMAIN=0,
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"],
        JSONL_OUTPUT_DIR=b.OUT,
        REDIS_URL=b.REDIS,
        RUN_SUMMARY_ENABLE=False,
        PROGRESS="off",
    )

    def start_requests(self):
        for u in b.START_URLS:
            yield netspy.Request(u)

    def parse(self, request, response):
        b.page()
        for h in response.css(b.LINKS).getall():
            yield netspy.Request(response.urljoin(h), callback=self.detail)

    def detail(self, request, response):
        b.page()
        b.item()
        yield b.extract(response)


if __name__ == "__main__":
    b.begin()
    S().start()
