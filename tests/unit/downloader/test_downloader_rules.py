"""The decisions of the downloader, called with plain values."""

from __future__ import annotations

import io

import pytest

from netspy.downloader import body, failures, outgoing, redirects, transfer
from netspy.downloader.curl import Activity
from netspy.downloader.decoding import BodyError
from netspy.downloader.outgoing import Outgoing
from netspy.errors import DownloadError, RequestError, ResponseTooLargeError
from netspy.messages.request import Request
from netspy.settings import Settings

SETTINGS = Settings()


# -- heads


def test_a_head_keeps_order_and_every_line() -> None:
    head = transfer.read_head(
        [
            b"HTTP/1.1 200 OK\r\n",
            b"Set-Cookie: a=1\r\n",
            b"X:  padded \r\n",
            b"SET-cookie: b=2; x\r\n",
            b"no colon\r\n",
            b"Empty:\r\n",
        ]
    )
    assert head.status == 200
    assert head.pairs == [("set-cookie", "a=1"), ("x", "padded"), ("set-cookie", "b=2; x"), ("empty", "")]
    assert head.get_all("set-cookie") == ["a=1", "b=2; x"]
    assert head.get("x") == "padded"
    assert head.get("none") is None


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"HTTP/2 404 \r\n", 404),
        (b"HTTP/1.1 200\r\n", 200),
        (b"HTTP/1.0  302 Found\r\n", 302),
        (b"HTTP/1.1\r\n", 0),
        (b"HTTP/1.1 abc\r\n", 0),
    ],
)
def test_status_lines(line: bytes, status: int) -> None:
    assert transfer.read_head([line]).status == status


def test_header_bytes_are_utf8_or_latin1_line_by_line() -> None:
    head = transfer.read_head(
        [b"HTTP/1.1 200 OK\r\n", "U: ü\r\n".encode(), "L: ü\r\n".encode("latin-1"), b"F: a\r\n", b"\t b\r\n"]
    )
    assert head.pairs == [("u", "ü"), ("l", "ü"), ("f", "a b")]


def test_raw_values_keep_their_bytes() -> None:
    assert transfer.raw_values(
        [b"Location: /\xe9 \r\n", b"X-Location: n\r\n", b"LOCATION:/b\r\n"], b"location:"
    ) == [b"/\xe9", b"/b"]


def test_merged_headers_keep_the_requests_spelling() -> None:
    merged = outgoing.merge(
        {"User-Agent": "d", "Accept": "d"}, [("user-agent", "mine"), ("X", "1"), ("X", "2")]
    )
    assert merged == [("Accept", "d"), ("user-agent", "mine"), ("X", "1"), ("X", "2")]


# -- bodies


def encoded(**options: object) -> body.Body:
    made = body.encode(options, boundary=lambda: "BB")
    assert made is not None
    return made


def test_no_body() -> None:
    assert body.encode({}) is None
    assert body.encode({"data": None, "files": {}}) is None


def test_an_empty_body_is_a_body() -> None:
    assert encoded(data="").content == b""
    assert encoded(json={}).content == b"{}"
    assert encoded(data={}).content == b""


def test_forms_in_the_encoding_of_the_site() -> None:
    assert encoded(data=[("a", 1), ("a", 2), ("b", False)]).content == b"a=1&a=2&b=false"
    gbk = body.encode({"data": {"q": "中文"}}, encoding="gbk")
    assert gbk is not None
    assert gbk.content == b"q=%D6%D0%CE%C4"


@pytest.mark.parametrize(
    "options",
    [
        {"json": {"a": float("nan")}},
        {"json": {1, 2}},
        {"json": {}, "data": "x"},
        {"content": 5},
        {"data": 5},
        {"files": {"a": 5}},
        {"files": {"a": ("only one",)}},
        {"files": {"a": b""}, "json": {}},
        {"files": {"a": b""}, "data": "raw"},
    ],
)
def test_bodies_that_can_not_be_sent_say_so(options: dict) -> None:
    with pytest.raises(RequestError):
        body.encode(options)


def test_multipart_of_files_in_every_form() -> None:
    opened = io.BytesIO(b"open")
    opened.name = "/some/where/doc.pdf"
    made = encoded(
        files=[("a", ("n.png", b"1")), ("a", "text"), ("o", opened), ("q", ('"\r\n.x', b"2", "a/b\r\nX: y"))]
    )
    assert made.content_type == "multipart/form-data; boundary=BB"
    assert made.content == (
        b'--BB\r\nContent-Disposition: form-data; name="a"; filename="n.png"\r\nContent-Type: image/png\r\n\r\n1\r\n'
        b'--BB\r\nContent-Disposition: form-data; name="a"; filename="a"\r\nContent-Type: application/octet-stream\r\n\r\ntext\r\n'
        b'--BB\r\nContent-Disposition: form-data; name="o"; filename="doc.pdf"\r\nContent-Type: application/pdf\r\n\r\nopen\r\n'
        b'--BB\r\nContent-Disposition: form-data; name="q"; filename="%22%0D%0A.x"\r\nContent-Type: a/bX: y\r\n\r\n2\r\n'
        b"--BB--\r\n"
    )


# -- redirects


@pytest.mark.parametrize(
    ("status", "method", "after", "keeps"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
        (301, "PUT", "PUT", True),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", True),
        (302, "GET", "GET", True),
    ],
)
def test_methods_after_redirects(status: int, method: str, after: str, keeps: bool) -> None:
    assert redirects.method_after(status, method) == (after, keeps)


@pytest.mark.parametrize(
    ("here", "there", "credentials", "cookies"),
    [
        ("https://a.example/", "https://a.example:443/x", True, True),
        ("http://a.example/", "http://a.example:8080/", False, True),
        ("http://a.example/", "https://a.example/", False, True),
        ("https://a.example/", "http://a.example/", False, False),
        ("https://a.example/", "https://b.a.example/", False, False),
        ("http://[::1]:8/", "http://[::1]:8/y", True, True),
    ],
)
def test_who_gets_what_after_a_redirect(here: str, there: str, credentials: bool, cookies: bool) -> None:
    origins = redirects.origin(here), redirects.origin(there)
    assert redirects.keeps_credentials(*origins) is credentials
    assert redirects.keeps_cookies(*origins) is cookies


# -- outgoing


def out(url: str = "http://a.example/", method: str = "GET", **keywords: object) -> Outgoing:
    return Outgoing(Request(url, method, **keywords), url, SETTINGS)


def test_a_plain_get_has_nothing_to_say() -> None:
    assert out().plain
    assert not out(method="HEAD").plain
    assert not out(headers={"A": "b"}).plain
    assert not out(timeout=3).plain


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        (None, (22.0, 10.0)),
        (5, (5.0, 10.0)),
        ("2.5", (2.5, 10.0)),
        ((3, 4), (7.0, 3.0)),
        ((None, 4), (14.0, 10.0)),
        ((3, None), (22.0, 3.0)),
        (float("inf"), (1e8, 10.0)),
    ],
)
def test_timeouts(given: object, limits: tuple[float, float]) -> None:
    assert outgoing.limits(given, 22.0, 10.0) == limits


@pytest.mark.parametrize("given", [0, -1, "soon", (1, 2, 3), (1, -2), {}, float("nan")])
def test_timeouts_that_are_none(given: object) -> None:
    with pytest.raises(RequestError, match="timeout="):
        outgoing.limits(given, 22.0, 10.0)


@pytest.mark.parametrize(
    "keywords",
    [
        {"auth": "user:password"},
        {"auth": ("a:b", "c")},
        {"cookies": "a=1"},
        {"headers": 5},
        {"proxies": "http://x"},
        {"cert": ()},
        {"method": "BAD METHOD"},
        {"auth": ("\ud800", "x")},
        {"method": "GET\r\nX: y"},
    ],
)
def test_keywords_that_can_not_be_sent_are_named(keywords: dict) -> None:
    with pytest.raises(RequestError):
        out(**keywords).options()


def test_half_a_surrogate_pair_is_no_header() -> None:
    for keywords in ({"headers": {"X": "\ud800"}}, {"cookies": {"a": "\ud800"}}):
        with pytest.raises(RequestError, match="encoded"):
            out(**keywords).lines({}, [])


def test_sub_millisecond_limits_do_not_become_no_limit() -> None:
    assert outgoing.milliseconds(0.0001) == 1
    assert outgoing.milliseconds(1.5) == 1500


# -- content types


@pytest.mark.parametrize(
    ("content_type", "patterns", "allowed"),
    [
        ("text/html; charset=utf-8", ["text/*"], True),
        ("TEXT/HTML", ["Text/Html "], True),
        ("application/json", ["text/*", "application/json"], True),
        ("application/json", ["text/*"], False),
        ("application/xhtml+xml", ["*+xml"], True),
        (None, ["text/*"], True),
        ("", ["text/*"], True),
        ("text", ["text/*"], False),
    ],
)
def test_content_type_patterns(content_type: str | None, patterns: list[str], allowed: bool) -> None:
    assert transfer.is_allowed(content_type, patterns) is allowed


# -- failures


@pytest.mark.parametrize(
    ("code", "text", "reason", "retryable"),
    [
        (3, "", "url", False),
        (6, "Could not resolve host: x", "dns", True),
        (7, "", "connect", True),
        (18, "", "truncated", True),
        (28, "", "timeout", True),
        (28, "Resolving timed out after 10000 milliseconds", "dns", True),
        (52, "", "reset", True),
        (56, "Recv failure: Connection reset by peer", "reset", True),
        (56, "CONNECT tunnel failed, response 407", "proxy", True),
        (56, "Illegal or missing hexadecimal sequence", "truncated", True),
        (56, "Too large response headers: 400000 > 307200", "protocol", True),
        (60, "SSL certificate problem", "tls", False),
        (999, "from the future", "protocol", True),
    ],
)
def test_kinds_of_failure(code: int, text: str, reason: str, retryable: bool) -> None:
    error = failures.from_curl(code, text, method="GET", url="http://u:secret@h/")
    assert (error.reason, error.retryable) == (reason, retryable)
    assert "secret" not in str(error)
    assert text in str(error)


def test_a_reset_after_the_head_is_half_a_page_and_a_refused_proxy_is_no_refused_site() -> None:
    assert (
        failures.from_curl(56, "reset", method="GET", url="http://h/", progressed=True).reason == "truncated"
    )
    assert failures.from_curl(7, "refused", method="GET", url="http://h/", proxied=True).reason == "proxy"


def test_body_failures() -> None:
    too_large = failures.from_body(BodyError("too_large", "big"), method="GET", url="http://h/")
    assert isinstance(too_large, ResponseTooLargeError)
    broken = failures.from_body(BodyError("decode", "bad"), method="GET", url="http://h/")
    assert isinstance(broken, DownloadError)
    assert (broken.reason, broken.retryable) == ("decode", True)


def test_very_long_urls_do_not_flood_the_log() -> None:
    assert len(failures.describe_request("GET", "http://h/" + "x" * 10_000)) < 400


# -- idle transfers


def test_idling_counts_from_the_last_byte_and_not_while_connecting() -> None:
    activity = Activity(100.0)
    assert activity.idle(None, 150.0) == 0
    assert activity.idle((1, 0), 160.0) == 0
    assert activity.idle((1, 0), 165.0) == 5
    assert activity.idle((1, 7), 170.0) == 0
    assert activity.idle((1, 7), 171.5) == 1.5
