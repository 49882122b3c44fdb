"""A case of tests/data/cases with its own figures and the default settings, which takes half a minute."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from netspy.testing.runner import start_script

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.faults_full]

CASES = json.loads((Path(__file__).parents[1] / "data/cases/distributed.json").read_text(encoding="utf-8"))
[PAGES] = [case["expected"]["pages"] for case in CASES if case["id"] == "DST-04"]

TOO_EARLY = """
import os, time
import netspy as mw

BASE, CASE = os.environ["SITE"], os.environ["CASE"]


class Early(mw.Spider):
    __custom_setting__ = dict(ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], SPIDER_THREAD_COUNT=4)

    def start_requests(self):
        if CASE == "a":
            yield mw.Request(f"{BASE}/a", callback=self.slow)
        elif CASE == "b":
            for n in range(3):
                yield mw.Request(f"{BASE}/b/{n}")
                time.sleep(15)
        elif CASE == "c":
            for n in range(50):
                yield mw.Request(f"{BASE}/c/same")
            yield mw.Request(f"{BASE}/c/new")
        else:
            yield mw.Request(f"{BASE}/slow")

    def slow(self, request, response):
        yield {"url": request.url}
        time.sleep(8)
        for n in range(5):
            yield mw.Request(f"{BASE}/a/{n}")

    def parse(self, request, response):
        yield {"url": request.url}


Early(redis_key="early-" + CASE).start()
"""


def test_dst_04_with_the_figures_of_the_case_and_the_default_settings(site, redis_url, tmp_path):
    site.route("/", "x", prefix=True)
    site.route("/slow", "x", delay=12.0)
    with ExitStack() as stack:
        nodes = {}
        for case in PAGES:
            folder = tmp_path / case
            folder.mkdir()
            env = {"SITE": site.url("").rstrip("/"), "CASE": case, "NETSPY_REDIS_URL": redis_url}
            if case == "c":
                env["NETSPY_SPIDER_THREAD_COUNT"] = "1"
            nodes[case] = [
                stack.enter_context(start_script(TOO_EARLY, env=env, cwd=folder))
                for _ in range(1 if case == "c" else 2)
            ]
        for case, started in nodes.items():
            # The longest seeding takes 45 s; the grace at the start and the looks before an end come to it.
            results = [node.finish(45 + 30).check() for node in started]
            with closing(sqlite3.connect(tmp_path / case / "items.db")) as db:
                [(stored,)] = db.execute("SELECT count(DISTINCT url) FROM items").fetchall()
            assert stored == PAGES[case], case
            assert sum(result.summary["request_ok"] for result in results) == PAGES[case], case
