"""The Content-Type as browsers read it: WHATWG MIME Sniffing and Fetch."""

import pytest

from netspy.messages.media_type import media_type


@pytest.mark.parametrize(
    ("field", "essence", "charset"),
    [
        ("text/html", "text/html", None),
        (" TEXT/Html ;CharSet=GBK\t", "text/html", "GBK"),
        ('text/html; charset="gbk"', "text/html", "gbk"),
        ('text/html; charset="gbk', "text/html", "gbk"),
        ('text/html; charset="g\\b\\k"junk; charset=big5', "text/html", "gbk"),
        ('text/html; charset="gbk\\', "text/html", "gbk\\"),
        ('text/html; title="; charset=big5"; charset=gbk', "text/html", "gbk"),
        ('text/html; title="\\"; charset=big5"; charset=gbk', "text/html", "gbk"),
        ("text/html; charset=gbk; charset=big5", "text/html", "gbk"),
        ("text/html; charset=(); charset=gbk", "text/html", "()"),
        ("text/html; charset=; charset=gbk", "text/html", "gbk"),
        ("text/html; charset; charset=gbk", "text/html", "gbk"),
        ("text/html; charset=\x0bbig5; charset=gbk", "text/html", "gbk"),
        ("text/html;;; junk ;charset=gbk;", "text/html", "gbk"),
        ("text/html; x=(; charset=gbk", "text/html", "gbk"),
        ("text/html; charset='gbk'", "text/html", "'gbk'"),
        ("text/html; charset =gbk", "text/html", None),
        ("text/html; charset= gbk", "text/html", " gbk"),
        ("text/html charset=gbk", "", None),
        ("text/html, charset=gbk", "text/html", None),
        ("text/html; xcharset=gbk", "text/html", None),
        ("text/html, text/html; charset=gbk", "text/html", "gbk"),
        ("text/html; charset=gbk, text/html", "text/html", "gbk"),
        ("text/html; charset=gbk, text/plain", "text/plain", None),
        ("text/html; charset=gbk, */*", "text/html", "gbk"),
        ('text/html; x="a, text/plain"; charset=gbk', "text/html", "gbk"),
        ("", "", None),
        ("html", "", None),
        ("/; charset=gbk", "", None),
        ("text/; charset=gbk", "", None),
        ("te xt/html; charset=gbk", "", None),
    ],
)
def test_a_content_type_is_read_as_browsers_read_it(field: str, essence: str, charset: str | None) -> None:
    assert tuple(media_type(field)) == (essence, charset)


@pytest.mark.parametrize("part", ['"', "\\", ";", "=", ",", '="\\', "a=", '"a\\"', " ", "charset="])
def test_a_long_field_takes_no_long_time(part: str) -> None:
    """A pattern that tries all ways of dividing these would not come back."""
    assert media_type("text/html;" + part * 20_000)
