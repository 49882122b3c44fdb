from __future__ import annotations

import time

import pytest

from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.raw_server import CLOSE, HANG, coded, gz, redirect, reply


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_http_07_post_through_a_redirect(raw, d, status: int) -> None:
    raw.on("/form", redirect("/dest", status))
    response = await d.fetch(Request(raw.url("/form"), "POST", json={"a": 1}, headers={"X-Trace": "7"}))
    [seen] = raw.at("/dest")
    assert response.url == raw.url("/dest")
    assert seen.get("x-trace") == "7"
    if status in {307, 308}:
        assert (seen.method, seen.body) == ("POST", b'{"a":1}')
        assert seen.get("content-type") == "application/json"
    else:
        assert (seen.method, seen.body) == ("GET", b"")
        assert seen.get("content-type") is None
        assert seen.get("content-length") is None


async def test_http_07_put_301_stays_put_and_head_303_stays_head(raw, d) -> None:
    raw.on("/put", redirect("/dest", 301))
    raw.on("/head", redirect("/dest", 303))
    raw.on("/delete", redirect("/dest", 303))
    await d.fetch(Request(raw.url("/put"), "PUT", content=b"body", headers={"Content-Type": "x/y"}))
    await d.fetch(Request(raw.url("/head"), "HEAD"))
    await d.fetch(Request(raw.url("/delete"), "DELETE"))
    put, head, delete = raw.at("/dest")
    assert (put.method, put.body, put.get("content-type")) == ("PUT", b"body", "x/y")
    assert head.method == "HEAD"
    assert delete.method == "GET"


async def test_the_history_tells_the_way(raw, d) -> None:
    raw.on("/a", reply(b"moved", status="301 Moved", headers=["Location: /b", "X: a"]))
    raw.on(
        "/b", reply(gz(b"again"), status="302 Found", headers=["Location: c?x=1", "Content-Encoding: gzip"])
    )
    request = Request(raw.url("/a"))
    response = await d.fetch(request)
    assert response.url == raw.url("/c?x=1")
    assert response.request is request
    assert [(old.status_code, old.url, old.content) for old in response.history] == [
        (301, raw.url("/a"), b"moved"),
        (302, raw.url("/b"), b"again"),
    ]
    assert response.history[0].headers["x"] == "a"
    assert response.elapsed >= sum(old.elapsed for old in response.history)
    assert raw.connections == 1


@pytest.mark.parametrize("keyword", ["follow_redirects", "allow_redirects"])
async def test_redirects_not_followed_are_responses(raw, d, keyword: str) -> None:
    raw.on("/a", reply(b"moved", status="302 Found", headers=["Location: /b"]))
    response = await d.fetch(Request(raw.url("/a"), **{keyword: False}))
    assert (response.status_code, response.content, response.history) == (302, b"moved", [])
    assert response.headers["location"] == "/b"


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"x", status="302 Found"),
        reply(b"x", status="302 Found", headers=["Location: "]),
        reply(b"x", status="300 Choices", headers=["Location: /b"]),
        b"HTTP/1.1 304 Not Modified\r\nLocation: /b\r\n\r\n",
        reply(b"x", status="200 OK", headers=["Location: /b"]),
    ],
    ids=["no location", "empty location", "300", "304", "200"],
)
async def test_what_is_no_redirect_is_the_answer(raw, d, answer: bytes) -> None:
    raw.on("/a", answer)
    response = await d.fetch(Request(raw.url("/a")))
    assert response.history == []
    assert len(raw.seen) == 1


async def test_max_redirects(raw, make) -> None:
    for n in range(10):
        raw.on(f"/{n}", redirect(f"/{n + 1}"))
    response = await make(MAX_REDIRECTS=10).fetch(Request(raw.url("/0")))
    assert (response.url, len(response.history)) == (raw.url("/10"), 10)
    for limit in (9, 0):
        with pytest.raises(DownloadError, match=f"MAX_REDIRECTS={limit}") as caught:
            await make(MAX_REDIRECTS=limit).fetch(Request(raw.url("/0")))
        assert (caught.value.reason, caught.value.retryable) == ("redirects", False)


async def test_a_circle_ends_at_the_limit(raw, make) -> None:
    d = make(MAX_REDIRECTS=3)
    raw.on("/a", redirect("/b"))
    raw.on("/b", redirect("/a#again"))
    raw.on("/self", redirect("/self"))
    for path in ("/a", "/self"):
        raw.seen.clear()
        with pytest.raises(DownloadError, match="MAX_REDIRECTS=3") as caught:
            await d.fetch(Request(raw.url(path)))
        assert (caught.value.reason, caught.value.retryable) == ("redirects", False)
        assert len(raw.seen) == 4


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_hv_12_a_page_may_redirect_to_itself(raw, d, status: int) -> None:
    """A server that keeps count without a cookie; as many redirects as browsers follow."""
    raw.on("/", redirect("/", status), redirect("/", status), reply(b"welcome"))
    page = await d.fetch(Request(raw.url("/")))
    assert (page.content, [old.status_code for old in page.history]) == (b"welcome", [status] * 2)
    raw.on("/patient", *[redirect("/patient", status)] * 20, reply(b"at last"))
    assert (await d.fetch(Request(raw.url("/patient")))).content == b"at last"
    raw.on("/endless", redirect("/endless", status))
    with pytest.raises(DownloadError, match="MAX_REDIRECTS=20"):
        await d.fetch(Request(raw.url("/endless")))
    assert len(raw.at("/endless")) == 21


async def test_a_page_may_be_come_back_to_on_the_way(raw, d) -> None:
    raw.on("/page", redirect("/login"), reply(b"page"))
    raw.on("/login", redirect("/page"))
    assert (await d.fetch(Request(raw.url("/page")))).content == b"page"
    raw.on("/form", redirect("/form", 307), reply(b"sent"))
    assert (await d.fetch(Request(raw.url("/form"), "POST", data={"a": 1}))).content == b"sent"
    assert [seen.body for seen in raw.at("/form")] == [b"a=1", b"a=1"]


async def test_the_same_url_with_a_new_cookie(raw, d) -> None:
    raw.on("/", redirect("/", headers=["Set-Cookie: seen=1"]), reply(b"welcome"))
    response = await d.fetch(Request(raw.url("/")))
    assert response.content == b"welcome"
    assert raw.seen[1].get("cookie") == "seen=1"
    assert response.cookies == {"seen": "1"}


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/ü?q=ü".encode(), b"/%C3%BC?q=%C3%BC"),
        ("/ü?q=ü".encode("latin-1"), b"/%FC?q=%FC"),
        ("/目录".encode("gbk"), b"/%C4%BF%C2%BC"),
        (b"/a b", b"/a%20b"),
        (b"./x/../y?s=%2F%3d", b"/dir/y?s=%2F%3d"),
        (b"?only=query", b"/dir/page?only=query"),
        (b"  /padded\t", b"/padded"),
    ],
)
async def test_location_as_servers_write_it(raw, d, location: bytes, target: bytes) -> None:
    raw.on("/dir/page", redirect(location), reply())
    await d.fetch(Request(raw.url("/dir/page")))
    assert raw.seen[1].target == target


@pytest.mark.parametrize(
    ("start", "location", "end"),
    [
        ("/a#top", "/b", "/b#top"),
        ("/a#top", "/b#own", "/b#own"),
        ("/a", "/b#own", "/b#own"),
        ("/a#top", "/b#", "/b#"),
    ],
)
async def test_the_fragment_is_inherited(raw, d, start: str, location: str, end: str) -> None:
    raw.on("/a", redirect(location))
    response = await d.fetch(Request(raw.url(start)))
    assert response.url == raw.url(end)
    assert raw.seen[1].target == b"/b"


@pytest.mark.parametrize(
    "location",
    [
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:,x",
        "http://[bad/",
        "http://x:99999/",
    ],
)
async def test_a_redirect_to_what_can_not_be_fetched(raw, d, location: str) -> None:
    raw.on("/a", redirect(location))
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(raw.url("/a")))
    assert (caught.value.reason, caught.value.retryable) == ("url", False)
    assert raw.url("/a") in str(caught.value)


GIVEN = {
    "authorization": ({"headers": {"Authorization": "Bearer t"}}, "authorization", "Bearer t"),
    "auth=": ({"auth": ("u", "p")}, "authorization", "Basic dTpw"),
    "cookie header": ({"headers": {"Cookie": "s=1"}}, "cookie", "s=1"),
    "cookies=": ({"cookies": {"c": "2"}}, "cookie", "c=2"),
}


@pytest.mark.parametrize("name", GIVEN)
async def test_http_09_credentials_stay_with_their_origin(raw, other, d, name: str) -> None:
    given, header, value = GIVEN[name]
    given = {
        **given,
        "headers": {**given.get("headers", {}), "X-Trace": "7", "Host": f"127.0.0.1:{raw.port}"},
    }
    raw.on("/x", redirect(other.url("/y", host="localhost")))
    raw.on("/z", redirect(raw.url("/w")))
    raw.on("/port", redirect(other.url("/same-host")))
    raw.on("/away", redirect(other.url("/back", host="localhost")))
    other.on("/back", redirect(raw.url("/home")))
    for path in ("/x", "/z", "/port", "/away"):
        await d.fetch(Request(raw.url(path), **given))
    [elsewhere], [same], [port], [home] = (
        other.at("/y"),
        raw.at("/w"),
        other.at("/same-host"),
        raw.at("/home"),
    )
    assert elsewhere.get(header) is None
    assert elsewhere.get("x-trace") == "7"
    assert elsewhere.get("host") == f"localhost:{other.port}"
    assert same.get(header) == value
    if header == "cookie":
        assert port.get(header) == value  # RFC 6265: cookies don't know ports
    else:
        assert port.get(header) is None
    assert home.get(header) is None  # what was dropped does not come back


async def test_credentials_in_the_url_stay_with_it(raw, other, d) -> None:
    raw.on("/a", redirect(other.url("/b", host="localhost")))
    await d.fetch(Request(raw.url("/a").replace("http://", "http://u:p@")))
    assert raw.seen[0].get("authorization") == "Basic dTpw"
    assert other.seen[0].get("authorization") is None


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 500\r\n\r\nhalf", CLOSE],
        [b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\nendless", HANG],
        [reply(b"x" * 300_000, status="302 Found", headers=["Location: /b"])],
        coded(b"not gzip at all", "gzip").replace(b"200 OK", b"302 Found\r\nLocation: /b"),
    ],
    ids=["truncated", "no end", "huge", "undecodable"],
)
async def test_a_redirect_is_followed_whatever_its_body_is(raw, d, answer, monkeypatch) -> None:
    monkeypatch.setattr("netspy.downloader.curl.REDIRECT_GRACE", 3600.0)  # it isn't waited for
    raw.on("/a", answer)
    assert (await d.fetch(Request(raw.url("/a")))).url == raw.url("/b")


async def test_a_redirect_whose_body_does_not_come_is_followed_after_a_moment(raw, d) -> None:
    raw.on("/a", [b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 500\r\n\r\n", HANG])
    started = time.monotonic()
    assert (await d.fetch(Request(raw.url("/a"), timeout=60))).url == raw.url("/b")
    assert time.monotonic() - started < 15


async def test_a_handle_is_clean_after_a_redirected_post(raw, make) -> None:
    d = make(SPIDER_THREAD_COUNT=1)
    raw.on("/a", redirect("/b", 307))
    await d.fetch(Request(raw.url("/a"), "POST", data={"a": 1}))
    await d.fetch(Request(raw.url("/c")))
    [seen] = raw.at("/c")
    assert (seen.method, seen.body, len(seen.headers)) == ("GET", b"", 4)
