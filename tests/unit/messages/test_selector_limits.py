"""Pages that are made to be large, deep or hidden: found whole, or refused with a reason; never in part."""

import resource

import pytest

from netspy.errors import ResponseError
from netspy.messages.response import Response
from netspy.messages.selectors import Selector, parsed
from netspy.messages.selectors.size import MAX_NODES, Doubt, doubt
from netspy.settings import Settings

ENGINES = ["turbohtml", "parsel"]
FONTS = "".join(f"<p><font size={i}>w" for i in range(10_000))


def page(text: str, *, max_tree_nodes: int = MAX_NODES) -> Response:
    response = Response(url="http://a.example/", status_code=200, content=text.encode())
    response.max_tree_nodes = max_tree_nodes
    return response


class TestDepth:
    """Case HV-04."""

    @pytest.mark.parametrize("levels", [100, 509, 510, 512, 600, 2000])
    @pytest.mark.parametrize("engine", ENGINES)
    def test_what_lies_deep_is_found(self, engine: str, levels: int) -> None:
        """Case HV-04."""
        text = "<div>" * levels + "<b id=x>deep</b>" + "</div>" * levels + "<i>after</i>"
        for selector in (Selector(text=text, engine=engine), parsed(text, engine, "html")):  # type: ignore[arg-type]
            assert selector.css("b::text").getall() == selector.xpath("//b/text()").getall() == ["deep"]
            assert selector.css("#x").attrib == {"id": "x"}
            assert selector.css("i::text").getall() == ["after"]
            assert len(selector.css("div")) == levels

    @pytest.mark.parametrize("levels", [2_100, 60_000])
    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("kind", ["html", "xml"])
    def test_what_no_engine_reads_is_an_error_and_never_an_empty_answer(
        self, engine: str, levels: int, kind: str
    ) -> None:
        """Case HV-04."""
        text = "<div>" * levels + "<b>deep</b>" + "</div>" * levels
        with pytest.raises(ResponseError, match="nests more than"):
            Selector(text=text, type=kind, engine=engine)
        with pytest.raises(ResponseError, match="nests more than"):
            parsed(text, engine, kind)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "opening", ["<span>", "<b><i>", "<ul><li>", "<table><tr><td>", "<svg><g>", "<template>", "<x-y>"]
    )
    def test_every_kind_of_nesting_counts(self, opening: str) -> None:
        text = opening * 600 + "<p>deep"
        assert Selector(text=text).css("p::text").getall() == ["deep"]

    def test_many_elements_side_by_side_are_not_deep(self) -> None:
        selector = Selector(text="<div><p>x</p></div>" * 3_000)
        assert selector.css("p::text").getall() == ["x"] * 3_000
        assert type(selector).__name__ == "HtmlSelector"


class TestSize:
    """Case HP-20."""

    @pytest.mark.parametrize(
        "text",
        [
            FONTS,
            FONTS.upper(),
            "</font>" * 10_000 + FONTS,
            FONTS + "</font>" * 10_000,
            "<ul>" + "".join(f"<li><b id={i}>x" for i in range(10_000)),
            "".join(f"<div><i {i}><u {i}><tt {i}></div>" for i in range(5_000)),
            "<p>x</p>" * 300_000 + FONTS,
            "".join(f"<html a{i}>" for i in range(20_000)),
            "".join("<body" + "".join(f" a{i}_{j}" for j in range(2_000)) + ">" for i in range(200)),
        ],
        ids=["font", "FONT", "closed first", "closed last", "li", "several", "plain first", "html", "body"],
    )
    def test_a_small_page_with_a_huge_tree_fails_alone(self, text: str) -> None:
        """Case HP-20: the memory it takes until it fails is bounded."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ResponseError, match="MAX_TREE_NODES=2000000"):
            page(text).css("p")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000

    @pytest.mark.parametrize(
        "text",
        [
            "<p>x<b>y</b>" * 20_000,
            "<table>" + "".join(f"<tr><td><b id={i}>x" for i in range(10_000)),
            "<table>" + "<tr><td><font color=red>x" * 10_000,
            "<p><font color=red>x" * 150,
            "<div><a href=/x>y</a></div>" * 60_000,
            "<b>x<i>y</b>z</i>" * 20_000,
        ],
        ids=["closed", "cells", "alike in cells", "some left open", "links", "misnested"],
    )
    def test_a_large_page_of_the_usual_kind_is_read(self, text: str) -> None:
        assert len(page(text).css("*")) > 150

    def test_the_setting_decides(self) -> None:
        assert Settings().MAX_TREE_NODES == MAX_NODES == page("").max_tree_nodes
        text = "<p>x" * 1_000
        assert len(page(text, max_tree_nodes=3_000).css("p")) == 1_000
        with pytest.raises(ResponseError, match="MAX_TREE_NODES=1500"):
            page(text, max_tree_nodes=1_500).css("p")
        with pytest.raises(ResponseError, match="MAX_TREE_NODES=1500"):
            page(text, max_tree_nodes=1_500).links()
        many = "".join(f"<p><b {i}>w" for i in range(300))
        assert len(page(many, max_tree_nodes=0).css("p")) == 300

    def test_a_page_is_tried_in_parts_that_cannot_leave_the_limit_far_behind(self) -> None:
        def judged(text: str, limit: int) -> Doubt | None:
            return doubt(text, text.count("<"), limit)

        unclosed = "".join(f"<p><b {i}>" for i in range(100))
        assert judged("<p>" * 90, 100_000) is None
        assert judged("<p><b>x</b>" * 3_000, 100_000) is None
        assert judged(unclosed, 0) is None
        found = judged(unclosed + "<p>" * 800, 15_000)
        assert found is not None
        assert not found.hopeless
        parts = [(unclosed + "<p>" * 800)[:end].count("<") for end in found.try_first]
        assert parts == [49 * part for part in range(1, 21)]
        assert judged(unclosed + "<p>" * 10_000, 15_000) == Doubt([], hopeless=True)


class TestHidden:
    SHOP = (
        '<div><shop-card><template shadowrootmode="{mode}"><p class=price>12.50</p><a href="/item/1">more</a>'
        "<template><i>in</i></template></template><b>light</b></shop-card></div>"
    )

    @pytest.mark.parametrize("mode", ["open", "closed"])
    @pytest.mark.parametrize("engine", ENGINES)
    def test_what_the_server_renders_into_a_shadow_root_is_found(self, engine: str, mode: str) -> None:
        """Case HP-11."""
        response = page(self.SHOP.format(mode=mode))
        response.engine = engine  # type: ignore[assignment]
        assert response.css(".price::text").getall() == ["12.50"]
        assert [link.url for link in response.links()] == ["http://a.example/item/1"]
        assert response.xpath("count(//template)").get() == "2.0"
        assert response.css("shop-card > template > p::text").getall() == ["12.50"]
        assert response.css("shop-card > template > p:first-child + a::text").getall() == ["more"]
        assert response.xpath("//template/p/text()").getall() == ["12.50"]
        assert response.xpath("//p/../../b/text()").getall() == ["light"]
        assert response.xpath("//template/template/i/text()").getall() == ["in"]
        assert response.xpath("string(//div)").get() == "12.50moreinlight"
        assert "12.50" in response.css("shop-card").get()

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("v-bind:href", "u"),
            (":href", "w"),
            ("@click", "go"),
            ("xml:lang", "de"),
            ("a.b", "2"),
            ("[x]", "3"),
            ("(y)", "4"),
            ("#r", "5"),
            ("x:y:z", "7"),
            ("data-é", "8"),
            ("1st", "9"),
            ("href", "/z"),
            ("*", None),
            ("data-*", None),
            ("q'u", None),
            ("href | //a", None),
        ],
    )
    def test_an_attribute_is_found_by_any_name(self, engine: str, name: str, value: str | None) -> None:
        """Case HP-35."""
        text = (
            '<a v-bind:href="u" :href="w" @click="go" xml:lang="de" href="/z" a.b=2 [x]=3 (y)=4 #r=5 x:y:z=7 data-é=8'
            ' 1st=9>z</a><svg><use xlink:href="#i1"></use></svg>'
        )
        selector = Selector(text=text, engine=engine)
        expected = [] if value is None else [value]
        assert selector.css(f'a::attr("{name}")').getall() == expected
        assert selector.css("a").css(f'::attr("{name}")').getall() == expected
        assert selector.css(f'div a::attr("{name}"), a::attr("{name}")').getall() == expected
        assert selector.css('use::attr("xlink:href")').getall() == ["#i1"]
