"""What a request brings along arrives as it was given, or the request is refused: cookies, headers, forms, files."""

from __future__ import annotations

import io
import re
from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from netspy.downloader import body, cookies
from netspy.downloader.outgoing import Outgoing
from netspy.errors import RequestError
from netspy.messages.request import Request
from netspy.settings import Settings

URL = "https://www.example.com/a/b"


def out(url: str = URL, **keywords: object) -> Outgoing:
    """As it leaves the queue."""
    request = Request.unpack(Request(url, **keywords).pack())  # type: ignore[arg-type]
    return Outgoing(request, url, Settings())


def cookie(jar: list[tuple[str, str]] | None = None, url: str = URL, **keywords: object) -> str:
    return out(url, **keywords).cookie_header(jar or []).decode()


def parts(files: object, data: object = None) -> list[str]:
    made = body.encode({"files": files, "data": data}, boundary=lambda: "B")
    assert made is not None
    return [part.decode().strip("\r\n") for part in made.content.split(b"--B")[1:-1]]


# -- cookies


@pytest.mark.parametrize(
    "header",
    [
        "SESS=new; theme=d; SESS=old",
        "flag; a=1; other",
        "a=1;b=2",
        "a=1;;  b = 2;",
        "=x; a=1",
        'q="a,b"; z=\u00e9',
        "a=1; A=2; a=1",
    ],
)
def test_a_pasted_cookie_header_goes_out_as_it_is_hp_07(header: str) -> None:
    """case HP-07"""
    assert cookie(headers={"Cookie": header}) == header
    assert cookie(headers=[("cookie", header.encode())]) == header


def test_a_pasted_cookie_header_comes_from_curl_as_it_is_hp_07() -> None:
    """case HP-07"""
    for option in ("-b", "-H"):
        value = "SESS=new; theme=d; SESS=old"
        word = value if option == "-b" else f"Cookie: {value}"
        keywords = Request.from_curl(f"curl {URL} {option} '{word}'").requests_kwargs
        assert cookie(**keywords) == value


def test_given_cookies_and_the_jars_are_sent_together_in_order() -> None:
    jar = [("j", "0"), ("SESS", "jar"), ("SESS", "jar2")]
    assert cookie(jar, headers={"Cookie": "SESS=new;t=d; SESS=old"}) == "j=0; SESS=new; t=d; SESS=old"
    assert cookie(jar, cookies=[("SESS", "1"), ("x", "2"), ("SESS", "3")]) == "j=0; SESS=1; x=2; SESS=3"
    assert cookie([], headers={"Cookie": "a=1; b=2; a=3"}, cookies={"a": "own"}) == "b=2; a=own"
    assert cookie([], headers=[("Cookie", "a=1"), ("Cookie", "b=2; a=3")]) == "a=1; b=2; a=3"


def test_a_redirects_new_value_replaces_every_old_one() -> None:
    hop = out(headers={"Cookie": "a=1; b=2; a=3"})
    hop.forget_cookies({"other"})
    assert hop.cookie_header([]) == b"a=1; b=2; a=3"
    hop.forget_cookies({"a"})
    assert hop.cookie_header([("a", "new")]) == b"a=new; b=2"
    hop.redirect(302, "https://elsewhere.example/")
    assert hop.cookie_header([]) == b""


BROWSER = {
    "domain": ".example.com", "expirationDate": 1893456000.5, "hostOnly": False, "httpOnly": True, "name": "sid", "path": "/",
    "sameSite": "lax", "secure": True, "session": False, "storeId": "0", "value": "abc", "id": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ([{"name": "sid", "value": "abc"}], "sid=abc"),
        ([{"name": "sid", "value": "abc"}, {"name": "sid", "value": 2}, ("x", "y")], "sid=abc; sid=2; x=y"),
        ([BROWSER], "sid=abc"),
        ([BROWSER | {"domain": "example.com"}], "sid=abc"),
        ([BROWSER | {"domain": "www.example.com", "hostOnly": True}], "sid=abc"),
        ([BROWSER | {"domain": "example.com", "hostOnly": True}], ""),
        ([BROWSER | {"domain": "other.com"}, {"name": "a", "value": "1"}], "a=1"),
        ([BROWSER | {"domain": "ample.com"}], ""),
        ([BROWSER | {"path": "/a"}], "sid=abc"),
        ([BROWSER | {"path": "/other"}], ""),
        ([{"name": "a", "value": None}], ""),
        ({"name": "sid", "value": "abc"}, "name=sid; value=abc"),
        ({"a": 1, "b": True, "c": None, "d": b"\xc3\xa9", "e": "a, b\"c'"}, "a=1; b=true; d=\u00e9; e=a, b\"c'"),
        ({"": "plain"}, "plain"),
    ],
)  # fmt: skip
def test_cookies_as_browsers_and_scrapy_write_them_hp_08(given: object, header: str) -> None:
    """case HP-08"""
    assert cookie(cookies=given) == header


def test_a_secure_cookie_needs_https_and_a_path_is_asked_at_every_hop() -> None:
    assert cookie(url="http://www.example.com/", cookies=[BROWSER]) == ""
    hop = out(cookies=[{"name": "a", "value": "1", "path": "/a"}, {"name": "b", "value": "2"}])
    hop.redirect(302, "https://www.example.com/elsewhere")
    assert hop.cookie_header([]) == b"b=2"


@pytest.mark.parametrize(
    "given",
    [
        {"a; b=c": "d"},
        {"a=b": "c"},
        {"a": "b; c=d"},
        {"a": "b\r\nX: y"},
        {"a\r\nX": "y"},
        {"a": "b\x00"},
        {"a": "\x7f"},
        {" a": "b"},
        {"a\t": "b"},
        {"": "a=b"},
        [{"name": "a; b", "value": "c"}],
        [{"name": "a", "value": "c;d"}],
        [{"name": "a"}],
        [{"value": "a"}],
        [{"name": 5, "value": "c"}],
        [{"sid": "abc"}],
        [{"name": "a", "value": "b", "domains": ["x"]}],
        [{"name": "a", "value": "b", "domain": 5}],
        [{"a": "1", "b": "2"}],
        ["ab"],
        "a=b",
        b"a=b",
        {"a": ["b"]},
        {"a": {"b": "c"}},
        SimpleCookie("a=b"),
        {("a", "b")},
    ],
)
def test_cookies_that_would_be_others_on_the_wire_are_refused(given: object) -> None:
    request = Request(URL)
    request.requests_kwargs["cookies"] = given
    with pytest.raises(RequestError) as caught:
        Outgoing(request, URL, Settings())
    assert "c;d" not in str(caught.value)


def test_a_given_cookie_is_made_in_one_line() -> None:
    sent = cookies.GivenCookie("a", "a=1", domain="example.com", host_only=True)
    assert not sent.goes_to(host="www.example.com", path="/", secure=True)


# -- headers


def lines(**keywords: object) -> list[bytes]:
    return [line for line in out(**keywords).lines({"Accept": "*/*"}, []) if not line.startswith(b"Expect")]


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ([("X-A", "1"), ("X-A", "2")], [b"X-A: 1", b"X-A: 2"]),
        ([("X-A", "1"), ("B", "0"), ("x-a", "2")], [b"X-A: 1", b"B: 0", b"x-a: 2"]),
        ({"X-A": ["1", 2, None], "B": ("3",)}, [b"X-A: 1", b"X-A: 2", b"X-A:", b"B: 3"]),
        ({b"X-A": b"1", "B": 2, "C": 0.5, "D": False}, [b"X-A: 1", b"B: 2", b"C: 0.5", b"D: false"]),
    ],
)
def test_a_header_given_twice_is_sent_twice_hp_09(headers: object, sent: list[bytes]) -> None:
    """case HP-09"""
    assert lines(headers=headers) == [b"Accept: */*", *sent]


@pytest.mark.parametrize(
    "headers",
    [
        [{"X-A": "1", "X-B": "2"}],
        ["ab"],
        "ab",
        {"X": {"a": 1}},
        {"X": [["a"]]},
        {"X": object()},
        {None: "x"},
        {"X\r\nY": "z"},
        {"X": "a\nb"},
    ],
)
def test_headers_of_another_shape_are_refused_hp_08(headers: object) -> None:
    """case HP-08"""
    request = Request(URL)
    request.requests_kwargs["headers"] = headers
    with pytest.raises(RequestError):
        Outgoing(request, URL, Settings()).lines({}, [])


@pytest.mark.parametrize(
    "keywords",
    [
        {"follow_redirects": "false"},
        {"allow_redirects": "no"},
        {"follow_redirects": 2},
        {"verify": 5},
        {"verify": []},
        {"auth": (None, "x")},
        {"auth": ("u", None)},
        {"auth": ("u", {"x": 1})},
    ],
)
def test_what_python_takes_for_a_yes_or_for_text_is_refused(keywords: dict) -> None:
    with pytest.raises(RequestError):
        out(**keywords).options()


# -- forms and files


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        ([("a", "1"), ("a", "2")], b"a=1&a=2"),
        ({"a": [1, None, True], "b": b"\xff"}, b"a=1&a=true&b=%FF"),
        ([], b""),
    ],
)
def test_forms(data: object, sent: bytes) -> None:
    made = body.encode({"data": data})
    assert made is not None
    assert made.content == sent


@pytest.mark.parametrize(
    "data",
    [[{"name": "q", "value": "x"}], ["ab"], {"a": {"b": 1}}, {"a": [[1]]}, {"a": object()}, io.BytesIO(b"a=1"), iter([("a", 1)])],
)  # fmt: skip
def test_forms_of_another_shape_are_refused_hp_08(data: object) -> None:
    """case HP-08"""
    with pytest.raises(RequestError):
        body.encode({"data": data})
    with pytest.raises(RequestError):
        body.encode({"data": data, "files": {"f": b""}})


def named(content: bytes, name: str) -> io.BytesIO:
    file = io.BytesIO(content)
    file.name = name
    return file


@pytest.mark.parametrize(
    ("file", "head"),
    [
        ((None, "ann"), 'name="f"'),
        ((None, b"ann", None), 'name="f"'),
        ((None, "ann", "text/plain"), 'name="f"\r\nContent-Type: text/plain'),
        (("", b"", "application/octet-stream"), 'name="f"; filename=""\r\nContent-Type: application/octet-stream'),
        (("", b""), 'name="f"; filename=""\r\nContent-Type: application/octet-stream'),
        (("x.png", b""), 'name="f"; filename="x.png"\r\nContent-Type: image/png'),
        (["x.png", b"", "a/b"], 'name="f"; filename="x.png"\r\nContent-Type: a/b'),
        ((Path("/tmp/x.png"), b""), 'name="f"; filename="x.png"\r\nContent-Type: image/png'),
        ((None, named(b"", "/tmp/x.png")), 'name="f"'),
        (("f", named(b"", "/tmp/x.png")), 'name="f"; filename="f"\r\nContent-Type: application/octet-stream'),
        (named(b"", "/tmp/x.png"), 'name="f"; filename="x.png"\r\nContent-Type: image/png'),
        (b"ann", 'name="f"; filename="f"\r\nContent-Type: application/octet-stream'),
    ],
)  # fmt: skip
def test_a_file_name_that_was_given_stays_hp_06(file: object, head: str) -> None:
    """case HP-06"""
    for files in ({"f": file}, [("f", file)]):
        [part] = parts(files)
        assert part.split("\r\n\r\n")[0] == f"Content-Disposition: form-data; {head}"


def test_a_form_field_from_curl_is_no_file_hp_06() -> None:
    """case HP-06"""
    keywords = Request.from_curl(f"curl {URL} -F 'user=ann'").requests_kwargs
    assert parts(keywords["files"]) == ['Content-Disposition: form-data; name="user"\r\n\r\nann']


@pytest.mark.parametrize(
    "files",
    [
        [{"name": "f", "value": b"x"}],
        ["ab"],
        {"f": (b"bytes.txt", b"")},
        {"f": [b"one", b"two"]},
        {"f": (5, b"")},
        {"f": ("x", b"", 5)},
        {"f": ("x", b"", "a/b", {"X-Part": "1"})},
        {"f": ("x", {"a": 1})},
        {"f": None},
        {"f": (None, None)},
    ],
)
def test_files_of_another_shape_are_refused_hp_08(files: object) -> None:
    """case HP-08"""
    with pytest.raises(RequestError):
        parts(files)


def test_a_second_try_sends_the_same_file() -> None:
    file = io.BytesIO(b"skipped:content")
    file.seek(8)
    assert [parts({"f": file})[0].split("\r\n\r\n")[1] for _ in range(2)] == ["content", "content"]

    class Stream:
        def read(self) -> bytes:
            return b"once"

    with pytest.raises(RequestError, match="more than once"):
        parts({"f": Stream()})


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("multipart/form-data", r"multipart/form-data; boundary=([0-9a-f]{32})"),
        ("Multipart/Form-Data; charset=utf-8;", r"Multipart/Form-Data; charset=utf-8; boundary=([0-9a-f]{32})"),
        (b"multipart/form-data; boundary=XyZ", r"multipart/form-data; boundary=(XyZ)"),
        ('multipart/form-data; Boundary="XyZ"; a=b', r'multipart/form-data; Boundary="(XyZ)"; a=b'),
    ],
)  # fmt: skip
def test_a_given_multipart_type_names_the_boundary_that_the_body_has(given: str | bytes, sent: str) -> None:
    made = out(files={"f": b"x"}, method="POST", headers=[("X", "1"), ("content-type", given)])
    [value] = [value for name, value in made.headers if name == "content-type"]
    match = re.fullmatch(sent, value.decode() if isinstance(value, bytes) else value)
    assert match
    assert made.body is not None
    assert made.body.content.startswith(b"--" + match[1].encode() + b"\r\n")
