"""Half a body is never a page, and what precedes an answer is no part of it."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
import zstandard

from netspy.downloader.ranges import misfit
from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.raw_server import CLOSE, HANG, RESET, coded, redirect, reply

OK = b"HTTP/1.1 200 OK\r\n"
TEXT = b"<p>whole</p>" * 50
CODED = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
}


async def failure(d, request: Request) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        await d.fetch(request)
    return caught.value


HALVES = {
    "chunks without an end": [OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", CLOSE],
    "half a chunk": [OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\npart", CLOSE],
    "chunks without the last line": [OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n0\r\n", CLOSE],
    "chunks and a length": [
        OK + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        CLOSE,
    ],
    "length": [reply(b"part", length=9), CLOSE],
    "length of HTTP/1.0": [b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\npart", CLOSE],
    "length that another coding hides": [
        OK + b"Transfer-Encoding: identity\r\nContent-Length: 9\r\n\r\npart",
        CLOSE,
    ],
    "length with a blank before the colon": [OK + b"Content-Length : 9\r\n\r\npart", CLOSE],
    "length beyond all numbers": [OK + b"Content-Length: 99999999999999999999999\r\n\r\npart", CLOSE],
    "length on a folded line": [OK + b"Content-Length:\r\n 9\r\n\r\npart", CLOSE],
    "a reset where the end counts": [b"HTTP/1.0 200 OK\r\n\r\npart", 0.05, RESET],
    "a second gzip member": coded(CODED["gzip"] + CODED["gzip"][:9], "gzip"),
    "a second zstd frame": coded(CODED["zstd"] + CODED["zstd"][:9], "zstd"),
    "an error page": [reply(b"part", status="404 Not Found", length=9), CLOSE],
}


@pytest.mark.parametrize("name", HALVES)
async def test_half_a_body_is_no_page(raw, d, name: str) -> None:
    raw.on("/", HALVES[name])
    error = await failure(d, Request(raw.url("/")))
    assert (error.reason, error.retryable) == ("truncated", True)


@pytest.mark.parametrize("name", ["length that another coding hides", "length with a blank before the colon"])
async def test_half_a_body_is_no_file(raw, d, name: str) -> None:
    raw.on("/", HALVES[name])
    with pytest.raises(DownloadError, match="4 of 9 bytes"):
        await d.save(Request(raw.url("/")), [].append, max_bytes=0)


@pytest.mark.parametrize("coding", CODED)
async def test_a_coded_body_that_is_cut_anywhere_is_no_page(raw, d, coding: str) -> None:
    """With a length that fits what is left of it, as from a server that stores damaged files."""
    body = CODED[coding]
    cuts = {1, 3, len(body) // 2, len(body) - 4, len(body) - 1}
    for cut in cuts:
        raw.on(f"/{cut}", coded(body[:cut], coding))
        assert (await failure(d, Request(raw.url(f"/{cut}")))).reason == "truncated", cut
    raw.on("/whole", coded(body, coding))
    assert (await d.fetch(Request(raw.url("/whole")))).content == TEXT


@pytest.mark.parametrize(
    "lengths",
    ["2, 4", "4, 9", "-4", "+4", "4x", "four"],
    ids=["list", "longer", "minus", "plus", "hex", "word"],
)
async def test_a_length_that_is_none_is_no_page(raw, d, lengths: str) -> None:
    raw.on("/", [OK + f"Content-Length: {lengths}\r\n\r\npage".encode(), CLOSE])
    assert (await failure(d, Request(raw.url("/")))).reason == "protocol"


@pytest.mark.parametrize(
    ("method", "answer", "body"),
    [
        ("GET", [b"HTTP/1.0 200 OK\r\n\r\npage", CLOSE], b"page"),
        ("GET", [OK + b"\r\npage", CLOSE], b"page"),
        ("GET", OK + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\npage", b"page"),
        ("GET", OK + b"Content-Length: 4, 4\r\n\r\npage", b"page"),
        ("GET", OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\n", b"page"),
        ("GET", coded(CODED["gzip"] + b"\r\n", "gzip"), TEXT),
        ("GET", coded(CODED["gzip"] * 2, "gzip"), TEXT * 2),
        ("GET", coded(b"", "gzip"), b""),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nContent-Encoding: gzip\r\n\r\n", b""),
        ("HEAD", OK + b"Content-Length: 9\r\nContent-Encoding: gzip\r\n\r\n", b""),
        ("HEAD", OK + b"Content-Length : 9\r\n\r\n", b""),
        ("HEAD", b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3/9\r\n\r\n", b""),
    ],
)  # fmt: skip
async def test_what_has_its_end_is_whole(raw, d, method: str, answer, body: bytes) -> None:
    raw.on("/", answer)
    assert (await d.fetch(Request(raw.url("/"), method))).content == body


def part(content_range: str, body: bytes = b"x" * 50, more: str = "") -> bytes:
    return reply(
        body, status="206 Partial Content", headers=[f"Content-Range: {content_range}", more or "X: y"]
    )


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_hp_04_a_part_that_nobody_asked_for_is_half_a_page(raw, d, method: str) -> None:
    raw.on("/", part("bytes 0-49/1000"))
    raw.on("/moved", redirect("/"))
    for path in ("/", "/moved"):
        error = await failure(d, Request(raw.url(path), method))
        assert (error.reason, error.retryable) == ("truncated", True)
    with pytest.raises(DownloadError):
        await d.save(Request(raw.url("/")), [].append, max_bytes=0)


async def test_hp_04_the_part_that_was_asked_for_is_the_answer(raw, d) -> None:
    raw.on("/", part("bytes 0-49/1000"))
    raw.on("/moved", redirect("/"))
    for path in ("/", "/moved"):
        answer = await d.fetch(Request(raw.url(path), headers={"range": "bytes=0-49"}))
        assert (answer.status_code, answer.content) == (206, b"x" * 50)
    assert raw.seen[-1].get("accept-encoding") == "identity"
    await failure(d, Request(raw.url("/"), headers={"Range": None}))
    whole = await d.fetch(Request(raw.url("/ignores-it"), headers={"Range": "bytes=0-49"}))
    assert (whole.status_code, whole.content) == (200, b"ok")


async def test_hp_04_a_part_shorter_than_its_range_is_half(raw, d) -> None:
    """The length of the answer fits the body, or there is none."""
    asked = {"headers": {"Range": "bytes=0-49"}}
    raw.on("/length", part("bytes 0-49/1000", b"x" * 30))
    raw.on("/end", [b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-49/1000\r\n\r\n" + b"x" * 30, CLOSE])
    for path in ("/length", "/end"):
        assert (await failure(d, Request(raw.url(path), **asked))).reason == "truncated"


FITS = [
    ("", "bytes 0-999/1000"),  # a part that is all
    ("bytes=0-49", "bytes 0-49/1000"),
    ("bytes=0-49", "bytes 0-49/*"),
    ("Bytes = 0 - 49", "bytes 0-49/1000"),
    ("bytes=0-4999", "bytes 0-999/1000"),
    ("bytes=900-4999", "bytes 900-999/1000"),
    ("bytes=100-", "bytes 100-999/1000"),
    ("bytes=100-", "bytes 100-999/*"),
    ("bytes=-100", "bytes 900-999/1000"),
    ("bytes=-5000", "bytes 0-999/1000"),
    ("bytes=0-9,10-19", "bytes 0-19/1000"),  # put together by the server
    ("items=0-9", "items 0-9/100"),
    ("bytes=0-49", "bytes: 0-49/1000"),
]
MISFITS = [
    ("", "bytes 0-49/1000"),
    ("", "bytes 0-49/*"),
    ("", None),
    ("bytes=0-49", None),
    ("bytes=0-49", "bytes */1000"),
    ("bytes=0-49", "bytes 50-99/1000"),
    ("bytes=0-99", "bytes 0-49/1000"),
    ("bytes=0-99", "bytes 0-49/*"),
    ("bytes=0-49", "bytes 0-99/1000"),
    ("bytes=100-", "bytes 100-499/1000"),
    ("bytes=100-", "bytes 0-999/2000"),
    ("bytes=-100", "bytes 0-99/1000"),
    ("bytes=0-9,20-29", "bytes 0-9/1000"),
    ("bytes=0-49", "bytes 49-0/1000"),
    ("bytes=0-49", "bytes 0-49/20"),
    ("bytes=all", "bytes 0-49/1000"),
    ("bytes=0-49", "items 0-49/1000"),
]


@pytest.mark.parametrize(("asked", "content_range"), FITS)
def test_hp_04_parts_that_fit(asked: str, content_range: str) -> None:
    assert misfit(asked, content_range, "text/html") is None


@pytest.mark.parametrize(("asked", "content_range"), MISFITS)
def test_hp_04_parts_that_do_not_fit(asked: str, content_range: str | None) -> None:
    assert misfit(asked, content_range, "text/html")


def test_hp_04_several_parts_answer_several_ranges() -> None:
    kind = "multipart/byteranges; boundary=x"
    assert misfit("bytes=0-9,20-29", None, kind) is None
    assert misfit("bytes=0-9", None, kind)
    assert misfit("", None, kind)


INTERIM = """Location: /wrong
Set-Cookie: wrong=1
Content-Encoding: gzip
Content-Length: 2
Transfer-Encoding: chunked
Content-Type: application/pdf
Content-Range: bytes 0-1/9
Retry-After: 99
Connection: close
X-Wrong: 1""".replace("\n", "\r\n")


@pytest.mark.parametrize("status", [100, 102, 103, 199])
async def test_hv_11_what_an_interim_answer_says_is_not_the_answers(raw, make, status: int) -> None:
    d = make(ALLOWED_CONTENT_TYPES=["text/html"])
    interim = f"HTTP/1.1 {status} Wait\r\n{INTERIM}\r\n\r\n".encode()
    raw.on("/", [interim * 2 + reply(TEXT, headers=["Content-Type: text/html"])])
    page = await d.fetch(Request(raw.url("/")))
    assert (page.status_code, page.content, page.url, page.cookies) == (200, TEXT, raw.url("/"), {})
    assert sorted(page.headers) == ["content-length", "content-type"]
    await d.fetch(Request(raw.url("/")))
    assert raw.seen[-1].get("cookie") is None


@pytest.mark.parametrize("status", [100, 102, 103])
@pytest.mark.parametrize("final", ["redirect", "page"])
async def test_hv_11_the_final_location_counts(raw, d, status: int, final: str) -> None:
    """From a server that keeps RFC 9110 15.2: no interim answers to a client of HTTP/1.0."""
    answer = redirect("/right") if final == "redirect" else reply(b"here", headers=["Location: /its-name"])
    interim = f"HTTP/1.1 {status} Wait\r\nLocation: /wrong\r\n\r\n".encode()
    raw.on("/", lambda seen: answer if seen.version == b"HTTP/1.0" else interim + answer)
    page = await d.fetch(Request(raw.url("/")))
    assert page.url == (raw.url("/right") if final == "redirect" else raw.url("/"))
    assert raw.at("/wrong") == []
    await d.fetch(Request(raw.url("/next")))
    assert raw.seen[-1].version == b"HTTP/1.1"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_hv_11_two_locations_are_never_the_wrong_one(raw, d, method: str) -> None:
    """From a server that sends interim answers whatever it is asked; a POST is not asked for again."""
    raw.on(
        "/",
        [b"HTTP/1.1 103 Wait\r\nLocation: /wrong\r\n\r\n", redirect("/right", headers=["Set-Cookie: b=2"])],
    )
    if method == "GET":
        page = await d.fetch(Request(raw.url("/")))
        assert (page.url, page.cookies, raw.seen[-1].get("cookie")) == (raw.url("/right"), {"b": "2"}, "b=2")
        assert [seen.target for seen in raw.seen] == [b"/", b"/", b"/right"]
    else:
        assert (await failure(d, Request(raw.url("/"), method))).reason == "protocol"
        assert [seen.target for seen in raw.seen] == [b"/"]


async def test_hv_11_two_places_in_the_final_answer_are_an_error(raw, d) -> None:
    raw.on("/", [b"HTTP/1.1 103 Wait\r\nLink: </a>\r\n\r\n", redirect("/a", headers=["Location: /b"])])
    assert (await failure(d, Request(raw.url("/")))).reason == "protocol"


async def test_an_interim_answer_and_nothing_more_is_no_page(raw, d) -> None:
    raw.on("/", [f"HTTP/1.1 103 Early\r\n{INTERIM}\r\n\r\n".encode(), CLOSE])
    assert (await failure(d, Request(raw.url("/")))).reason == "reset"


@pytest.mark.parametrize(
    "then",
    [[reply(b"hello")], [CLOSE], [HANG], [b"\x81\x05hello"], []],
    ids=["200", "end", "silence", "a frame of a websocket", "the next request"],
)
async def test_hp_19_a_switch_of_protocols_that_nobody_asked_for(raw, d, then) -> None:
    raw.on("/", [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", *then])
    error = await failure(d, Request(raw.url("/"), timeout=60))
    assert (error.reason, error.retryable) == ("protocol", True)
    assert "101" in str(error)
    assert (await d.fetch(Request(raw.url("/fine")))).content == b"ok"


@pytest.mark.parametrize(
    "answer",
    [b"hello", b"ICY 200 OK\r\nX: y\r\n\r\nhello", b"\0" * 40, b"HTTP/1.1 000 None\r\n\r\nhello", b"{}\n"],
)
async def test_bytes_without_a_head_are_called_so(raw, d, answer: bytes) -> None:
    raw.on("/", [answer, CLOSE])
    error = await failure(d, Request(raw.url("/")))
    assert error.reason == "protocol"
    assert "MAX_RESPONSE_SIZE" not in str(error)
