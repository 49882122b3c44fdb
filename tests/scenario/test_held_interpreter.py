"""A callback that lets no other thread of its process run: what it costs, and what it must not cost."""

from __future__ import annotations

import pytest
from scenario_support import urls

from netspy.testing.runner import run_script

pytestmark = pytest.mark.slow

# poll(2) through PyDLL keeps the interpreter's lock, as one call into a parser or a regular expression does.
HOLDING = """
import ctypes, os
import netspy as mw

BASE = os.environ["SITE"]
HELD_S = float(os.environ["HELD_S"])
interpreter = ctypes.PyDLL(None)


class Pages(mw.Spider):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"], LOG_LEVEL="INFO", PROGRESS="off",
        CONCURRENT_REQUESTS_PER_DOMAIN=0, RETRY_BACKOFF=0.1, IDLE_TIMEOUT=0,
    )

    def start_requests(self):
        for n in range(12):
            yield mw.Request(f"{BASE}/p/{n}")

    def parse(self, request, response):
        if request.url.endswith("/p/5"):
            print("HELD", flush=True)
            interpreter.poll(None, 0, int(HELD_S * 1000))
        yield {"url": request.url, "node": os.getpid()}


if __name__ == "__main__":
    Pages().start(processes=2)
"""


@pytest.mark.parametrize(
    ("interval_s", "stale_s", "held_s"),
    [
        (0.6, 3.0, 2.0),  # a fifth of the defaults, and of 10 s
    ],
)
def test_a_held_interpreter_costs_a_node_none_of_its_leases(
    numbered, redis_url, tmp_path, interval_s, stale_s, held_s
):
    """Less than HEARTBEAT_STALE - HEARTBEAT_INTERVAL: the last beat is not yet too old when the next is sent."""
    result = run_script(
        HOLDING,
        env={
            "SITE": numbered.url("").rstrip("/"),
            "NETSPY_REDIS_URL": redis_url,
            "NETSPY_HEARTBEAT_INTERVAL": str(interval_s),
            "NETSPY_HEARTBEAT_STALE": str(stale_s),
            "NETSPY_SPIDER_STARTUP_GRACE": "1",
            "HELD_S": str(held_s),
        },
        cwd=tmp_path,
        timeout=60,
    ).check(0)
    assert "HELD" in result.stdout
    assert "is dead" not in result.stderr
    assert (result.summary["reclaimed"], result.summary["lease_lost"]) == (0, 0)
    assert result.summary["items"] == len(urls(tmp_path)) == 12
    assert numbered.hits("/p/5") == 1
