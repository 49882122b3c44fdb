"""Links as a browser resolves them; one bad link never costs the others."""

import json
from pathlib import Path
from typing import Any

import pytest

from netspy.errors import InvalidUrlError, RequestError, ResponseError
from netspy.messages.links import Link
from netspy.messages.response import Response

CASE = json.loads((Path(__file__).parents[2] / "data/cases/links.json").read_text("utf-8"))


def page(
    html: str, url: str = "http://example.com/a/b.html", charset: str = "utf-8", engine: str = "turbohtml"
) -> Response:
    response = Response(
        url=url,
        status_code=200,
        content=html.encode(charset),
        headers={"Content-Type": f"text/html; charset={charset}"},
    )
    response.engine = engine
    return response


def anchors(hrefs: list[str]) -> str:
    return "".join(f'<a href="{href}">x</a>' for href in hrefs)


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_malformed_and_foreign_links_are_left_out_and_the_rest_kept(engine: str) -> None:
    response = page(anchors(CASE["hrefs"]), engine=engine)
    assert [link.url for link in response.links()] == [
        f"http://example.com{path}" for path in CASE["fetched"]
    ]


@pytest.mark.parametrize("href", CASE["hrefs"])
def test_follow_makes_a_request_of_any_link_without_raising(href: str) -> None:
    [anchor] = page(anchors([href])).css("a")
    for target in (href, anchor, anchor.css("::attr(href)")[0], anchor.xpath("@href")[0]):
        request = page("").follow(target, callback="parse_x", priority=7)
        assert (request.callback, request.priority) == ("parse_x", 7)
        if href in CASE["fetched"]:
            assert request.url == f"http://example.com{href}"
        else:
            assert not request.url.startswith("http://example.com/")


def test_query_in_the_pages_encoding_path_in_utf8() -> None:
    response = page('<a href="/目录?q=中文#节">1</a>', url="http://example.com/", charset="gbk")
    assert response.links() == [Link("http://example.com/%E7%9B%AE%E5%BD%95?q=%D6%D0%CE%C4", "1")]
    assert response.urljoin("/目录?q=中文") == "http://example.com/%E7%9B%AE%E5%BD%95?q=%D6%D0%CE%C4"
    assert response.follow("?q=中文").url == "http://example.com/?q=%D6%D0%CE%C4"


@pytest.mark.parametrize("charset", ["shift_jis", "euc-kr", "big5", "windows-1251", "utf-16le", "koi8-u"])
def test_every_page_encoding_can_write_a_query(charset: str) -> None:
    response = Response(url="http://example.com/", status_code=200, content=b"", encoding=charset)
    assert response.urljoin("?q=é~").startswith("http://example.com/?q=")


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("<base href=/b/>", "http://example.com/b/"),
        ("<BASE HREF='//other.example/x/y'>", "http://other.example/x/y"),
        ("<base target=_blank><base href=c/><base href=d/>", "http://example.com/a/c/"),
        ("<!-- <base href=/no/> -->", "http://example.com/a/b.html"),
        ("<script>'<base href=/no/>'</script>", "http://example.com/a/b.html"),
        ("<base href='http://[bad'>", "http://example.com/a/b.html"),
        ("<base>", "http://example.com/a/b.html"),
        (f"<style>{'/* */' * 2000}</style><base href=/late/>", "http://example.com/late/"),
    ],
)
def test_base_href(head: str, base: str) -> None:
    response = page(f"<html><head>{head}</head><a href=x>1</a>")
    assert response.base_url == base
    assert response.urljoin("") == base


def test_base_href_is_for_html_only() -> None:
    response = Response(
        url="http://example.com/",
        status_code=200,
        content=b'{"a": "<base href=/no/>"}',
        headers={"Content-Type": "application/json"},
    )
    assert response.urljoin("x") == "http://example.com/x"
    assert response.links() == []


def test_urljoin_raises_for_what_makes_no_url() -> None:
    with pytest.raises(InvalidUrlError):
        page("").urljoin("http://[b]bold[/b]/y")


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_links_are_told_apart_by_page_not_by_spelling(engine: str) -> None:
    html = (
        "<a href='/p?b=2&a=1'> One\n <b>more</b></a><a href='/p?a=1&b=2#x'>same</a><a href='./../p?a=1&b=2'>same</a>"
        "<area href=/q rel='NoFollow x'><a>none</a><link href=/style.css><a href='https://other.example/p'>o</a>"
    )
    assert page(html, engine=engine).links() == [
        Link("http://example.com/p?b=2&a=1", "One more"),
        Link("http://example.com/q", "", True),
        Link("https://other.example/p", "o"),
    ]


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({"allow": r"/item/\d+"}, ["/item/1", "/item/2"]),
        ({"allow": [r"/item/1", r"/list"]}, ["/list", "/item/1"]),
        ({"deny": "item"}, ["/list", "//other.example/x"]),
        ({"same_host": True, "deny": ["2"]}, ["/list", "/item/1"]),
        ({"css": "ul"}, ["/item/1", "/item/2"]),
        ({"css": "a.o"}, ["//other.example/x"]),
        ({"css": "nav"}, []),
    ],
)
def test_links_can_be_chosen(options: dict[str, Any], paths: list[str]) -> None:
    html = "<a href=/list>l</a><ul><li><a href=/item/1>1</a><li><a href=/item/2>2</a></ul><a class=o href=//other.example/x>"
    found = [link.url for link in page(html).links(**options)]
    assert found == [page("").urljoin(path) for path in paths]


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_follow_all(engine: str) -> None:
    response = page(
        "<a href=1>1</a><a name=n>no</a><a href=2>2</a><p><a href='mailto:x'>m</a></p>", engine=engine
    )
    expected = ["http://example.com/a/1", "http://example.com/a/2", "mailto:x"]
    assert [request.url for request in response.follow_all(css="a")] == expected
    assert [request.url for request in response.follow_all(xpath="//a/@href")] == expected
    assert [
        request.url for request in response.follow_all(response.css("a::attr(href)"), callback="x")
    ] == expected
    assert [request.url for request in response.follow_all(["1", Link("http://example.com/z")])] == [
        expected[0],
        "http://example.com/z",
    ]
    assert [request.callback for request in response.follow_all(css="p a", callback="next")] == ["next"]


def test_follow_says_what_it_can_take() -> None:
    response = page("<p>x</p><a>y</a>")
    for target, message in (
        (response.css("p")[0], "no link"),
        (response.css("a")[0], "no href"),
        (response.css("p"), "follow_all"),
        (None, "follow_all"),
        (5, "follow_all"),
    ):
        with pytest.raises(RequestError, match=message):
            response.follow(target)
    with pytest.raises(ResponseError, match="one of the three"):
        list(response.follow_all())
    with pytest.raises(ResponseError, match="one of the three"):
        list(response.follow_all(css="a", xpath="//a"))


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
def test_an_atom_link_element_can_be_followed(engine: str) -> None:
    response = Response(
        url="http://example.com/feed",
        status_code=200,
        content=b'<feed xmlns="http://www.w3.org/2005/Atom"><link href="/2"/></feed>',
        headers={"Content-Type": "application/atom+xml"},
    )
    response.engine = engine
    [link] = response.xpath("//*[local-name()='link']")
    assert response.follow(link).url == "http://example.com/2"


PAGE = "http://example.com/a/b.html"
ENGINES = pytest.mark.parametrize("engine", ["turbohtml", "parsel"])


@ENGINES
@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("<base href='data:text/html,x'>", PAGE),
        ("<base href='javascript:void(0)'>", PAGE),
        ("<base href=' &#9;JavaScript:1'>", PAGE),
        ("<base href='data:x'><base href=/no/>", PAGE),
        ("<base href=''>", PAGE),
        ("<bASE HREF=/b/>", "http://example.com/b/"),
        ("<base href=//other.org/x/>", "http://other.org/x/"),
        ("</head><body><p><base href=/late/>", "http://example.com/late/"),
        ("<svg><base href=/no/></base></svg><base href=/b/>", "http://example.com/b/"),
        ("<math><base href=/no/></base></math>", PAGE),
        ("<template><base href=/no/></template>", PAGE),
    ],
)
def test_a_base_is_the_documents_first_and_no_script_or_data_hp_10(engine: str, head: str, base: str) -> None:
    """case HP-10: the frozen base URL of the HTML standard."""
    response = page(f"{head}<a href=next.html>n</a><a href=/abs>a</a>", engine=engine)
    assert response.base_url == base
    expected = [response.urljoin("next.html"), response.urljoin("/abs")]
    assert [link.url for link in response.links()] == expected
    assert [request.url for request in response.follow_all(css="a")] == expected
    assert all(url.startswith("http") for url in expected)


@ENGINES
@pytest.mark.parametrize("base", ["about:blank", "mailto:x@y", "blob:http://h/1", "file:///x/", "ftp://f/"])
def test_a_base_that_nothing_can_be_fetched_from_loses_the_relative_links_only_hp_10(
    engine: str, base: str
) -> None:
    """case HP-10: as the HTML standard has it."""
    response = page(f"<base href='{base}'><a href=next.html>n</a><a href=http://o.org/z>z</a>", engine=engine)
    assert [link.url for link in response.links()] == ["http://o.org/z"]


@ENGINES
def test_links_of_svg_maps_hp_17(engine: str) -> None:
    """case HP-17: `href`, else `xlink:href`; which means nothing outside of SVG."""
    response = page(
        "<svg><a xlink:href=/r1><text>R1</text></a><A XLINK:HREF=/r2></A><a href=/r3 xlink:href=/no></a><a></a>"
        "<a href='' xlink:href=/no></a></svg><a href=/r4>R4</a><a xlink:href=/no>-</a>",
        engine=engine,
    )
    found = [
        "http://example.com/r1",
        "http://example.com/r2",
        "http://example.com/r3",
        PAGE,
        "http://example.com/r4",
    ]
    assert [link.url for link in response.links()] == found
    assert response.links()[0].text == "R1"
    assert [link.url for link in response.links(css="svg")] == found[:4]
    assert [request.url for request in response.follow_all(css="a")] == found
    assert response.follow(response.css("a")[0]).url == found[0]


@ENGINES
@pytest.mark.parametrize(
    ("body", "links"),
    [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:l="http://www.w3.org/1999/xlink"><a l:href="/s1"/><a href="s2"/></svg>',
            ["http://example.com/s1", "http://example.com/a/s2"],
        ),
        (
            '<html xmlns="http://www.w3.org/1999/xhtml"><head><base href="/b/"/></head><body><a href="x"/></body></html>',
            ["http://example.com/b/x"],
        ),
        ('<h:html xmlns:h="http://www.w3.org/1999/xhtml"><h:base href="/b/"/><h:area href="x"/></h:html>', ["http://example.com/b/x"]),
        ('<feed><base href="/no/"/><a href="x"/><link href="/no"/></feed>', ["http://example.com/a/x"]),
    ],
)  # fmt: skip
def test_links_of_svg_and_xhtml_as_xml_hp_17(engine: str, body: str, links: list) -> None:
    """case HP-17: the same documents under an XML type, where elements have namespaces."""
    response = Response(
        url=PAGE, status_code=200, content=body.encode(), headers={"content-type": "text/xml"}
    )
    response.engine = engine
    assert [link.url for link in response.links()] == links
    assert [request.url for request in response.follow_all(xpath="//*[local-name()='a']")] == [
        url for url in links if "area" not in body
    ]
