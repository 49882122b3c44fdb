"""Headers: built from what an answer brought in one pass, or from what users give."""

from __future__ import annotations

import pytest

from netspy.messages.headers import Headers

LINES = [
    ("content-type", "text/html"),
    ("set-cookie", "a=1"),
    ("vary", "a"),
    ("set-cookie", "b=2"),
    ("vary", "b"),
]


@pytest.mark.parametrize("headers", [Headers.of_lines(LINES), Headers(LINES), Headers(Headers(LINES))])
def test_lines_of_an_answer_read_as_given_pairs_do(headers):
    assert headers == Headers([(name.upper(), value.encode()) for name, value in LINES])
    assert headers.get("Content-Type") == headers["content-type"] == "text/html"
    assert (headers["vary"], headers["set-cookie"]) == ("a, b", "a=1")
    assert headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    assert [name for name, _ in headers.multi_items()] == [
        "content-type",
        "set-cookie",
        "set-cookie",
        "vary",
        "vary",
    ]


def test_a_field_that_is_not_there():
    headers = Headers.of_lines([])
    assert (headers.get("x"), headers.get("x", "y"), "x" in headers, len(headers)) == (None, "y", False, 0)
    with pytest.raises(KeyError, match="x"):
        headers["x"]
