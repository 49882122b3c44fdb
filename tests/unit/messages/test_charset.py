"""The right characters, whatever the server says of them."""

import json
from pathlib import Path

import pytest

from netspy.errors import ResponseError
from netspy.messages import charset
from netspy.messages.charset_labels import is_whatwg, known, python_codec, resolve
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
        (b"<meta charset=gbk>", "text/html;charset='Shift_JIS'", "gbk"),  # the quotes are part of the label
        (b"<meta charset=gbk>", 'text/html; x="a"; CharSet=EUC-KR', "euc-kr"),
        (b"<meta charset=gbk>", "text/html; charset = EUC-KR", "gbk"),  # no parameter of that name
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
        ('{"a": 1}'.encode("utf-16"), "application/json", "utf-16le"),
        ('{"a": 1}'.encode("utf-16-be"), "application/json", "utf-16-be"),
        ('{"a": 1}'.encode("utf-32-be"), "application/json", "utf-32-be"),
        ('{"a": 1}'.encode("utf-32"), "application/json", "utf-32"),
        (b"\0\0\xfe\xff" + '{"a": 1}'.encode("utf-32-be"), "application/json; charset=gbk", "utf-32"),
        (b'{"a": "\xd6\xd0"}', "application/json; charset=gbk", "gbk"),
        ('{"a": "中"}'.encode(), "application/json; charset=gbk", "utf-8"),  # RFC 8259
    ],
)
def test_sources_in_their_order(body: bytes, content_type: str | None, encoding: str) -> None:
    assert charset.detect(body, content_type) == encoding


GERMAN = "<p>Größe für süße Äpfel – naïve café</p>"
GB = "<p>高品质不锈钢保温杯，便携式户外旅行。</p>"
TAIWAN = "<p>繁體中文網頁的內容，今天天氣很好。</p>"
JAPANESE = "<p>日本語のページです。今日はとても天気がいいですね。</p>"
KOREAN = "<p>한국어 페이지입니다. 오늘은 날씨가 좋네요.</p>"


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (GERMAN, "cp1252"),
        ("<p>El niño comió una piña; ¿cuándo volverá mañana a la montaña?</p>", "cp1252"),
        ("mañana", "cp1252"),
        ("中文", "gbk"),
    ],
)
def test_hv03_a_short_text_without_declaration_is_read_as_it_was_written(text: str, codec: str) -> None:
    assert charset.read(text.encode(codec), "text/html")[1] == text


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("déjà vu à l'école", "latin-1"),
        ("<p>Les élèves étaient à la fenêtre, où l’été s’achève déjà.</p>", "cp1252"),
        ("<p>Eén coördinator vond de ideeën van de patiënten geïnteresseerd.</p>", "cp1252"),
        ("<p>Rødgrød med fløde og blåbær spises på øen om sommeren.</p>", "cp1252"),
        ("<b>Preis: 12,50 €</b> – „günstig“", "cp1252"),
        ("<p>20 °C</p>", "cp1252"),
        ("<p>it’s</p>", "cp1252"),
        ("<p>Zażółć gęślą jaźń, bo książka leży na łóżku.</p>", "iso8859-2"),
        ("<p>Zażółć gęślą jaźń, bo książka leży na łóżku.</p>", "cp1250"),
        ("<p>Příliš žluťoučký kůň úpěl ďábelské ódy.</p>", "cp1250"),
        ("<p>Съешь же ещё этих мягких французских булок, да выпей чаю.</p>", "cp1251"),
        ("<p>Съешь же ещё этих мягких французских булок, да выпей чаю.</p>", "koi8-r"),
        ("<p>Київ є столицею України, її найбільше місто і центр.</p>", "koi8-u"),
        ("<p>Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.</p>", "iso8859-7"),
        ("<p>Şişli'de güneşli bir gündü; çocuklar ağaçların altında oynuyordu.</p>", "cp1254"),
        ("<p>שלום עולם, זהו משפט קצר בעברית על ילדים ומשחקים.</p>", "cp1255"),
        ("<p>مرحبا بالعالم، هذه جملة قصيرة باللغة العربية عن الكتب.</p>", "cp1256"),
        ("<p>เป็นมนุษย์สุดประเสริฐเลิศคุณค่า</p>", "cp874"),
        ("<title>首页</title>", "gbk"),
        (GB * 20, "gbk"),
        ("<p>朱镕基囧喆㐀𠮷</p>", "gb18030"),
        (TAIWAN, "big5"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc-jp"),
        ("日本語", "euc-jp"),
        (KOREAN, "euc-kr"),
        ("한국어", "euc-kr"),
        ("x" * 99 + GB * 4000, "gbk"),  # the sample ends inside a character
    ],
)
def test_an_undeclared_page_is_found_by_its_bytes(text: str, codec: str) -> None:
    assert charset.read(text.encode(codec), "text/html")[1] == text


@pytest.mark.parametrize("broken", [b"\xff", b"\xc6<br>"])
@pytest.mark.parametrize(
    ("text", "codec"),
    [(GB, "gbk"), (TAIWAN, "big5"), (JAPANESE, "shift_jis"), (JAPANESE, "euc-jp"), (KOREAN, "euc-kr")],
)
def test_one_broken_place_does_not_make_a_legacy_page_something_else(
    text: str, codec: str, broken: bytes
) -> None:
    page = (text * 20).encode(codec)
    assert charset.detect(page + broken + page) == codec
    assert charset.detect((text * 20).removesuffix("</p>").rstrip(".。").encode(codec)[:-1]) == codec


@pytest.mark.parametrize("broken", [b"\xff", b"\xc3<br>", b"\xe4\xb8"])
@pytest.mark.parametrize("text", [GERMAN * 20, GB * 20])
def test_a_utf8_page_with_a_bad_byte_or_a_cut_character_stays_utf8(text: str, broken: bytes) -> None:
    encoding, read = charset.read(text.encode() + broken + text.encode(), "text/html")
    assert (encoding, read.replace("<br>", "")) == ("utf-8", text + "\ufffd" + text)


@pytest.mark.parametrize(
    "content_type", [None, "text/html", "text/plain", "text/csv", "text/xml", "application/json"]
)
@pytest.mark.parametrize("text", [GERMAN, GB])
def test_a_short_utf8_page_with_one_bad_byte_stays_utf8(text: str, content_type: str | None) -> None:
    page = text.encode()
    places = [at for at in range(len(text) + 1) if at == len(text) or not text[at].isascii()]
    for at in places:
        before, after = text[:at].encode(), text[at:].encode()
        assert charset.read(before + b"\xff" + after, content_type) == (
            "utf-8",
            f"{text[:at]}\ufffd{text[at:]}",
        )
    lost = page.replace("ü".encode(), b"\xfc", 1).replace("高".encode(), b"\xb8\xdf", 1)
    assert charset.detect(lost, content_type) == "utf-8"


@pytest.mark.parametrize("content_type", [None, "text/html", "text/plain", "text/xml", "application/json"])
@pytest.mark.parametrize(
    "text", ["für S", "Größe", "中文测", "<p>Grüße aus Köln", "😀😀", GERMAN, GB, GERMAN * 9000]
)
def test_a_utf8_page_that_was_cut_in_a_character_stays_utf8(text: str, content_type: str | None) -> None:
    for cut in ("é".encode()[:1], "中".encode()[:1], "中".encode()[:2], "😀".encode()[:3]):
        assert charset.read(text.encode() + cut, content_type) == ("utf-8", f"{text}\ufffd")


def test_half_a_surrogate_pair_in_utf8_is_a_bad_place_of_utf8() -> None:
    """Java's way of writing an emoji into UTF-8, in a page that is ASCII otherwise."""
    sale = b"<p>Sale \xed\xa0\xbd\xed\xb8\x80"
    assert charset.read(sale, "text/html") == ("utf-8", "<p>Sale " + 6 * "\ufffd")


def test_one_byte_at_the_end_is_no_evidence_of_utf8() -> None:
    assert charset.read(b"<p>caf\xe9", "text/html")[1] == "<p>café"


def test_bytes_without_evidence_are_windows_1252_as_in_browsers() -> None:
    assert charset.read(b"<p>Price\xa0100 \x80</p>")[1] == "<p>Price\xa0100 €</p>"


def test_what_looks_like_a_declaration_or_a_mark_in_the_middle_is_no_evidence() -> None:
    said = "é " + "déjà vu à l'école " * 3 + "<meta charset=big5>"
    assert charset.detect(f"<a>{said}</a>".encode("latin-1"), "text/xml") == "windows-1252"
    assert charset.detect(b"abc \xff\xfe d\xe9j\xe0 vu") == "windows-1252"


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


@pytest.mark.parametrize(
    "name",
    [
        *("utf-8", "utf-16be", "utf-16le", "ibm866", "koi8-r", "koi8-u", "macintosh", "x-mac-cyrillic"),
        *(f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, "8-i", 10, 13, 14, 15, 16)),
        *(f"windows-{page}" for page in (874, *range(1250, 1259))),
        *("gbk", "gb18030", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr", "x-user-defined"),
    ],
)
def test_every_encoding_of_the_web_decodes_and_has_a_python_codec(name: str) -> None:
    assert resolve(name) == name
    assert is_whatwg(name)
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
