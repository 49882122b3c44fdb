"""Keep rows where you want them: a pipeline of your own. This one writes a Markdown list.

python own_pipeline.py    # books.md
"""

from pathlib import Path

import netspy as mw
from netspy.pipelines.base import BasePipeline


class MarkdownPipeline(BasePipeline):
    path = Path("books.md")

    def open(self):
        # Once, before the first batch. If this raises, it is tried again later.
        self.path.write_text("# Books\n\n", encoding="utf-8")

    def save_items(self, table, items):
        # A batch of rows as dicts. Blocking is fine here. If this raises, the batch comes again, then in
        # parts, so that one bad row costs only itself: write all of a batch or nothing.
        lines = [f"- *{item['title']}*, {item['author']}\n" for item in items]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))

    def where(self):
        # The summary shows this.
        return str(self.path)


class Book(mw.Item):
    __unique_key__ = "isbn"


class BooksSpider(mw.AirSpider):
    start_urls = ["https://example.com/books"]  # the short form of start_requests

    def parse(self, request, response):
        for book in response.json():
            yield Book(isbn=book["isbn"], title=book["title"], author=book["author"])


if __name__ == "__main__":
    # Here the class itself; in settings its path: ITEM_PIPELINES=["shop.pipelines.MarkdownPipeline"].
    BooksSpider(pipelines=[MarkdownPipeline]).start()
