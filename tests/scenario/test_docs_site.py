"""A real documentation site, Debian's python3-doc, crawled by the example and compared with a walk of its files.

The walk below knows nothing of netspy: files from the disk, lxml for the tree, urllib.parse for the links.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import lxml.html
import pytest

from netspy.testing.folder import FolderRoute
from netspy.testing.runner import run_script, start_script
from netspy.testing.site import LocalSite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "docs_site.py"
BASE = "http://docs.test/docs/"


class Expected(NamedTuple):
    """What a crawl must find; URLs below BASE."""

    titles: dict[str, str]
    canonical: dict[str, str]
    links: dict[str, list[str]]
    other: set[str]  # in the folder and linked, but no HTML page
    missing: set[str]


@cache
def walk(folder: Path) -> Expected:
    """Every page that links lead to from index.html, by the rules of a plain file server."""
    titles, canonical, links, other, missing = {}, {}, {}, set(), set()
    todo = [urljoin(BASE, "index.html")]
    seen = set(todo)
    while todo:
        url = todo.pop()
        file = folder / unquote(urlsplit(url).path.removeprefix(urlsplit(BASE).path))
        if not file.is_file():
            missing.add(url)
        elif file.suffix != ".html":
            other.add(url)
        else:
            tree = lxml.html.document_fromstring(file.read_bytes())
            titles[url] = " ".join(tree.findtext(".//title").split())
            named = [
                link.get("href")
                for link in tree.iter("link")
                if "canonical" in (link.get("rel") or "").split()
            ]
            canonical[url] = urljoin(url, named[0]) if named else url
            hrefs = [a.get("href") for a in tree.iter("a")]
            # Without its fragment, a page's name comes ten times over: each is made whole once.
            short = dict.fromkeys(href.strip().partition("#")[0] for href in hrefs if href is not None)
            found = dict.fromkeys(urljoin(url, href) for href in short)
            links[url] = [link for link in found if link.startswith(BASE)]
            todo += [link for link in links[url] if link not in seen]
            seen.update(links[url])
    return Expected(titles, canonical, links, other, missing)


@pytest.fixture
def docs(site: LocalSite, python_docs: Path) -> LocalSite:
    site.serve_folder("/docs", python_docs)
    return site


def pages(folder: Path, site: LocalSite, *files: str) -> list[dict]:
    """The stored rows with the site's address replaced by BASE."""
    rows = []
    for file in files:
        db = sqlite3.connect(folder / file)
        try:
            rows += db.execute("SELECT url, title, canonical, links FROM page").fetchall()
        finally:
            db.close()
    here = site.url("/docs/")
    return [
        {
            "url": url.replace(here, BASE),
            "title": title,
            "canonical": canonical.replace(here, BASE),
            "links": [link.replace(here, BASE) for link in json.loads(links)],
        }
        for url, title, canonical, links in rows
    ]


def assert_whole(found: list[dict], expected: Expected, site: LocalSite) -> None:
    times = Counter(page["url"] for page in found)
    assert set(times) == set(expected.titles)
    assert {url: n for url, n in times.items() if n != 1} == {}
    assert {page["url"]: page["title"] for page in found} == expected.titles
    assert {page["url"]: page["canonical"] for page in found} == expected.canonical
    assert {page["url"]: page["links"] for page in found} == expected.links
    hits = {site.url(path).replace(site.url("/docs/"), BASE): n for path, n in site.all_hits().items()}
    assert set(hits) == set(expected.titles) | expected.other | expected.missing
    assert {url: n for url, n in hits.items() if n != 1} == {}


def test_the_walk_itself_finds_a_real_site(python_docs):
    expected = walk(python_docs)
    assert len(expected.titles) > 400
    assert sum(map(len, expected.links.values())) > 10_000
    assert expected.titles[urljoin(BASE, "library/asyncio.html")].startswith("asyncio — Asynchronous I/O")
    on_disk = {
        urljoin(BASE, file.relative_to(python_docs).as_posix()) for file in python_docs.rglob("*.html")
    }
    assert set(expected.titles) <= on_disk


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_one_process_finds_every_page_once_with_its_title_and_links(docs, python_docs, tmp_path, engine):
    expected = walk(python_docs)
    env = {"NETSPY_PROGRESS": "off", "NETSPY_SELECTOR_ENGINE": engine}
    result = run_script(
        EXAMPLE, args=[docs.url("/docs/index.html")], cwd=tmp_path, env=env, timeout=120
    ).check()
    found = pages(tmp_path, docs, "pages.db")
    assert_whole(found, expected, docs)
    assert result.summary["request_ok"] == result.summary["items"] == len(expected.titles)
    assert result.summary["content_type_dropped"] == len(expected.other)
    assert result.summary["reasons"] == ({"HTTP 404": len(expected.missing)} if expected.missing else {})


def test_two_nodes_share_the_site_and_their_parts_make_the_whole(docs, python_docs, redis_url, tmp_path):
    expected = walk(python_docs)
    both_are_there = threading.Event()
    folder = FolderRoute(python_docs, "/docs/")

    async def first_page(request):
        while not both_are_there.is_set():
            await asyncio.sleep(0.01)
        return folder(request)

    docs.route("/docs/index.html", first_page)
    args = [docs.url("/docs/index.html"), "--redis", redis_url]
    a, b = (
        start_script(
            EXAMPLE, args=args, cwd=tmp_path, env={"NETSPY_PROGRESS": "off", "NETSPY_SQLITE_PATH": file}
        )
        for file in ("a.db", "b.db")
    )
    with a, b:
        for node in (a, b):
            node.wait_line("Redis keeps nothing on disk")  # what each says of this one when it is connected
        both_are_there.set()
        results = [a.finish(120).check(), b.finish(120).check()]
    assert_whole(pages(tmp_path, docs, "a.db", "b.db"), expected, docs)
    parts = [{page["url"] for page in pages(tmp_path, docs, file)} for file in ("a.db", "b.db")]
    assert not parts[0] & parts[1]
    assert min(map(len, parts)) > len(expected.titles) // 10
    assert [result.summary["items"] for result in results] == [len(part) for part in parts]
    assert sum(result.summary["request_ok"] for result in results) == len(expected.titles)
