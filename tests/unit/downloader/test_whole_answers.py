"""Half an answer is none, an interim answer isn't the final one, and a request goes out as often as was asked for."""

from __future__ import annotations

import ssl
import struct
from typing import TYPE_CHECKING

import pytest

from netspy.downloader.outgoing import Outgoing
from netspy.downloader.ranges import partial_problem
from netspy.downloader.streams import Streams, opened
from netspy.downloader.transfer import read_head
from netspy.errors import DownloadError
from netspy.messages.request import Request
from netspy.settings import Settings
from support.h2_server import GOAWAY, H2Server, data, frame, head, reset
from support.raw_server import CLOSE, RESET, RawServer, redirect, reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

HTML = {"content-type": "text/html"}


async def reason_of(fetch, request: Request | str) -> tuple[str, bool]:
    with pytest.raises(DownloadError) as caught:
        await fetch(Request(request) if isinstance(request, str) else request)
    return caught.value.reason, caught.value.retryable


# -- HTTP/2: the end of a stream


@pytest.fixture
async def h2(certificate: tuple[Path, Path]) -> AsyncIterator[H2Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols(["h2"])
    async with H2Server(context) as server:
        yield server


HALF: dict[str, Callable[[int], bytes]] = {
    "reset with NO_ERROR after a part": lambda s: head(s, fields=HTML) + data(s, b"part") + reset(s, 0),
    "reset with NO_ERROR after the head": lambda s: head(s, fields=HTML) + reset(s, 0),
    "reset with NO_ERROR before the promised length": lambda s: (
        head(s, fields={"content-length": "9"}) + data(s, b"part") + reset(s, 0)
    ),
    "reset with an error": lambda s: head(s, fields=HTML) + data(s, b"part") + reset(s, 2),
    "cancelled": lambda s: head(s, fields=HTML) + data(s, b"part") + reset(s, 8),
    "the connection goes away": lambda s: (
        head(s, fields=HTML) + data(s, b"part") + frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0))
    ),
}


@pytest.mark.parametrize("how", HALF)
async def test_a_stream_without_its_end_is_no_page(how: str, h2, make) -> None:
    """Case HP-03."""
    h2.answer = HALF[how]
    assert await reason_of(make(VERIFY_TLS=False).fetch, h2.url()) == ("truncated", True)


WHOLE: dict[str, tuple[Callable[[int], bytes], bytes]] = {
    "in pieces": (lambda s: head(s) + data(s, b"a" * 9000) + data(s, b"b", end=True), b"a" * 9000 + b"b"),
    "ended by an empty frame": (lambda s: head(s) + data(s, b"page") + data(s, b"", end=True), b"page"),
    "without a body": (lambda s: head(s, end=True), b""),
    "after an early hint": (
        lambda s: head(s, 103, {"link": "x"}) + head(s) + data(s, b"page", end=True),
        b"page",
    ),
    "with a trailer": (lambda s: head(s) + data(s, b"page") + frame(1, 5, s, b"\x00\x01x\x01y"), b"page"),
    "of the promised length, then reset": (
        lambda s: head(s, fields={"content-length": "4"}) + data(s, b"page") + reset(s, 0),
        b"page",
    ),
    "ended, then reset": (lambda s: head(s) + data(s, b"page", end=True) + reset(s, 0), b"page"),
}


@pytest.mark.parametrize("how", WHOLE)
async def test_a_stream_that_ends_is_a_page(how: str, h2, make) -> None:
    d = make(VERIFY_TLS=False)
    h2.answer, body = WHOLE[how]
    for _ in range(2):
        assert (await d.fetch(Request(h2.url()))).content == body


async def test_streams_that_share_a_connection_are_told_apart(h2, make) -> None:
    import asyncio

    d = make(VERIFY_TLS=False)
    await d.fetch(Request(h2.url()))
    h2.answer = lambda s: head(s) + data(s, b"part") + (reset(s, 0) if s % 4 == 1 else data(s, b"", end=True))
    ends = await asyncio.gather(
        *(d.fetch(Request(h2.url(f"/{n}"))) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(end, DownloadError) for end in ends) == 10


def test_the_end_of_a_stream_is_remembered_until_it_is_asked_for():
    streams = Streams()
    streams.saw(7, b"[HTTP/2] [3] <- FRAME[DATA, len=4, eos=0, padlen=0]\n")
    assert not streams.take_end(7, 3)
    streams.saw(7, b"[HTTP/2] [3] <- FRAME[DATA, len=0, eos=1, padlen=0]\n")
    assert not streams.take_end(8, 3)
    assert [streams.take_end(7, 3), streams.take_end(7, 3)] == [True, False]
    assert opened(b"[HTTP/2] [5] OPENED stream for https://a/\n") == 5
    assert opened(b"[HTTP/2] [5] -> FRAME[HEADERS, len=12, hend=1, eos=1]\n") is None


# -- a part of a page


PARTIAL = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-49/1000\r\nContent-Length: 50\r\n\r\n"
    + b"x" * 50
)


async def test_a_part_that_nobody_asked_for_is_no_page(raw, d) -> None:
    """Case HP-04."""
    assert await reason_of(d.fetch, raw.on("/", PARTIAL)) == ("truncated", True)
    asked = Request(raw.url("/"), headers={"range": "bytes=0-49"})
    assert (await d.fetch(asked)).content == b"x" * 50


@pytest.mark.parametrize(
    ("sent", "lines", "size", "whole"),
    [
        ([], ["Content-Range: bytes 0-9/100"], 10, False),
        ([("Range", "bytes=0-9")], ["Content-Range: bytes 0-9/100"], 10, True),
        ([("RANGE", "bytes=0-9")], ["Content-Range: bytes 0-9/*"], 9, False),
        ([("Range", None)], ["Content-Range: bytes 0-9/100"], 10, False),
        ([("Range", "bytes=0-9")], ["Content-Range: bytes 0-9/100", "Content-Encoding: gzip"], 40, True),
        ([("Range", "bytes=0-1,5-6")], ["Content-Type: multipart/byteranges; boundary=b"], 200, True),
        ([("Range", "bytes=0-9")], ["Content-Range: bytes 0-9/100"], None, True),
    ],
)
def test_a_part_is_what_was_asked_for_and_as_long_as_it_says(sent, lines, size, whole):
    got = read_head([f"{line}\r\n".encode() for line in ["HTTP/1.1 206 Partial Content", *lines]])
    assert (partial_problem(sent, got, size) == "") is whole


# -- interim answers


EARLY = b"HTTP/1.1 103 Early Hints\r\n%s\r\n\r\n"


@pytest.mark.parametrize(
    "hint",
    [
        b"Location: /wrong",
        b"location: http://127.0.0.2:1/",
        b"Location: /right",
        b"Set-Cookie: a=1\r\nLocation: /wrong",
    ],
)
async def test_the_final_answers_location_is_followed(hint: bytes, raw, d) -> None:
    """Case HV-11."""
    url = raw.on("/", [EARLY % hint, redirect("/right", headers=["Set-Cookie: b=2"])])
    response = await d.fetch(Request(url))
    assert (response.url, response.cookies) == (raw.url("/right"), {"b": "2"})
    assert raw.at("/right")[0].get("cookie") == "b=2"
    assert raw.at("/wrong") == []


@pytest.mark.parametrize(
    "hint",
    [
        b"Content-Encoding: gzip",
        b"Content-Length: 2",
        b"Transfer-Encoding: chunked",
        b"Content-Type: text/css\r\nSet-Cookie: a=1",
        b"Location: /wrong",
    ],
)
async def test_fields_of_an_interim_answer_are_not_the_pages(hint: bytes, raw, d) -> None:
    url = raw.on(
        "/",
        [b"HTTP/1.1 100 Continue\r\n\r\n", EARLY % hint, reply(b"page", headers=["Content-Type: text/html"])],
    )
    response = await d.fetch(Request(url))
    assert (response.content, response.cookies) == (b"page", {})
    assert response.headers.get("content-type") == "text/html"


async def test_two_places_in_the_final_answer_are_an_error(raw, d) -> None:
    url = raw.on("/", [EARLY % b"Link: </a>", redirect("/a", headers=["Location: /b"])])
    assert (await reason_of(d.fetch, url))[0] == "protocol"


@pytest.mark.parametrize("rest", [reply(b"hello"), b"\x00\x00\x00\x04\x00", b""])
async def test_a_switch_of_protocols_that_nobody_asked_for_is_called_so(rest: bytes, raw, d) -> None:
    """Case HP-19."""
    url = raw.on(
        "/",
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + rest, CLOSE],
    )
    assert (await reason_of(d.fetch, url))[0] == "protocol"


# -- once is once


@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_is_not_idempotent_is_sent_once(method: str, end, raw, d) -> None:
    """Case HP-18."""
    url = raw.on("/", reply(b"first"), end, reply(b"third"))
    for answer in (b"first", None):
        request = Request(url, method=method, data="order=1")
        if answer is None:
            assert await reason_of(d.fetch, request) == ("reset", True)
        else:
            assert (await d.fetch(request)).content == answer
    assert len(raw.seen) == 2
    assert (await d.fetch(Request(url, method=method, data="order=1"))).content == b"third"


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_what_is_idempotent_survives_a_connection_that_dies_as_it_is_used_again(
    method: str, raw, d
) -> None:
    url = raw.on("/", reply(b"first"), CLOSE, reply(b"third"))
    contents = [(await d.fetch(Request(url, method=method))).content for _ in range(2)]
    assert contents == [b"first", b"third"]


# -- redirects to itself


@pytest.mark.parametrize("times", [1, 2, 19])
async def test_a_page_that_redirects_to_itself_is_followed_like_any_other(times: int, raw, d) -> None:
    """Case HV-12: the server may count what a client can't see."""
    url = raw.on("/", *[redirect("/")] * times, reply(b"page"))
    response = await d.fetch(Request(url))
    assert (response.content, len(response.history)) == (b"page", times)


# -- what is for the proxy


async def test_what_is_for_the_proxy_goes_to_the_proxy_alone(raw, other, d) -> None:
    """Case HP-05."""
    credentials = {
        "Proxy-Authorization": "Basic dXNlcjpzZWNyZXQ=",
        "proxy-connection": "keep-alive",
        "X-A": "1",
    }
    raw.on(f"127.0.0.1:{other.port}", reply(b"", status="403 Forbidden"))
    with pytest.raises(DownloadError):
        await d.fetch(Request(f"https://127.0.0.1:{other.port}/", headers=credentials, proxy=raw.url("")))
    [connect] = raw.seen
    assert (connect.method, connect.get("proxy-authorization"), connect.get("x-a")) == (
        "CONNECT",
        "Basic dXNlcjpzZWNyZXQ=",
        None,
    )
    raw.seen.clear()
    await d.fetch(Request("http://site.invalid/", headers=credentials, proxy=raw.url("")))
    assert raw.seen[0].get("proxy-authorization") == "Basic dXNlcjpzZWNyZXQ="
    await d.fetch(Request(other.url("/"), headers=credentials))
    assert (other.seen[0].get("proxy-authorization"), other.seen[0].get("proxy-connection")) == (None, None)
    assert other.seen[0].get("x-a") == "1"


def test_inside_a_tunnel_nothing_is_for_the_proxy():
    request = Request(
        "https://a.example/", headers=[("PROXY-AUTHORIZATION", "Basic x"), ("A", "1")], proxy="http://p:1"
    )
    out = Outgoing(request, request.url, Settings())
    assert out.lines({}, []) == (b"A: 1",)
    assert (10228, (b"PROXY-AUTHORIZATION: Basic x",)) in out.options()


# -- TLS


SUITES = [
    "ECDHE-RSA-AES256-SHA384:ECDHE-RSA-AES256-SHA",
    "ECDHE-RSA-AES128-SHA256:AES128-SHA",
    "AES256-SHA256",
    "AES128-SHA",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
]


@pytest.fixture(scope="session")
def rsa(tmp_path_factory) -> tuple[Path, Path]:
    import subprocess

    folder = tmp_path_factory.mktemp("rsa")
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {folder}/k.pem -out {folder}/c.pem"
    subprocess.run(command.split(), check=True, capture_output=True)
    return folder / "c.pem", folder / "k.pem"


@pytest.mark.parametrize("suites", SUITES)
async def test_a_server_that_picks_from_what_is_offered_is_understood(suites: str, rsa, make) -> None:
    """Case HP-02: servers of before GCM prefer suites that libcurl's own offer has and its TLS library can't do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*rsa)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{suites}:@SECLEVEL=0")
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    async with RawServer(context) as server:
        assert (await make(VERIFY_TLS=False).fetch(Request(server.url("/")))).content == b"ok"
