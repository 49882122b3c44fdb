"""No secret is in any output, whatever fails; and what a run logs is bounded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safe_support import run

from netspy.testing.runner import Result, run_command, run_script, start_script
from support.gate import Gate
from support.missing import missing

if TYPE_CHECKING:
    from netspy.testing.servers import RedisServer

pytestmark = pytest.mark.slow

SECRETS = {
    "STORE": "St0re/?#@:%w",
    "PROXY": "Pr0xyS3cret",
    "AUTH": "Auth0rizedS3cret",
    "COOKIE": "C00kieS3cret",
    "BEARER": "B3arerS3cret",
    "DATABASE": "Dat4baseS3cret",
    "LOGIN": "L0ginS3cret",
    "PAGE": "P4geS3cret",
    "TOKEN": "T0kenS3cret",
}

LEAKY = """
import os, sys
import netspy as mw
from netspy.network.middleware import DownloaderMiddleware
from netspy.pipelines.base import BasePipeline

BASE = os.environ["SITE"]
SECRET = {name[7:]: value for name, value in os.environ.items() if name.startswith("SECRET_")}
DSN = f"mysql://crawler:{SECRET['DATABASE']}@db.example:3306/rows"


class Odd(DownloaderMiddleware):
    def process_response(self, request, response):
        if "/middleware" in request.url:
            raise RuntimeError(f"no answer from {DSN}")
        return response


class Broken(BasePipeline):
    def save_items(self, table, items):
        raise ConnectionError(f"can't connect to {DSN}")


class Leaky(mw.Spider):
    redis_key = "leaky"
    __custom_setting__ = dict(
        ITEM_PIPELINES=["leaky.Broken"], DOWNLOADER_MIDDLEWARES=["leaky.Odd"], PROGRESS="lines", RETRY_BACKOFF=0.01, SPIDER_MAX_RETRY_TIMES=1,
        ITEM_RETRY_TIMES=1, ITEM_RETRY_BACKOFF=0.01, ITEM_STORE_PATIENCE=0.2, MY_API_KEY=SECRET["BEARER"], MYSQL=dict(host="h", password=SECRET["DATABASE"]),
        MYSQL_URL=DSN, PROXIES=[f"http://u:{SECRET['PROXY']}@proxy.example:1"],
    )

    def start_requests(self):
        secret = dict(
            auth=("me", SECRET["AUTH"]), cookies={"sid": SECRET["COOKIE"]}, headers={"X-Api-Key": SECRET["BEARER"], "Cookie": "a=" + SECRET["COOKIE"]},
        )
        bearer = dict(headers=[("Authorization", "Bearer " + SECRET["BEARER"]), ("Proxy-Authorization", "Basic " + SECRET["PROXY"])])
        proxy = f"http://u:{SECRET['PROXY']}@127.0.0.1:1"
        login = dict(method="POST", data={"user": "me", "password": SECRET["LOGIN"]})
        host = BASE.partition("//")[2]
        yield mw.Request(BASE + "/p/item", **secret)
        yield mw.Request(BASE + "/p/proxied", proxy=proxy, **secret)
        yield mw.Request(BASE + "/p/proxies", proxies={"http": proxy}, **bearer)
        yield mw.Request(f"http://u:{SECRET['PAGE']}@{host}/p/in-url", callback=self.boom, **secret)
        yield mw.Request(f"http://u:{SECRET['PAGE']}@127.0.0.1:1/down", **bearer)
        yield mw.Request(BASE + "/500", **secret, **login)
        yield mw.Request(BASE + "/404", **bearer)
        yield mw.Request(BASE + "/p/middleware", **secret)
        yield mw.Request(BASE + "/p/boom", callback=self.boom, errback=self.err, **secret, **login)
        yield mw.Request(BASE + "/p/async", callback=self.async_boom, **bearer)
        yield mw.Request(BASE + "/p/odd", callback=self.odd, **secret)
        yield mw.Request(BASE + "/p/proxy-scheme", proxy=f"ftp://u:{SECRET['PROXY']}@h:1")
        yield mw.Request(BASE + "/p/proxy-port", proxy=f"http://u:{SECRET['PROXY']}@h:port")
        yield mw.Request(BASE + "/p/header", headers={"Authorization": SECRET["BEARER"] + "\\r\\nX: y"})
        yield mw.Request(BASE + "/p/header2", headers=[SECRET["BEARER"]])
        yield mw.Request(BASE + "/p/cookies", cookies="sid=" + SECRET["COOKIE"])
        yield mw.Request(BASE + "/p/cookies2", cookies=[SECRET["COOKIE"]])
        yield mw.Request(BASE + "/p/auth", auth=SECRET["AUTH"])
        yield mw.Request(BASE + "/p/auth2", auth=("a:b", SECRET["AUTH"]))
        yield mw.Request(BASE + "/p/data", method="POST", data=[("password", SECRET["LOGIN"]), 7])
        yield mw.Request(BASE + "/p/json", method="POST", json={"password": SECRET["LOGIN"], "x": (1, {2})})
        yield mw.Request(BASE + "/p/timeout", timeout="x", **secret)
        yield mw.Request(BASE + "/p/object", cookies={"sid": SECRET["COOKIE"], "x": object()})
        token = SECRET["TOKEN"]
        yield mw.Request(BASE + f"/404?n=1&access_token={token}&page=2")
        yield mw.Request(BASE + f"/500?X-Amz-Signature={token}#id_token={token}")
        yield mw.Request(BASE + f"/p/token;jsessionid={token}?sig={token}", callback=self.boom)
        yield mw.Request(f"http://127.0.0.1:1/down?api_key={token}&next=http%3A%2F%2Fh%3Fcode%3D{token}")
        yield mw.Request(f"http://[bad/?token={token}")
        yield mw.Request(f"mailto:x?token={token}")
        yield mw.Request(BASE + "/to-token")
        yield mw.Request("http://[bad/", **secret)
        yield mw.Request("http://u:" + SECRET["PAGE"] + "@[bad/")
        raise RuntimeError(f"start_requests can't reach {DSN}")

    def validate(self, request, response):
        if "/p/odd" in request.url:
            raise mw.ValidationError(f"the session of redis://:{SECRET['STORE']}@cache.example:6379/0 is over")

    def parse(self, request, response):
        yield {"url": "u"}

    def boom(self, request, response):
        yield request
        yield object()
        yield mw.Request("http://u:" + SECRET["PAGE"] + "@h/", callback="nobody")
        raise RuntimeError(f"{DSN} is away, {request!r}, {response!r}")

    async def async_boom(self, request, response):
        yield {"url": "v"}
        try:
            raise KeyError(DSN)
        except KeyError as error:
            raise RuntimeError("wrapped") from error

    odd = boom

    def err(self, request, response, error):
        raise RuntimeError(f"errback: {DSN}")

    def failed_request(self, request, response):
        self.logger.warning("failed {!r} by way of {}", request, DSN)
        self.logger.opt(exception=RuntimeError(f"shown: {DSN}")).error("with a trace")


if __name__ == "__main__":
    import leaky

    leaky.Leaky().start()
"""


@pytest.fixture(scope="module")
def locked_redis() -> Any:
    from netspy.testing.servers import RedisServer, find_redis_server

    if find_redis_server() is None:
        missing("no redis-server on PATH")
    with RedisServer(password=SECRETS["STORE"]) as server:
        yield server


def leaks(text: str) -> list[str]:
    """The names of the secrets in a text, also in parts, percent-encoded or in Base64."""
    import base64
    from urllib.parse import quote

    found = []
    for name, secret in SECRETS.items():
        forms = {
            secret,
            quote(secret, safe=""),
            quote(secret),
            base64.b64encode(f"me:{secret}".encode()).decode(),
        }
        if name == "STORE":
            forms |= {"St0re"}
        found += [f"{name} as {form}" for form in forms if form in text]
    return found


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_no_secret_is_in_any_output_whatever_fails(pages, locked_redis: RedisServer, tmp_path, level):
    locked_redis.flush()
    pages.route("/500", "", status=500)
    pages.route("/to-token", "", status=302, headers={"Location": f"/404?session={SECRETS['TOKEN']}"})
    (tmp_path / "leaky.py").write_text(LEAKY, encoding="utf-8")
    env = {
        "SITE": pages.url("").rstrip("/"), "NETSPY_REDIS_URL": locked_redis.url, "NETSPY_LOG_LEVEL": level,
        "NETSPY_LOG_FILE": "crawl.log", "NETSPY_METRICS_LOG_INTERVAL": "0.2", **{f"SECRET_{name}": value for name, value in SECRETS.items()},
    }  # fmt: skip
    result = run_script(tmp_path / "leaky.py", cwd=tmp_path, env=env, timeout=90)
    assert result.summary["outcome"] == "seeding_failed", result.stderr[-4000:]
    seen = result.stdout + result.stderr
    for stage in (
        "ValidationError",
        "errback",
        "dead-lettered",
        "start_requests",
        "HTTP 500",
        "proxy",
        "RuntimeError",
        "ConnectionError",
    ):
        assert stage in seen, f"{stage} did not fail"
    assert leaks(result.stdout) == []
    assert leaks(result.stderr) == []
    assert leaks((tmp_path / "crawl.log").read_text(encoding="utf-8")) == []
    assert leaks((tmp_path / "failed_items.jsonl").read_text(encoding="utf-8")) == []
    db = locked_redis.client()
    records = db.lrange("netspy:leaky:failed_requests", 0, -1)
    assert len(records) >= 15
    for text in records:
        record = json.loads(text)
        record.pop("request", None)  # which must have what its next try needs
        assert leaks(json.dumps(record)) == []
    assert leaks(db.get("netspy:leaky:lock:seed")) == []
    assert (
        leaks(json.dumps(db.hgetall("netspy:leaky:nodes")) + json.dumps(db.hgetall("netspy:leaky:meta")))
        == []
    )
    if level == "INFO":
        return
    numbers = [str(n) for n in range(1, len(records) + 1)]
    for command in (
        ["settings"], ["settings", "--spider", "leaky.py:Leaky"], ["settings", "--spider", "leaky.py:Leaky", "--changed"], ["status", "leaky.py:Leaky"],
        ["status", "leaky.py:Leaky", "--json"], ["failed", "list", "leaky.py:Leaky"], ["failed", "list", "leaky.py:Leaky", "--json"],
        ["failed", "show", "leaky.py:Leaky", *numbers], ["failed", "show", "leaky.py:Leaky", *numbers, "--json"],
    ):  # fmt: skip
        shown = run_command([sys.executable, "-m", "netspy.cli", *command], cwd=tmp_path, env=env)
        assert shown.returncode == 0, (command, shown.stderr)
        assert leaks(shown.stdout + shown.stderr) == [], command
    revealed = run_command(
        [sys.executable, "-m", "netspy.cli", "failed", "show", "leaky.py:Leaky", *numbers, "--reveal"],
        cwd=tmp_path,
        env=env,
    )
    assert SECRETS["AUTH"] in revealed.stdout
    assert SECRETS["COOKIE"] in revealed.stdout


@pytest.mark.parametrize(
    "form",
    [
        "redis://:{}@127.0.0.1:{}/0",
        "redis://me:{}@127.0.0.1:{}/0",
        "redis://127.0.0.1:1/0?password={}&x={}",
        "rediss://:{}@127.0.0.1:{}/x",
        "redis+what://u:{}@h:{}/0",
    ],
)
def test_a_store_url_that_can_not_be_used_is_not_told_with_its_password(
    pages, redis_server: RedisServer, tmp_path, form
):
    """Raw odd characters, a password that is wrong, a server that is away."""
    url = form.format(SECRETS["STORE"], redis_server.port)
    more = {"NETSPY_REDIS_START_TIMEOUT": "0.2", "NETSPY_LOG_LEVEL": "DEBUG"}
    result = run(tmp_path, pages, url, **more)
    shown = run_command(
        [sys.executable, "-m", "netspy.cli", "status", "--key", "safe"],
        cwd=tmp_path,
        env={"NETSPY_REDIS_URL": url, **more},
    )
    for seen in (result.stdout + result.stderr, shown.stdout + shown.stderr):
        assert seen
        assert not any(part in seen for part in ("St0re", "?#", "%w")), seen


# -- how much is logged


NOISY = """
import os, time
import netspy as mw
from netspy.pipelines.base import BasePipeline

BASE = os.environ["SITE"]
PAGES = int(os.environ["PAGES"])


class Down(BasePipeline):
    def save_items(self, table, items):
        raise ConnectionError("the database is away")


class Noisy(mw.Spider):
    redis_key = "noisy"
    __custom_setting__ = dict(
        ITEM_PIPELINES=["noisy.Down"] if os.environ.get("DOWN") else ["netspy.pipelines.sqlite.SqlitePipeline"],
        PROGRESS="off", SPIDER_THREAD_COUNT=16, CONCURRENT_REQUESTS_PER_DOMAIN=0, SPIDER_MAX_RETRY_TIMES=1, RETRY_BACKOFF=0,
        CIRCUIT_FAILURE_THRESHOLD=0, ITEM_RETRY_TIMES=2, ITEM_RETRY_BACKOFF=0.05, ITEM_BATCH_SIZE=20,
        ITEM_STORE_PATIENCE=0.5,
    )

    def start_requests(self):
        for n in range(PAGES):
            yield mw.Request(f"{BASE}/p/{n}")

    def parse(self, request, response):
        time.sleep(float(os.environ.get("SLEEP", "0")))
        if os.environ.get("RAISE"):
            raise ValueError("the page has changed")
        if os.environ.get("MISTAKE"):
            yield 7
        yield {"url": request.url}


if __name__ == "__main__":
    import noisy

    noisy.Noisy().start()
"""


def noise(folder: Path, base: str, url: str, **env: str) -> Result:
    (folder / "noisy.py").write_text(NOISY, encoding="utf-8")
    common = {"SITE": base, "NETSPY_REDIS_URL": url, **env}
    return run_script(folder / "noisy.py", cwd=folder, env=common, timeout=60)


def test_a_dead_domain_is_told_of_in_few_lines(redis_url, tmp_path):
    result = noise(tmp_path, "http://127.0.0.1:1", redis_url, PAGES="1000")
    lines = result.stderr.splitlines()
    assert result.summary["request_failed"] == 1000
    assert len(lines) <= 20 * (result.seconds / 10 + 1) + 15, result.stderr
    [told] = [line for line in lines if "more like this" in line][-1:]
    assert "the last: failed after 2 tries" in told


@pytest.mark.parametrize("mistake", ["RAISE", "MISTAKE"])
def test_a_mistake_on_every_page_is_told_of_in_few_lines(pages, redis_url, tmp_path, mistake):
    result = noise(tmp_path, pages.url("").rstrip("/"), redis_url, PAGES="500", **{mistake: "1"})
    assert result.summary["parse_error"] >= 500
    assert len(result.stderr.splitlines()) <= 40 * (result.seconds / 10 + 1) + 15, result.stderr
    assert "more like this" in result.stderr


def test_a_database_that_is_away_is_told_of_in_few_lines(pages, redis_url, tmp_path):
    result = noise(tmp_path, pages.url("").rstrip("/"), redis_url, PAGES="500", DOWN="1")
    assert result.summary["item_failed"] == 500
    assert len(result.stderr.splitlines()) <= 40, result.stderr


def test_an_outage_of_redis_is_told_of_in_few_lines(pages, tmp_path):
    from netspy.testing.servers import RedisServer, find_redis_server

    if find_redis_server() is None:
        missing("no redis-server on PATH")
    gate = Gate(pages, "/p/", after=50)
    with RedisServer(appendfsync="always") as server:
        (tmp_path / "noisy.py").write_text(NOISY, encoding="utf-8")
        env = {
            "SITE": pages.url("").rstrip("/"),
            "NETSPY_REDIS_URL": server.url,
            "PAGES": "400",
            "SLEEP": "0.05",
            "NETSPY_HEARTBEAT_INTERVAL": "0.2",
        }
        with start_script(tmp_path / "noisy.py", cwd=tmp_path, env=env) as script:
            pages.wait_hits(50)
            server.stop()
            gate.open()
            script.wait_line("Redis")
            from time import sleep

            sleep(3)  # the outage itself
            server.start()
            result = script.finish(60).check()
    assert result.summary["request_ok"] >= 400
    assert len(result.stderr.splitlines()) <= 20, result.stderr
