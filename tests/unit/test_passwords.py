"""What is shown holds no password and no token: URLs of pages and of stores, also those that are no URLs, mistyped."""

from __future__ import annotations

import time

import pytest

from netspy.downloader.failures import Kind, download_error
from netspy.errors import ConfigError
from netspy.messages.request import Request
from netspy.messages.urls import display_url
from netspy.observe.alerts import Alerts
from netspy.settings import display_value, hide_password, load, without_passwords

S = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://h/a?token=s3cr3t&page=2 failed", "GET http://h/a?token=***&page=2 failed"),
        ("http://h/cb#access_token=s3cr3t&x=1", "http://h/cb#access_token=***&x=1"),
        ("/a?n=1&X-Amz-Credential=s3cr3t&X-Amz-Signature=s3cr3t", "/a?n=1&X-Amz-Credential=***&X-Amz-Signature=***"),
        ("/a;jsessionid=s3cr3t?x=1", "/a;jsessionid=***?x=1"),
        ("/a?x=1;y=2;token=s3cr3t;z=3", "/a?x=1;y=2;token=***;z=3"),
        ("?to%6ben=s3cr3t&TOKEN=s3cr3t", "?to%6ben=***&TOKEN=***"),
        ("?user[password]=s3cr3t&accessToken=s3cr3t", "?user[password]=***&accessToken=***"),
        ("?sig=s3cr3t&se=1&sign=s3cr3t", "?sig=***&se=1&sign=***"),
        ("?code=s3cr3t&state=1&key=s3cr3t&auth=s3cr3t", "?code=***&state=1&key=***&auth=***"),
        ("?session=s3cr3t&PHPSESSID=s3cr3t&sid=s3cr3t", "?session=***&PHPSESSID=***&sid=***"),
        ("?token=s3c;r3t,x&b=1", "?token=***&b=1"),
        ("/?next=https%3A%2F%2Fx%2F%3Ftoken%3Ds3cr3t%26b%3D1&c=2", "/?next=https%3A%2F%2Fx%2F%3Ftoken%3D***%26b%3D1&c=2"),
        ("https%253A%252F%252Fx%253Fapi_key%253Ds3cr3t%2526z=1", "https%253A%252F%252Fx%253Fapi_key%253D***%2526z=1"),
        ("at 'http://h/?token=s3cr3t', line 3", "at 'http://h/?token=***', line 3"),
        ("connect(password='s3cr3t x', user=me)", "connect(password=***, user=me)"),
        ("host=h my-db-token=s3cr3t dbname=x", "host=h my-db-token=*** dbname=x"),
        ("http:/u:s3cr3t@h/ https:s3cr3t@h", "http:/u:***@h/ https:***@h"),
        (r"http:\\u:s3cr3t@h\x", r"http:\\u:***@h\x"),
    ],
)  # fmt: skip
def test_secrets_of_page_urls_are_in_no_text_s2(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
    assert without_passwords(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/@name",
        "https://h/?author=x&page=2&keyword=y&design=1&monkey=2&sort=price&zip_code=3&passenger=2",
        "author=Tolkien tokens=300 next=3 code=7 key=x",
        "mail me@x.org, mailto:me@x.org, git@github.com:a/b, npm i @scope/pkg: 1",
        "https://h/?q=%3F%3D%26&x=#top",
        "redis://h:6379/0 sqlite:////a/b.db unix:///tmp/x.sock?db=0 redis://[::1]:7/3",
        "mongodb://db1,db2:27017/?replicaSet=rs0 kafka+ssl://h:1,h2/t amqp://h/%2F?queue=x",
        "?token=&b=1",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_passwords(text) == text


MISTYPED = [
    "redis:/:s3cr3t@h:1/0",
    "redis:s3cr3t@h",
    "redis//:s3cr3t@h",
    "redis.//:s3cr3t@h",
    "redis;//:s3cr3t@h",
    "redis：//:s3cr3t＠h",
    "redis:\\\\:s3cr3t@h",
    "rediss:///:s3cr3t@h",
    "redis+sentinel:/:s3cr3t@h1,h2/svc",
    "mysql:/u:s3cr3t@h/d",
    "mysql+pymysql:/u:s3cr3t@h/d",
    "postgresql:u:s3cr3t@h/d",
    "amqp:/u:s3cr3t@h/v",
    "mongodb:/u:s3cr3t@h",
    "kafka:/u:s3cr3t@h:1/t?sasl.password=s3cr3t",
    "socks5:/u:s3cr3t@h:1",
    "redis://:s3cr3t",
    "redis://u:s3cr3t/0",
    "redis://127.0.0.1:s3cr3t/0",
    "redis://:s3cr3t/x?y",
    "redis://:s3cr3t@h@x",
    "jdbc:mysql://h/d?user=u&password=s3cr3t",
    "host=h password=s3cr3t",
    "redis://h:6379,password=s3cr3t",
]


@pytest.mark.parametrize("url", MISTYPED)
def test_a_mistyped_store_url_is_shown_without_its_password_s3(url: str) -> None:
    for shown in (
        hide_password(url),
        without_passwords(f"can't use {url}"),
        display_value("REDIS_URL", url),
        display_value("CUSTOM", url),
        display_value("ELASTICSEARCH_HOSTS", [url]),
        display_value("PROXIES", {"all": url}),
    ):
        assert S not in shown
        assert "***" in shown


@pytest.mark.parametrize(
    "url",
    [
        ":s3cr3t@h:6379",
        "s3cr3t@h",
        "u:s3cr3t@h:6379",
        "redis//u:s3c r3t@h",
        "redis%3A%2F%2F%3As3cr3t%40h",
        " redis ://:s3cr3t@h",
        "redis:://:s3cr3t@h",
        "http://u:s3cr3t/w@h:9200",
        '"redis://:s3cr3t@h"',
    ],
)
def test_what_stands_in_the_place_of_a_url_is_shown_without_its_password_s3(url: str) -> None:
    for shown in (hide_password(url), display_value("MONGO_URI", url), display_value("A_PROXY", url)):
        assert "s3c" not in shown
        assert "r3t" not in shown


@pytest.mark.parametrize(
    "url",
    ["localhost:6379", "redis://h:6379/0", "embedded", "sqlite:///x.db", "list:key", r"C:\x\db", "h1:1,h2"],
)
def test_what_has_no_password_is_shown_whole(url: str) -> None:
    assert hide_password(url) == url
    assert display_value("TASK_SOURCE", url) == url


@pytest.mark.parametrize(
    "given",
    [
        {"REDIS_URL": ["redis:/:s3cr3t@h"]},
        {"SPIDER_THREAD_COUNT": "redis:/:s3cr3t@h"},
        {"COOKIES_ENABLED": "u:s3cr3t@h"},
        {"ELASTICSEARCH_HOSTS": '["http://u:s3cr3t@h'},
        {"KAFKA_BOOTSTRAP_SERVERS": {"u": "u:s3cr3t@h"}},
        {"MYSQL_PASSWORD": [S]},
    ],
)
def test_a_wrong_setting_is_named_without_its_password_s3(given: dict) -> None:
    with pytest.raises(ConfigError) as caught:
        load(project={}, environ={f"NETSPY_{name}": value for name, value in given.items() if isinstance(value, str)},
             overrides={name: value for name, value in given.items() if not isinstance(value, str)})  # fmt: skip
    assert S not in str(caught.value)
    assert next(iter(given)) in str(caught.value)


def test_errors_and_alerts_show_no_token_and_the_request_keeps_it_s2() -> None:
    url = "http://u:s3cr3t@h/@name/?token=s3cr3t&page=2"
    shown = "http://u:***@h/@name/?token=***&page=2"
    assert str(download_error("GET", url, "why", Kind("dns"))) == f"GET {shown} failed (dns): why"
    assert display_url(url) == repr(shown)
    assert repr(Request(url)) == f"<Request GET {shown}>"
    assert Request.unpack(Request(url).pack()).url == url
    sent: list[str] = []
    alerts = Alerts(lambda _kind, message: sent.append(message), interval_s=1, clock=time.monotonic)
    alerts.raise_alert("failed", f"lost {url}", logged=True)
    assert sent == [f"lost {shown}"]


@pytest.mark.parametrize(
    "unit", ["a.", "redis:", "http:", "?a", "%25", ";a=1", "a://", "token ", "@", "%3fa", "a-"]
)
def test_a_hostile_text_takes_no_long_time(unit: str) -> None:
    text = unit * (40_000 // len(unit)) + "@://="
    start = time.process_time()
    without_passwords(text)
    hide_password(text)
    display_value("X", text)
    assert time.process_time() - start < 3
