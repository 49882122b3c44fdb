"""What can't be sent twice without harm is sent again by the retry policy only, never by libcurl."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from netspy.downloader.transfer import is_farewell
from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.h2_server import REFUSED_STREAM, H2Server, data, head, reset
from support.raw_server import CLOSE, RESET, RawServer, redirect, reply

if TYPE_CHECKING:
    from pathlib import Path

UNSAFE = ["POST", "PATCH", "REPORT", "MERGE", "post"]
SAFE = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]


def request(url: str, method: str) -> Request:
    return Request(url, method, content=None if method in {"GET", "HEAD"} else b"order=1")


@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("method", UNSAFE)
async def test_hp_18_an_order_on_a_kept_connection_goes_out_once(raw, d, method: str, end) -> None:
    raw.on("/order", end)
    await d.fetch(Request(raw.url("/")))
    with pytest.raises(DownloadError) as caught:
        await d.fetch(request(raw.url("/order"), method))
    assert (caught.value.reason, caught.value.retryable) == ("reset", True)
    [seen] = raw.at("/order")
    assert (seen.body, seen.connection) == (b"order=1", 1)  # the connection was used again
    await d.fetch(request(raw.url("/fine"), method))
    await d.fetch(Request(raw.url("/fine")))


@pytest.mark.parametrize("method", SAFE)
async def test_hp_18_what_may_be_repeated_survives_the_end_of_a_kept_connection(raw, d, method: str) -> None:
    raw.on("/page", CLOSE, reply(b"" if method == "HEAD" else b"page"))
    await d.fetch(Request(raw.url("/")))
    assert (await d.fetch(request(raw.url("/page"), method))).ok
    assert [seen.connection for seen in raw.at("/page")] == [1, 2]


async def test_orders_share_a_connection_and_notice_one_that_ended_before(raw, other, d) -> None:
    for _ in range(3):
        await d.fetch(request(raw.url("/order"), "POST"))
    assert raw.connections == 1
    raw.on("/bye", [reply(b"bye", headers=["Connection: keep-alive"]), CLOSE])
    await d.fetch(Request(raw.url("/bye")))
    await raw.until(lambda: raw.open == 0)
    await d.fetch(Request(other.url("/")))  # and the end has come here
    assert (await d.fetch(request(raw.url("/order"), "POST"))).ok
    assert len(raw.at("/order")) == 4


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_order_notices_a_tls_connection_that_ended_before(
    certificate: tuple[Path, Path], other, make, version: ssl.TLSVersion
) -> None:
    """The server says goodbye, and closes when the client has said it too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.maximum_version = version
    d = make(VERIFY_TLS=False)
    async with RawServer(context) as server:
        server.on("/bye", [reply(b"bye"), CLOSE])
        for _ in range(3):
            await d.fetch(Request(server.url("/bye")))
            await server.until(lambda: server.open == 0)
            await d.fetch(Request(other.url("/")))
            assert (await d.fetch(request(server.url("/bye"), "POST"))).ok
            await server.until(lambda: server.open == 0)
            await d.fetch(Request(other.url("/")))
        assert len(server.seen) == 6


async def test_an_order_does_not_take_the_farewell_for_its_answer(raw, other, d) -> None:
    timeout = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    raw.on("/bye", [reply(b"bye"), 0.05, timeout])
    await d.fetch(Request(raw.url("/bye")))
    await raw.until(lambda: raw.answered == 1)
    await d.fetch(Request(other.url("/")))
    assert (await d.fetch(request(raw.url("/order"), "POST"))).ok
    assert [seen.connection for seen in raw.seen] == [1, 2]


@pytest.mark.parametrize(
    ("first", "over"),
    [
        (b"", True),
        (b"HTTP/", True),
        (b"\x15\x03\x03\0\x1a", True),
        (b"\x17\x03\x03\0\x13", True),
        (b"\x17\x03\x03\0\x1a", False),  # the shortest HTTP/2 frame
        (b"\x17\x03\x03\x01\x0b", False),  # a session ticket
    ],
)
def test_what_waits_on_a_kept_connection(first: bytes, over: bool) -> None:
    assert is_farewell(first) is over


async def test_an_order_goes_out_once_for_each_redirect_that_repeats_it(raw, d) -> None:
    raw.on("/order", redirect("/there", 307))
    raw.on("/there", CLOSE)
    with pytest.raises(DownloadError):
        await d.fetch(request(raw.url("/order"), "POST"))
    assert [seen.body for seen in raw.seen] == [b"order=1"] * 2
    raw.on("/old", redirect("/new", 302))
    raw.on("/new", CLOSE, reply(b"page"))
    assert (await d.fetch(request(raw.url("/old"), "POST"))).content == b"page"  # a GET by then


async def test_an_order_through_a_proxy_goes_out_once(raw, d) -> None:
    raw.on("http://site.example/order", CLOSE)
    proxy = f"http://127.0.0.1:{raw.port}"
    await d.fetch(Request("http://site.example/", proxy=proxy))
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request("http://site.example/order", "POST", content=b"order=1", proxy=proxy))
    assert caught.value.reason == "reset"
    assert len(raw.at("http://site.example/order")) == 1


@pytest.mark.parametrize("last", [[CLOSE], [reset(REFUSED_STREAM)]], ids=["end", "refused"])
async def test_hp_18_an_order_over_http2_goes_out_once(certificate: tuple[Path, Path], make, last) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    page = [head(200), data(b"page", end=True)]
    d = make(VERIFY_TLS=False)
    async with H2Server(context, page, last, page) as server:
        await d.fetch(Request(server.url))
        with pytest.raises(DownloadError) as caught:
            await d.fetch(request(server.url, "POST"))
        assert (caught.value.reason, caught.value.retryable) == ("reset", True)
        assert len(server.requests) == 2
    async with H2Server(context, page, [reset(REFUSED_STREAM)], page) as server:
        await d.fetch(Request(server.url))
        assert (await d.fetch(Request(server.url))).content == b"page"
        assert len(server.requests) == 3
