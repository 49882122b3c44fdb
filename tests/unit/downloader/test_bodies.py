from __future__ import annotations

import asyncio
import resource
import zlib

import pytest

from netspy.errors import ContentTypeRejectedError, DownloadError, ResponseTooLargeError
from netspy.messages.request import Request
from support.raw_server import CLOSE, HANG, RESET, chunked, coded, gz, redirect, reply

HTTP_03 = {
    "gzip": (
        "1f8b08000000000002034bcb2c2a2ed10100d7364715060000001f8b08000000000002032b4e4dcecf4b010069111fb606000000",
        "first,second",
    ),
    "deflate raw": ("b329b0cb48cdc9c95748494dcb492c49b5d12fb00300", "<p>hello deflate</p>"),
    "deflate": ("789cb329b0cb48cdc9c95748494dcb492c49b5d12fb003004b2e070d", "<p>hello deflate</p>"),
    "x-gzip": ("1f8b0800000000000203b329b0abb0d12fb003003aa648cb08000000", "<p>x</p>"),
    "gzip, gzip": (
        "1f8b080000000000020393efe660000126e6cd9a1b566fb8a8bf8199c16a99c769902800605390861c000000",
        "<p>x</p>",
    ),
    "gzip tail": ("1f8b0800000000000203b329b0abb0d12fb003003aa648cb080000000d0a0d0a", "<p>x</p>"),
    "br": ("0b04803c703e62723c2f703e03", "<p>br</p>"),
    "zstd": ("28b52ffd00005900003c703e7a7374643c2f703e", "<p>zstd</p>"),
    "UTF-8": ("3c703e783c2f703e", "<p>x</p>"),
    "identity": ("3c703e783c2f703e", "<p>x</p>"),
}


@pytest.mark.parametrize("how", ["at once", "chunked byte by byte", "until close"])
@pytest.mark.parametrize("name", HTTP_03)
async def test_http_03_codings_as_servers_really_send_them(raw, d, name: str, how: str) -> None:
    body, page = bytes.fromhex(HTTP_03[name][0]), HTTP_03[name][1]
    coding = name.removesuffix(" raw").removesuffix(" tail")
    answers = {
        "at once": coded(body, coding),
        "chunked byte by byte": chunked(
            *(bytes([byte]) for byte in body), headers=[f"Content-Encoding: {coding}"]
        ),
        "until close": [f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode() + body, CLOSE],
    }
    raw.on("/", answers[how])
    assert (await d.fetch(Request(raw.url("/")))).content.decode() == page


HALVES = {
    "fewer bytes than Content-Length": [reply(b"<p>half", length=40), CLOSE],
    "no byte of the body": [reply(b"", length=40), CLOSE],
    "chunks without the last one": [chunked(b"hello", end=b""), CLOSE],
    "in the middle of a chunk": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nhello", CLOSE],
    "a broken chunk size": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nXYZ\r\n",
        CLOSE,
    ],
    "no line end after a chunk": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloworld\r\n0\r\n\r\n",
        CLOSE,
    ],
    "half a gzip stream": coded(gz(b"page" * 500)[:-5], "gzip"),
    "half a gzip stream until close": [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gz(b"page" * 500)[:-5],
        CLOSE,
    ],
    "a reset in the body": [reply(b"half", length=9), 0.05, RESET],
}


@pytest.mark.parametrize("name", HALVES)
async def test_http_01_half_a_page_is_never_a_page(raw, d, name: str) -> None:
    raw.on("/", HALVES[name], reply(b"<p>whole</p>."))
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(raw.url("/")))
    assert (caught.value.reason, caught.value.retryable) == ("truncated", True)
    assert raw.url("/") in str(caught.value)
    assert (await d.fetch(Request(raw.url("/")))).content == b"<p>whole</p>."


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
async def test_a_body_that_is_not_what_its_label_says_fails_as_in_browsers(raw, d, coding: str) -> None:
    raw.on("/", coded(b"<!doctype html><p>plain</p>" * 50, coding))
    with pytest.raises(DownloadError, match=coding) as caught:
        await d.fetch(Request(raw.url("/")))
    assert caught.value.reason == "decode"


async def test_more_bytes_than_announced_are_not_part_of_the_page(raw, d) -> None:
    raw.on("/", [reply(b"page and more", length=4)])
    assert (await d.fetch(Request(raw.url("/")))).content == b"page"
    assert (await d.fetch(Request(raw.url("/fine")))).content == b"ok"


async def test_a_page_of_many_pieces_is_whole(raw, d) -> None:
    page = bytes(range(256)) * 8000
    raw.on("/", reply(page))
    raw.on("/gz", coded(gz(page), "gzip"))
    assert (await d.fetch(Request(raw.url("/")))).content == page
    assert (await d.fetch(Request(raw.url("/gz")))).content == page


@pytest.mark.parametrize("how", ["length", "chunked", "until close", "gzip"])
async def test_a_body_over_the_cap_is_cut_off(raw, make, how: str) -> None:
    d = make(MAX_RESPONSE_SIZE=100_000)
    chunk = b"x" * 50_000
    raw.on(
        "/",
        {
            "length": [reply(chunk, length=10**9), chunk, chunk, HANG],
            "chunked": [chunked(chunk, chunk, b"!", end=b""), HANG],
            "until close": [b"HTTP/1.1 200 OK\r\n\r\n", chunk, chunk, b"!", HANG],
            "gzip": coded(gz(b"x" * 100_001), "gzip"),
        }[how],
    )
    raw.on("/exact", reply(chunk * 2))
    raw.on("/exact-gz", coded(gz(chunk * 2), "gzip"))
    with pytest.raises(ResponseTooLargeError, match="100000") as caught:
        await d.fetch(Request(raw.url("/")))
    assert (caught.value.reason, caught.value.retryable) == ("too_large", False)
    assert len((await d.fetch(Request(raw.url("/exact")))).content) == 100_000
    assert len((await d.fetch(Request(raw.url("/exact-gz")))).content) == 100_000


async def test_no_cap_means_no_cap(raw, make) -> None:
    page = b"x" * 40_000_000
    raw.on("/", coded(gz(page), "gzip"))
    assert len((await make(MAX_RESPONSE_SIZE=0).fetch(Request(raw.url("/")))).content) == len(page)


async def test_a_bomb_of_ten_gigabytes_is_stopped_early_without_memory(raw, d) -> None:
    squeezer = zlib.compressobj(9, wbits=31)
    megabyte = bytes(1 << 20)
    bomb = b"".join(squeezer.compress(megabyte) for _ in range(256)) + squeezer.flush()
    member_count = 40  # 40 members of 256 MiB
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb) * member_count}\r\n\r\n".encode()
    raw.on("/", [head, *[bomb] * member_count])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ResponseTooLargeError):
        await d.fetch(Request(raw.url("/")))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < 120  # MB: the cap of 32, once more while it is copied, and the server's own buffers


async def test_content_types_are_judged_when_the_head_arrives(raw, make) -> None:
    d = make(ALLOWED_CONTENT_TYPES=["text/*", "application/json"])

    def typed(content_type: str, status: str = "200 OK") -> bytes:
        return reply(b"x" * 10, status=status, headers=[f"Content-Type: {content_type}"], length=10**8)

    raw.on("/pdf", [typed("application/pdf"), HANG])
    raw.on("/html", reply(headers=["Content-Type: Text/HTML; charset=x"]))
    raw.on("/json", reply(headers=["Content-Type: application/json"]))
    raw.on("/none", reply())
    raw.on("/404", reply(status="404 X", headers=["Content-Type: application/pdf"]))
    raw.on("/moved", reply(status="302 X", headers=["Content-Type: image/png", "Location: /html"]))
    with pytest.raises(ContentTypeRejectedError, match=r"application/pdf.*text/\*"):
        await asyncio.wait_for(d.fetch(Request(raw.url("/pdf"), timeout=60)), 30)
    for path in ("/html", "/json", "/none", "/404", "/moved"):
        assert (await d.fetch(Request(raw.url(path)))).content == b"ok"


async def test_a_rejected_redirect_target_is_rejected_too(raw, make) -> None:
    d = make(ALLOWED_CONTENT_TYPES=["text/html"])
    raw.on("/", redirect("/img"))
    raw.on("/img", reply(headers=["Content-Type: image/png"]))
    with pytest.raises(ContentTypeRejectedError, match="/img"):
        await d.fetch(Request(raw.url("/")))
