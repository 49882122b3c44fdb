"""What counts as a declaration, and what only looks like one: every place × every way of writing it × how far down."""

import itertools

import pytest

from netspy.messages import charset
from netspy.messages.charset_declared import in_html, in_xml, prescan
from netspy.messages.response import Response

TEXT = "中文测试：不锈钢保温杯"

#: Where a declaration is text, a comment or a value, and no element.
FALSE_PLACES = {
    "script": "<script>var t = '{}';</script>",
    "script with a comment": "<script><!-- {} --></script>",
    "script in a script": "<script><!-- <script> </script> {} --></script>",
    "script of another type": "<SCRIPT type=text/template>{}</SCRIPT >",
    "style": "<style>/* {} */</style>",
    "title": "<title>{}</title>",
    "textarea": "<textarea rows=3>{}</textarea>",
    "xmp": "<xmp>{}</xmp>",
    "iframe": "<iframe>{}</iframe>",
    "noframes": "<noframes>{}</noframes>",
    "noembed": "<noembed>{}</noembed>",
    "noscript": "<noscript>{}</noscript>",
    "comment": "<!-- {} -->",
    "comment that ends with a bang": "<!-- {} --!>",
    "comment with tags and dashes": "<!-- a > b -- {} -->",
    "value in single quotes": "<a title='{}'>x</a>",
    "value in double quotes": '<a title="{}">x</a>',
    "value with spaces around": "<a title = '{}' href=x>x</a>",
    "value of a meta element": "<meta name=description content='{}'>",
    "value of an end tag": "</p title='{}'>",
}

#: Ways of declaring an encoding, none of which has a quote of its own.
SPELLINGS = {
    "charset": "<meta charset={}>",
    "capitals": "<META CHARSET={}>",
    "slashes": "<meta/charset={} />",
    "lines": "<meta\n\tcharset\f=\r\n{} >",
    "after others": "<meta name=x id=y charset={}>",
    "pragma": "<meta http-equiv=content-type content=text/html;charset={}>",
    "pragma, the other way round": "<meta content=text/html;charset={} http-equiv=CONTENT-TYPE>",
    "the first of two": "<meta charset={} charset=koi8-r>",
}

#: And some that have.
QUOTED = {
    "single": "<meta charset='{}'>",
    "double": '<meta charset="{}">',
    "spaces inside": "<meta charset=' {} '>",
    "a value with the end of a tag": "<meta name=x content='a>b' charset={}>",
    "a value with a declaration": "<meta name=x content='<meta charset=koi8-r>' charset={}>",
    "stray quotes": '<meta name="d" content="it"s" charset={}>',
    "pragma": '<meta http-equiv="Content-Type" content="text/html; charset={}">',
    "pragma with more": "<meta http-equiv='content-type' content='text/html; charset = \"{}\"; x=y'>",
    "pragma with two": "<meta http-equiv='content-type' content='charset; charset={}'>",
    "a label that is none, and a pragma": "<meta charset=x http-equiv=content-type content='a; charset={}'>",
}

#: What stands before it: nothing, more than the prescan sees, and more than any sniffer looks at.
DISTANCES = {
    "first": "",
    "after the doctype": "<!doctype html><html><head>",
    "after 2 kB": f"<!doctype html><script>//{'x' * 2000}</script>",
    "after 70 kB": f"<script>//{'x' * 70_000}</script>",
}


def page(*parts: str) -> str:
    return "".join(parts) + f"<p>{TEXT}</p>"


def text_of(body: bytes) -> str | None:
    response = Response(url="u", status_code=200, content=body, headers={"Content-Type": "text/html"})
    return response.css("p::text").get()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("place", FALSE_PLACES)
def test_hv01_what_is_no_element_declares_nothing(place: str, distance: str) -> None:
    """Neither against the bytes, nor against the real element that comes later: in every way of writing it."""
    for spelling in SPELLINGS.values():
        false = DISTANCES[distance] + FALSE_PLACES[place].format(spelling.format("gbk"))
        assert charset.read(page(false).encode(), "text/html") == ("utf-8", page(false))
        both = page(false, "<meta charset=utf-8>")
        assert charset.read(both.encode(), "text/html") == ("utf-8", both)
        wrong = page(FALSE_PLACES[place].format(spelling.format("utf-8")), "<meta charset=gbk>")
        assert charset.read(wrong.encode("gbk"), "text/html") == ("gbk", wrong)
    assert text_of(page(false).encode()) == TEXT


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("spelling", [*SPELLINGS.values(), *QUOTED.values()])
def test_hv02_an_element_counts_wherever_it_stands(spelling: str, distance: str) -> None:
    for label, codec in (("GBK", "gbk"), ("shift_jis", "cp932"), ("windows-1251", "cp1251")):
        text = DISTANCES[distance] + spelling.format(label) + "<p>Ж"
        assert charset.read(text.encode(codec), "text/html") == (label.lower(), text)


@pytest.mark.parametrize(
    "before",
    ["<p>text", "<table><tr><td>", "<svg><g>", "<b><i><div>", "<div>" * 600, "</body></html>", "<template>"],
)
def test_where_in_the_tree_an_element_stands_does_not_matter(before: str) -> None:
    assert in_html(f"{before}<meta charset=gbk>".encode()) == "gbk"


@pytest.mark.parametrize(
    "tag",
    [
        "<metacharset=gbk>",
        "<metadata charset=gbk>",
        "</meta charset=gbk>",
        "<meta charset=gbk",
        "<meta charset='gbk>",
        "<meta charset=>",
        "<meta charset='gbk\"'>",
        "<meta charset=utf-8x>",
        "<meta name=charset content=gbk>",
        "<meta content='text/html; charset=gbk'>",
        "<meta http-equiv=refresh content='text/html; charset=gbk'>",
        "<meta http-equiv='Content-Type ' content='text/html; charset=gbk'>",
        '<meta http-equiv=content-type content="text/html; charset=\'gbk">',
        "<meta http-equiv=content-type content='text/html; charset gbk'>",
        "<meta http-equiv=content-type charset-is=gbk>",
        "<!meta charset=gbk>",
        "< meta charset=gbk>",
        "<plaintext><meta charset=gbk>",
        "<script><meta charset=gbk>",
    ],
)
@pytest.mark.parametrize("distance", DISTANCES)
def test_what_is_not_quite_a_declaration_is_none(tag: str, distance: str) -> None:
    body = page(DISTANCES[distance], tag).encode()
    assert in_html(body) is None
    assert charset.detect(body, "text/html") == "utf-8"


def test_the_first_name_of_an_encoding_counts() -> None:
    page = b"<meta charset=nonsense><meta charset=utf-16><meta charset=gbk>"
    assert in_html(page) == "utf-8"
    assert in_html(b"<meta charset=nonsense><meta charset=x-user-defined>") == "windows-1252"
    assert in_html(b"<meta charset=hz-gb-2312>") == "hz"


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_declaration_in_a_script_is_a_hint_where_the_bytes_are_not_utf8(distance: str) -> None:
    """It is what the prescan of browsers goes by. It loses against a real element, and against UTF-8."""
    fake = "<script>'<meta charset=big5>'</script>"
    assert prescan(fake.encode()) == "big5"
    assert charset.detect(f"{fake}<p>語".encode("big5"), "text/html") == "big5"
    assert (
        charset.detect((fake + DISTANCES[distance] + "<meta charset=gbk><p>语").encode("gbk"), "text/html")
        == "gbk"
    )
    assert charset.detect(fake.encode(), "text/html") == "big5"
    assert (
        charset.detect(fake.replace("big5", "utf-8").encode() + b"<p>it\x92s", "text/html") == "windows-1252"
    )


HTML_RULES_DO_NOT_HOLD = [
    "text/plain",
    "text/csv",
    "text/css",
    "text/javascript",
    "text/markdown",
    "text/tab-separated-values",
    "application/javascript",
    "application/x-ndjson",
    "application/octet-stream",
    "application/json",
    "application/ld+json",
    "application/pdf",
    "text/xml",
    "image/svg+xml",
]
TEXTS = [
    'id,html,name\n1,"{}",名称',
    "see {} 名称",
    '{{"h":"{}"}}\n{{"n":"名称"}}\n',
    'var h="{}", n="名称"',
    "<a>{}</a>名称",
]


@pytest.mark.parametrize("content_type", HTML_RULES_DO_NOT_HOLD)
def test_hp12_html_declares_nothing_in_what_is_not_html(content_type: str) -> None:
    for text, spelling in itertools.product(TEXTS, SPELLINGS.values()):
        body = text.format(spelling.format("gbk"))
        if "json" in content_type and body.startswith("<"):
            continue  # an error page that is called JSON is read as HTML
        assert charset.read(body.encode(), content_type) == ("utf-8", body)
        assert charset.read(body.encode(), f"{content_type}; x=y, {content_type}") == ("utf-8", body)


def test_an_error_page_that_is_called_json_is_read_by_the_rules_of_html() -> None:
    page = "<html><meta charset=gbk><p>出错了"
    assert charset.read(page.encode("gbk"), "application/json") == ("gbk", page)


@pytest.mark.parametrize("content_type", [None, "", "html", "unknown/unknown", "*/*", "charset"])
def test_without_a_type_the_beginning_tells_whether_it_is_html(content_type: str | None) -> None:
    assert charset.detect(" \n<meta charset=gbk><p>语".encode("gbk"), content_type) == "gbk"
    assert charset.detect("see <meta charset=gbk> 名称".encode(), content_type) == "utf-8"
    feed = "<?xml version='1.0' encoding='big5'?><a><![CDATA[<p>x</p><meta charset=gbk>]]>語</a>"
    assert charset.detect(feed.encode("big5"), content_type) == "big5"


DECLARATION = '<?xml version="1.0" encoding="{}"?>'


@pytest.mark.parametrize(
    ("declaration", "encoding"),
    [
        (DECLARATION.format("gbk"), "gbk"),
        (DECLARATION.format("GB2312"), "gbk"),
        (DECLARATION.format("utf-16"), "utf-8"),
        ("<?xml version='1.0' encoding = 'big5' standalone='yes'?>", "big5"),
        ("<?xml\nversion='1.0'\nencoding\n=\n'big5'\n?>", "big5"),
        ("<?xml version='1.0'?><a encoding='gbk'/>", None),
        ("<?xml version='1.0' encoding=gbk?>", None),
        ("<?xml version='1.0' encoding='g bk'?>", None),
        ("<?xml version='1.0' encoding='gbk\"?>", None),
        ("<?xml version='1.0' encoding='nonsense'?>", None),
        ("<!-- <?xml encoding='gbk'?> -->", None),
        ("<a><?xml version='1.0' encoding='gbk'?></a>", None),
    ],
)
def test_an_xml_declaration(declaration: str, encoding: str | None) -> None:
    assert in_xml(declaration.encode()) == encoding
    for content_type in ("text/xml", "application/atom+xml", "application/xhtml+xml", "text/html"):
        assert charset.detect(f"{declaration}<a>x</a>".encode(), content_type) == (encoding or "utf-8")


def test_html_has_meta_before_the_xml_declaration_and_xhtml_has_it_after() -> None:
    both = DECLARATION.format("big5") + "<html><meta charset=gbk>"
    assert charset.detect(both.encode(), "text/html") == "gbk"
    assert charset.detect(both.encode(), "application/xhtml+xml") == "big5"
    only_meta = "<html><meta charset=gbk><p>语"
    assert charset.detect(only_meta.encode(), "application/xhtml+xml") == "utf-8"
    assert charset.detect(only_meta.encode("gbk"), "application/xhtml+xml") == "gbk"


def test_a_feed_that_is_called_text_is_read_as_its_declaration_says_where_it_is_not_utf8() -> None:
    feed = DECLARATION.format("big5") + "<a>語</a>"
    assert charset.detect(feed.encode("big5"), "text/plain") == "big5"
    assert charset.detect(feed.encode(), "text/plain") == "utf-8"


@pytest.mark.parametrize(
    "part",
    ["<meta a='", '<meta a="', "<meta charset", "<meta =", "<meta charset=x>", "<!--<meta charset=gbk>"],
)
def test_a_hostile_page_takes_no_long_time(part: str) -> None:
    """A pattern or a loop that looks at the rest of the page for each of these would take minutes."""
    charset.detect(part.encode() * 100_000, "text/html")
