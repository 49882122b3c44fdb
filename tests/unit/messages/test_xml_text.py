"""A reference that XML doesn't allow costs its character at most, in text and attributes, in whatever reads XML."""

from typing import Any

import pytest

from netspy.messages.response import Response
from netspy.messages.selectors import Selector
from netspy.messages.xml_text import with_good_references

REFERENCES = {
    "&#xD83D;&#xDE00;": "😀",
    "&#55357;&#56832;": "😀",
    "&#xd83d;&#56832;": "😀",
    "&#x0000D83D;&#x0DE00;": "😀",
    "&#xD83D;&#xDE00;&#xD83D;&#xDE01;": "😀😁",
    "&#xD83D;": "\ufffd",
    "&#xDE00;&#xD83D;": "\ufffd\ufffd",
    "&#xD83D;&#xD83D;&#xDE00;": "\ufffd😀",
    "&#xD83D;x&#xDE00;": "\ufffdx\ufffd",
    "&#xD83D;&amp;&#xDE00;": "\ufffd&\ufffd",
    "&#xD83D;&#65;": "\ufffdA",
    "&#0;": "\ufffd",
    "&#x0;": "\ufffd",
    "&#x1;": "\ufffd",
    "&#31;": "\ufffd",
    "&#xFFFE;": "\ufffd",
    "&#65535;": "\ufffd",
    "&#x110000;": "\ufffd",
    "&#99999999999999999999;": "\ufffd",
    "&#xFFFFFFFFFFFFFFFFFFFF;": "\ufffd",
    "&#9;": "\t",
    "&#x1F600;": "😀",
    "&#65;&#x42;": "AB",
    "&#60;b&#62;": "<b>",
    "&#38;lt;": "&lt;",
    "&lt;&gt;&amp;&quot;&apos;": "<>&\"'",
    "&amp;#xD83D;": "&#xD83D;",
    "&#X41;": "A",
    "&#65 ": "A ",
    "&#;": "&#;",
    "&#x;": "&#x;",
    "&#xZZ;": "&#xZZ;",
    "&#-1;": "&#-1;",
    "AT&T": "AT&T",
    "a & b": "a & b",
    "?a=1&b=2&copy=3": "?a=1&b=2&copy=3",
    "&": "&",
    "&;": "&;",
    "&nbsp;": "\xa0",
    "&eacute;&euro;": "é€",
    "&LT;": "<",
    "&nosuchname;": "&nosuchname;",
}


def feed(template: str, reference: str, **options: Any) -> Response:
    body = template.format(reference).encode()
    return Response(
        url="u", status_code=200, content=body, headers={"Content-Type": "application/rss+xml"}, **options
    )


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
@pytest.mark.parametrize("reference", REFERENCES)
def test_hp14_a_bad_reference_costs_its_character(reference: str, engine: Any) -> None:
    meant = REFERENCES[reference]
    response = feed(
        "<rss><item a='1{0}2'><title>Sale {0}!</title></item><title>second</title></rss>", reference
    )
    response.engine = engine
    assert response.xpath("//title/text()").getall() == [f"Sale {meant}!", "second"]
    assert response.css("title::text").getall() == [f"Sale {meant}!", "second"]
    assert response.xpath("//@a").get() == f"1{meant}2"
    assert response.css("item").attrib == {"a": f"1{meant}2"}
    assert "second" in response.xpath("//rss").get()


@pytest.mark.parametrize("reference", ["&#xD83D;&#xDE00;", "&#xD83D;", "&nbsp;", "AT&T", "&#0;"])
def test_hp14_selectors_made_by_hand_and_beautiful_soup_read_the_same(reference: str) -> None:
    xml = f"<?xml version='1.0'?><a><b>{reference}</b><b>second</b></a>"
    wanted = [REFERENCES[reference], "second"]
    assert Selector(text=xml, type="xml").xpath("//b/text()").getall() == wanted
    pytest.importorskip("bs4")
    assert [b.string for b in feed("{}", xml).bs4.find_all("b")] == wanted


@pytest.mark.parametrize(
    "untouched",
    [
        "<![CDATA[&#xD83D; AT&T &nbsp;]]>",
        "<!-- &#xD83D; AT&T -->",
        "<?pi &#xD83D; AT&T?>",
        "<![CDATA[<!-- &#0; ]]>",
        "<!-- <![CDATA[ &#0; -->",
        "<![CDATA[&#xD83D;",
        "&amp;&lt;&#233;".replace("&#233;", "é"),
        "no reference at all",
    ],
)
def test_where_nothing_is_a_reference_nothing_changes(untouched: str) -> None:
    assert with_good_references(f"<a>{untouched}</a>") == f"<a>{untouched}</a>"
    assert with_good_references(f"{untouched}AT&T") in (f"{untouched}AT&amp;T", f"{untouched}AT&T")


def test_entities_that_the_document_declares_keep_their_meaning() -> None:
    xml = "<!DOCTYPE a [<!ENTITY nbsp 'own &#xD83D;&#xDE00;'>]><a>&nbsp; &#xD83D; AT&T</a>"
    repaired = with_good_references(xml)
    assert repaired == "<!DOCTYPE a [<!ENTITY nbsp 'own &#128512;'>]><a>&nbsp; &#65533; AT&amp;T</a>"


@pytest.mark.parametrize("part", ["<![CDATA[", "<!--", "<?", "&", "&#", "&#xD83D;", "&a", "&a.", "&#1"])
def test_a_hostile_feed_takes_no_long_time(part: str) -> None:
    """A pattern that looks at the rest of the document for each of these would take minutes."""
    assert with_good_references(part * 100_000)
