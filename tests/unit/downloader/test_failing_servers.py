from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from netspy.downloader.multi import LoopWatcher
from netspy.errors import DownloadError
from netspy.messages.request import Request
from support.raw_server import CLOSE, HANG, RESET, RawServer, redirect, reply


async def failure(d, request: Request) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        await d.fetch(request)
    return caught.value


async def test_a_closed_port_is_a_connect_failure(d) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await failure(d, Request(f"http://127.0.0.1:{port}/"))
    assert (error.reason, error.retryable) == ("connect", True)


async def test_an_unknown_name_is_a_dns_failure(d) -> None:
    error = await failure(d, Request("http://no-such-host.invalid/"))
    assert (error.reason, error.retryable) == ("dns", True)
    assert "no-such-host.invalid" in str(error)


async def test_a_server_that_hangs_up_at_once_is_a_reset(raw, d) -> None:
    raw.on("/close", CLOSE)
    raw.on("/reset", RESET)
    for path in ("/close", "/reset"):
        error = await failure(d, Request(raw.url(path)))
        assert (error.reason, error.retryable) == ("reset", True), path


@pytest.mark.parametrize(
    "answer", [b"220 ftp ready\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"HTTP/1.1 abc\r\n\r\n"]
)
async def test_what_is_not_http_is_a_protocol_failure(raw, d, answer: bytes) -> None:
    raw.on("/", [answer, CLOSE])
    assert (await failure(d, Request(raw.url("/")))).reason == "protocol"


async def test_different_content_lengths_are_an_attack_and_not_a_page(raw, d) -> None:
    raw.on("/", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokok", CLOSE])
    error = await failure(d, Request(raw.url("/")))
    assert error.reason in {"protocol", "truncated"}


@pytest.mark.parametrize(
    "steps",
    [[HANG], [b"HTTP/1.1 200 OK\r\n", HANG], [reply(b"half", length=99), HANG]],
    ids=["silence", "half a head", "half a body"],
)
async def test_request_timeout_ends_every_kind_of_waiting(raw, make, steps) -> None:
    d = make(REQUEST_TIMEOUT=0.2)
    raw.on("/", steps)
    started = time.monotonic()
    error = await failure(d, Request(raw.url("/")))
    assert (error.reason, error.retryable) == ("timeout", True)
    assert 0.15 < time.monotonic() - started < 10
    assert (await d.fetch(Request(raw.url("/fine"), timeout=60))).content == b"ok"


async def test_a_slow_drip_does_not_stretch_the_request_timeout(raw, make) -> None:
    d = make(REQUEST_TIMEOUT=0.3)
    raw.on("/", [reply(b"x", length=10_000), *[0.05, b"x"] * 9999])
    started = time.monotonic()
    assert (await failure(d, Request(raw.url("/")))).reason == "timeout"
    assert time.monotonic() - started < 10


async def test_the_time_limit_holds_for_the_whole_chain_of_redirects(raw, make) -> None:
    d = make(REQUEST_TIMEOUT=0.5)
    for n in range(20):
        raw.on(f"/{n}", [0.1, redirect(f"/{n + 1}")])
    raw.on("/20", HANG)
    started = time.monotonic()
    assert (await failure(d, Request(raw.url("/0")))).reason == "timeout"
    assert time.monotonic() - started < 10
    assert not raw.at("/20"), "each hop had the whole time"


@pytest.mark.parametrize("timeout", [0.2, (5, 0.2), [0.1, 0.1]])
async def test_a_requests_own_timeout_wins_and_ends_with_it(raw, d, timeout) -> None:
    own = Request(raw.url("/"), timeout=timeout)
    if timeout == (5, 0.2):
        raw.on("/", [0.4, reply()])
        assert (await d.fetch(own)).content == b"ok"  # 5.2 s in all
    else:
        raw.on("/", HANG)
        assert (await failure(d, own)).reason == "timeout"
    assert (await d.fetch(Request(raw.url("/fine")))).content == b"ok"


async def test_a_longer_own_timeout_is_given(raw, make) -> None:
    d = make(REQUEST_TIMEOUT=0.1)
    raw.on("/", [0.3, reply()], HANG)
    assert (await d.fetch(Request(raw.url("/"), timeout=60))).content == b"ok"
    assert (await failure(d, Request(raw.url("/")))).reason == "timeout"


async def test_an_address_that_never_answers_ends_by_connect_timeout(make) -> None:
    d = make(CONNECT_TIMEOUT=0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        clients = [socket.socket() for _ in range(4)]  # the queue of the listening socket is full
        for client in clients:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        started = time.monotonic()
        error = await failure(d, Request(f"http://127.0.0.1:{full.getsockname()[1]}/"))
        for client in clients:
            client.close()
    assert error.reason == "timeout"
    assert time.monotonic() - started < 10


async def test_an_idle_transfer_is_given_up_and_a_slow_one_is_not(raw, make) -> None:
    d = make(IDLE_TIMEOUT=2.0, REQUEST_TIMEOUT=60)
    raw.on("/idle", [reply(b"x", length=99), HANG])
    raw.on("/silent", HANG)
    raw.on("/slow", [reply(b"", length=50), *[0.05, b"x"] * 50])  # 2.5 s, and no pause that is nearly 2 s
    started = time.monotonic()
    idle, silent, slow = await asyncio.gather(
        *(d.fetch(Request(raw.url(path))) for path in ("/idle", "/silent", "/slow")), return_exceptions=True
    )
    assert time.monotonic() - started < 30
    for error in (idle, silent):
        assert isinstance(error, DownloadError)
        assert error.reason == "timeout"
        assert "IDLE_TIMEOUT" in str(error)
    assert slow.content == b"x" * 50


async def test_idle_timeout_zero_is_off(raw, make) -> None:
    d = make(IDLE_TIMEOUT=0)
    raw.on("/", [reply(b"x", length=2), 0.3, b"y"])
    assert (await d.fetch(Request(raw.url("/")))).content == b"xy"


def open_sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return found


async def test_cancelled_fetches_let_go_of_their_connections(raw, make) -> None:
    d = make(SPIDER_THREAD_COUNT=50)
    raw.on("/slow", [reply(b"x", length=99), HANG])
    raw.on("/silent", HANG)
    await d.fetch(Request(raw.url("/")))
    before = open_sockets()
    tasks = [asyncio.create_task(d.fetch(Request(raw.url(path)))) for path in ["/slow", "/silent"] * 25]
    await raw.until(lambda: len(raw.seen) == 51)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    await raw.until(lambda: raw.open <= 1)
    async with asyncio.timeout(30):
        while open_sockets() > before:  # the server's ends take some turns of the loop to close
            await asyncio.sleep(0)
    answers = await asyncio.gather(*(d.fetch(Request(raw.url("/"))) for _ in range(60)))
    assert {answer.content for answer in answers} == {b"ok"}


async def test_cancelling_before_the_first_turn_of_the_loop(raw, d) -> None:
    task = asyncio.create_task(d.fetch(Request(raw.url("/"))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await d.fetch(Request(raw.url("/")))).content == b"ok"


async def test_close_ends_what_runs_quickly_and_twice_is_fine(raw, make) -> None:
    d = make()
    raw.on("/", HANG)
    tasks = [asyncio.create_task(d.fetch(Request(raw.url("/")))) for _ in range(20)]
    await raw.until(lambda: len(raw.seen) == 20)
    started = time.monotonic()
    await d.close()
    await d.close()
    assert time.monotonic() - started < 10
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, DownloadError)
        assert result.reason == "reset"
        assert "closed" in str(result)
    await raw.until(lambda: raw.open == 0)
    error = await failure(d, Request(raw.url("/")))
    assert "closed" in str(error)


async def test_closing_an_unused_downloader(make) -> None:
    await make().close()


def test_a_plain_asyncio_loop_works_too() -> None:
    from netspy.downloader.curl import CurlDownloader
    from netspy.settings import Settings

    async def crawl() -> bytes:
        async with RawServer() as server:
            server.on("/", [0.05, reply(b"plain")])
            d = CurlDownloader(Settings())
            bodies = await asyncio.gather(*(d.fetch(Request(server.url("/"))) for _ in range(20)))
            await d.close()
            return bodies[0].content

    assert asyncio.run(crawl()) == b"plain"


def test_nothing_is_left_open_at_exit(tmp_path) -> None:
    script = tmp_path / "crawl.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio
            import sys
            from netspy.downloader.curl import CurlDownloader
            from netspy.errors import DownloadError
            from netspy.messages.request import Request
            from netspy.settings import Settings

            async def answer(reader, writer):
                await reader.readuntil(b"\\r\\n\\r\\n")
                writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
                await reader.read()
                writer.close()

            async def main():
                # Debug mode tells of steps that take long, which they do on a busy machine.
                asyncio.get_running_loop().slow_callback_duration = 3600
                async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
                    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
                    downloader = CurlDownloader(Settings())
                    assert (await downloader.fetch(Request(url))).content == b"ok"
                    assert (await downloader.fetch(Request(url, "POST", data={"a": 1}, impersonate="chrome"))).ok
                    running = asyncio.create_task(downloader.fetch(Request(url, timeout=(5, 5))))
                    await asyncio.sleep(0)
                    await downloader.close()
                    try:
                        await running
                    except DownloadError:
                        print("closed")

            asyncio.run(main())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(script)], capture_output=True, text=True, timeout=90
    )
    assert (done.stdout, done.stderr, done.returncode) == ("closed\n", "", 0)


async def test_without_epoll_the_loop_watches_the_sockets(raw, make, monkeypatch) -> None:
    monkeypatch.setattr("netspy.downloader.multi.EpollWatcher", LoopWatcher)
    d = make()
    raw.on("/", [0.05, reply(b"x" * 500_000)])
    raw.on("/hang", HANG)
    bodies = await asyncio.gather(*(d.fetch(Request(raw.url("/"))) for _ in range(30)))
    assert {len(body.content) for body in bodies} == {500_000}
    assert (await failure(d, Request(raw.url("/hang"), timeout=0.1))).reason == "timeout"
    await d.close()


async def test_passwords_are_not_in_messages(raw, d) -> None:
    raw.on("/", CLOSE)
    url = raw.url("/").replace("http://", "http://me:s3cret@")
    error = await failure(d, Request(url))
    assert "s3cret" not in str(error)
    assert raw.seen[0].get("authorization") == "Basic bWU6czNjcmV0"
