from __future__ import annotations

import asyncio
import shutil
import ssl
import struct
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from netspy.errors import DownloadError, RequestError
from netspy.messages.request import Request
from support.missing import missing
from support.raw_server import RawServer, redirect, reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*certificate)
    return made


@pytest.fixture
async def tls(context: ssl.SSLContext) -> AsyncIterator[RawServer]:
    async with RawServer(context) as server:
        yield server


async def test_certificates_are_checked_by_default(tls, d) -> None:
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(tls.url("/")))
    assert (caught.value.reason, caught.value.retryable) == ("tls", False)
    assert tls.seen == []


async def test_verify_false_is_for_that_request_only(tls, d) -> None:
    assert (await d.fetch(Request(tls.url("/"), verify=False))).content == b"ok"
    with pytest.raises(DownloadError):
        await d.fetch(Request(tls.url("/")))


async def test_verify_tls_off_and_on_again_for_one_request(tls, make) -> None:
    d = make(VERIFY_TLS=False)
    assert (await d.fetch(Request(tls.url("/")))).content == b"ok"
    with pytest.raises(DownloadError):
        await d.fetch(Request(tls.url("/"), verify=True))


async def test_a_ca_file_of_the_request(tls, d, certificate) -> None:
    assert (await d.fetch(Request(tls.url("/"), verify=str(certificate[0])))).content == b"ok"
    assert (await d.fetch(Request(tls.url("/", host="localhost"), verify=certificate[0]))).content == b"ok"
    with pytest.raises(RequestError, match="no/such/file"):
        await d.fetch(Request(tls.url("/"), verify="/no/such/file"))
    with pytest.raises(DownloadError):
        await d.fetch(Request(tls.url("/")))


async def test_a_certificate_for_another_name_is_refused(context, d, certificate) -> None:
    async with RawServer(context, host="127.0.0.2") as server:
        with pytest.raises(DownloadError) as caught:
            await d.fetch(Request(server.url("/"), verify=str(certificate[0])))
        assert (caught.value.reason, caught.value.retryable) == ("tls", False)
        assert server.seen == []


async def test_a_client_certificate(context, d, certificate) -> None:
    cert, key = certificate
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cert)
    async with RawServer(context) as server:
        with pytest.raises(DownloadError) as caught:
            await d.fetch(Request(server.url("/"), verify=False))
        assert caught.value.reason in {"tls", "reset"}
        answer = await d.fetch(Request(server.url("/"), verify=False, cert=(str(cert), str(key))))
        assert answer.content == b"ok"
        with pytest.raises(DownloadError):
            await d.fetch(Request(server.url("/"), verify=False))  # its connection isn't lent to others
    with pytest.raises(RequestError, match=r"nothing\.pem"):
        await d.fetch(Request("https://127.0.0.1:1/", cert="nothing.pem"))


async def test_a_server_that_does_not_speak_tls(raw, d) -> None:
    with pytest.raises(DownloadError) as caught:
        await d.fetch(Request(raw.url("/").replace("http:", "https:")))
    assert caught.value.reason == "tls"


@pytest.mark.parametrize(("http2", "chosen"), [(True, "h2"), (False, "http/1.1")])
async def test_http2_is_offered_by_alpn_when_it_is_on(context, make, http2: bool, chosen: str) -> None:
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with RawServer(context) as server:
        d = make(HTTPX_HTTP2=http2, VERIFY_TLS=False)
        if http2:
            with pytest.raises(DownloadError):
                await d.fetch(Request(server.url("/")))  # this server only claims to speak it
        else:
            assert (await d.fetch(Request(server.url("/")))).content == b"ok"
    assert server.alpn == [chosen]


async def test_secure_cookies_and_credentials_do_not_leave_https(tls, raw, make) -> None:
    d = make(VERIFY_TLS=False)
    tls.on(
        "/",
        redirect(raw.url("/plain"), headers=["Set-Cookie: s=1; Secure; Path=/", "Set-Cookie: p=2; Path=/"]),
    )
    await d.fetch(Request(tls.url("/"), cookies={"own": "3"}, headers={"Authorization": "Bearer t"}))
    await d.fetch(Request(tls.url("/again")))
    [seen] = raw.at("/plain")
    assert seen.get("authorization") is None
    assert seen.get("cookie") == "p=2"
    assert tls.at("/again")[0].get("cookie") == "s=1; p=2"


async def test_closing_does_not_wait_for_servers_that_do_not_say_goodbye(tls, make) -> None:
    tls.on("/", [reply(b"x")])
    took = []
    for number in range(1, 4):  # the least of three: the machine has others to serve
        d = make(VERIFY_TLS=False)
        for _ in range(3):
            await d.fetch(Request(tls.url("/")))
        assert tls.connections == number
        started = time.monotonic()
        await d.close()
        took.append(time.monotonic() - started)
    assert min(took) < 0.5


@pytest.fixture
def http2_url(certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """A directory with one page behind nginx with HTTP/2."""
    import os
    import socket

    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
    if binary is None:
        missing("nginx is not installed")
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listening.getsockname()[1]
    (tmp_path / "page.html").write_bytes(b"<p>over two</p>" * 5000)
    config = tmp_path / "nginx.conf"
    temp = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; user root; worker_processes 1; pid {tmp_path}/pid; error_log stderr crit; events {{}} http {{ access_log off; {temp}"
        f"server {{ listen 127.0.0.1:{port} ssl http2; root {tmp_path}; ssl_certificate {certificate[0]};"
        f"ssl_certificate_key {certificate[1]}; location /moved {{ return 302 /page.html; }} "
        f"location /h {{ return 200 $server_protocol; }} }} }}"
    )
    # nginx inherits the socket, as from the nginx that it follows: nobody else can get the port in between.
    with subprocess.Popen(
        [binary, "-p", str(tmp_path), "-c", str(config)],
        stderr=subprocess.DEVNULL,
        pass_fds=[listening.fileno()],
        env={**os.environ, "NGINX": f"{listening.fileno()};"},
    ) as server:
        listening.close()
        yield f"https://127.0.0.1:{port}"
        server.terminate()


async def test_pages_over_http2(http2_url, make) -> None:
    import asyncio

    d = make(VERIFY_TLS=False)
    pages = await asyncio.gather(*(d.fetch(Request(f"{http2_url}/page.html?{n}")) for n in range(50)))
    assert {page.content for page in pages} == {b"<p>over two</p>" * 5000}
    assert pages[0].headers["content-length"] == "75000"
    assert (await d.fetch(Request(f"{http2_url}/h"))).content == b"HTTP/2.0"
    assert (
        await make(VERIFY_TLS=False, HTTPX_HTTP2=False).fetch(Request(f"{http2_url}/h"))
    ).content == b"HTTP/1.1"
    moved = await d.fetch(Request(f"{http2_url}/moved"))
    assert moved.url == f"{http2_url}/page.html"
    missing = await d.fetch(Request(f"{http2_url}/none", "HEAD"))
    assert (missing.status_code, missing.content) == (404, b"")
    with pytest.raises(DownloadError):
        await make(VERIFY_TLS=False, MAX_RESPONSE_SIZE=100).fetch(Request(f"{http2_url}/page.html"))


async def offered(fetch) -> list[int]:
    """The cipher suites of the TLS hello that `fetch`, given host and port, sends (RFC 8446 4.1.2)."""
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = struct.unpack(">3xH", await reader.readexactly(5))[0]
        hello = await reader.readexactly(size)
        if not got.done():
            got.set_result(hello)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        with pytest.raises(DownloadError):
            await fetch(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    hello = await got
    start = 4 + 2 + 32  # type and length, version, random
    start += 1 + hello[start]  # session id
    size = struct.unpack_from(">H", hello, start)[0]
    return list(struct.unpack_from(f">{size // 2}H", hello, start + 2))


def suites() -> dict[int, str]:
    """OpenSSL's names of cipher suites."""
    listed = subprocess.run(
        ["openssl", "ciphers", "-V", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {}
    for row in listed.splitlines():
        code, _, name, *_ = row.split()
        high, low = code.split(",")
        names[int(high, 16) << 8 | int(low, 16)] = name
    return names


async def reach(d, name: str, certificate: tuple[Path, Path]) -> bool:
    """Whether a page comes from a server that knows only the cipher suite `name`."""
    choice = (
        ["-tls1_3", "-ciphersuites", name]
        if name.startswith("TLS_")
        else ["-tls1_2", "-cipher", f"{name}:@SECLEVEL=0"]
    )
    server = await asyncio.create_subprocess_exec(
        "openssl", "s_server", "-www", "-accept", "127.0.0.1:0", "-cert", certificate[0], "-key", certificate[1], *choice,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        while b"ACCEPT" not in (row := await server.stdout.readline()):
            assert row, f"openssl s_server does not start with {name}"
        page = await d.fetch(Request(f"https://127.0.0.1:{row.rpartition(b':')[2].strip().decode()}/"))
        return name.encode() in page.content
    except DownloadError:
        return False
    finally:
        server.kill()
        await server.wait()


@pytest.fixture(scope="session")
def rsa(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("rsa")
    cert, key = folder / "c.pem", folder / "k.pem"
    command = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return cert, key


async def test_hp_02_every_cipher_suite_that_is_offered_works(make, certificate, rsa) -> None:
    """A server picks from the offered list (RFC 5246 7.4.1.3): each suite, TLS 1.2 and 1.3, against OpenSSL."""
    d = make(VERIFY_TLS=False)
    names = suites()
    tried = [names[code] for code in await offered(lambda at: d.fetch(Request(f"https://{at}/")))]
    assert {
        "TLS_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES256-SHA",
        "AES256-SHA",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    } <= set(tried)
    works = await asyncio.gather(*(reach(d, name, certificate if "ECDSA" in name else rsa) for name in tried))
    assert [name for name, fine in zip(tried, works, strict=True) if not fine] == []


async def test_hp_02_a_server_of_before_gcm_gets_a_suite_that_works(make, rsa) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*rsa)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES256-SHA384:ECDHE-RSA-AES256-SHA:AES256-SHA:@SECLEVEL=0")
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    async with RawServer(context) as server:
        assert (await make().fetch(Request(server.url("/"), verify=False))).content == b"ok"


@pytest.mark.parametrize("impersonate", ["", "chrome"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_hp_02_a_proxy_that_speaks_tls_gets_the_same_offer(make, scheme: str, impersonate: str) -> None:
    d = make(DOWNLOADER_IMPERSONATE=impersonate)
    codes = await offered(lambda at: d.fetch(Request(f"{scheme}://site.example/", proxy=f"https://{at}")))
    assert 0xC02F in codes
    assert not {0xC024, 0xC028} & set(codes)
