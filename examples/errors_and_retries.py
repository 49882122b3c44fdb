"""What happens to pages that fail: tried again, then handed to you, counted and listed.

python errors_and_retries.py
"""

import netspy as mw


class CheckSpider(mw.AirSpider):
    __custom_setting__ = dict(
        SPIDER_MAX_RETRY_TIMES=2,  # two tries after the first one
        RETRY_BACKOFF=0.2,  # wait 0.2 s, then 0.4 s, more or less
        RETRY_STATUS_CODES=[429, 500, 502, 503, 504],
        ACCEPT_STATUS_CODES=[410],  # 410 Gone is an answer for us: it goes to the callback
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"],
    )

    def start_requests(self):
        for path in ("/fine", "/flaky", "/broken", "/missing", "/gone", "/soon"):
            # `errback` is called when this request has failed for good.
            yield mw.Request(f"https://example.com{path}", errback=self.broken)

    def validate(self, request, response):
        # Some sites say 200 and mean "come back later". This has the page fetched again, like a 503.
        if b"please wait" in response.content:
            raise mw.ValidationError("the page isn't ready")

    def parse(self, request, response):
        self.stats.inc("gone" if response.status_code == 410 else "checked")  # in the summary under "user"
        yield {"url": request.url, "state": "gone" if response.status_code == 410 else "ok"}

    def exception_request(self, request, response, exception):
        # Before each further try.
        self.logger.info("{} failed ({}), try {} follows", request.url, exception, request.retry_times + 1)

    def broken(self, request, response, error):
        # `response` is None when there was none (a time-out, an unknown host).
        status = response.status_code if response is not None else None
        yield {"url": request.url, "state": "failed", "status": status, "tries": request.retry_times + 1}

    def failed_request(self, request, response):
        # Called for every request that has failed for good, with an errback or without. May yield, too.
        self.stats.inc("failed")


if __name__ == "__main__":
    # Requests that failed for good are also in failed_requests.jsonl (on Redis: `netspy failed list`).
    CheckSpider().start()
