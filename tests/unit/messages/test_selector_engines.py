"""Each selector engine by itself: odd pages, regular expressions, the interface of parsel, loading, docs."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cssselect
import parsel
import pytest

from netspy.errors import ConfigError, ResponseError
from netspy.messages.selectors import Selector, SelectorList

DATA = Path(__file__).parents[2] / "data"
ENGINES = ["turbohtml", "parsel"]


@pytest.mark.parametrize("engine", ENGINES)
class TestEngine:
    def test_nul_and_control_characters_cut_nothing(self, engine: str) -> None:
        page = Selector(text="<p>a\0b</p><h1>t</h1>", engine=engine)
        assert (page.css("p::text").get(), page.css("h1::text").get()) == ("ab", "t")
        assert Selector(text='<link href="/x\x001.css"><a href="/ok">l</a>', engine=engine).css(
            "a::attr(href)"
        ).getall() == ["/ok"]
        assert Selector(text="<p>a\x0bb</p><h1>t</h1>", engine=engine).css("h1::text").get() == "t"

    def test_a_lone_surrogate_spoils_nothing_and_can_be_stored(self, engine: str) -> None:
        page = Selector(text="<p>\ud83d</p><h1>t</h1>", engine=engine)
        assert page.css("h1::text").get() == "t"
        assert page.css("p::text").get() == "\ufffd"

    def test_json_in_a_script_comes_out_whole(self, engine: str) -> None:
        page = Selector(text='<script>var d={"size":"9&#34; x 12"};</script><p>id=</p>', engine=engine)
        regex = r"d=({.*?});"
        for found in (
            page.css("script::text").re_first(regex),
            page.css("script::text").re(regex)[0],
            page.css("script").re_first(regex),
            page.css("script").re(regex)[0],
            page.xpath("//script/text()").re_first(regex),
            page.xpath("//*[contains(text(),'var')]/text()").re_first(regex),
            page.xpath("//script")[0].xpath("text()")[0].re_first(regex),
            page.re_first(regex),
        ):
            assert json.loads(found) == {"size": "9&#34; x 12"}

    def test_re_takes_defaults_and_optional_groups(self, engine: str) -> None:
        page = Selector(text="<script>x</script><p>id=</p>", engine=engine)
        assert page.css("p::text").re_first(r"id=(\d+)?", "D") == ""
        assert page.css("p::text").re_first(r"nope", "D") == "D"
        assert page.css("b::text").re_first(r"x", "D") == "D"
        assert page.css("b::text").re_first(r"x") is None

    @pytest.mark.parametrize(
        ("query", "regex", "options"),
        [
            ("p::text", r"\w+", {}),
            ("p::text", r"(\w)(\w)", {}),
            ("p::text", r"(?P<extract>o)", {}),
            ("p::text", r"(?P<extract>q)?", {}),
            ("p", r"<p>(.*?)</p>", {}),
            ("p", r"<p>(.*?)</p>", {"replace_entities": False}),
            ("i::text", r".+", {}),
            ("i::text", r".+", {"replace_entities": False}),
            ("a::attr(href)", r"[?].*", {}),
        ],
    )
    def test_re_is_parsels(self, engine: str, query: str, regex: str, options: dict[str, Any]) -> None:
        html = "<p>one two</p><p>x &lt; &eacute; &amp; &quot;</p><i>&amp;eacute; &amp;lt;</i><a href='?a=1&amp;copy=2'></a>"
        expected = parsel.Selector(text=html).css(query)
        if query == "p":
            expected = parsel.Selector(text=html).css(query)
            html_of = Selector(text=html, engine=engine).css(query)
            assert html_of.re(regex, **options)[0] == expected.re(regex, **options)[0]
            return
        found = Selector(text=html, engine=engine).css(query)
        assert found.re(regex, **options) == expected.re(regex, **options)
        assert found.re_first(regex, "D", **options) == expected.re_first(regex, "D", **options)

    def test_has(self, engine: str) -> None:
        """Case SEL-04."""
        case = json.loads((DATA / "cases/has.json").read_text("utf-8"))
        page = Selector(text=case["html"], engine=engine)
        for query in case["queries"]:
            assert [div.attrib["class"] for div in page.css(query["css"])] == query["classes"]

    def test_the_interface_of_parsel(self, engine: str) -> None:
        page = Selector(text=(DATA / "html/tidy.html").read_text("utf-8"), engine=engine)
        cards = page.css("div.card")
        assert isinstance(page, Selector)
        assert isinstance(cards, SelectorList)
        assert len(cards) == 3
        assert [card.css("h2 a::text").get() for card in cards] == cards.css("h2 a::text").getall()
        assert cards[1].attrib == {"class": "card", "data-id": "2"}
        assert cards.attrib["data-id"] == "1"
        assert cards[1:].css("::attr(data-id)").extract() == ["2", "3"]
        assert cards[-1].xpath("./h2/a/@href").extract_first() == "https://other.example/3"
        assert cards[0] is cards[0]
        assert cards.xpath(".//em/text()").getall() == ["fast", "one"]
        assert cards.xpath("@data-id").getall() == ["1", "2", "3"]
        assert page.css("nothing").get() is None
        assert page.css("nothing").get(default="d") == "d"
        assert page.css("nothing").attrib == {}
        assert page.css("nothing") == []
        assert not page.css("nothing")
        assert page.css("title")
        assert page.css("li").getall()[0].startswith("<li><a ")
        assert page.css("title::text")[0].getall() == ["Kettles & more"]
        assert str(page.css("title::text")[0]) == "Kettles & more"
        assert bool(page.css("title::text")[0])
        assert "query=" in repr(page.css("title")[0])
        assert page.xpath("//li[. = $name]/@class", name="Kettles").getall() == ["on"]
        assert page.xpath("//li[$n]/a/text()", n=3).getall() == ["Pans"]
        assert page.css("em::text")[0].xpath(".").getall() == ["fast"]
        assert page.css("em::text").css("p").getall() == []
        assert len(page.css("em") + page.css("b")) == 5
        assert page.css("em::text")[0].attrib == {}

    def test_numbers_and_booleans_are_parsels(self, engine: str) -> None:
        page = Selector(text="<b>1<b>2", engine=engine)
        assert page.xpath("count(//b)").get() == "2.0"
        assert page.xpath("count(//b)")[0].root == 2.0
        assert page.xpath("boolean(//b)").getall() == ["1"]
        assert page.xpath("boolean(//i)").get() == "0"

    def test_dropped_elements_are_gone_and_their_tail_stays(self, engine: str) -> None:
        page = Selector(text="<p>a<b>x</b>t</p><ul><li>1<li>2</ul>", engine=engine)
        assert page.css("b").get() == "<b>x</b>"
        page.css("b").drop()
        page.css("li")[0].drop()
        assert page.css("b").get() is None
        assert page.xpath("string(//p)").get() == "at"
        assert page.css("li::text").getall() == ["2"]

    def test_json_inside_a_page_answers_jmespath(self, engine: str) -> None:
        page = Selector(
            text='<script>{"a": [{"b": 1}, {"b": "x"}]}</script><i data-j=\'{"k": [1]}\'>', engine=engine
        )
        assert page.css("script::text").jmespath("a[].b").getall() == [1, "x"]
        assert page.css("script").jmespath("a[1].b").get() == "x"
        assert page.css("i::attr(data-j)")[0].jmespath("k").getall() == [1]
        assert page.css("title::text").jmespath("a").getall() == []

    def test_bad_selectors_name_themselves(self, engine: str) -> None:
        page = Selector(text="<p>", engine=engine)
        with pytest.raises(ValueError, match=r"//p\["):
            page.xpath("//p[")
        with pytest.raises(ValueError, match="unknown-function"):
            page.xpath("unknown-function(//p)").get()
        with pytest.raises(cssselect.SelectorError):
            page.css("p[")
        with pytest.raises(cssselect.SelectorError):
            page.css("p::first-line")

    def test_what_a_selector_holds_cant_be_pickled_by_accident(self, engine: str) -> None:
        with pytest.raises(TypeError):
            pickle.dumps(Selector(text="<p>", engine=engine))

    def test_an_empty_document_is_no_error(self, engine: str) -> None:
        assert Selector(text="", type="html", engine=engine).css("p").getall() == []
        assert Selector(text="  ", engine=engine).xpath("//p/text()").get() is None

    def test_xml_keeps_its_names(self, engine: str) -> None:
        feed = Selector(
            text='<?xml version="1.0" encoding="GBK"?><r><pubDate>x</pubDate><link>u</link></r>',
            engine=engine,
        )
        assert feed.type == "xml"
        assert feed.css("pubDate::text").get() == "x"
        assert feed.xpath("//link/text()").get() == "u"

    def test_json_documents(self, engine: str) -> None:
        assert Selector(text='{"a": [1, 2]}', engine=engine).jmespath("a[1]").get() == 2
        assert Selector(text="[1] is no JSON <p>x", engine=engine).css("p::text").get() == "x"


def test_svg_in_lxmls_spelling_is_found() -> None:
    page = Selector(text="<svg viewBox='0 0 1 1'><clipPath id=c></clipPath></svg>")
    assert page.xpath("//clippath/@id").getall() == page.xpath("//clipPath/@id").getall() == ["c"]
    assert page.xpath("//svg/@viewbox").getall() == page.css("svg::attr(viewBox)").getall() == ["0 0 1 1"]
    assert page.css("clipPath::attr(id)").get() == "c"


def test_prefixes_can_be_given_or_registered() -> None:
    page = Selector(text="<svg><path d=x /></svg>")
    svg = {"s": "http://www.w3.org/2000/svg"}
    assert page.xpath("//s:path/@d", namespaces=svg).getall() == ["x"]
    page.register_namespace("s", svg["s"])
    assert page.css("svg")[0].xpath("s:path/@d").getall() == ["x"]


def test_only_elements_can_be_dropped() -> None:
    page = Selector(text="<p>x</p>")
    with pytest.raises(ResponseError, match="li::text"):
        page.css("p::text").drop()
    [paragraph] = page.css("p")
    paragraph.drop()
    with pytest.raises(ResponseError, match="no parent"):
        paragraph.drop()


def test_text_is_in_document_order_where_elements_lie_in_each_other() -> None:
    page = Selector(text="<div><div>b</div>c<div>d</div></div>")
    assert page.css("div::text").getall() == ["b", "c", "d"]
    assert page.css("div::text").get() == "b"
    assert page.xpath("//div/text()").get() == "b"


def test_an_engine_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="lxml"):
        Selector(text="<p>", engine="lxml")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="yaml"):
        Selector(text="<p>", type="yaml")
    with pytest.raises(TypeError, match="text of a document"):
        Selector(text=b"<p>")  # type: ignore[arg-type]


def test_loading_messages_loads_no_parser() -> None:
    code = (
        "import sys, netspy.messages.response, netspy.messages.selectors\n"
        "print(sorted({'lxml', 'parsel', 'turbohtml', 'cssselect', 'w3lib', 'bs4'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_plain_html_needs_no_lxml() -> None:
    code = (
        "import sys\n"
        "from netspy.messages.selectors import Selector\n"
        "page = Selector(text='<p class=a>x<b>y</b>')\n"
        "assert page.css('p.a ::text').getall() == ['x', 'y'] and page.css('p:has(b)').re_first('x') == 'x'\n"
        "print(sorted({'lxml', 'parsel'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("page", ["selectors.md", "zh/selectors.md"])
def test_the_docs_examples_are_true(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text("utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    exec(compile(code, page, "exec"), {})
