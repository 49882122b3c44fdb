from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Self

import pytest

from netspy.downloader.curl import CurlDownloader
from netspy.errors import DownloadError
from netspy.messages.request import Request
from netspy.settings import Settings
from support.raw_server import CLOSE, RawServer, redirect, reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


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


class Tunnels:
    """An HTTP proxy that connects to any loopback port by CONNECT, and keeps the heads it got."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            port = int(head.split()[1].rpartition(b":")[2])
            there, away = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                await asyncio.gather(pump(reader, away), pump(there, writer))
            finally:
                away.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the proxy is being closed
        finally:
            self._tasks.discard(task)
            writer.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks)
        await self._server.wait_closed()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def tunnels() -> AsyncIterator[Tunnels]:
    async with Tunnels() as proxy:
        yield proxy


@pytest.fixture
async def tls(certificate: tuple[Path, Path]) -> AsyncIterator[RawServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with RawServer(context) as server:
        yield server


FOR_PROXY = {
    "Proxy-Authorization": "Basic dXNlcjpzZWNyZXQ=",
    "proxy-connection": "keep-alive",
    "PROXY-Tag": "7",
}


def for_proxy(head: bytes) -> list[bytes]:
    return sorted(
        line.lower()
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"proxy-") and b"keep-alive" not in line.lower()
    )


SENT = [b"proxy-authorization: basic dxnlcjpzzwnyzxq=", b"proxy-tag: 7"]


def names(seen) -> set[str]:
    return {name.lower() for name, _ in seen.headers if name.lower().startswith("proxy-")}


@pytest.mark.parametrize("impersonate", [None, "chrome", "safari"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_hp_05_what_is_for_the_proxy_goes_into_the_tunnels_head_only(
    tls, tunnels, make, method: str, impersonate: str | None
) -> None:
    d = make(VERIFY_TLS=False, HTTPX_HTTP2=False)
    headers = {**FOR_PROXY, "X-Page": "1"}
    request = Request(tls.url("/"), method, headers=headers, proxy=tunnels.url, impersonate=impersonate)
    assert (await d.fetch(request)).content == b"ok"
    [head] = tunnels.heads
    assert for_proxy(head) == SENT
    assert b"x-page" not in head.lower()
    [seen] = tls.seen
    assert names(seen) == set()
    assert seen.get("x-page") == "1"


async def test_hp_05_plain_pages_bring_it_to_the_proxy_with_each_request(raw, d) -> None:
    raw.on("http://site.example/a", redirect("http://other.example/b"))
    await d.fetch(Request("http://site.example/a", headers=FOR_PROXY, proxy=f"http://127.0.0.1:{raw.port}"))
    assert [seen.target for seen in raw.seen] == [b"http://site.example/a", b"http://other.example/b"]
    for seen in raw.seen:  # another origin, the same proxy
        assert seen.all("proxy-authorization") == [FOR_PROXY["Proxy-Authorization"]]
        assert seen.get("proxy-tag") == "7"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_hp_05_without_a_proxy_nobody_gets_it(raw, tls, make, scheme: str) -> None:
    server = raw if scheme == "http" else tls
    server.on("/", redirect("/there"))
    await make(VERIFY_TLS=False, HTTPX_HTTP2=False).fetch(Request(server.url("/"), headers=FOR_PROXY))
    assert [names(seen) for seen in server.seen] == [set(), set()]


async def test_hp_05_socks_proxies_and_the_pages_behind_them_do_not_get_it(raw, d, socks) -> None:
    proxy, port = socks
    request = Request(raw.url("/"), headers=FOR_PROXY, proxy=f"socks5h://me:s3cret@127.0.0.1:{port}")
    assert (await d.fetch(request)).content == b"ok"
    assert proxy.logins == [(b"me", b"s3cret")]
    assert names(raw.seen[0]) == set()


async def test_hp_05_it_is_for_the_first_proxy_on_the_way_only(raw, tls, tunnels, make) -> None:
    d = make(VERIFY_TLS=False, HTTPX_HTTP2=False)
    raw.on("http://site.example/", redirect(tls.url("/secure")))
    proxies = {"http": f"http://127.0.0.1:{raw.port}", "https": tunnels.url}
    await d.fetch(Request("http://site.example/", headers=FOR_PROXY, proxies=proxies))
    assert raw.seen[0].get("proxy-tag") == "7"
    assert for_proxy(tunnels.heads[0]) == []
    assert names(tls.seen[0]) == set()
    raw.on("/", redirect(tls.url("/later")))
    await d.fetch(Request(raw.url("/"), headers=FOR_PROXY, proxies={"https": tunnels.url}))
    assert for_proxy(tunnels.heads[-1]) == SENT  # no proxy before it
    assert names(raw.seen[-1]) == names(tls.seen[-1]) == set()


async def test_hp_05_the_header_wins_over_the_user_of_the_url_and_none_is_lent_a_tunnel(
    tls, tunnels, make
) -> None:
    d = make(VERIFY_TLS=False, HTTPX_HTTP2=False)
    with_user = tunnels.url.replace("http://", "http://u:p@")
    for headers, proxy in (
        ({"Proxy-Authorization": "Bearer one"}, tunnels.url),
        ({"Proxy-Authorization": "Bearer two"}, tunnels.url),
        ({"Proxy-Authorization": "Bearer one"}, tunnels.url),
        ({}, tunnels.url),
        ({}, with_user),
        ({"Proxy-Authorization": "Bearer three"}, with_user.replace("u:p", "x:y")),
    ):
        await d.fetch(Request(tls.url("/"), headers=headers, proxy=proxy))
    assert [for_proxy(head) for head in tunnels.heads] == [
        [b"proxy-authorization: bearer one"],
        [b"proxy-authorization: bearer two"],
        [],
        [b"proxy-authorization: basic dtpw"],
        [b"proxy-authorization: bearer three"],
    ]
    assert [seen.connection for seen in tls.seen] == [1, 2, 1, 3, 4, 5]


async def test_hp_05_the_tunnel_of_a_judged_address_gets_it_too(raw) -> None:
    """BLOCK_PRIVATE_ADDRESSES takes http pages through tunnels."""

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["93.184.215.14"]

    raw.on("93.184.215.14:80", [b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", CLOSE])
    d = CurlDownloader(Settings(BLOCK_PRIVATE_ADDRESSES=True), resolve=resolve)
    with pytest.raises(DownloadError):
        await d.fetch(
            Request("http://site.example/", headers=FOR_PROXY, proxy=f"http://127.0.0.1:{raw.port}")
        )
    await d.close()
    assert raw.seen[0].method == "CONNECT"
    assert raw.seen[0].get("proxy-tag") == "7"


async def test_hp_05_a_middleware_may_give_it(tls, tunnels, make) -> None:
    d = make(VERIFY_TLS=False, HTTPX_HTTP2=False)
    request = Request(tls.url("/"))
    request.requests_kwargs.update(headers=FOR_PROXY, proxy=tunnels.url)
    await d.fetch(request)
    assert for_proxy(tunnels.heads[0]) == SENT
    assert names(tls.seen[0]) == set()
