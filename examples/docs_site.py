"""Every page of a documentation site: its title, its canonical URL and its links to other pages of the site.

python docs_site.py https://example.com/docs/index.html
python docs_site.py https://example.com/docs/index.html --redis redis://localhost:6379/0

With --redis start it as often as you like, also on other machines. Rows are in the table `page` of pages.db.
"""

import argparse

import netspy as mw


class Page(mw.Item):
    __unique_key__ = "url"


class DocsSite:
    """The crawl itself. Whether it runs in one process or in many is only a matter of the base class below."""

    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"],
        SQLITE_PATH="pages.db",
        # Links to pictures and archives are dropped as soon as their header arrives.
        ALLOWED_CONTENT_TYPES=["text/html", "application/xhtml+xml"],
    )
    start_url = "https://example.com/docs/index.html"

    def start_requests(self):
        yield mw.Request(self.start_url)

    def parse(self, request, response):
        # Internal is what lies in the folder of the start page. A link that names a place inside a page
        # (page.html#chapter) leads to that page, and each page comes once.
        folder = self.start_url.rpartition("/")[0] + "/"
        links = [link.url for link in response.links(same_host=True) if link.url.startswith(folder)]
        yield Page(
            url=response.url,
            title=" ".join(response.css("title::text").get(default="").split()),
            canonical=response.urljoin(response.css("link[rel=canonical]::attr(href)").get(default="")),
            links=links,
        )
        for url in links:
            yield mw.Request(url)  # pages that are known already are left out


class DocsSpider(DocsSite, mw.AirSpider):
    """One process; queue and dedup in memory."""


class SharedDocsSpider(DocsSite, mw.Spider):
    """As many processes as you like; queue and dedup in Redis."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Crawl a documentation site.")
    parser.add_argument("url", nargs="?", default=DocsSite.start_url)
    parser.add_argument("--redis", metavar="URL", help="share the crawl through this Redis")
    options = parser.parse_args()
    if options.redis:
        SharedDocsSpider(start_url=options.url, REDIS_URL=options.redis).start()
    else:
        DocsSpider(start_url=options.url).start()
