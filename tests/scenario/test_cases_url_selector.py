"""The url and selector cases: real-world inputs that break crawlers, each with its right answer.

URL-06 is in tests/unit/engine/page/test_output_urls.py, SEL-04 in tests/unit/messages/test_selectors.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenario_support import SPIDER

import netspy as mw
from netspy.messages.response import Response
from netspy.messages.selectors import Selector
from netspy.messages.urls import canonical, join
from netspy.testing.runner import start_script

CASES = {
    case["id"]: case
    for area in ("url", "selector")
    for case in json.loads(
        (Path(__file__).parents[1] / "data/cases" / f"{area}.json").read_text(encoding="utf-8")
    )
}


def given(name):
    return CASES[name]["input"], CASES[name]["expected"]


class Quiet(mw.AirSpider):
    __custom_setting__ = {"PROGRESS": "off", "ITEM_PIPELINES": [], "RETRY_BACKOFF": 0.0}

    def parse(self, request, response):
        pass


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (tuple(pair), answer)
        for pair, answer in zip(given("URL-02")[0]["join"], given("URL-02")[1]["join"], strict=True)
    ],
)
def test_url_02_dot_segments_never_climb_above_the_root(pair, expected):
    assert join(*pair) == expected


@pytest.mark.usefixtures("workdir")
def test_url_02_a_site_of_dot_links_has_three_pages(site):
    for path, there in (("/d/", "./next"), ("/d/next", "./next/"), ("/d/next/", "../next")):
        site.route(path, f'<a href="./">here</a><a href="{there}">next</a><a href="././next">again</a>')

    class Dots(Quiet):
        def parse(self, request, response):
            yield from response.follow_all(css="a")

    site.route("/d/next/next", "<p>end</p>")
    summary = Dots(start_urls=[site.url("/d/")]).run()
    assert {path: n for path, n in site.all_hits().items() if n != 1} == {}
    assert summary.outcome == "finished"


@pytest.mark.usefixtures("workdir")
def test_url_03_an_encoded_url_goes_out_byte_for_byte(site):
    given_, expected = given("URL-03")
    target = expected["raw_request_target"]
    assert given_["url"].endswith(target)
    site.fallback(lambda request: request.target)
    seen = []

    class Raw(Quiet):
        def parse(self, request, response):
            seen.append(response.text)

    Raw(start_urls=[site.url(target)]).run()
    assert seen == [target]


@pytest.mark.slow
def test_url_04_a_stray_percent_sign_is_the_same_at_every_try_through_the_redis_queue(
    site, redis_url, tmp_path
):
    given_, expected = given("URL-04")
    target = given_["url"].partition("PORT")[2]
    targets = []

    def answer(request):
        targets.append(request.target)
        return 500 if len(targets) < 3 else "fine"

    site.fallback(answer)
    source = SPIDER.replace('f"{BASE}/p/{n}"', f"BASE + {target!r}")
    env = {"SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url, "PAGES": "1"}
    with start_script(source, env=env, cwd=tmp_path) as script:
        assert script.finish(60).check().summary["request_ok"] == 1
    assert len(targets) == 3
    assert len(set(targets)) == 1
    assert not any(bad in targets[0] for bad in expected["never"])
    assert targets[0] in {target, target.replace("100%?", "100%25?").replace("%ec%&", "%ec%25&")}
    url = site.url(target)
    assert canonical(canonical(url)) == canonical(url)


def test_url_08_a_links_query_is_in_the_pages_encoding_and_its_path_in_utf8():
    given_, expected = given("URL-08")
    page = given_["page"]
    response = Response(
        url=page["url"], status_code=200, headers=page["headers"], content=page["html_gbk"].encode("gbk")
    )
    [link] = response.css("a::attr(href)").getall()
    assert response.urljoin(link).partition("#")[0] == expected["link_from_gbk_page"]
    assert response.links()[0].url == expected["link_from_gbk_page"]
    assert [join("http://example.com/", href) for href in given_["join"]] == expected["join"]


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_sel_01_nul_bytes_and_control_characters_cut_nothing(engine):
    given_, expected = given("SEL-01")
    first, second, third = (text.encode().decode("unicode_escape") for text in given_["html_escapes"])
    one = Selector(text=first, engine=engine)
    assert one.css("h1::text").get() == expected["1"]["h1"]
    if engine == "turbohtml":
        assert one.css("p::text").get() == expected["1"]["p"]
    assert (
        Selector(text=second, engine=engine).css("a::attr(href)").getall() == expected["2"]["a::attr(href)"]
    )
    assert Selector(text=third, engine=engine).css("h1::text").get() == expected["3"]["h1"]


def test_sel_01_a_lone_surrogate_doesnt_empty_the_page():
    assert Selector(text="<p>\ud83d</p><h1>t</h1>").css("h1::text").get() == "t"


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_sel_03_json_cut_from_a_script_stays_json(engine):
    given_, expected = given("SEL-03")
    page = Selector(text=given_["html"], engine=engine)
    options = {} if engine == "turbohtml" else {"replace_entities": False}
    found = page.css("script::text").re_first(r"d=({.*?});", **options)
    assert found == expected["1"].removesuffix(
        " available (default, or through a documented switch) and json.loads succeeds"
    )
    assert json.loads(found) == {"size": "9&#34; x 12"}
    assert page.css("p::text").re_first(r"id=(\d+)?", "D") in {"", "D"}
    assert page.css("p::text").re_first(r"nope", "D") == expected["3"]
    assert page.css("b::text").re_first(r"x", "D") == expected["4"]


def response_of(case, body):
    return Response(url="http://example.com/feed", status_code=200, headers=case["headers"], content=body)


def test_sel_05_rss_in_gbk_is_read_as_xml():
    case = given("SEL-05")[0]["case_a"]
    body = case["body"].removesuffix(" (encoded as GBK)")
    response = response_of(case, body.encode("gbk"))
    assert response.xpath("//link/text()").getall() == ["http://example.com/1"]
    assert response.xpath("//title/text()").getall() == ["标题"]
    assert len(response.xpath("//pubDate")) == 1


def test_sel_05_a_default_namespace_is_reachable():
    case = given("SEL-05")[0]["case_b"]
    response = response_of(case, case["body"].encode())
    names = {"a": "http://www.w3.org/2005/Atom"}
    assert response.xpath("//a:entry/a:title/text()", namespaces=names).getall() == ["t"]
    response.selector.remove_namespaces()
    assert response.xpath("//entry/title/text()").getall() == ["t"]


def test_sel_05_an_xml_declaration_in_html_doesnt_raise():
    case = given("SEL-05")[0]["case_c"]
    assert response_of(case, case["body"].encode()).css("p::text").get() == "中"
