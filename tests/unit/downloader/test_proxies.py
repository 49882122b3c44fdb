from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.raw_server import CLOSE, reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Socks:
    """A SOCKS5 proxy that wants a user and a password (RFC 1928, 1929) and connects to any loopback port."""

    def __init__(self) -> None:
        self.logins: list[tuple[bytes, bytes]] = []
        self.targets: list[tuple[str, int]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if 2 in methods:
            writer.write(b"\x05\x02")
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            self.logins.append((user, password))
            writer.write(b"\x01\x00")
        else:
            writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = ".".join(map(str, await reader.readexactly(4)))
        elif kind == 4:
            host = (await reader.readexactly(16)).hex(":", 2)
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.targets.append((host, port))
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)

        back = asyncio.create_task(pump(upstream_reader, writer))
        self.tasks.add(back)
        await pump(reader, upstream)
        back.cancel()
        upstream.close()


@pytest.fixture
async def socks() -> AsyncIterator[tuple[Socks, int]]:
    proxy = Socks()
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
        yield proxy, server.sockets[0].getsockname()[1]


async def test_an_http_proxy_gets_the_whole_url_and_its_own_password(raw, other, d) -> None:
    raw.on("http://site.example/page", reply(b"by proxy"))
    answer = await d.fetch(
        Request("http://site.example/page?q=1", proxy=f"http://me:s3cret@127.0.0.1:{raw.port}")
    )
    assert answer.content == b"by proxy"
    [seen] = raw.seen
    assert seen.target == b"http://site.example/page?q=1"
    assert seen.get("proxy-authorization") == "Basic bWU6czNjcmV0"
    assert seen.get("authorization") is None
    direct = await d.fetch(Request(other.url("/direct")))
    assert direct.content == b"ok"
    assert other.seen[0].get("proxy-authorization") is None
    assert len(raw.seen) == 1


@pytest.mark.parametrize("given", ["{}", "http://{}"])
async def test_a_proxy_without_a_scheme_is_an_http_proxy(raw, d, given: str) -> None:
    await d.fetch(Request("http://site.example/", proxy=given.format(f"127.0.0.1:{raw.port}")))
    assert raw.seen[0].target == b"http://site.example/"


@pytest.mark.parametrize("key", ["http", "http://", "all", "all://"])
async def test_proxies_by_scheme(raw, d, key: str) -> None:
    proxies = {key: f"http://127.0.0.1:{raw.port}", "https": "http://127.0.0.1:1"}
    await d.fetch(Request("http://site.example/", proxies=proxies))
    assert raw.seen[0].target == b"http://site.example/"


async def test_a_proxy_for_https_only_leaves_http_alone(raw, d) -> None:
    await d.fetch(Request(raw.url("/"), proxies={"https": "http://127.0.0.1:1"}))
    assert raw.seen[0].target == b"/"


async def test_an_https_page_is_fetched_through_a_tunnel(raw, d) -> None:
    raw.on(
        "site.example:443",
        [b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", CLOSE],
    )
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request("https://site.example/", proxy=f"http://u:s3cret@127.0.0.1:{raw.port}"))
    assert (caught.value.reason, caught.value.retryable) == ("proxy", True)
    assert "s3cret" not in str(caught.value)
    [seen] = raw.seen
    assert (seen.method, seen.target) == ("CONNECT", b"site.example:443")
    assert seen.get("proxy-authorization") == "Basic dTpzM2NyZXQ="
    assert seen.get("accept-encoding") is None  # the page's headers are not for the proxy


@pytest.mark.parametrize(("scheme", "resolves"), [("socks5", False), ("socks5h", True)])
async def test_socks5_with_a_password(raw, d, socks, scheme: str, resolves: bool) -> None:
    proxy, port = socks
    answer = await d.fetch(
        Request(raw.url("/", host="localhost"), proxy=f"{scheme}://me:s3cret@127.0.0.1:{port}")
    )
    assert answer.content == b"ok"
    assert proxy.logins == [(b"me", b"s3cret")]
    [(host, target_port)] = proxy.targets
    assert target_port == raw.port
    assert (host == "localhost") is resolves
    assert raw.seen[0].target == b"/"


@pytest.mark.parametrize(
    "proxy", ["ftp://127.0.0.1:1", "http://", "http://u:s3cret@host:port", "socks9://x:1"]
)
async def test_what_is_no_proxy_is_refused_without_going_direct(raw, d, proxy: str) -> None:
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(raw.url("/"), proxy=proxy))
    assert (caught.value.reason, caught.value.retryable) == ("proxy", False)
    assert "s3cret" not in str(caught.value)
    assert raw.seen == []


async def test_a_dead_proxy_fails_and_nothing_goes_direct(raw, d) -> None:
    with socket.socket() as taken:  # bound, so that nobody else gets the port, and listening to nobody
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for scheme in ("http", "socks5"):
            with pytest.raises(DownloadError) as caught:
                await d.fetch(Request(raw.url("/"), proxy=f"{scheme}://u:s3cret@127.0.0.1:{port}"))
            assert caught.value.reason == "proxy"
            assert "s3cret" not in str(caught.value)
    assert raw.seen == []
