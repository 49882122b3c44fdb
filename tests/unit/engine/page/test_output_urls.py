"""One link that can't be fetched costs only itself."""

import pytest

import netspy as mw
from netspy.testing.site import LocalSite

HREFS = [
    "/ok1", "http://[b]bold[/b]/y", "http://example.com:99999/", "http:// /x", "javascript:void(0)", "java\nscript:x",
    "mailto:a@example.com", "data:text/html,x", "tel:+100", "about:blank", "htp://x/", "ftp://x/y", "/ok2",
]  # fmt: skip


class Links(mw.AirSpider):
    __custom_setting__ = {"PROGRESS": "off", "ITEM_PIPELINES": [], "RETRY_BACKOFF": 0.0}

    def parse(self, request, response):
        for href in HREFS:
            yield response.follow(href, callback=self.other)

    def other(self, request, response):
        self.stats.inc("others")


@pytest.mark.usefixtures("workdir")
def test_links_that_cant_be_fetched_are_skipped_and_the_others_are_crawled(site: LocalSite):
    """Case URL-06."""
    site.route("/", "<p>x</p>")
    site.route("/ok1", "1")
    site.route("/ok2", "2")
    spider = Links(start_urls=[site.url("/")])
    summary = spider.run()
    assert {path: site.hits(path) for path in ("/ok1", "/ok2")} == {"/ok1": 1, "/ok2": 1}
    assert site.total == 3
    assert summary.outcome == "finished"
    assert summary.request_failed == 0
    assert summary.invalid_url == len(HREFS) - 2
    assert summary.user == {"others": 2}
