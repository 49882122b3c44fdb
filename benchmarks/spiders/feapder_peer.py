import os, sys, common as b

DIST = os.environ.get("BENCH_DIST") == "1"
import feapder, feapder.setting as st
from feapder.network.item import Item
from urllib.parse import urlsplit

r = urlsplit(b.REDIS)
CFG = dict(
    LOG_LEVEL="WARNING",
    SPIDER_THREAD_COUNT=b.CONC,
    SPIDER_SLEEP_TIME=0,
    ITEM_PIPELINES=["feapder.pipelines.csv_pipeline.CsvPipeline"],
    CSV_EXPORT_PATH=b.OUT,
    REQUEST_FILTER_ENABLE=True,
    REQUEST_FILTER_SETTING=dict(filter_type=1 if DIST else 2, expire_time=None),
    USE_SESSION=os.environ.get("BENCH_SESSION", "1") == "1",
    RANDOM_HEADERS=False,
    REDISDB_IP_PORTS=f"{r.hostname}:{r.port}",
    REDISDB_USER_PASS="",
    REDISDB_DB=0,
    ITEM_FILTER_ENABLE=False,
    COLLECTOR_TASK_COUNT=max(32, b.CONC),
    MAKE_ABSOLUTE_LINKS=False,
    PROXY_ENABLE=False,
    WARNING_FAILED_COUNT=10**9,
)
for k, v in CFG.items():
    setattr(st, k, v)
from feapder.utils.log import log

log.setLevel("WARNING") if hasattr(log, "setLevel") else None


class S(feapder.Spider if DIST else feapder.AirSpider):
    __custom_setting__ = CFG

    def start_requests(self):
        for u in b.START_URLS:
            yield feapder.Request(u)

    def parse(self, request, response):
        b.page()
        for h in response.css(b.LINKS).getall():
            yield feapder.Request(b.BASE + h, callback=self.detail)

    def detail(self, request, response):
        b.page()
        b.item()
        it = Item(**b.extract(response))
        it.table_name = "items"
        yield it


if __name__ == "__main__":
    b.begin()
    if DIST:
        s = S(redis_key="fb", delete_keys="*")
    else:
        s = S()
    s.start()
    s.join()
