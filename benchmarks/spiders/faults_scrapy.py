"""The fault comparison's spider for scrapy-redis: scheduler and duplicate filter in Redis, kept between starts."""

import asyncio

import faults_common as work
import scrapy
from scrapy.crawler import CrawlerProcess

SETTINGS = {
    "LOG_LEVEL": "WARNING",
    "CONCURRENT_REQUESTS": work.IN_FLIGHT,
    "CONCURRENT_REQUESTS_PER_DOMAIN": work.IN_FLIGHT,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "AUTOTHROTTLE_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "REDIS_URL": work.REDIS,
    "ITEM_PIPELINES": {"faults_scrapy.Sink": 300},
    **work.SETTINGS,
}


class Sink:
    async def process_item(self, item):
        if work.WRITE_PAUSE:
            await asyncio.sleep(work.WRITE_PAUSE)
        work.append([item])
        return item


class Faults(scrapy.Spider):
    name = "faults"

    async def start(self):
        for url in work.seed_urls():
            yield scrapy.Request(url)
            work.seeded()
            if work.SEED_PAUSE:
                await asyncio.sleep(work.SEED_PAUSE)

    def parse(self, response):
        yield work.row(response.url, response)
        for link in response.css(work.LINKS).getall():
            yield response.follow(link)


if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl(Faults)
    process.start()
