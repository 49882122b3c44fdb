from __future__ import annotations

import asyncio
import json
import os

import pytest

from netspy.downloader import user_agents
from netspy.errors import DownloadError, InvalidUrlError, RequestError
from netspy.messages.request import Request
from support.raw_server import CLOSE, RESET, chunked, coded, gz, reply


async def test_url_03_the_url_goes_out_byte_for_byte(raw, d) -> None:
    target = "/f/it%27s(1)%28.jpg?sig=a%2Fb%2Bc%3D%3d&e=s%40x&t=1+2"
    response = await d.fetch(Request(raw.url(target)))
    assert response.content == b"ok"
    assert raw.seen[0].target == target.encode()


async def test_url_04_a_stray_percent_sign_stays_one_over_retries(raw, d) -> None:
    raw.on("/100%", reply(status="500 X"), reply(status="500 X"), reply(b"fine"))
    url = raw.url("/100%?q=%ec%&x=%25&u=%E4%B8%AD")
    statuses = []
    for _ in range(3):
        request = Request.unpack(Request(url).pack())
        response = await d.fetch(request)
        url = request.url
        statuses.append(response.status_code)
    assert statuses == [500, 500, 200]
    assert {seen.target for seen in raw.seen} == {b"/100%?q=%ec%&x=%25&u=%E4%B8%AD"}


async def test_a_fragment_is_never_sent_and_stays_in_the_response_url(raw, d) -> None:
    response = await d.fetch(Request(raw.url("/a?b=1#top")))
    assert raw.seen[0].target == b"/a?b=1"
    assert response.url == raw.url("/a?b=1#top")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//example.com/",
        "gopher://x/",
        "/relative",
    ],
)
async def test_other_schemes_are_refused_before_anything_happens(d, url: str) -> None:
    with pytest.raises(InvalidUrlError):
        await d.fetch(Request(url))


async def test_what_a_plain_request_sends(raw, d) -> None:
    await d.fetch(Request(raw.url("/")))
    seen = raw.seen[0]
    assert (seen.method, seen.version) == ("GET", b"HTTP/1.1")
    assert seen.get("host") == f"127.0.0.1:{raw.port}"
    assert seen.get("user-agent") == user_agents.own()
    assert seen.get("user-agent").startswith("netspy/")
    assert "html" in seen.get("accept")
    assert set(seen.get("accept-encoding").split(", ")) == {"gzip", "deflate", "br", "zstd"}
    assert len(seen.headers) == 4


async def test_the_response_has_everything(raw, d) -> None:
    raw.on(
        "/", [0.05, reply(b"hi", status="404 Nope", headers=["X-A: 1", "x-a: 2", "Content-Type: text/html"])]
    )
    request = Request(raw.url("/"))
    response = await d.fetch(request)
    assert response.status_code == 404
    assert response.content == b"hi"
    assert response.headers["content-type"] == "text/html"
    assert response.request is request
    assert response.url == request.url
    assert response.history == []
    assert 0.04 < response.elapsed < 40  # seconds, not milliseconds


async def test_http_05a_150_headers(raw, d) -> None:
    raw.on("/", reply(headers=[*(f"X-H{n}: {n}" for n in range(150)), "Set-Cookie: a=1"]))
    response = await d.fetch(Request(raw.url("/")))
    assert response.content == b"ok"
    assert response.headers["x-h149"] == "149"
    assert response.cookies == {"a": "1"}


@pytest.mark.parametrize(
    "answer",
    [
        reply(headers=["X-Big: " + "x" * 20_000]),
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        [b"HTTP/1.0 200 OK\r\n\r\nok", CLOSE],
        b"HTTP/1.1 200 OK\r\ncontent-LENGTH:2\r\n\r\nok",
        reply(headers=["X-Latin: caf\xe9", "X: \x01"]),
    ],
    ids=["b-20kB-header", "d-twice-length", "e-no-reason", "fold", "bare-lf", "http10", "case", "latin"],
)
async def test_http_05_sloppy_heads_are_read(raw, d, answer) -> None:
    raw.on("/", answer)
    response = await d.fetch(Request(raw.url("/")))
    assert response.content == b"ok"


async def test_http_05c_a_header_line_without_a_colon_fails_once_and_harms_nobody_else(raw, d) -> None:
    raw.on("/", reply(headers=["this line has no colon"]))
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(raw.url("/")))
    assert (caught.value.reason, caught.value.retryable) == ("protocol", False)
    assert (await d.fetch(Request(raw.url("/fine")))).content == b"ok"


async def test_a_flood_of_headers_is_an_error_and_not_memory(raw, d) -> None:
    raw.on("/", [b"HTTP/1.1 200 OK\r\n", *[b"X-Flood: " + b"x" * 60_000 + b"\r\n"] * 30, reply()])
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(raw.url("/")))
    assert caught.value.reason == "protocol"
    assert (await d.fetch(Request(raw.url("/fine")))).content == b"ok"


async def test_early_hints_and_100_continue_are_not_the_answer(raw, d) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX: hint\r\n\r\n"
    raw.on("/", [b"HTTP/1.1 100 Continue\r\n\r\n", hints, hints, reply(b"page", headers=["X: real"])])
    response = await d.fetch(Request(raw.url("/")))
    assert (response.status_code, response.content) == (200, b"page")
    assert response.headers["x"] == "real"
    assert "link" not in response.headers


async def test_trailers_are_not_headers(raw, d) -> None:
    raw.on("/", chunked(b"body", end=b"0\r\nX-Trailer: 1\r\n\r\n"))
    response = await d.fetch(Request(raw.url("/")))
    assert response.content == b"body"
    assert "x-trailer" not in response.headers


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nContent-Encoding: gzip\r\n\r\n",
    ],
    ids=["204", "304"],
)
async def test_answers_without_a_body_end_at_their_head(raw, d, answer: bytes) -> None:
    raw.on("/", answer)
    response = await d.fetch(Request(raw.url("/")))
    assert response.content == b""
    assert response.status_code in {204, 304}


async def test_head_has_no_body_and_the_next_get_has_one(raw, make) -> None:
    d = make(SPIDER_THREAD_COUNT=1)
    raw.on("/", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n", reply(b"there"))
    head = await d.fetch(Request(raw.url("/"), "HEAD"))
    assert (head.status_code, head.content) == (200, b"")
    assert (await d.fetch(Request(raw.url("/")))).content == b"there"
    assert [seen.method for seen in raw.seen] == ["HEAD", "GET"]
    assert raw.connections == 1


async def test_bodies_of_every_kind(raw, d) -> None:
    post = Request(raw.url("/"), "POST", data={"a": "1 ä", "b": ["x", "y"], "c": None, "d": True})
    await d.fetch(post)
    await d.fetch(Request(raw.url("/"), "POST", json={"k": "ü", "n": [1, None]}))
    await d.fetch(Request(raw.url("/"), "PUT", content=b"\x00\xff raw"))
    await d.fetch(Request(raw.url("/"), "PATCH", data="text=ä"))
    await d.fetch(Request(raw.url("/"), "POST"))
    await d.fetch(Request(raw.url("/"), "GET", data={"q": "1"}))
    await d.fetch(Request(raw.url("/"), "DELETE"))
    await d.fetch(Request(raw.url("/"), "PROPFIND", content="x", headers={"Content-Type": "text/xml"}))
    form, js, rw, text, empty, get, delete, prop = raw.seen
    assert form.body == b"a=1+%C3%A4&b=x&b=y&d=true"
    assert form.get("content-type") == "application/x-www-form-urlencoded"
    assert json.loads(js.body) == {"k": "ü", "n": [1, None]}
    assert js.get("content-type") == "application/json"
    assert (rw.method, rw.body, rw.get("content-type")) == ("PUT", b"\x00\xff raw", None)
    assert (text.method, text.body) == ("PATCH", "text=ä".encode())
    assert text.get("content-type") is None
    assert (empty.body, empty.get("content-length"), empty.get("content-type")) == (b"", "0", None)
    assert (get.method, get.body) == ("GET", b"q=1")
    assert (delete.method, delete.get("content-length")) == ("DELETE", None)
    assert (prop.method, prop.body, prop.all("content-type")) == ("PROPFIND", b"x", ["text/xml"])
    assert all(seen.get("expect") is None for seen in raw.seen)


async def test_a_handle_used_for_a_post_leaves_nothing_for_the_next_get(raw, make) -> None:
    d = make(SPIDER_THREAD_COUNT=1)
    await d.fetch(
        Request(
            raw.url("/a"),
            "POST",
            json={"secret": 1},
            headers={"X-Own": "1", "User-Agent": "me"},
            cookies={"c": "1"},
            auth=("u", "p"),
            timeout=5,
        )
    )
    await d.fetch(Request(raw.url("/b")))
    first, second = raw.seen
    assert first.get("authorization") == "Basic dTpw"
    assert first.get("user-agent") == "me"
    assert first.get("cookie") == "c=1"
    assert (second.method, second.body) == ("GET", b"")
    assert {name.lower() for name, _ in second.headers} == {"host", "user-agent", "accept", "accept-encoding"}
    assert second.get("user-agent") == user_agents.own()
    assert raw.connections == 1


async def test_a_large_upload_arrives_whole(raw, d) -> None:
    body = os.urandom(3_000_000)
    await d.fetch(Request(raw.url("/"), "POST", content=body))
    assert raw.seen[0].body == body


async def test_a_multipart_upload(raw, d) -> None:
    await d.fetch(
        Request(
            raw.url("/"),
            "POST",
            data={"kind": "a b"},
            files={"doc": ('x".txt', b"\x00\x01", "text/plain"), "b": b"2"},
        )
    )
    seen = raw.seen[0]
    kind, _, boundary = seen.get("content-type").partition("; boundary=")
    assert kind == "multipart/form-data"
    parts = seen.body.split(b"--" + boundary.encode())
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    assert parts[1] == b'\r\nContent-Disposition: form-data; name="kind"\r\n\r\na b\r\n'
    assert b'name="doc"; filename="x%22.txt"\r\nContent-Type: text/plain\r\n\r\n\x00\x01\r\n' in parts[2]
    assert b'name="b"; filename="b"\r\nContent-Type: application/octet-stream\r\n\r\n2\r\n' in parts[3]


async def test_headers_of_the_request_replace_ours_and_none_removes_one(raw, d) -> None:
    headers = {
        "user-agent": "mine",
        "Accept": None,
        "X-Empty": "",
        "X-Text": "süß",
        "X-Number": 7,
        "Host": "other.example",
    }
    await d.fetch(Request(raw.url("/"), headers=headers))
    seen = raw.seen[0]
    assert seen.all("user-agent") == ["mine"]
    assert seen.get("accept") is None
    assert seen.get("x-empty") == ""
    assert seen.get("x-text") == "süß"
    assert seen.get("x-number") == "7"
    assert seen.all("host") == ["other.example"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nX-Injected: 1"},
        {"X": "a\nb"},
        {"X\r\nY": "1"},
        {"X: Y": "1"},
        {"": "1"},
        {"X": "a\0b"},
        "no dict",
    ],
)
async def test_a_header_can_not_smuggle_another(raw, d, headers) -> None:
    with pytest.raises(RequestError):
        await d.fetch(Request(raw.url("/"), headers=headers))
    assert raw.seen == []
    assert (await d.fetch(Request(raw.url("/")))).content == b"ok"


async def test_user_agent_settings(raw, make) -> None:
    await make(USER_AGENT="shop/1").fetch(Request(raw.url("/")))
    random = make(RANDOM_USER_AGENT=True)
    for _ in range(3):
        await random.fetch(Request(raw.url("/")))
    await random.fetch(Request(raw.url("/"), random_user_agent=False))
    await make().fetch(Request(raw.url("/"), random_user_agent=True))
    agents = [seen.get("user-agent") for seen in raw.seen]
    assert agents[0] == "shop/1"
    assert agents[1] in user_agents.BROWSERS
    assert len(set(agents[1:4])) == 1
    assert agents[4] == user_agents.own()
    assert agents[5] == agents[1]


def test_browsers_differ_between_hosts_and_stay_for_one() -> None:
    chosen = [user_agents.browser_for(f"host{number}.example") for number in range(50)]
    assert len(set(chosen)) > 2
    assert chosen == [user_agents.browser_for(f"host{number}.example") for number in range(50)]


async def test_connections_are_used_again(raw, d) -> None:
    for _ in range(20):
        await d.fetch(Request(raw.url("/")))
    assert raw.connections == 1


async def test_a_connection_that_the_server_closed_meanwhile_costs_no_page(raw, d) -> None:
    raw.on("/", [reply(b"one"), CLOSE], [reply(b"two"), RESET], reply(b"three"))
    bodies = [(await d.fetch(Request(raw.url("/")))).content for _ in range(3)]
    assert bodies == [b"one", b"two", b"three"]


async def test_several_hundred_in_flight_share_one_downloader(raw, make) -> None:
    d = make(SPIDER_THREAD_COUNT=300)
    for _ in range(2):
        raw.seen.clear()
        everybody = asyncio.Event()  # nobody is answered before all have asked
        raw.on("/slow", [everybody, reply(b"slow")])
        fetching = asyncio.gather(*(d.fetch(Request(raw.url(f"/slow?{n}"), timeout=60)) for n in range(300)))
        await raw.until(lambda: len(raw.seen) == 300)
        everybody.set()
        assert [response.content for response in await fetching] == [b"slow"] * 300
        assert raw.connections == 300  # the second time, too


async def test_environment_proxies_are_not_used(raw, make, monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await make().fetch(Request(raw.url("/")))).content == b"ok"


async def test_impersonation_sends_a_browsers_headers_and_the_body_is_decoded(raw, make) -> None:
    d = make()
    raw.on("/", coded(gz(b"page"), "gzip"))
    plain = await d.fetch(Request(raw.url("/")))
    browser = await d.fetch(Request(raw.url("/"), impersonate="chrome"))
    own = await d.fetch(Request(raw.url("/"), impersonate="chrome", headers={"User-Agent": "me"}))
    always = await make(DOWNLOADER_IMPERSONATE="safari").fetch(Request(raw.url("/")))
    assert [response.content for response in (plain, browser, own, always)] == [b"page"] * 4
    agents = [seen.get("user-agent") for seen in raw.seen]
    assert "Chrome/" in agents[1]
    assert agents[2] == "me"
    assert "Safari/" in agents[3]
    assert "gzip" in raw.seen[1].get("accept-encoding")
    assert raw.seen[1].get("sec-ch-ua")
    assert raw.seen[0].get("sec-ch-ua") is None


async def test_an_unknown_browser_is_named(raw, make) -> None:
    from netspy.errors import ConfigError

    with pytest.raises(ConfigError, match="netscape4"):
        make(DOWNLOADER_IMPERSONATE="netscape4")
    with pytest.raises(DownloadError, match="netscape4") as caught:
        await make().fetch(Request(raw.url("/"), impersonate="netscape4"))
    assert not caught.value.retryable
