"""A node that is told to stop before it has begun."""

from __future__ import annotations

import signal

import pytest

from netspy.testing.children import wait_until
from netspy.testing.proxy import FaultProxy
from netspy.testing.runner import start_script

SOURCE = """
import netspy as mw


class Waits(mw.Spider):
    def start_requests(self):
        yield mw.Request("http://127.0.0.1:9/")


Waits().start()
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_stop_while_waiting_for_redis_at_the_start_is_a_stop_and_no_lost_store(tmp_path, number, code):
    with FaultProxy() as nobody:
        nobody.cut()
        env = {
            "NETSPY_REDIS_URL": nobody.redis_url(),
            "NETSPY_REDIS_START_TIMEOUT": "60",
            "NETSPY_PROGRESS": "off",
        }
        with start_script(SOURCE, env=env, cwd=tmp_path) as script:
            # It has asked and asked again, so it waits, and listens to signals.
            assert wait_until(lambda: nobody.connections >= 3, 30)
            script.signal(number)
            result = script.finish(10).check(code)
    assert result.summary["outcome"] == "stopped"
    assert result.summary["exit_code"] == code
    assert result.stdout.rstrip().splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")
