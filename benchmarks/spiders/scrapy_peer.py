import os, sys, common as b
import scrapy
from scrapy.crawler import CrawlerProcess

DIST = os.environ.get("BENCH_DIST") == "1"
SET = dict(
    LOG_LEVEL="WARNING",
    CONCURRENT_REQUESTS=b.CONC,
    CONCURRENT_REQUESTS_PER_DOMAIN=b.CONC,
    CONCURRENT_REQUESTS_PER_IP=0,
    DOWNLOAD_DELAY=0,
    ROBOTSTXT_OBEY=False,
    COOKIES_ENABLED=os.environ.get("BENCH_COOKIES", "1") == "1",
    AUTOTHROTTLE_ENABLED=False,
    RETRY_ENABLED=True,
    TELNETCONSOLE_ENABLED=False,
    TWISTED_REACTOR="twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    FEEDS={os.path.join(b.OUT, "items.jsonl"): {"format": "jsonlines", "overwrite": True}},
    REACTOR_THREADPOOL_MAXSIZE=10,
)
if os.environ.get("BENCH_UVLOOP") == "1":
    SET["ASYNCIO_EVENT_LOOP"] = "uvloop.Loop"
if os.environ.get("BENCH_HANDLER"):
    SET["DOWNLOAD_HANDLERS"] = {"http": os.environ["BENCH_HANDLER"], "https": os.environ["BENCH_HANDLER"]}
if DIST:
    SET |= dict(
        SCHEDULER="scrapy_redis.scheduler.Scheduler",
        DUPEFILTER_CLASS="scrapy_redis.dupefilter.RFPDupeFilter",
        SCHEDULER_FLUSH_ON_START=True,
        REDIS_URL=b.REDIS,
        SCHEDULER_IDLE_BEFORE_CLOSE=0,
    )


class S(scrapy.Spider):
    name = "s"
    start_urls = b.START_URLS

    def parse(self, response):
        b.page()
        for h in response.css(b.LINKS).getall():
            yield scrapy.Request(response.urljoin(h), callback=self.detail)

    def detail(self, response):
        b.page()
        b.item()
        yield b.extract(response)


if __name__ == "__main__":
    p = CrawlerProcess(SET)
    p.crawl(S)
    b.begin()
    p.start()
