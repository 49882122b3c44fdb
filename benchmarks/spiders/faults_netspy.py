"""The fault comparison's spider for both packages named netspy: the same file runs in both environments."""

import time

import faults_common as work
import netspy
from netspy.pipelines.base import BasePipeline


class Sink(BasePipeline):
    def save_items(self, table, items):
        work.write(items)
        return True


class Faults(netspy.Spider):
    __custom_setting__ = {
        "LOG_LEVEL": "WARNING",
        "REDIS_URL": work.REDIS,
        "SPIDER_THREAD_COUNT": work.IN_FLIGHT,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
        "ITEM_PIPELINES": ["faults_netspy.Sink"],
        "WARNING_ENABLE": False,
        **work.SETTINGS,
    }

    def start_requests(self):
        for url in work.seed_urls():
            yield netspy.Request(url)
            work.seeded()
            time.sleep(work.SEED_PAUSE)

    def parse(self, request, response):
        yield work.row(request.url, response)
        for link in response.css(work.LINKS).getall():
            yield netspy.Request(work.BASE + link)


if __name__ == "__main__":
    Faults(redis_key="faults").start()
