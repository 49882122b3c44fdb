"""What HTTP/2 frames say about a body's end."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.h2_server import (
    CANCEL,
    INTERNAL_ERROR,
    RST_STREAM,
    H2Server,
    data,
    frame,
    goaway,
    head,
    reset,
)
from support.raw_server import CLOSE

if TYPE_CHECKING:
    from pathlib import Path

    from support.h2_server import Frames, Script

HTML = ("content-type", "text/html")


@pytest.fixture
def context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*certificate)
    return made


def on(stream: int, frames: Frames) -> Frames:
    """The frames on another stream than that of the request that is answered."""
    return lambda _own: frames(stream)


CUT: dict[str, Script] = {
    "no error": [head(200, HTML), data(b"part"), reset()],
    "no error, before any data": [head(200, HTML), reset()],
    "no error, after an empty frame": [head(200, HTML), data(b"part"), data(b""), reset()],
    "no error, after an interim answer": [head(103), head(200, HTML), data(b"part"), reset()],
    "no error, an error page": [head(404, HTML), data(b"part"), reset()],
    "no error, length not met": [head(200, ("content-length", "9")), data(b"part"), reset()],
    "no error, coded": [head(200, ("content-encoding", "gzip")), data(b"\x1f\x8b\x08\0"), reset()],
    "cancel": [head(200, HTML), data(b"part"), reset(CANCEL)],
    "internal error": [head(200, HTML), data(b"part"), reset(INTERNAL_ERROR)],
    "the connection ends": [head(200, HTML), data(b"part"), CLOSE],
    "goaway, then the end": [head(200, HTML), data(b"part"), goaway(1), CLOSE],
    "shorter than its length": [head(200, ("content-length", "9")), data(b"part", end=True)],
}


@pytest.mark.parametrize("impersonate", ["", "chrome"])
@pytest.mark.parametrize("name", CUT)
async def test_hp_03_half_a_stream_is_no_page(context, make, name: str, impersonate: str) -> None:
    async with H2Server(context, CUT[name]) as server:
        with pytest.raises(DownloadError) as caught:
            await make(VERIFY_TLS=False).fetch(Request(server.url, impersonate=impersonate or None))
    assert (caught.value.reason, caught.value.retryable) == ("truncated", True)


async def test_hp_03_half_a_stream_is_no_file(context, make) -> None:
    async with H2Server(context, CUT["no error"]) as server:
        with pytest.raises(DownloadError) as caught:
            await make(VERIFY_TLS=False).save(Request(server.url), [].append, max_bytes=0)
    assert caught.value.reason == "truncated"


WHOLE: dict[str, tuple[Script, bytes]] = {
    "end of stream": ([head(200, HTML), data(b"page", end=True)], b"page"),
    "an empty frame ends it": ([head(200, HTML), data(b"page"), data(b"", end=True)], b"page"),
    "no body": ([head(200, HTML, end=True)], b""),
    "trailers end it": ([head(200, HTML), data(b"page"), head(0, ("x-sum", "1"), end=True)], b"page"),
    "a reset after the end": ([head(200, HTML), data(b"page", end=True), reset()], b"page"),
    "a length that is met": ([head(200, ("content-length", "4")), data(b"page"), reset()], b"page"),
    "an interim answer": ([head(103, ("x", "1")), head(200, HTML), data(b"page", end=True)], b"page"),
    "goaway that spares it": ([head(200, HTML), goaway(2**31 - 1), data(b"page", end=True)], b"page"),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_stream_is_a_page(context, make, name: str) -> None:
    script, body = WHOLE[name]
    async with H2Server(context, script) as server:
        page = await make(VERIFY_TLS=False).fetch(Request(server.url))
    assert (page.status_code, page.content) == (200, body)


async def test_an_upload_that_the_server_does_not_want_costs_no_page(context, make) -> None:
    """RFC 9113 8.1: after the whole answer, NO_ERROR says that the rest of the request isn't read."""
    answered = [head(200, HTML), data(b"page", end=True), reset()]
    async with H2Server(context, answered, answer_at_once=True) as server:
        request = Request(server.url, "POST", content=b"x" * 1_000_000)
        assert (await make(VERIFY_TLS=False).fetch(request)).content == b"page"


async def test_a_reset_costs_only_the_page_whose_stream_it_is(context, make) -> None:
    """Streams share a connection; the frames of one are read while another is served."""
    whole = [head(200, HTML), data(b"page", end=True)]
    scripts: list[Script] = [
        whole,
        [head(200, HTML), data(b"part")],  # stream 3
        [head(200, HTML), data(b"part")],  # stream 5
        [
            on(5, data(b" and the rest", end=True)),
            on(3, lambda stream: frame(RST_STREAM, 0, stream, b"\0\0\0\0")),
            *whole,
        ],
        whole,
    ]
    async with H2Server(context, *scripts) as server:
        d = make(VERIFY_TLS=False)
        await d.fetch(Request(server.url))
        running = []
        for seen in (2, 3, 4):
            running.append(asyncio.create_task(d.fetch(Request(server.url))))
            await server.until(lambda seen=seen: len(server.requests) == seen)
        cut, other, last = await asyncio.gather(*running, return_exceptions=True)
        assert isinstance(cut, DownloadError)
        assert cut.reason == "truncated"
        assert (other.content, last.content) == (b"part and the rest", b"page")
        assert (await d.fetch(Request(server.url))).content == b"page"
        assert server.connections == 1
