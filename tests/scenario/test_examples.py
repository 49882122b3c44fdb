"""Every example is run as a script, with a local site in the place of https://example.com, and its output is read."""

from __future__ import annotations

import asyncio
import csv
import re
import sqlite3
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from scenario_support import lines

from netspy.testing.runner import Result, run_script, start_script
from netspy.testing.site import Answer, LocalSite

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TESTED = {
    "async_callbacks.py", "crawl_table.py", "docs_site.py", "errors_and_retries.py", "login.py", "news.py", "news_air.py",
    "own_pipeline.py", "processes.py", "product_tasks.py", "shop.py",
}  # fmt: skip


def script_of(name: str, site: LocalSite, folder: Path) -> Path:
    """The example with its host replaced, and nothing else."""
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    assert "https://example.com" in source
    path = folder / name
    path.write_text(source.replace("https://example.com", site.url("").rstrip("/")), encoding="utf-8")
    return path


def run(name: str, site: LocalSite, folder: Path, *, args: tuple[str, ...] = (), **env: str) -> Result:
    result = run_script(
        script_of(name, site, folder),
        args=args,
        cwd=folder,
        env={"NETSPY_PROGRESS": "off", **env},
        timeout=60,
    ).check()
    assert "Traceback" not in result.stderr, result.stderr
    return result


def query(folder: Path, sql: str, file: str = "items.db") -> list[tuple]:
    db = sqlite3.connect(folder / file)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def test_every_example_is_tested_here_and_listed_in_both_readmes():
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == TESTED
    for readme in ("README.md", "README.zh-CN.md"):
        assert set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / readme).read_text(encoding="utf-8"))) == names


@pytest.fixture
def news(site: LocalSite) -> LocalSite:
    """Three list pages in a chain (for news_air), or by number (for news), with articles that they share."""

    def listing(request):
        page = int(parse_qs(request.target.partition("?")[2]).get("p", ["1"])[0])
        articles = "".join(f'<h2><a href="/news/{n}">Headline {n}</a></h2>' for n in range(page, page + 3))
        more = f'<a class="next" href="/news?p={page + 1}">more</a>' if page < 3 else ""
        return f"<title>News</title>{articles}{more}"

    site.route("/news", listing)
    site.route(
        "/news/", lambda request: f"<h1>Article {request.path[6:]}</h1><p>One.</p><p>Two.</p>", prefix=True
    )
    return site


def test_news_air(news, tmp_path):
    result = run("news_air.py", news, tmp_path)
    stored = lines(tmp_path / "article.jsonl")
    assert {row["url"]: (row["title"], row["text"]) for row in stored} == {
        news.url(f"/news/{n}"): (f"Article {n}", "One. Two.") for n in range(1, 6)
    }
    assert len(stored) == 5
    assert result.summary["request_ok"] == 8
    assert set(news.all_hits().values()) == {1}


def test_news_on_redis_by_two_nodes_and_again_under_a_run_id(news, redis_url, tmp_path):
    path = script_of("news.py", news, tmp_path)
    env = {"NETSPY_PROGRESS": "off", "NETSPY_REDIS_URL": redis_url}
    a = start_script(path, cwd=tmp_path, env=env)
    b = start_script(path, cwd=tmp_path, env=env)
    with a, b:
        results = [a.finish(60).check(), b.finish(60).check()]
    assert sum(result.summary["request_ok"] for result in results) == 99 + 101
    assert set(news.all_hits().values()) == {1}
    assert query(tmp_path, "SELECT count(*), count(DISTINCT url), min(headline) FROM article") == [
        (101, 101, "Headline 1")
    ]
    again = run("news.py", news, tmp_path, NETSPY_REDIS_URL=redis_url, NETSPY_RUN_ID="tuesday")
    assert again.summary["request_ok"] == 200
    assert query(tmp_path, "SELECT count(*) FROM article") == [(101,)]


def test_shop(site, tmp_path):
    def listing(request):
        page = int(request.target[-1])
        cards = "".join(
            f'<li class="product"><a href="/shop/{sku}">x</a><span class="stars">{sku % 5} of 5</span></li>'
            for sku in range(page * 10, page * 10 + 4)
        )
        return f"<ul>{cards}</ul>" + ('<a class="next" href="/shop?page=2">more</a>' if page == 1 else "")

    def product(request):
        sku = request.path[6:]
        reviews = "".join(
            f'<div class="review"><b class="author">{who}</b><p class="text">Good {sku}</p></div>'
            for who in ("Ann", "Bo")
        )
        return f'<div data-sku="{sku}"><h1>  Tea\n pot {sku} </h1><span class="price">€ {sku}.50</span>{reviews}</div>'

    site.route("/shop", listing)
    site.route("/shop/", product, prefix=True)
    for times in (1, 2):  # a second crawl updates what is there
        result = run("shop.py", site, tmp_path)
        assert result.summary["items"] == 8 + 16
        assert query(tmp_path, "SELECT count(*) FROM product") == [(8,)]
        assert query(tmp_path, "SELECT count(*) FROM review") == [(16,)]
        assert len((tmp_path / "product.csv").read_text().splitlines()) == 1 + 8 * times
    assert query(tmp_path, "SELECT sku, name, price, stars FROM product WHERE sku = 23") == [
        ("23", "Tea pot 23", "23.50", 3)
    ]
    assert query(tmp_path, "SELECT text FROM review WHERE sku = 11 AND author = 'Bo'") == [("Good 11",)]
    with (tmp_path / "product.csv").open(newline="") as file:
        assert next(csv.DictReader(file)).keys() == {"sku", "name", "price", "stars"}


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_login(site, tmp_path, password):
    def enter(request):
        form = parse_qs(request.body.decode())
        good = form == {"token": ["t0k"], "account": ["ann"], "password": ["secret"]}
        if request.method == "POST" and good:
            return Answer(
                '<a class="logout" href="/out">out</a>', headers={"Set-Cookie": "session=abc; Path=/"}
            )
        return '<form action="/login"><input name="token" value="t0k"></form>'

    def orders(request):
        if "session=abc" not in request.headers.get("cookie", ""):
            return '<form action="/login"></form>'
        page = 2 if request.target.endswith("2") else 1
        row = f'<tr><td class="number">{page}</td><td class="total">{page}.00</td></tr>'
        return f'<table class="orders">{row}</table>' + (
            '<a class="next" href="/orders?page=2">more</a>' if page == 1 else ""
        )

    site.route("/login", enter)
    site.route("/orders", orders)
    result = run("login.py", site, tmp_path, PASSWORD=password)
    if password == "wrong":
        assert result.summary["outcome"] == "stopped"
        assert result.summary["reason"] == "the site did not let us in"
        assert site.hits("/orders") == 0
        return
    assert (tmp_path / "items.csv").read_text().split() == ["order,total", "1,1.00", "2,2.00"]


def test_errors_and_retries(site, tmp_path):
    site.route("/fine", "ok")
    site.route("/flaky", "ok", fail_first=1, fail_status=503)
    site.route("/broken", status=500)
    site.route("/gone", status=410)
    site.route("/soon", lambda request: "please wait" if request.hits < 3 else "ok")
    result = run("errors_and_retries.py", site, tmp_path)
    state = {row["url"].rpartition("/")[2]: row for row in lines(tmp_path / "items.jsonl")}
    assert {name: row["state"] for name, row in state.items()} == {
        "fine": "ok", "flaky": "ok", "soon": "ok", "gone": "gone", "broken": "failed", "missing": "failed",
    }  # fmt: skip
    assert state["broken"]["tries"] == 3
    assert (state["missing"]["status"], state["missing"]["tries"]) == (404, 1)
    assert {path: site.hits(path) for path in ("/fine", "/flaky", "/broken", "/missing", "/gone", "/soon")} == {
        "/fine": 1, "/flaky": 2, "/broken": 3, "/missing": 1, "/gone": 1, "/soon": 3,
    }  # fmt: skip
    assert result.summary["user"] == {"checked": 3, "gone": 1, "failed": 2}
    assert result.summary["reasons"] == {"HTTP 404": 1, "HTTP 500": 1}
    assert result.stderr.count("follows") == 5
    failed = lines(tmp_path / "failed_requests.jsonl")
    assert len(failed) == 2


def test_own_pipeline(site, tmp_path):
    site.route("/books", [{"isbn": n, "title": f"Book {n}", "author": "Ann"} for n in (1, 2, 2)])
    result = run("own_pipeline.py", site, tmp_path)
    assert (tmp_path / "books.md").read_text() == "# Books\n\n- *Book 1*, Ann\n- *Book 2*, Ann\n"
    assert result.summary["outputs"] == ["books.md"]
    assert result.summary["item_dedup_dropped"] == 1


def test_async_callbacks(site, tmp_path):
    site.route(
        "/items/",
        lambda request: (
            f'<h1>Item {request.path[7:]}</h1><a class="price" href="/price/{request.path[7:]}"></a><a class="stock" href="/stock/{request.path[7:]}"></a>'
        ),
        prefix=True,
    )
    site.route("/price/", lambda request: Answer({"price": int(request.path[7:]) * 2}), prefix=True)
    site.route(
        "/stock/",
        lambda request: {"2": Answer("busy"), "3": 404}.get(request.path[-1], Answer({"stock": 7})),
        prefix=True,
    )
    result = run("async_callbacks.py", site, tmp_path)
    stored = sorted(lines(tmp_path / "items.jsonl"), key=lambda row: row["name"])
    assert stored == [
        {"name": f"Item {n}", "price": n * 2, "stock": None if n in (2, 3) else 7} for n in range(1, 6)
    ]
    assert result.stderr.count("no stock for") == 1
    assert result.summary["request_ok"] == 5


def test_processes(site, tmp_path, embedded_dir):
    async def page(request):
        while (
            site.peak <= 4
        ):  # which is what one process may have at once: no answer before a second one asks
            await asyncio.sleep(0.01)
        return f"<h1>{request.path}</h1><p>two words</p>"

    site.route("/p/", page, prefix=True, delay=0.02)
    result = run("processes.py", site, tmp_path, NETSPY_EMBEDDED_DATA_DIR=str(embedded_dir))
    assert result.summary["nodes"] == 4
    assert result.summary["request_ok"] == 200
    assert result.summary["user"] == {"words": 400}
    assert result.stdout.count("NETSPY_RUN_SUMMARY") == 1
    assert query(tmp_path, "SELECT count(*), count(DISTINCT url) FROM items") == [(200, 200)]
    [(processes,)] = query(tmp_path, "SELECT count(DISTINCT process) FROM items")
    assert processes >= 2
    assert set(site.all_hits().values()) == {1}


OPEN = "Redis keeps nothing on disk"
"""What a node says of the tests' Redis as soon as it is connected."""

QUICK = {
    "NETSPY_TASK_POLL_INTERVAL": "0.2",
    "NETSPY_BATCH_MONITOR_INTERVAL": "0.3",
    "NETSPY_RETRY_BACKOFF": "0.05",
    "NETSPY_SPIDER_STARTUP_GRACE": "2",
}


def test_product_tasks(site, tmp_path, redis_url):
    site.route(
        "/product/",
        lambda request: (
            404
            if request.path.endswith("/9")
            else f'<b class="price">{request.path[9:]}.50</b><a class="similar" data-id="7"></a>'
        ),
        prefix=True,
    )
    env = {**QUICK, "NETSPY_REDIS_URL": redis_url}
    path = script_of("product_tasks.py", site, tmp_path)
    pushed = run_script(path, args=("push", "1", "2", "9"), cwd=tmp_path, env=env).check()
    assert pushed.stdout == "pushed 3\n"
    nodes = [start_script(path, cwd=tmp_path, env={"NETSPY_PROGRESS": "off", **env}) for _ in range(2)]
    with nodes[0], nodes[1]:
        results = [node.finish(60) for node in nodes]
    assert sum(result.summary["tasks_taken"] for result in results) == 3 + 2
    assert query(tmp_path, "SELECT id, price FROM product ORDER BY id") == [
        (1, "1.50"),
        (2, "2.50"),
        (7, "7.50"),
    ]
    assert sum(result.stderr.count("product 9 could not be fetched") for result in results) == 1
    # Both products name the same similar one: two tasks, both are served.
    assert site.hits("/product/7") == 2


def test_crawl_table(site, tmp_path, redis_url):
    site.route("/page/", lambda request: 404 if request.path.endswith("/13") else "<h1>T</h1>", prefix=True)
    env = {"NETSPY_PROGRESS": "off", "NETSPY_REDIS_URL": redis_url, **QUICK}
    path = script_of("crawl_table.py", site, tmp_path)
    run_script(path, args=("create",), cwd=tmp_path, env=env).check()
    workers = [start_script(path, cwd=tmp_path, env=env) for _ in range(2)]
    with workers[0], workers[1]:
        once = run_script(path, args=("once",), cwd=tmp_path, env=env, timeout=60).check()
        again = run_script(path, args=("once",), cwd=tmp_path, env=env, timeout=60).check()
        for worker in workers:
            worker.wait_line(
                OPEN
            )  # else it may be starting still, and SIGTERM ends it as it ends any program
            worker.terminate()
        results = [worker.finish(20).check(143) for worker in workers]
    assert once.summary["reason"] == "batch 1: 39/40, 1 failed"
    assert again.summary["outcome"] == "nothing_to_do"  # the next batch is due tomorrow
    assert sum(result.summary["user"].get("lost pages", 0) for result in results) == 1
    assert query(tmp_path, "SELECT count(*) FROM page") == [(39,)]
    assert query(tmp_path, "SELECT batch_status, count(*) FROM page GROUP BY 1", "tasks.db") == [
        (-1, 1),
        (1, 39),
    ]
    assert query(tmp_path, "SELECT done_count, fail_count, is_done FROM page_batch_record", "tasks.db") == [
        (39, 1, 1)
    ]
    assert set(site.all_hits().values()) == {1}


def small_docs(site: LocalSite) -> None:
    site.route(
        "/docs/index.html",
        '<title> The\n Manual </title><a href="a.html#x">A</a><a href="b/">B</a><a href="/other.html">no</a><a href="p.png">p</a>',
    )
    site.route(
        "/docs/a.html",
        '<title>A</title><link rel="canonical" href="https://docs.example.org/a"><a href="index.html">home</a>',
    )
    site.route(
        "/docs/b/",
        '<title>B</title><link rel="canonical" href="/docs/bee/"><a href="../a.html">A</a><a href="../gone.html">gone</a>',
    )
    site.route("/docs/p.png", b"\x89PNG", content_type="image/png")
    site.route("/other.html", "<title>Not of these docs</title>")


@pytest.mark.parametrize("shared", [False, True], ids=["air", "redis"])
def test_docs_site(site, tmp_path, shared, request):
    small_docs(site)
    args = (
        site.url("/docs/index.html"),
        *(("--redis", request.getfixturevalue("redis_url")) if shared else ()),
    )
    result = run("docs_site.py", site, tmp_path, args=args)
    found = query(tmp_path, "SELECT url, title, canonical, links FROM page ORDER BY url", "pages.db")
    url = site.url
    assert [(row[0], row[1], row[2]) for row in found] == [
        (url("/docs/a.html"), "A", "https://docs.example.org/a"),
        (url("/docs/b/"), "B", url("/docs/bee/")),
        (url("/docs/index.html"), "The Manual", url("/docs/index.html")),
    ]
    assert site.hits("/other.html") == 0
    assert result.summary["reasons"] == {"HTTP 404": 1}
    assert result.summary["content_type_dropped"] == 1
