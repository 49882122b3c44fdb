"""Crawl a table of tasks again and again: one batch a day, with a record of each.

python crawl_table.py create     # the table, in tasks.db; usually it is there already, in MySQL or PostgreSQL
python crawl_table.py monitor    # the master: opens batches, hands tasks out, takes lost ones back. One of them
python crawl_table.py            # a worker: as many as you like
python crawl_table.py once       # for cron: one batch to its end

`netspy batch check crawl_table.py` says what is missing, `netspy batch status crawl_table.py` how far a batch is.
"""

import sqlite3
import sys

import netspy as mw


class PageSpider(mw.BatchSpider):
    __task_table__ = "page"
    __custom_setting__ = dict(
        REDIS_URL="redis://localhost:6379/0",
        BATCH_STORE_URL="sqlite:///tasks.db",  # or mysql://user:password@host/database, postgresql://…
        BATCH_INTERVAL=1,
        BATCH_INTERVAL_UNIT="day",
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"],
    )

    def task_requests(self, task):
        yield mw.Request(task["url"], callback=self.parse)

    def parse(self, request, response, task):
        yield Page(url=task["url"], title=response.css("h1::text").get())
        self.update_task(task["id"])  # written once the row above is stored

    def failed_request(self, request, response):
        self.stats.inc("lost pages")
        super().failed_request(request, response)  # marks the task as failed


class Page(mw.Item):
    __unique_key__ = "url"


def create():
    db = sqlite3.connect("tasks.db")
    db.execute(
        "CREATE TABLE page (id INTEGER PRIMARY KEY, url TEXT NOT NULL, batch_status INTEGER NOT NULL DEFAULT 0, "
        "update_time DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP)"
    )
    db.execute("CREATE INDEX by_state ON page (batch_status, update_time, id)")
    db.executemany(
        "INSERT INTO page (url) VALUES (?)", [(f"https://example.com/page/{n}",) for n in range(1, 41)]
    )
    db.commit()
    db.close()


if __name__ == "__main__":
    role = sys.argv[1] if len(sys.argv) > 1 else "worker"
    if role == "create":
        create()
    elif role in {"monitor", "once"}:
        PageSpider().start_monitor(once=role == "once")
    else:
        PageSpider(keep_alive=True).start()
