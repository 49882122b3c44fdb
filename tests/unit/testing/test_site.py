"""The local site is what every other test believes: what it counts and answers must be so."""

import asyncio
import json
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request

import pytest

from netspy.testing.runner import start_command
from netspy.testing.site import Answer, LocalSite


def get(url, method="GET", data=None):
    request = urllib.request.Request(url, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


class Raw:
    """A client connection that sends what it is told and reads until it has enough."""

    def __init__(self, site):
        self.socket = socket.create_connection((site.host, site.port), timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read_until(self, end):
        got = b""
        while not got.endswith(end):
            piece = self.socket.recv(65536)
            if not piece:
                return got
            got += piece
        return got


def test_bodies_go_out_in_the_charset_that_the_header_names(site):
    site.route("/plain", "é")
    site.route("/gbk", "价格", charset="gbk")
    site.route("/raw", "价格".encode("gbk"), content_type="text/html")
    site.route("/json", {"价": 1})

    assert get(site.url("/plain"))[1:2] == ("é".encode(),)
    status, body, headers = get(site.url("/gbk"))
    assert (status, body, headers["content-type"]) == (200, "价格".encode("gbk"), "text/html; charset=gbk")
    assert get(site.url("/raw"))[2]["content-type"] == "text/html"
    status, body, headers = get(site.url("/json"))
    assert (json.loads(body), headers["content-type"]) == ({"价": 1}, "application/json")


def test_every_request_is_counted_once_by_path_and_by_target(site):
    site.route("/x", "here")
    for query in ("", "?a=1", "?a=1"):
        get(site.url("/x" + query))
    get(site.url("/nowhere"))

    assert (site.hits("/x"), site.hits("/x?a=1"), site.hits("/nowhere"), site.total) == (3, 2, 1, 4)
    assert [hit.path for hit in site.log] == ["/x", "/x?a=1", "/x?a=1", "/nowhere"]
    assert site.log[0].headers["host"] == f"127.0.0.1:{site.port}"
    assert site.all_hits() == {"/x": 1, "/x?a=1": 2, "/nowhere": 1}


def test_the_first_requests_fail_and_later_ones_do_not(site):
    site.route("/flaky", "fine", fail_first=2, fail_status=503)
    assert [get(site.url("/flaky"))[0] for _ in range(4)] == [503, 503, 200, 200]


def test_an_exact_path_goes_before_a_prefix_and_a_long_prefix_before_a_short_one(site):
    site.route("/a/", "short", prefix=True)
    site.route("/a/b/", "long", prefix=True)
    site.route("/a/b/c", "exact")
    site.route("/a/b/c?q=1", "query")
    answers = [get(site.url(path))[1] for path in ("/a/x", "/a/b/x", "/a/b/c", "/a/b/c?q=1", "/a/b/c?q=2")]
    assert answers == [b"short", b"long", b"exact", b"query", b"exact"]


def test_a_handler_sees_the_request_and_its_kind_of_answer_is_kept(site):
    async def slow(request):
        await asyncio.sleep(0)
        return Answer(request.body, status=201, headers=[("X-A", "1"), ("X-A", "2")])

    site.route("/echo", lambda request: f"{request.method} {request.query['k'][0]} {request.hits}")
    site.route("/slow", slow)
    site.route("/status", lambda request: 418)
    site.route("/none", lambda request: None)
    site.route("/broken", lambda request: 1 / 0)

    assert get(site.url("/echo?k=%E4%BB%B7"))[1] == "GET 价 1".encode()
    status, body, headers = get(site.url("/slow"), "POST", b"posted")
    assert (status, body, headers.get_all("x-a")) == (201, b"posted", ["1", "2"])
    assert get(site.url("/status"))[0] == 418
    assert get(site.url("/none"))[0] == 404
    status, body, _ = get(site.url("/broken"))
    assert (status, b"ZeroDivisionError" in body) == (500, True)


def test_pipelined_requests_are_answered_in_their_order_on_one_connection(site):
    site.route("/slow", "1", delay=0.05)
    site.route("/fast", "2")
    with Raw(site) as raw:
        raw.send(
            b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /fast HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answers = raw.read_until(b"never")
    first, second = answers.split(b"HTTP/1.1 200 OK")[1:]
    assert first.endswith(b"\r\n\r\n1")
    assert second.endswith(b"\r\n\r\n2")
    assert site.connections == 1


def test_a_chunked_body_sent_in_single_bytes_arrives_whole(site):
    bodies = []
    site.route("/in", lambda request: bodies.append(request.body) or "ok")
    with Raw(site) as raw:
        head = b"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        for byte in head + b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n":
            raw.send(bytes([byte]))
        assert raw.read_until(b"\r\n\r\nok").endswith(b"ok")
        raw.send(b"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert raw.read_until(b"\r\n\r\nok").endswith(b"ok")
    assert bodies == [b"abc0123456789", b""]


def test_a_client_that_waits_for_100_continue_gets_it_once(site):
    site.route("/in", lambda request: request.body)
    with Raw(site) as raw:
        raw.send(b"POST /in HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert raw.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.send(b"ab")
        raw.send(b"c")
        assert raw.read_until(b"abc").count(b"HTTP/1.1") == 1


def test_head_and_204_have_no_body(site):
    site.route("/x", "text")
    site.route("/empty", status=204)
    status, body, headers = get(site.url("/x"), "HEAD")
    assert (status, body, headers["content-length"]) == (200, b"", "4")
    assert get(site.url("/empty"))[:2] == (204, b"")


def test_garbage_gets_400_and_an_end(site):
    with Raw(site) as raw:
        raw.send(b"SSH-2.0-OpenSSH\r\n\r\n")
        assert raw.read_until(b"never").startswith(b"HTTP/1.1 400 ")
    assert site.total == 0


def test_drop_closes_without_a_byte_and_hang_stays_open_without_one(site):
    site.route("/drop", drop=True)
    site.route("/hang", hang=True)
    with Raw(site) as raw:
        raw.send(b"GET /drop HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.socket.recv(10) == b""
    with Raw(site) as raw:
        raw.send(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        site.wait_hits(1, path="/hang")
        raw.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.socket.recv(10)
        assert site.in_flight == 1
    site.wait_until(lambda: site.in_flight == 0)


def test_requests_at_once_are_counted_at_their_peak(site):
    together = threading.Barrier(4)

    async def meet(request):
        await asyncio.get_running_loop().run_in_executor(None, together.wait, 30)
        return "ok"

    site.route("/meet", meet)
    threads = [threading.Thread(target=get, args=(site.url("/meet"),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    site.wait_hits(3)
    together.wait(30)
    for thread in threads:
        thread.join()
    assert (site.peak, site.in_flight) == (3, 0)


def test_waiting_for_hits_that_never_come_says_how_many_came(site):
    get(site.url("/x"))
    with pytest.raises(TimeoutError, match=r"1 of 2 requests of /x after 0.01 s"):
        site.wait_hits(2, 0.01, path="/x")


def test_a_stopped_site_refuses_and_starts_again_on_its_port():
    site = LocalSite()
    with site:
        site.route("/x", "1")
        url = site.url("/x")
        with Raw(site) as raw:
            raw.send(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            raw.read_until(b"1")
            site.stop()  # with a connection open
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(url)
    with site:
        assert get(url)[1] == b"1"


def test_a_port_in_use_is_an_error_of_the_starter(site):
    with pytest.raises(OSError, match="in use"):
        LocalSite(port=site.port).start()


def test_a_folder_is_served_with_types_index_and_nothing_from_outside(site, tmp_path):
    docs = tmp_path / "docs"
    (docs / "sub dir").mkdir(parents=True)
    (docs / "index.html").write_text("<p>top")
    (docs / "sub dir" / "index.html").write_text("<p>sub")
    (docs / "a.css").write_text("b{}")
    (docs / "data.unknown").write_bytes(b"\0")
    (tmp_path / "secret").write_text("no")
    base = site.serve_folder("/docs", docs)

    assert base == site.url("/docs/")
    assert get(base)[1] == b"<p>top"
    status, body, headers = get(site.url("/docs"))  # urllib follows the redirect
    assert (status, body, headers["content-type"]) == (200, b"<p>top", "text/html")
    assert get(base + "sub%20dir")[1] == b"<p>sub"
    assert get(base + "a.css")[2]["content-type"] == "text/css"
    assert get(base + "data.unknown")[2]["content-type"] == "application/octet-stream"
    assert get(base + "none.html")[0] == 404
    for outside in ("../secret", "%2e%2e/secret", "sub%20dir/..%2f../../secret", "a%00"):
        with Raw(site) as raw:
            raw.send(f"GET /docs/{outside} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert raw.read_until(b"never").startswith(b"HTTP/1.1 404 ")
    assert get(base, "DELETE")[0] == 405


def test_the_manual_of_python_is_there_with_its_index(site, python_docs):
    base = site.serve_folder("/", python_docs)
    status, body, _ = get(base)
    assert status == 200
    assert b"<title>" in body
    assert len(list(python_docs.rglob("*.html"))) > 300


@pytest.mark.parametrize("module", ["site", "shop"])
def test_as_a_process_it_tells_where_and_ends_on_sigterm(module, tmp_path):
    ready = tmp_path / "ready.json"
    (tmp_path / "index.html").write_text("hello")
    folder = [str(tmp_path)] if module == "site" else []
    argv = [
        sys.executable,
        "-W",
        "error",
        "-m",
        f"netspy.testing.{module}",
        *folder,
        "--ready-file",
        str(ready),
    ]
    with start_command(argv, cwd=tmp_path) as process:
        line = process.wait_line("serving http://127.0.0.1:")
        told = json.loads(ready.read_text())
        assert told == {"url": line.removeprefix("serving "), "pid": process.pid}
        assert get(told["url"])[0] == 200
        process.signal(signal.SIGTERM)
        result = process.finish(30).check()
    assert result.stderr == ""


def test_as_a_process_it_ends_with_its_parent(tmp_path):
    # The runner gives it /dev/null as stdin, which is at its end at once.
    argv = [sys.executable, "-m", "netspy.testing.shop", "--until-stdin-closes"]
    with start_command(argv) as process:
        process.finish(30).check()
