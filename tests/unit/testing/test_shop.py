"""The shop's own checker must find what is wrong, and its pages must hold what it expects."""

import re
import urllib.error
import urllib.request

import pytest

from netspy.testing.shop import Shop


def fetch(url):
    """(status, charset of the header, bytes), trying a failing page once more as a crawler would."""
    for _ in range(2):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, answer.headers.get_content_charset(), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                found = error.code, None, error.read()
    return found


def read(url):
    status, charset, body = fetch(url)
    assert status == 200, url
    meta = re.search(rb'<meta charset="([^"]+)"', body)
    return body.decode(charset or (meta and meta[1].decode()) or "ascii")


def between(text, left, right):
    return text.split(left, 1)[1].split(right, 1)[0] if left in text else None


@pytest.fixture(scope="module")
def shop():
    return Shop(lists=6, per=10, seed=3)


def test_a_walk_of_the_links_finds_exactly_the_expected_items(shop, site):
    todo, seen, rows, gone, away = [shop.mount(site)], set(), [], set(), set()
    while todo:
        url = todo.pop()
        path = url.removeprefix(site.url(""))
        if url in seen:
            continue
        seen.add(url)
        if not url.startswith(site.url("")):
            away.add(url)
            continue
        if fetch(url)[0] == 404:
            gone.add(path)
            continue
        text = read(url)
        todo += [
            href if "://" in href else site.url(href)
            for href in re.findall(r'class="(?:product|next)" href="([^"]+)"', text)
        ]
        if path.startswith("/item/"):
            rows.append(
                {
                    "sku": between(text, '<p class="sku">', "</p>").split("<b>")[1].removesuffix("</b>"),
                    "title": between(text, '<h1 class="title">', "</h1>"),
                    "brand": between(text, '<a href="/">', "</a></p>")
                    .rsplit(">", 1)[-1]
                    .replace("&amp;", "&"),
                    "price": between(text, '<span class="price">', "</span>")[1:],
                    "old_price": (between(text, '<del class="old">', "</del>") or "?")[1:] or None,
                    "stock": int(re.search(r"\d+", between(text, '<p class="stock">', "</p>"))[0]),
                    "score": float(between(text, 'data-score="', '"')),
                    "path": path,
                }
            )
    assert [row["brand"] for row in rows if row["brand"] == "The Small Shop"] == []
    assert shop.problems(rows) == []
    assert (gone, away) == (shop.missing(), shop.dead())
    assert shop.pages() == {url.removeprefix(site.url("")) for url in seen} - gone - away


def test_the_checker_finds_lost_repeated_unknown_and_different_rows(shop):
    rows = [item._asdict() for item in shop.expected().values()]
    assert shop.problems(rows) == []
    wrong = [dict(rows[0], price=rows[0]["price"] + 0.01), rows[1], rows[1], {"sku": "NS-9"}, *rows[3:]]
    found = "\n".join(shop.problems(wrong))
    assert f"{rows[0]['sku']}: price is" in found
    assert f"stored 2 times: {rows[1]['sku']}" in found
    assert "unknown: {'sku': 'NS-9'}" in found
    assert f"1 of 60 lost: {rows[2]['sku']}" in found


def test_what_makes_real_sites_hard_is_there_and_the_same_each_time(site):
    shop, again, other = Shop(), Shop(), Shop(seed=8)
    shop.mount(site)
    first = {path: status_of(site.url(path)) for path in sorted(shop.pages())}
    second = {path: fetch(site.url(path)) for path in sorted(shop.pages())}
    failing = {path for path, status in first.items() if status != 200}

    assert shop.expected() == again.expected() != other.expected()
    assert {first[path] for path in failing} == {500, 503}
    assert 20 <= len(failing) <= 80
    assert {status for status, _, _ in second.values()} == {200}
    by_header = [path for path, (_, charset, _) in second.items() if charset == "gbk"]
    by_meta = [
        path for path, (_, charset, body) in second.items() if not charset and b'charset="gbk"' in body
    ]
    assert 0.25 < (len(by_header) + len(by_meta)) / len(second) < 0.42
    assert min(len(by_header), len(by_meta)) > 100


def status_of(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
