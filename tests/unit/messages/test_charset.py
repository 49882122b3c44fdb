"""The right characters, whatever the server says of them."""

import json
from pathlib import Path

import pytest

from netspy.errors import ResponseError
from netspy.messages import charset
from netspy.messages.charset_labels import _NAMES, known, python_codec, resolve
from netspy.messages.response import Response

CASES = json.loads((Path(__file__).parents[2] / "data/cases/decode.json").read_text("utf-8"))


@pytest.mark.parametrize("engine", ["turbohtml", "parsel"])
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict, engine: str) -> None:
    response = Response(
        url="http://example.com/",
        status_code=200,
        content=bytes.fromhex(case["body_hex"]),
        headers={"Content-Type": case["content_type"]},
        encoding=case.get("set_encoding"),
    )
    response.engine = engine
    expected = case["expected"]
    for query, text in expected.get("text", {}).items():
        assert response.css(query).get() == text
        assert text in response.text
    if "json" in expected:
        assert response.json() == expected["json"]
    if "encoding_family" in expected:
        assert response.encoding in {"gbk", "gb18030"}
    assert expected


def test_an_encoding_set_late_resets_what_was_read_before() -> None:
    body = bytes.fromhex("3c703ed6d0cec4b2e2cad4ffc4a9ceb23c2f703e")
    response = Response(
        url="u", status_code=200, content=body, headers={"Content-Type": "text/html"}, encoding="utf-8"
    )
    assert "\ufffd" in response.css("p::text").get()
    response.encoding = "gbk"
    assert response.css("p::text").get() == "中文测试\ufffd末尾"
    assert response.text == "<p>中文测试\ufffd末尾</p>"


@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        (b"\xef\xbb\xbf<p>x", "text/html; charset=gbk", "utf-8"),  # WHATWG: the mark beats the header
        (b"\xff\xfe<\0p\0", "text/html; charset=utf-8", "utf-16le"),
        (b"\xfe\xff\0<\0p", None, "utf-16be"),
        (b"<meta charset=gbk>", "text/html; charset=big5", "big5"),
        (b"<meta charset=gbk>", "text/html; charset=", "gbk"),
        (b"<meta charset=gbk>", "text/html;charset='Shift_JIS'", "shift_jis"),
        (b"<meta charset=gbk>", 'text/html; x="a"; CharSet = EUC-KR', "euc-kr"),
        (b"<meta charset=gbk>", "text/html; charset=none; charset=big5", "gbk"),  # the first one counts
        (b"<!-- <meta charset=big5> --><META CHARSET = 'gbk' >", None, "gbk"),
        (b"<meta name=x content='a>b'><meta charset=gbk>", None, "gbk"),
        (b"<meta content='text/html; charset=gbk'>", None, "utf-8"),  # no http-equiv: not a declaration
        (b"<meta content='text/html; charset=gbk' http-equiv=content-TYPE>", None, "gbk"),
        (b'<meta name="d" content="it"s"><meta charset=gbk>', None, "gbk"),
        (b"<meta charset=utf-16>", None, "utf-8"),  # readable as ASCII, so it can't be
        (b"<meta charset=x-user-defined>", None, "windows-1252"),
        (b"<meta charset=nonsense><meta charset=gbk>", None, "gbk"),
        (b"<meta charset=gb", None, "utf-8"),  # cut off: `gb` may be half a name
        (b"<metadata charset=gbk>", None, "utf-8"),
        (b'<?xml version="1.0" encoding="GBK"?><a/>', "text/xml", "gbk"),
        (b'\n<?xml version="1.0" encoding="GBK"?><a/>', "text/xml", "gbk"),
        (b'<?xml version="1.0" encoding="GBK"?><a/>', "application/rss+xml; charset=utf-8", "utf-8"),
        (b"<\0?\0x\0m\0l\0", "text/xml", "utf-16le"),
        (b"<meta charset=gbk>", "text/xml", "utf-8"),
        (b"plain ascii", None, "utf-8"),
        (b"", None, "utf-8"),
        (b" " * 1100 + b"<meta charset=gbk>\xd6\xd0\xff", None, "gbk"),  # late, but better than a guess
        ("{'a': 'é'}".encode("utf-16-le"), "application/json", "utf-16-le"),
        (b'{"a": "\xd6\xd0"}', "application/json; charset=gbk", "gbk"),
        ('{"a": "中"}'.encode(), "application/json; charset=gbk", "utf-8"),  # RFC 8259
    ],
)
def test_sources_in_their_order(body: bytes, content_type: str | None, encoding: str) -> None:
    assert charset.detect(body, content_type) == encoding


def test_an_undeclared_gb18030_page_is_found_by_its_bytes() -> None:
    text = "<p>" + "高品质不锈钢保温杯，便携式户外旅行。" * 20
    assert charset.read(text.encode("gb18030"), "text/html")[1] == text


def test_one_broken_place_does_not_make_a_utf8_page_something_else() -> None:
    body = ("標題" * 30).encode() + b"\xe6\x96" + b"<p>abc"
    encoding, text = charset.read(body, "text/html")
    assert encoding == "utf-8"
    assert text == "標題" * 30 + "\ufffd<p>abc"


def test_latin1_without_declaration_is_not_taken_for_utf8() -> None:
    assert charset.read("déjà vu à l'école".encode("latin-1"), "text/plain")[1] == "déjà vu à l'école"


def test_undefined_bytes_of_windows_1252_are_c1_controls() -> None:
    assert charset.decode(b"\x81\x8d\x80", "latin-1") == "\x81\x8d€"


@pytest.mark.parametrize(
    ("body", "encoding", "text"),
    [
        (b"a\xe4\xb8b\xffc", "utf-8", "a\ufffdb\ufffdc"),  # one per malformed sequence
        (b"\xef\xbb\xbfx", "utf-8", "x"),
        (b"\xff\xfex\0", "utf-16", "x"),
        (b"\xd6\xd0", "cp936", "中"),  # not a web label, but Python knows it
        (b"\x80", "gb18030", "€"),
        ("안녕".encode("iso2022_kr"), "iso-2022-kr", "안녕"),
        ("中文".encode("hz"), "hz-gb-2312", "中文"),
    ],
)
def test_decode(body: bytes, encoding: str, text: str) -> None:
    assert charset.decode(body, encoding) == text


@pytest.mark.parametrize("label", ["nonsense", "hex", "", "rot13", "utf8mb4", "a b"])
def test_a_name_that_is_no_encoding_is_refused_with_its_name(label: str) -> None:
    with pytest.raises(ResponseError, match=repr(label)):
        charset.decode(b"x", label)


def test_an_unknown_encoding_set_by_hand_is_not_ignored() -> None:
    response = Response(url="u", status_code=200, content=b"x")
    with pytest.raises(ResponseError, match="utf9"):
        response.encoding = "utf9"


@pytest.mark.parametrize("name", _NAMES)
def test_every_encoding_decodes_and_has_a_python_codec(name: str) -> None:
    assert resolve(name) == name
    assert charset.decode(b"abc", name) or name.startswith("utf-16")
    assert "abc".encode(python_codec(name))


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("GB2312", "gbk"),
        (" x-gbk\n", "gbk"),
        ("Latin1", "windows-1252"),
        ("us-ascii", "windows-1252"),
        ("unicode", "utf-16le"),
    ],
)
def test_labels_mean_what_browsers_take_them_for(label: str, name: str) -> None:
    assert resolve(label) == known(label) == name


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (None, "html"),
        ("text/html; charset=utf-8", "html"),
        ("application/xhtml+xml", "html"),
        ("Text/XML", "xml"),
        ("application/atom+xml; x=y", "xml"),
        ("image/svg+xml", "xml"),
        ("application/json", "json"),
        ("application/ld+json;charset=utf-8", "json"),
        ("text/plain", "html"),
    ],
)
def test_media_kinds(content_type: str | None, kind: str) -> None:
    assert charset.media_kind(content_type) == kind
