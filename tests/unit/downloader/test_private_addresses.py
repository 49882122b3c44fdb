"""BLOCK_PRIVATE_ADDRESSES: what is judged, and that no name, spelling, redirect, second DNS answer, kept connection or
proxy leads around it. 127.0.0.2 plays the public internet where a test needs an address that is let through.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from curl_cffi.const import CurlOpt

from netspy.downloader import addresses, curl, guard
from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.raw_server import CLOSE, RawServer, redirect, reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PUBLIC = "127.0.0.2"
REAL_OBJECTION = addresses.objection


# -- which addresses


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("100.100.100.200", "private"),
        ("169.254.169.254", "link-local"),
        ("168.63.129.16", "cloud metadata"),
        ("192.0.0.192", "reserved"),
        ("192.0.2.1", "reserved"),
        ("198.19.0.1", "reserved"),
        ("198.51.100.7", "reserved"),
        ("203.0.113.7", "reserved"),
        ("224.0.0.251", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::1", "loopback"),
        ("::", "unspecified"),
        ("::7f00:1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:0:7f00:1", "reserved"),
        ("fe80::1", "link-local"),
        ("fec0::1", "private"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fd20:ce::254", "private"),
        ("ff02::1", "multicast"),
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b:1::808:808", "reserved"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a9fe:a9fe::1", "link-local"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"),
        ("2001:db8::1", "reserved"),
        ("3fff::1", "reserved"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
    ],
)
def test_addresses_that_are_not_public(address: str, kind: str) -> None:
    assert addresses.objection(ip_address(address)) == kind


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "168.63.129.17",
        "169.253.255.255",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.169.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450:4001::200e",
        "2400:cb00::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_public_addresses_are_let_through(address: str) -> None:
    assert addresses.objection(ip_address(address)) is None


def test_everything_that_python_calls_private_is_refused() -> None:
    """The two lists are made from the same registries; ours may only be stricter."""
    for number in range(0, 1 << 32, 655211):
        address = ip_address(number)
        if not address.is_global or address.is_multicast:
            assert addresses.objection(address), address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("a1", None),
        ("example.com", None),
        ("", None),
        ("1a.b2", None),
    ],
)
def test_literals_are_told_from_names(host: str, address: str | None) -> None:
    found = addresses.literal(host)
    assert (None if found is None else str(found)) == address


# -- direct connections


async def refused(downloader: Any, url: str, **keywords: Any) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        await downloader.fetch(Request(url, **keywords))
    assert (caught.value.reason, caught.value.retryable) == ("blocked", False), caught.value
    assert "BLOCK_PRIVATE_ADDRESSES" in str(caught.value)
    return caught.value


@pytest.fixture
def strict(make: Callable[..., Any]) -> Any:
    return make(BLOCK_PRIVATE_ADDRESSES=True)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0x7f.1",
        "0177.0.0.01",
        "127.1",
        "127.0.0.1.",
        "127.0.0.0x1",
        "１２７.０.0.1",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "ｌocalhost",
        "a.localhost",
        "0",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "user:password@127.0.0.1",
        "public.example@127.0.0.1",
    ],
)
async def test_no_spelling_of_loopback_connects(raw, strict, d, host: str) -> None:
    await refused(strict, f"http://{host}:{raw.port}/")
    await refused(strict, f"https://{host}:{raw.port}/")
    assert raw.connections == 0


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
@pytest.mark.parametrize(
    "host", ["[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::127.0.0.1]", "[fe80::1]", "[fd00:ec2::254]"]
)
async def test_ipv6_forms(strict, host: str) -> None:
    await refused(strict, f"http://{host}:1/")


async def test_off_by_default(raw, d) -> None:
    assert (await d.fetch(Request(raw.url("/")))).content == b"ok"


async def test_impersonating_handles_are_guarded_too(raw, strict) -> None:
    await refused(strict, raw.url("/"), impersonate="chrome")
    assert raw.connections == 0


class Dns:
    """A DNS server whose A records change from question to question; the last one stays. AAAA: none.

    A question that is sent once more, since the answer took long, is the same one.
    """

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self.answers = answers
        self.answered: dict[tuple[Any, bytes], list[str]] = {}
        self.asked: list[str] = []
        self.port = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        pass

    def error_received(self, error: Exception) -> None:
        pass

    def datagram_received(self, data: bytes, sender: Any) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += 1 + data[at]
        question = data[12 : at + 5]
        name, (kind,) = ".".join(labels), struct.unpack("!H", data[at + 1 : at + 3])
        found: list[str] = []
        if kind == 1 and (sender, data) in self.answered:
            found = self.answered[sender, data]
        elif kind == 1:
            self.asked.append(name)
            steps = self.answers.get(name, [[]])
            found = self.answered[sender, data] = steps.pop(0) if len(steps) > 1 else steps[0]
        rows = b"".join(
            b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + socket.inet_aton(one) for one in found
        )
        code = 0x8180 if name in self.answers else 0x8183
        self.transport.sendto(
            data[:2] + struct.pack("!HHHHH", code, 1, len(found), 0, 0) + question + rows, sender
        )


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Dns]:
    """libcurl asks this server for every look-up, and 127.0.0.2 counts as public."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: Dns({}), local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    base_options = curl.base_options

    def with_server(*args: Any, **keywords: Any) -> Any:
        options = base_options(*args, **keywords)
        return [*options, (CurlOpt.DNS_SERVERS, f"127.0.0.1:{port}".encode()), (CurlOpt.DNS_CACHE_TIMEOUT, 0)]

    monkeypatch.setattr(curl, "base_options", with_server)
    monkeypatch.setattr(
        guard, "objection", lambda address: None if str(address) == PUBLIC else REAL_OBJECTION(address)
    )
    yield server
    transport.close()


@pytest.fixture
async def public() -> AsyncIterator[RawServer]:
    """A server on the address that counts as public."""
    async with RawServer(host=PUBLIC) as server:
        yield server


@pytest.fixture
async def both_sides() -> AsyncIterator[tuple[RawServer, RawServer]]:
    """A server on the address that counts as public, and one on 127.0.0.1 with the same port."""
    while True:
        async with RawServer(host=PUBLIC) as public:
            inside = RawServer(port=public.port)
            try:
                await inside.start()
            except OSError:  # somebody on this machine has that port of 127.0.0.1: another one
                continue
            yield public, inside
            await inside.close()
            return


async def test_a_name_that_leads_inside_is_refused(raw, strict, dns) -> None:
    dns.answers["inside.example"] = [["127.0.0.1"]]
    await refused(strict, f"http://inside.example:{raw.port}/")
    assert dns.asked == ["inside.example"]
    assert raw.connections == 0


async def test_rebinding_gains_nothing(both_sides, strict, dns) -> None:
    """The first answer is public, the second is not: each connection is judged by its own address."""
    public, inside = both_sides
    dns.answers["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    public.on("/", [reply(b"first", headers=["Connection: close"]), CLOSE])
    url = f"http://rebind.example:{public.port}/"
    assert (await strict.fetch(Request(url))).content == b"first"
    await refused(strict, url)
    await refused(strict, url)
    assert dns.asked == ["rebind.example"] * 3
    assert inside.connections == 0


async def test_of_several_answers_only_the_public_one_is_used(both_sides, strict, dns) -> None:
    public, inside = both_sides
    dns.answers["both.example"] = [["127.0.0.1", PUBLIC], ["127.0.0.1", PUBLIC]]
    assert (await strict.fetch(Request(f"http://both.example:{public.port}/"))).content == b"ok"
    assert inside.connections == 0
    assert public.connections == 1


async def test_a_public_address_that_is_down_is_a_failed_connection_and_tried_again(strict, dns) -> None:
    dns.answers["both.example"] = [["127.0.0.1", PUBLIC]]
    with socket.socket() as taken:  # bound, so that nobody else gets the port, and listening to nobody
        taken.bind((PUBLIC, 0))
        with pytest.raises(DownloadError) as caught:
            await strict.fetch(Request(f"http://both.example:{taken.getsockname()[1]}/"))
    assert (caught.value.reason, caught.value.retryable) == ("connect", True)


async def test_a_kept_connection_of_an_allowed_host_is_used_again_and_only_by_it(
    both_sides, strict, dns
) -> None:
    public, inside = both_sides
    dns.answers["good.example"] = [[PUBLIC], ["127.0.0.1"]]
    dns.answers["bad.example"] = [["127.0.0.1"]]
    for _ in range(3):
        assert (await strict.fetch(Request(f"http://good.example:{public.port}/"))).content == b"ok"
    assert public.connections == 1
    await refused(strict, f"http://bad.example:{public.port}/")
    assert inside.connections == 0


# -- redirects


async def test_each_hop_is_judged(public, raw, strict, dns) -> None:
    dns.answers["start.example"] = [[PUBLIC]]
    for number, place in enumerate(
        [
            f"http://127.0.0.1:{raw.port}/",
            f"http://2130706433:{raw.port}/",
            f"//localhost:{raw.port}/",
            f"http://[::ffff:127.0.0.1]:{raw.port}/",
            "http://169.254.169.254/latest/meta-data/",
        ]
    ):
        public.on(f"/{number}", redirect(place))
        await refused(strict, f"http://start.example:{public.port}/{number}")
    public.on("/chain", redirect("/0"))
    await refused(strict, f"http://start.example:{public.port}/chain")
    assert raw.connections == 0


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize(
    "place",
    [
        "file:///etc/passwd",
        "gopher://127.0.0.1:1/_x",
        "ftp://127.0.0.1/",
        "dict://127.0.0.1:1/x",
        "ldap://127.0.0.1/",
        "smb://127.0.0.1/x",
        "ws://127.0.0.1/",
        "data:text/html,x",
        "javascript:1",
        "FILE:///etc/passwd",
        " \tfile:///etc/passwd",
    ],
)
async def test_redirects_to_other_schemes_are_always_refused(
    public, make, monkeypatch, place: str, block: bool
) -> None:
    monkeypatch.setattr(guard, "objection", lambda _address: None)
    public.on("/", redirect(place))
    with pytest.raises(DownloadError) as caught:
        await make(BLOCK_PRIVATE_ADDRESSES=block).fetch(Request(public.url("/", host=PUBLIC)))
    assert (caught.value.reason, caught.value.retryable) == ("url", False)


# -- proxies


class Names:
    """A resolver that answers step by step, like Dns."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {name.replace("_", "."): steps for name, steps in answers.items()}
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        steps = self.answers.get(host, [])
        if not steps:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return steps.pop(0) if len(steps) > 1 else steps[0]


@pytest.fixture
async def proxied(make: Any) -> AsyncIterator[Callable[..., Any]]:
    made: list[Any] = []

    def one(names: Names) -> Any:
        from netspy.settings import Settings

        made.append(curl.CurlDownloader(Settings(BLOCK_PRIVATE_ADDRESSES=True), resolve=names))
        return made[-1]

    yield one
    for downloader in made:
        await downloader.close()


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h", "socks4", "socks4a"])
@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/", "https://[::1]/", "http://0xa9fea9fe/", "http://inside.example/"]
)
async def test_a_proxy_is_not_asked_for_what_lies_inside(raw, proxied, scheme: str, target: str) -> None:
    downloader = proxied(Names(inside_example=[["93.184.216.34", "10.0.0.1"]]))
    await refused(downloader, target, proxy=f"{scheme}://127.0.0.1:{raw.port}")
    assert raw.connections == 0


async def test_an_http_proxy_gets_the_vetted_address_and_looks_nothing_up(raw, proxied) -> None:
    names = Names(site_example=[["93.184.216.34"], ["127.0.0.1"]])
    raw.on("93.184.216.34:443", [b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", CLOSE])
    raw.on("93.184.216.34:8080", [b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", CLOSE])
    downloader = proxied(names)
    for url in ("https://site.example/", "https://site.example/", "http://site.example:8080/"):
        with pytest.raises(DownloadError) as caught:
            await downloader.fetch(Request(url, proxy=f"http://127.0.0.1:{raw.port}"))
        names.answers["site.example"] = [["93.184.216.34"], ["127.0.0.1"]]
        assert caught.value.reason == "proxy"
    assert [(seen.method, seen.target) for seen in raw.seen] == [
        ("CONNECT", b"93.184.216.34:443"),
        ("CONNECT", b"93.184.216.34:443"),
        ("CONNECT", b"93.184.216.34:8080"),
    ]
    assert names.asked == [("site.example", 443), ("site.example", 8080)]  # an answer is kept a while


async def test_the_page_still_gets_its_own_host_name(raw, proxied) -> None:
    """The tunnel goes to the address, the request in it names the host."""
    raw.on("93.184.216.34:80", b"HTTP/1.1 200 Connection established\r\n\r\n")
    answer = await proxied(Names(site_example=[["93.184.216.34"]])).fetch(
        Request("http://site.example/x", proxy=f"http://127.0.0.1:{raw.port}")
    )
    assert answer.content == b"ok"
    assert (raw.seen[1].target, raw.seen[1].get("host")) == (b"/x", "site.example")


@pytest.mark.parametrize(
    ("scheme", "found", "sent"),
    [
        ("socks5", ["2606:4700::1111", "93.184.216.34"], b"\x01" + bytes([93, 184, 216, 34])),
        ("socks5h", ["93.184.216.34"], b"\x01" + bytes([93, 184, 216, 34])),
        ("socks5h", ["2606:4700::1111"], b"\x04" + socket.inet_pton(socket.AF_INET6, "2606:4700::1111")),
    ],
)
async def test_a_socks_proxy_gets_the_vetted_address(
    proxied, scheme: str, found: list[str], sent: bytes
) -> None:
    wanted: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x00")
        head = await reader.readexactly(4)
        wanted.append(head[3:] + await reader.readexactly({1: 4, 4: 16}[head[3]]))
        writer.write(b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DownloadError):
            await proxied(Names(site_example=[found])).fetch(
                Request("http://site.example/", proxy=f"{scheme}://127.0.0.1:{port}")
            )
    assert wanted == [sent]


async def test_a_name_that_can_not_be_judged_does_not_go_to_the_proxy(raw, proxied) -> None:
    with pytest.raises(DownloadError) as caught:
        await proxied(Names()).fetch(Request("http://unknown.example/", proxy=f"http://127.0.0.1:{raw.port}"))
    assert (caught.value.reason, caught.value.retryable) == ("dns", True)
    assert raw.connections == 0


async def test_a_redirect_behind_a_proxy_is_judged(raw, proxied) -> None:
    raw.on("93.184.216.34:80", b"HTTP/1.1 200 Connection established\r\n\r\n")
    raw.on("/", redirect("http://inside.example/"))
    names = Names(site_example=[["93.184.216.34"]], inside_example=[["192.168.0.1"]])
    error = await refused(proxied(names), "http://site.example/", proxy=f"http://127.0.0.1:{raw.port}")
    assert "192.168.0.1" in str(error)
    assert [seen.target for seen in raw.seen] == [b"93.184.216.34:80", b"/"]


async def test_a_proxy_connection_does_not_open_the_way_for_direct_requests(raw, proxied) -> None:
    """The connection to a private proxy is kept; a direct request to the proxy's own address doesn't get it."""
    raw.on("93.184.216.34:80", b"HTTP/1.1 200 Connection established\r\n\r\n")
    downloader = proxied(Names(site_example=[["93.184.216.34"]]))
    await downloader.fetch(Request("http://site.example/", proxy=f"http://127.0.0.1:{raw.port}"))
    await refused(downloader, raw.url("/"))
    await refused(downloader, raw.url("/"), headers={"Host": "site.example"})
    assert raw.connections == 1


async def test_without_the_setting_nothing_is_looked_up_and_the_proxy_gets_the_name(raw) -> None:
    from netspy.settings import Settings

    names = Names()
    downloader = curl.CurlDownloader(Settings(), resolve=names)
    await downloader.fetch(Request("http://site.example/", proxy=f"http://127.0.0.1:{raw.port}"))
    await downloader.close()
    assert names.asked == []
    assert raw.seen[0].target == b"http://site.example/"


async def test_the_systems_resolver_is_asked_by_default() -> None:
    assert "127.0.0.1" in await guard.look_up("127.0.0.1", 80)
