"""What the progress display says last is true: of a crawl that was over before a second reading, and of one that stops."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

import netspy as mw
from netspy.launch import observer
from netspy.testing.runner import start_script

BASES = pytest.mark.parametrize("base", [mw.AirSpider, mw.Spider], ids=["air", "redis"])

SLOW = """
import os
import netspy as mw


class Slow(mw.AirSpider):
    start_urls = [os.environ["SITE"] + "/slow"]

    def parse(self, request, response):
        pass


Slow().start()
"""


@BASES
def test_a_crawl_of_a_moment_ends_with_its_own_figures(
    numbered, redis_url, workdir, capfd, monkeypatch, base
):
    # However slow the machine is: no line but the last, and no end without an answer of the store.
    monkeypatch.setattr(observer, "LAST_LOOK_S", 30.0)

    class Quick(base):
        __custom_setting__ = {
            "PROGRESS": "lines", "METRICS_LOG_INTERVAL": 3600.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
        }  # fmt: skip

        def start_requests(self):
            for n in range(20):
                yield mw.Request(numbered.url(f"/p/{n}"))

        def parse(self, request, response):
            yield {"url": request.url}

    Quick(REDIS_URL=redis_url).start()
    [line] = [line for line in capfd.readouterr().err.splitlines() if "progress:" in line]
    assert "done 20  queued 0  in flight 0  failed 0  items 20" in line
    assert "[finished]" in line
    assert "seeding" not in line
    assert float(re.search(r"([\d.]+)/s", line)[1]) > 1


def test_while_a_node_stops_the_display_says_so(site, tmp_path):
    stopping = threading.Event()

    async def until_the_stop_was_shown(request):
        while not stopping.is_set():
            await asyncio.sleep(0.01)
        return "x"

    site.route("/slow", until_the_stop_was_shown)
    env = {
        "SITE": site.url("").rstrip("/"),
        "NETSPY_PROGRESS": "lines",
        "NETSPY_METRICS_LOG_INTERVAL": "0.000001",
    }
    with start_script(SLOW, env=env, cwd=tmp_path) as script:
        script.wait_line("in flight 1")
        script.interrupt()
        script.wait_line("[stopping]")
        stopping.set()
        result = script.finish(20).check(130)
    last = [line for line in result.stderr.splitlines() if "progress:" in line][-1]
    assert "done 1  queued 0  in flight 0" in last
    assert "[Ctrl-C (SIGINT)]" in last
