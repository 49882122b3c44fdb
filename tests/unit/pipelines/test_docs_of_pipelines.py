"""The pipelines that docs/pipelines.md shows, run."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from netspy.messages.records import row_of
from netspy.messages.row import Row
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.loader import load_pipelines

DOCS = Path(__file__).parents[3] / "docs"


class Receiver(BaseHTTPRequestHandler):
    got: list[Any] = []

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.mark.parametrize("page", ["pipelines.md", "zh/pipelines.md"])
def test_the_snippets_do_what_the_page_says(page, settings, out) -> None:
    names: dict[str, Any] = {"__name__": __name__}  # dataclasses look their module up
    for snippet in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.S):
        exec(snippet, names)
    load_pipelines(names["ITEM_PIPELINES"], settings)
    book = row_of(names["Book"]("978-0", 1.5), validate=True)[0]
    assert book == Row("books", {"isbn": "9780", "price": 1.5}, None, None, ("isbn",))
    Receiver.got.clear()
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        names["WebhookPipeline"].url = f"http://127.0.0.1:{server.server_port}/rows"

        async def main() -> None:
            made = load_pipelines([names["WebhookPipeline"], names["ExcelPipeline"]], settings)
            writer = BatchWriter(made, settings, dead_letter=DeadLetterFile(settings.FAILED_ITEM_PATH))
            assert (await writer.write([Row("t", {"id": "=1"}), Row("t", {"id": 2})])).stored == 2
            await writer.close()

        try:
            asyncio.run(main())
        finally:
            server.shutdown()
            thread.join()
    assert Receiver.got == [{"table": "t", "rows": [{"id": "=1"}, {"id": 2}]}]
    assert (out / "t.csv").read_bytes() == b"\xef\xbb\xbfid\r\n'=1\r\n2\r\n"
