"""Stores of files in real runs: a spider with FilesPipeline, a replay by the command, compressed output."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from netspy.testing.runner import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from netspy.testing.site import LocalSite

SPIDER = """
import netspy as mw

class Shop(mw.AirSpider):
    __custom_setting__ = {{
        "ITEM_PIPELINES": [
            "netspy.pipelines.jsonl.JsonlPipeline",
            "netspy.pipelines.parquet.ParquetPipeline",
            "netspy.pipelines.files.FilesPipeline",
        ],
        "RETRY_BACKOFF": 0.0,
    }}

    def start_requests(self):
        yield mw.Request("{root}")

    def parse(self, request, response):
        for n in range(5):
            yield {{"id": n, "file_urls": ["{root}pic/%d.png" % n]}}

if __name__ == "__main__":
    Shop().start()
"""


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_crawl_stores_files_first_and_a_replay_completes_what_was_missing(
    site: LocalSite, tmp_path: Path
) -> None:
    site.route("/", "<h1>shop</h1>")
    site.route("/pic/", lambda request: request.path.encode() * 100, prefix=True)
    site.route("/pic/3.png", b"", status=503)
    (tmp_path / "shop.py").write_text(SPIDER.format(root=site.url("/")))
    result = run_command([sys.executable, "shop.py"], cwd=tmp_path, timeout=60)
    assert result.summary["items"] == 4, result.stderr
    assert result.summary["item_failed"] == 1
    stored = rows(tmp_path / "items.jsonl")
    assert [row["id"] for row in stored] == [0, 1, 2, 4]
    for row in stored:
        [file] = row["files"]
        assert (tmp_path / "files" / file["key"]).read_bytes() == f"/pic/{row['id']}.png".encode() * 100
    [letter] = rows(tmp_path / "failed_items.jsonl")
    assert letter["data"] == {"id": 3, "file_urls": [site.url("/pic/3.png")]}

    site.route("/pic/3.png", b"at last")
    replay = run_command(
        [sys.executable, "-m", "netspy.cli", "retry", "--items", "--spider", "shop.py"],
        cwd=tmp_path,
        timeout=60,
    )
    assert replay.returncode == 0, replay.stderr
    assert rows(tmp_path / "items.jsonl")[-1]["files"][0]["size"] == 7
    found = [
        row
        for file in sorted((tmp_path / "items").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert sorted(row["id"] for row in found) == [0, 1, 2, 3, 4]
    assert all(json.loads(row["files"])[0]["sha256"] for row in found)


def test_a_compressed_file_is_named_on_the_command_line(site: LocalSite, tmp_path: Path) -> None:
    site.route("/", "<h1>shop</h1>")
    source = SPIDER.format(root=site.url("/")).replace('"file_urls"', '"urls"')
    (tmp_path / "shop.py").write_text(source)
    command = [sys.executable, "-m", "netspy.cli", "run", "shop.py", "-o", "out.jsonl.gz"]
    for _ in range(2):
        run_command(command, cwd=tmp_path, timeout=60).check()
    lines = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [0, 1, 2, 3, 4] * 2
    refused = run_command([*command[:-1], "out.csv.gz"], cwd=tmp_path, timeout=60)
    assert refused.returncode == 3
    assert "only JSON lines are compressed" in refused.stderr


def test_standard_output_has_the_rows_and_nothing_else(site: LocalSite, tmp_path: Path) -> None:
    site.route("/", "<h1>shop</h1>")
    source = SPIDER.format(root=site.url("/")).replace('"file_urls"', '"urls"')
    (tmp_path / "shop.py").write_text(source)
    result = run_command(
        [sys.executable, "-m", "netspy.cli", "run", "shop.py", "-o", "-"], cwd=tmp_path, timeout=60
    ).check()
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [0, 1, 2, 3, 4]
