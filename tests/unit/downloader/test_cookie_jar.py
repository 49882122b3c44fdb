from __future__ import annotations

import subprocess
import sys

import pytest

from netspy.downloader import cookies
from netspy.downloader.cookies import CookieJar, parse_date

DAY = 86400


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def jar(clock: Clock) -> CookieJar:
    return CookieJar(clock)


def put(
    jar: CookieJar, *lines: str | bytes, host: str = "www.example.com", path: str = "/", secure: bool = True
) -> dict:
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return jar.store(raw, host=host, path=path, secure=secure)


def sent(jar: CookieJar, host: str = "www.example.com", path: str = "/", *, secure: bool = True) -> str:
    return cookies.header(jar.matching(host=host, path=path, secure=secure)).decode(
        "utf-8", "surrogateescape"
    )


def test_host_only_and_domain_cookies(jar: CookieJar) -> None:
    put(jar, "own=1", "all=2; Domain=example.com", "dotted=3; domain=.EXAMPLE.com")
    assert sent(jar) == "own=1; all=2; dotted=3"
    assert sent(jar, "example.com") == "all=2; dotted=3"
    assert sent(jar, "a.b.example.com") == "all=2; dotted=3"
    assert sent(jar, "badexample.com") == ""
    assert sent(jar, "example.org") == ""


@pytest.mark.parametrize(
    "domain", ["other.com", "sub.www.example.com", "ample.com", "com", "com.", "10.0.0.1"]
)
def test_a_cookie_for_somebody_else_is_refused(jar: CookieJar, domain: str) -> None:
    assert put(jar, f"a=1; Domain={domain}") == {}
    assert not jar.domains


@pytest.mark.parametrize(
    ("host", "domain"),
    [("a.co.uk", "co.uk"), ("shop.com.cn", "com.cn"), ("x.localhost", "localhost"), ("a.com.br", "com.br")],
)
def test_no_cookie_for_a_shared_suffix(jar: CookieJar, host: str, domain: str) -> None:
    assert put(jar, f"a=1; Domain={domain}", host=host) == {}
    put(jar, f"b=2; Domain={host}", host=host)
    assert sent(jar, host) == "b=2"


@pytest.mark.parametrize(
    ("host", "domain", "neighbour"),
    [
        ("evil.github.io", "github.io", "victim.github.io"),
        ("a.shop.ne.jp", "ne.jp", "b.other.ne.jp"),
        ("a.blogspot.com", ".blogspot.com", "b.blogspot.com"),
        ("x.k12.ca.us", "k12.ca.us", "y.k12.ca.us"),
        ("a.kawasaki.jp", "kawasaki.jp", "b.kawasaki.jp"),
        ("b.ck", "ck", "c.ck"),
        ("a.compute.amazonaws.com", "Compute.AmazonAWS.com", "b.compute.amazonaws.com"),
        ("a.com.", "com.", "b.com."),
        ("a.github.io.", "github.io.", "b.github.io."),
        ("shop.xn--55qx5d.cn", "xn--55qx5d.cn", "other.xn--55qx5d.cn"),
        ("a.xn--p1ai", "xn--p1ai", "b.xn--p1ai"),
        ("a.intranet", "intranet", "b.intranet"),
        ("a..com", ".com", "b..com"),
        ("x.a..com", "..com", "y..com"),
    ],
)
def test_neighbours_under_one_public_suffix_share_no_cookie_hp_15(
    jar: CookieJar, host: str, domain: str, neighbour: str
) -> None:
    """case HP-15; S4: com. as well, of a host that ends in a dot."""
    assert put(jar, f"a=1; Domain={domain}", host=host) == {}
    assert sent(jar, neighbour) == ""


@pytest.mark.parametrize(
    ("host", "domain", "sibling"),
    [
        ("www.net.de", "net.de", "shop.net.de"),
        ("a.or.fr", "or.fr", "b.or.fr"),
        ("x.city.kawasaki.jp", "city.kawasaki.jp", "y.city.kawasaki.jp"),
        ("a.www.ck", "www.ck", "b.www.ck"),
        ("x.evil.github.io", "evil.github.io", "y.evil.github.io"),
        ("a.shop.xn--55qx5d.cn", "shop.xn--55qx5d.cn", "b.shop.xn--55qx5d.cn"),
        ("a.crawl.intranet", "crawl.intranet", "b.crawl.intranet"),
        ("a.example.com.", "example.com.", "b.example.com."),
    ],
)
def test_one_owners_hosts_share_their_cookie_hp_15(
    jar: CookieJar, host: str, domain: str, sibling: str
) -> None:
    """case HP-15: net.de is no public suffix, though its first label is a category."""
    put(jar, f"a=1; Domain={domain}", host=host)
    assert sent(jar, sibling) == "a=1"


def test_the_list_is_not_read_where_no_cookie_names_a_domain() -> None:
    code = (
        "import sys\nfrom netspy.downloader.cookies import CookieJar\njar = CookieJar()\n"
        "line = b'a=1; Domain=%s'\n"
        "jar.store([b'a=1', line % b'other.org', line % b'127.0.0.1'], host='127.0.0.1', path='/', secure=True)\n"
        "assert len(jar) == 1 and 'publicsuffixlist' not in sys.modules\n"
        "jar.store([line % b'a.org'], host='a.org', path='/', secure=True)\n"
        "assert 'publicsuffixlist' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_list_no_cookie_goes_to_a_neighbour(jar: CookieJar, monkeypatch) -> None:
    def no_descriptor() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(cookies, "_public_suffixes", no_descriptor)
    put(jar, "a=1; Domain=example.com", "b=2; Domain=www.example.com", "c=3")
    assert sent(jar) == "b=2; c=3"
    assert sent(jar, "x.www.example.com") == ""


def test_a_suffix_may_set_a_cookie_for_itself_only(jar: CookieJar) -> None:
    put(jar, "a=1; Domain=localhost", host="localhost")
    assert sent(jar, "localhost") == "a=1"
    assert sent(jar, "x.localhost") == ""


def test_ip_addresses_have_no_parents(jar: CookieJar) -> None:
    put(jar, "a=1", "b=2; Domain=127.0.0.1", "c=3; Domain=0.0.1", host="127.0.0.1")
    assert sent(jar, "127.0.0.1") == "a=1; b=2"
    assert sent(jar, "1.0.0.1") == ""
    put(jar, "v=6", host="[::1]")
    assert sent(jar, "[::1]") == "v=6"


@pytest.mark.parametrize(
    ("own", "path", "goes"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a", "/ab", False),
        ("/a/", "/a/b", True),
        ("/a/", "/a", False),
        ("/", "/anything", True),
        ("/a", "/", False),
    ],
)
def test_paths(jar: CookieJar, own: str, path: str, goes: bool) -> None:
    put(jar, f"a=1; Path={own}")
    assert bool(sent(jar, path=path)) is goes


@pytest.mark.parametrize(
    ("request_path", "own"), [("/", "/"), ("/x", "/"), ("/x/", "/x"), ("/x/y", "/x"), ("/x/y/z", "/x/y")]
)
def test_the_default_path_is_the_folder(request_path: str, own: str) -> None:
    assert cookies.default_path(request_path) == own


def test_a_path_that_is_none_means_the_default(jar: CookieJar) -> None:
    put(jar, "a=1; Path=relative", "b=2; Path", path="/x/y")
    assert sent(jar, path="/x/z") == "a=1; b=2"
    assert sent(jar, path="/") == ""


def test_longer_paths_first_then_older_ones(jar: CookieJar) -> None:
    put(jar, "short=1; Path=/", "long=2; Path=/a/b", "mid=3; Path=/a", "later=4; Path=/")
    put(jar, "short=5; Path=/")
    assert sent(jar, path="/a/b") == "long=2; mid=3; short=5; later=4"


def test_http_10_same_name_replaces_and_max_age_zero_removes(jar: CookieJar) -> None:
    put(jar, "sid=1; Path=/", host="localhost")
    put(jar, "sid=2; Path=/", host="localhost")
    assert sent(jar, "localhost") == "sid=2"
    taken = put(
        jar,
        "a=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/",
        'b="x=y"; Path=/',
        "c=; Path=/",
        "d=4; Max-Age=0; Path=/",
        "sid=x; Max-Age=-1; Path=/",
        host="localhost",
    )
    assert taken == {"a": "1", "b": '"x=y"', "c": ""}
    assert sent(jar, "localhost") == 'a=1; b="x=y"; c='


def test_lives_end(jar: CookieJar, clock: Clock) -> None:
    put(
        jar,
        "session=1",
        "age=2; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        "garbage=3; Max-Age=ten; Expires=never",
        "huge=4; Max-Age=99999999999999999999",
        "far=5; Expires=Fri, 31 Dec 9999 23:59:59 GMT",
    )
    clock.now += 9
    assert sent(jar) == "session=1; age=2; garbage=3; huge=4; far=5"
    clock.now += 1
    assert sent(jar) == "session=1; garbage=3; huge=4; far=5"
    clock.now += 400 * DAY
    assert sent(jar) == "session=1; garbage=3"
    put(jar, "session=; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "garbage=; Max-Age=0")
    assert not jar.domains


def test_secure_cookies_need_https_both_ways(jar: CookieJar) -> None:
    assert put(jar, "a=1; Secure", secure=False) == {}
    put(jar, "a=1; Secure; Path=/", "b=2")
    assert sent(jar) == "a=1; b=2"
    assert sent(jar, secure=False) == "b=2"
    assert put(jar, "a=forged; Path=/", secure=False) == {}
    assert put(jar, "a=forged; Path=/; Domain=example.com", secure=False) == {}
    assert sent(jar) == "a=1; b=2"


@pytest.mark.parametrize(
    ("line", "secure", "kept"),
    [
        ("__Secure-a=1; Secure", True, True),
        ("__Secure-a=1", True, False),
        ("__secure-a=1", True, False),
        ("__Secure-a=1; Secure", False, False),
        ("__Host-a=1; Secure; Path=/", True, True),
        ("__Host-a=1; Secure", True, False),
        ("__Host-a=1; Secure; Path=/; Domain=www.example.com", True, False),
        ("__Host-a=1; Path=/", True, False),
        ("=__Host-a=1; Secure; Path=/", True, False),
    ],
)
def test_prefixes_are_promises(jar: CookieJar, line: str, secure: bool, kept: bool) -> None:
    assert bool(put(jar, line, secure=secure)) is kept


def test_odd_lines(jar: CookieJar) -> None:
    taken = put(jar, "plain", "=v", "  a =  1 2 ; unknown; httponly", "b==x=", "", ";", "; Path=/")
    assert taken == {"": "v", "a": "1 2", "b": "=x="}
    assert sent(jar) == "v; a=1 2; b==x="
    assert put(jar, b"c=\x01", b"d=\x00", "long=" + "x" * 5000, "a=" + "y" * 4000) == {"a": "y" * 4000}


def test_bytes_come_back_as_they_came(jar: CookieJar) -> None:
    taken = put(jar, b"latin=caf\xe9", "utf=caf\u00e9")
    assert taken == {"latin": "caf\u00e9", "utf": "caf\u00e9"}
    assert (
        cookies.header(jar.matching(host="www.example.com", path="/", secure=True))
        == b"latin=caf\xe9; utf=caf\xc3\xa9"
    )


def test_the_jar_does_not_grow_without_end(jar: CookieJar) -> None:
    put(jar, *(f"c{n}=1" for n in range(500)))
    assert len(jar) == cookies.MAX_PER_DOMAIN
    for n in range(cookies.MAX_DOMAINS + 50):
        put(jar, "a=1", host=f"h{n}.example")
    assert len(jar) <= cookies.MAX_DOMAINS + cookies.MAX_PER_DOMAIN


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "06 november 1994 8:49:37",
        "Sun, 06-Nov-1994 08:49:37 GMT; ignored",
    ],
)
def test_dates_in_every_spelling(text: str) -> None:
    assert parse_date(text) == 784111777.0


@pytest.mark.parametrize(
    "text",
    ["", "never", "06 Nov 1994", "32 Nov 1994 08:49:37", "06 Nov 1500 08:49:37", "06 Nov 1994 25:00:00"],
)
def test_dates_that_are_none(text: str) -> None:
    assert parse_date(text) is None


def test_two_digit_years() -> None:
    assert parse_date("01 Jan 69 00:00:00") == 3124224000.0
    assert parse_date("01 Jan 70 00:00:00") == 0.0
