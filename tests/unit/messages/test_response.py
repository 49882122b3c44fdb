"""What can be read from a response, and what must not be misread."""

import re
import sys
from datetime import timedelta
from typing import Any

import pytest

from netspy.errors import MissingExtraError, ResponseError
from netspy.messages.headers import Headers
from netspy.messages.request import Request
from netspy.messages.response import Response

ATOM = b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><title>t</title><link href="http://example.com/2"/></entry></feed>'
RSS = (
    '<?xml version="1.0" encoding="GBK"?><rss version="2.0"><channel><item><title>标题</title>'
    "<link>http://example.com/1</link><pubDate>x</pubDate></item></channel></rss>"
).encode("gbk")
XHTML = (
    '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>中</p></body></html>'
).encode()


def respond(content: bytes | str = b"", content_type: str | None = "text/html", **more: Any) -> Response:
    body = content.encode() if isinstance(content, str) else content
    headers = {} if content_type is None else {"Content-Type": content_type}
    return Response(url="http://example.com/a/b", status_code=200, content=body, headers=headers, **more)


def test_the_documented_attributes() -> None:
    request = Request("http://example.com/")
    response = Response(
        url="http://example.com/",
        status_code=404,
        content=b"x",
        headers={"X-A": "1"},
        cookies={"c": "1"},
        request=request,
        elapsed=timedelta(milliseconds=250),
        history=[],
    )
    assert (response.status_code, response.status, response.ok) == (404, 404, False)
    assert (response.content, response.body, response.text) == (b"x", b"x", "x")
    assert (response.elapsed, response.cookies, response.history) == (0.25, {"c": "1"}, [])
    assert response.request is request
    assert repr(response) == "<404 http://example.com/>"
    assert Response(url="u", status_code=302).ok


def test_headers_have_no_case_and_keep_every_value() -> None:
    headers = Headers(
        [
            ("X-One", "1"),
            ("Set-Cookie", "a=1; Path=/"),
            ("set-cookie", "b=2"),
            (b"ACCEPT", b"x"),
            ("Accept", "y"),
        ]
    )
    assert list(headers) == ["x-one", "set-cookie", "accept"]
    assert headers["X-ONE"] == "1"
    assert headers.get("accept") == "x, y"
    assert headers["Set-Cookie"] == "a=1; Path=/"
    assert headers.get_all("SET-cookie") == headers.getlist("set-cookie") == ["a=1; Path=/", "b=2"]
    assert headers.get_all("none") == []
    assert "x-One" in headers
    assert "y" not in headers
    assert 1 not in headers
    assert headers == Headers(headers) == Headers(iter(headers.multi_items()))
    assert Headers({"A": ["1", "2"]}).get_all("a") == ["1", "2"]
    assert Headers({"A": "1"}) == {"a": "1"}
    assert Headers({"A": "1"}) != 1
    assert Headers().get("a") is None
    assert len(Headers(None)) == 0
    with pytest.raises(KeyError):
        headers["none"]


def test_cookies_come_from_the_headers_when_none_are_given() -> None:
    response = Response(
        url="u",
        status_code=200,
        headers=[("Set-Cookie", 'a="1"; Path=/'), ("Set-Cookie", "b=x=y"), ("Set-Cookie", "odd")],
    )
    assert response.cookies == {"a": "1", "b": "x=y"}


def test_headers_set_anew_are_believed() -> None:
    response = respond("<p>中".encode("gbk"), "text/html; charset=gbk")
    assert response.css("p::text").get() == "中"
    response.headers = {"content-type": "text/html; charset=big5", "set-cookie": "a=1"}
    assert response.encoding == "big5"
    assert response.cookies == {"a": "1"}


def test_the_requests_encoding_wins_over_the_header_and_the_responses_own_over_both() -> None:
    body = "<p>①".encode("cp932")
    request = Request("http://example.com/", encoding="shift_jis")
    response = respond(body, "text/html; charset=utf-8", request=request)
    assert response.css("p::text").get() == "①"
    response.encoding = "utf-8"
    assert "\ufffd" in response.text
    response.encoding = None
    assert response.text == "<p>①"


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
class TestXml:
    def test_rss_is_read_as_xml_in_its_declared_encoding(self, engine: str) -> None:
        response = respond(RSS, "application/rss+xml")
        response.engine = engine
        assert response.xpath("//link/text()").getall() == ["http://example.com/1"]
        assert response.xpath("//title/text()").getall() == ["标题"]
        assert response.css("pubDate").getall() == ["<pubDate>x</pubDate>"]

    def test_a_default_namespace_is_no_dead_end(self, engine: str) -> None:
        response = respond(ATOM, "application/atom+xml; charset=utf-8")
        response.engine = engine
        atom = {"a": "http://www.w3.org/2005/Atom"}
        assert response.xpath("//a:title/text()", namespaces=atom).getall() == ["t"]
        response.selector.remove_namespaces()
        assert response.css("entry title::text").getall() == ["t"]
        assert response.xpath("//link/@href").get() == "http://example.com/2"

    def test_xhtml_served_as_html_or_xhtml_is_read_as_html(self, engine: str) -> None:
        for content_type in ("text/html", "application/xhtml+xml"):
            response = respond(XHTML, content_type)
            response.engine = engine
            assert response.css("p::text").get() == "中"
            response.selector.remove_namespaces()
            assert response.xpath("//p/text()").get() == "中"

    def test_external_entities_are_not_fetched(self, engine: str) -> None:
        body = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
        response = respond(body, "text/xml")
        response.engine = engine
        assert "root" not in response.css("a").get()


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        (None, b"<?xml version='1.0'?><r/>", "xml"),
        ("application/octet-stream", b"<?xml version='1.0'?><r/>", "xml"),
        (None, XHTML, "html"),
        ("text/html", b"<?xml version='1.0'?><r/>", "html"),
        ("application/json", b"<html>down for maintenance", "html"),
        ("application/json", b"", "json"),
        (None, b"", "html"),
    ],
)
def test_kind(content_type: str | None, body: bytes, kind: str) -> None:
    assert respond(body, content_type).kind == kind


@pytest.mark.parametrize(
    ("body", "content_type", "value"),
    [
        (b'{"a": 1}', "text/html", {"a": 1}),
        (b'\xef\xbb\xbf{"a":1}', "application/json", {"a": 1}),
        (b"[NaN]", None, None),
        (b'"\\ud83d"', None, "\ud83d"),
        (b"123456789012345678901234567890", None, 123456789012345678901234567890),
        (b"1.5e3", None, 1500.0),
        ('{"a": "中"}'.encode("utf-16"), "application/json", {"a": "中"}),
        ('{"a": "é"}'.encode("latin-1"), "application/json; charset=latin1", {"a": "é"}),
    ],
)
def test_json(body: bytes, content_type: str | None, value: Any) -> None:
    found = respond(body, content_type).json()
    assert found == value or (found[0] != found[0] and value is None)


def test_json_in_an_encoding_set_by_hand() -> None:
    # Valid UTF-8 as well, by chance; what the user says counts.
    assert respond(b'{"a": "\xc3\xa9"}', "application/json", encoding="gbk").json() == {"a": "茅"}


def test_what_is_not_json_says_where_and_what() -> None:
    with pytest.raises(ResponseError, match=r"http://example.com/a/b is not JSON.*<html>"):
        respond("<html>").json()


def test_selectors_on_json() -> None:
    response = respond('{"rows": [{"n": 1}, {"n": "x"}]}', "application/json")
    assert response.jmespath("rows[].n").getall() == [1, "x"]
    assert response.selector.jmespath("rows[0]").get() == {"n": 1}
    assert response.re_first(r'"n": (\d)') == "1"
    with pytest.raises(ResponseError, match="jmespath"):
        response.css("p")
    with pytest.raises(ResponseError, match="is not JSON"):
        respond("<p>").jmespath("a")


def test_re_on_the_page_leaves_scripts_alone_and_decodes_the_rest() -> None:
    response = respond('<script>var d={"size":"9&#34; x 12"};</script><p>a &#34;b&#34;</p>')
    assert response.re_first(r"d=({.*?});") == '{"size":"9&#34; x 12"}'
    assert response.re(r"<p>(.*?)</p>") == ['a "b"']
    assert response.re(r"<p>(.*?)</p>", replace_entities=False) == ["a &#34;b&#34;"]
    assert response.re_first("nothing", "D") == "D"
    assert respond('{"a": "&quot;"}', "application/json").re(r'"a": "(.*?)"') == ["&quot;"]


def test_the_engine_can_be_chosen() -> None:
    response = respond("<table><tr><td>1")
    response.engine = "parsel"
    assert response.xpath("//tbody").getall() == []
    assert respond("<table><tr><td>1").css("tbody").get() is not None


def test_the_document_is_parsed_once() -> None:
    response = respond("<p>x")
    assert response.selector is response.selector
    response.css("p").drop()
    assert response.css("p").get() is None


def test_a_response_survives_the_trip_through_its_dict() -> None:
    first = Response(url="http://example.com/0", status_code=302, headers={"Location": "/a"})
    response = Response(
        url="http://example.com/a",
        status_code=200,
        content=bytes(range(256)),
        headers=[("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X", "y")],
        encoding="gbk",
        elapsed=0.5,
        history=[first],
    )
    copy = Response.from_dict(response.to_dict())
    for name in ("url", "status_code", "content", "headers", "cookies", "encoding", "elapsed"):
        assert getattr(copy, name) == getattr(response, name)
    assert copy.headers.get_all("set-cookie") == ["a=1", "b=2"]
    assert copy.history[0].headers["location"] == "/a"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"url": "u"},
        {"url": "u", "status_code": 200, "content_b64": "?"},
        {"url": "u", "status_code": "x"},
    ],
)
def test_a_dict_that_is_no_response_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ResponseError, match="not a response"):
        Response.from_dict(data)


def test_bs4_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bs4", None)  # as if it weren't installed
    with pytest.raises(MissingExtraError, match=re.escape("pip install '.[bs4]'")):
        _ = respond("<p>").bs4


def test_bs4() -> None:
    assert respond("<p>x").bs4.p.text == "x"
