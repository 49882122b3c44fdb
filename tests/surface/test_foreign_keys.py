"""case HV-08 on the command line: one line, exit code 3, nothing deleted; `netspy reset` is what helps."""

from __future__ import annotations

import sys

import pytest

from netspy.redisio.client import sync_client
from netspy.settings import Settings
from netspy.testing.runner import run_command

SPIDER = """
import netspy as mw


class Row(mw.Item):
    n: int


class Shop(mw.Spider):
    redis_key = "k1"
    __custom_setting__ = dict(ITEM_FILTER_ENABLE=True, PROGRESS="off", SPIDER_STARTUP_GRACE=0.1)

    def start_requests(self):
        yield mw.Request("http://a.example/", auto_request=False)

    def parse(self, request, response):
        yield Row(n=1)
"""


@pytest.fixture
def netspy(tmp_path, redis_url):
    (tmp_path / "shop.py").write_text(SPIDER)
    env = {"NETSPY_REDIS_URL": redis_url}
    return lambda *args: run_command([sys.executable, "-m", "netspy", *args], cwd=tmp_path, env=env)


def test_hv_08_a_foreign_list_at_the_item_filters_key_is_named_and_stays(netspy, redis_url):
    """case HV-08"""
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        client.rpush("netspy:k1:items:dedup:bloom", "precious")
        result = netspy("run", "shop.py").check(3)
        assert "netspy:k1:items:dedup:bloom is a list, not a string" in result.stderr
        assert client.lrange("netspy:k1:items:dedup:bloom", 0, -1) == [b"precious"]
        assert client.dbsize() == 1


def test_hv_08_the_lock_of_the_other_package_of_this_name_is_named_and_reset_helps(netspy, redis_url):
    """case HV-08"""
    with sync_client(Settings(REDIS_URL=redis_url)) as client:
        client.set("netspy:k1:lock:seed", "1")
        result = netspy("run", "shop.py").check(3)
        [line] = [line for line in result.stderr.splitlines() if "lock:seed" in line]
        assert "the other package of this name" in line
        assert "netspy reset" in line
        assert client.get("netspy:k1:lock:seed") == b"1"
        netspy("reset", "shop.py", "--yes").check()
        assert netspy("run", "shop.py").check().summary["items"] == 1
