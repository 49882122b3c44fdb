"""The fault comparison's spider for feapder: its distributed Spider, whose queue is in Redis."""

import time
from urllib.parse import urlsplit

import faults_common as work

import feapder
import feapder.setting as defaults
from feapder.network.item import Item
from feapder.pipelines import BasePipeline

redis = urlsplit(work.REDIS)
SETTINGS = {
    "LOG_LEVEL": "WARNING",
    "SPIDER_THREAD_COUNT": work.IN_FLIGHT,
    "SPIDER_SLEEP_TIME": 0,
    "ITEM_PIPELINES": ["faults_feapder.Sink"],
    "ITEM_FILTER_ENABLE": False,
    "REQUEST_FILTER_ENABLE": True,
    "REQUEST_FILTER_SETTING": {"filter_type": 1, "expire_time": None},
    "USE_SESSION": True,
    "MAKE_ABSOLUTE_LINKS": False,
    "RANDOM_HEADERS": False,
    "PROXY_ENABLE": False,
    "REDISDB_IP_PORTS": f"{redis.hostname}:{redis.port}",
    "REDISDB_USER_PASS": "",
    "REDISDB_DB": 0,
    "WARNING_FAILED_COUNT": 10**9,
    **work.SETTINGS,
}
for name, value in SETTINGS.items():
    setattr(defaults, name, value)


class Sink(BasePipeline):
    def save_items(self, table, items):
        work.write([{"url": item["url"], "title": item["title"]} for item in items])
        return True


class Faults(feapder.Spider):
    __custom_setting__ = SETTINGS

    def start_requests(self):
        for url in work.seed_urls():
            yield feapder.Request(url)
            work.seeded()
            time.sleep(work.SEED_PAUSE)

    def parse(self, request, response):
        item = Item(**work.row(request.url, response))
        item.table_name = "items"
        yield item
        for link in response.css(work.LINKS).getall():
            yield feapder.Request(work.BASE + link)


if __name__ == "__main__":
    spider = Faults(redis_key="faults")
    spider.start()
    spider.join()
