"""What goes out stays as written; what is compared is one form per page; links join as in a browser."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netspy.errors import InvalidUrlError, RequestError
from netspy.messages import urls
from netspy.messages.urls import (
    add_params,
    canonical,
    compile_ignore,
    host_of,
    join,
    require_http,
    site_of,
    wire,
)

AS_WRITTEN = [
    "http://127.0.0.1:8080/f/it%27s(1)%28.jpg?sig=a%2Fb%2Bc%3D%3d&e=s%40x&t=1+2",
    "http://127.0.0.1:8080/100%?q=%ec%&x=%25&u=%E4%B8%AD",
    "http://127.0.0.1:8080/s?b=2&a=1&&c&d=%2f+x",
    "https://example.com/a//b/;p=1/~x?q={1}|[2]^`\\it's?/!$,",
    "https://example.com/%7euser/%61",
    "https://example.com/?",
    "http://user:pa%40ss@example.com/x",
    "http://[2001:db8::1]:8080/x",
]


@pytest.mark.parametrize("url", AS_WRITTEN)
def test_an_encoded_url_goes_out_byte_for_byte(url: str) -> None:
    assert wire(url) == url


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://EXAMPLE.com", "http://example.com/"),
        ("http://example.com:80/a#f", "http://example.com/a"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:443/a", "http://example.com:443/a"),
        ("http://example.com:8080?x=1#y", "http://example.com:8080/?x=1"),
        ("  http://example.com/a b\tc?q=d e\n", "http://example.com/a%20bc?q=d%20e"),
        ("http://example.com/目录?q=中文'", "http://example.com/%E7%9B%AE%E5%BD%95?q=%E4%B8%AD%E6%96%87'"),
        ("http://example.com/a/./b/%2E%2e/c%2F..%2Fd?u=/../x", "http://example.com/a/c%2F..%2Fd?u=/../x"),
        ("http://example.com/.well-known/x", "http://example.com/.well-known/x"),
        ('http://example.com/x?a="<b>"&c=%22中', "http://example.com/x?a=%22%3Cb%3E%22&c=%22%E4%B8%AD"),
        ("http://faß.example/", "http://xn--fa-hia.example/"),
        ("http://1.2.3/", "http://1.2.0.3/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://example.com\\a\\b", "http://example.com/a/b"),
    ],
)
def test_only_what_cannot_be_sent_is_changed(url: str, sent: str) -> None:
    assert wire(url) == sent
    assert wire(sent) == sent


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://e.com/p/1", "http://e.com/p/./1"),
        ("http://e.com/p/1", "http://e.com/p/%31"),
        ("http://e.com/p/1", "HTTP://E.com:80/x/../p/1#top"),
        ("http://e.com/?a=1&b=2", "http://e.com?b=2&a=1"),
        ("http://e.com/~u?q=%2f", "http://e.com/%7eu?q=%2F"),
        ("http://e.com/中?q=中", "http://e.com/%e4%b8%ad?q=%E4%B8%AD"),
        ("http://e.com/?q=it's|x", "http://e.com/?q=it%27s%7Cx"),
        ("http://e.com/100%", "http://e.com/100%25"),
    ],
)
def test_spellings_of_one_page_compare_equal(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://e.com/a/b", "http://e.com/a%2Fb"),
        ("http://e.com/?q=1&q=2", "http://e.com/?q=2&q=1"),
        ("http://e.com/?q=a+b", "http://e.com/?q=a%2Bb"),
        ("http://e.com/?utm_source=x", "http://e.com/"),
        ("http://e.com/", "https://e.com/"),
        ("http://e.com/A", "http://e.com/a"),
        ("http://e.com/?a", "http://e.com/?a="),
        ("http://e.com/a", "http://e.com/a/"),
        ("http://e.com/it's", "http://e.com/it%27s"),
    ],
)
def test_different_pages_stay_apart(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_only_listed_parameters_are_ignored() -> None:
    ignore = compile_ignore(["utm_*", "sid"])
    assert canonical("http://e.com/?utm_source=a&b=1&sid=2&side=3", ignore) == "http://e.com/?b=1&side=3"
    assert canonical("http://e.com/?utm%5Fx=a", ignore) == "http://e.com/"
    assert canonical("http://e.com/?UTM_x=a&axutm_=", ignore) == "http://e.com/?UTM_x=a&axutm_="
    assert canonical("http://e.com/?", ignore) == canonical("http://e.com/?")
    assert compile_ignore([]) is None


TEXTS = st.text(
    st.sampled_from("aZ09-._~%25eE3f1/?#&=+;:@'\"<>[]{}|\\^` \t\n中ß\x00\x7f") | st.characters(codec="utf-8"),
    max_size=25,
)


@given(TEXTS)
@example("http%%331")
@example("?%%32e/./%2")
@example("?&&#")
@example("\x08?")
@example("/a #b")
def test_normalising_twice_changes_nothing_more(tail: str) -> None:
    ignore = compile_ignore(["a*"])
    for url in (f"http://e.com/{tail}", f"https://e.com:8080{tail}", f"http://e.com/x?{tail}"):
        try:
            sent = wire(url)
        except InvalidUrlError:
            with pytest.raises(InvalidUrlError):
                canonical(url)
            continue
        assert wire(sent) == sent
        compared = canonical(url)
        assert canonical(compared) == compared == canonical(sent)
        assert wire(compared) == compared
        assert canonical(canonical(url, ignore), ignore) == canonical(url, ignore)
        assert site_of(url) == site_of(sent) == site_of(compared)


@given(TEXTS)
def test_the_short_cuts_answer_as_the_parser_does(tail: str) -> None:
    import ada_url

    base = "http://e.com/a/b?c"
    for href in (tail, "/" + tail, f"http://e.com/{tail}", f"https://e.com:8080{tail}"):
        try:
            expected = ada_url.join_url(base, href)
        except ValueError:
            with pytest.raises(InvalidUrlError):
                join(base, href)
            continue
        assert join(base, href) == expected


@pytest.mark.parametrize(
    ("base", "href", "joined"),
    [
        ("http://example.com/web/", "../../../../img/a.jpg", "http://example.com/img/a.jpg"),
        ("http://example.com/a/b", "./././c", "http://example.com/a/c"),
        ("http://example.com/d/", "./", "http://example.com/d/"),
        ("http://example.com/a/b/c", "%2E%2E/d", "http://example.com/a/d"),
        ("http://example.com/a%2Fb/c", "../d", "http://example.com/d"),
        ("http://example.com/a", "//cdn.example.com/x", "http://cdn.example.com/x"),
        ("http://example.com/a?b#c", "?d", "http://example.com/a?d"),
        ("http://example.com/a", " \n/b\tc ", "http://example.com/bc"),
        ("http://example.com/a", "/x'y?q='", "http://example.com/x'y?q=%27"),
        ("http://example.com:80/a", "/b", "http://example.com/b"),
        ("http://example.com?x=/a/b", "/c", "http://example.com/c"),
        ("http://example.com/a", "", "http://example.com/a"),
        ("http://example.com/a", "#f", "http://example.com/a#f"),
        ("http://example.com/a", "mailto:a@b", "mailto:a@b"),
        ("http://e.com/", "http://bücher.example/ü?q=ü", "http://xn--bcher-kva.example/%C3%BC?q=%C3%BC"),
        ("http://e.com/", "http://faß.example/", "http://xn--fa-hia.example/"),
        ("http://e.com/", "http://中文.example/", "http://xn--fiq228c.example/"),
    ],
)
def test_links_join_as_in_a_browser(base: str, href: str, joined: str) -> None:
    assert join(base, href) == joined


def test_a_query_takes_the_encoding_of_its_page_and_the_path_does_not() -> None:
    href = "/目录?q=中文#节"
    assert (
        join("http://example.com/", href, encoding="gbk", fragment=False)
        == "http://example.com/%E7%9B%AE%E5%BD%95?q=%D6%D0%CE%C4"
    )
    assert join("http://example.com/", href, encoding="gbk").endswith("?q=%D6%D0%CE%C4#%E8%8A%82")
    assert join("http://e.com/", "?q=ü'€", encoding="iso-8859-1") == "http://e.com/?q=%FC%27%26%238364%3B"
    assert join("http://e.com/", "?q=ü%41", encoding="utf-16-le") == "http://e.com/?q=%C3%BC%41"
    assert join("http://e.com/", "?q=ü", encoding="no-such") == "http://e.com/?q=%C3%BC"
    assert join("http://e.com/", "mailto:x?q=ü", encoding="gbk") == "mailto:x?q=%C3%BC"


@pytest.mark.parametrize(
    "href", ["http://[b]bold[/b]/y", "http://example.com:99999/", "http:// /x", "http://a\ud83d/"]
)
def test_a_malformed_link_is_named_in_the_error(href: str) -> None:
    with pytest.raises(InvalidUrlError) as caught:
        join("http://example.com/", href)
    assert repr(href)[1:-1] in str(caught.value)
    for function in (wire, canonical, host_of, site_of, require_http):
        with pytest.raises(InvalidUrlError):
            function(href)


@pytest.mark.parametrize(
    "url", ["javascript:void(0)", "mailto:a@example.com", "data:text/html,x", "about:blank", "ftp://e.com/x"]
)
def test_a_url_that_cannot_be_fetched_is_refused_where_fetching_is_meant(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="neither http nor https"):
        require_http(url)


@pytest.mark.parametrize("url", ["", "/path", "example.com/x"])
def test_a_relative_url_gets_a_message_that_says_so(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="not an absolute URL"):
        require_http(url)


def test_a_password_does_not_reach_the_message() -> None:
    with pytest.raises(InvalidUrlError) as caught:
        wire("http://me:s3cret@e.com:99999/")
    assert "s3cret" not in str(caught.value)
    assert urls.display_url("http://e.com/@me:x@y") == "'http://e.com/@me:x@y'"
    assert urls.display_url("http://u:a@b@e.com/") == "'http://u:***@e.com/'"


def test_one_site_whatever_the_spelling_of_its_authority() -> None:
    sites = {
        site_of(url)
        for url in (
            "http://example.com/a",
            "http://EXAMPLE.com:80",
            "https://example.com?x=/y",
            "https://u:p@example.com:443/",
            " http://example.com/x",
            "http:////example.com/y",
            "http://example.com\\x/y",
            "http://example.com#/",
        )
    }
    assert len(sites) == 1
    site = sites.pop()
    assert len(site) == 8
    assert int(site, 16) >= 0
    assert site_of("http://example.com:8080/") != site != site_of("http://www.example.com/")


def test_host() -> None:
    assert host_of("https://u@Bücher.example:8443/x") == "xn--bcher-kva.example"
    assert host_of("http://[2001:DB8::1]/") == "[2001:db8::1]"
    assert host_of("mailto:a@b") == ""


def test_a_long_data_url_is_not_kept_in_the_cache() -> None:
    before = urls._cached_authority.cache_info().currsize
    host_of("data:," + "x" * 10_000)
    assert urls._cached_authority.cache_info().currsize == before


@pytest.mark.parametrize(
    ("url", "params", "result"),
    [
        ("http://e.com/", {"q": 1}, "http://e.com/?q=1"),
        ("http://e.com/?a=1#f", {"q": "x y&z", "n": None}, "http://e.com/?a=1&q=x+y%26z#f"),
        ("http://e.com/?", [("a", 1), ("a", 2)], "http://e.com/?a=1&a=2"),
        (
            "http://e.com/",
            {"a": [1, None, 2], "b": (), "c": True, "d": 1.5},
            "http://e.com/?a=1&a=2&c=true&d=1.5",
        ),
        ("http://e.com/", "?raw=%2F&x", "http://e.com/?raw=%2F&x"),
        ("http://e.com/", b"a=b", "http://e.com/?a=b"),
        ("http://e.com/", {"中": "文", "b": b"\xff"}, "http://e.com/?%E4%B8%AD=%E6%96%87&b=%FF"),
        ("http://e.com/", {}, "http://e.com/"),
        ("http://e.com/#f", None, "http://e.com/#f"),
    ],
)
def test_params_fold_into_the_query(url: str, params: object, result: str) -> None:
    assert add_params(url, params) == result


@pytest.mark.parametrize(
    "params",
    [
        5, [1, 2], {"a": {"b": 1}}, {"a": "\ud83d"}, [("a", "b", "c")], ["ab", "cd"], [{"name": "q", "value": "x"}], {"a": object()}, {None: 1},
        {("a", "1")}, {"a": [[1]]},
    ],
)  # fmt: skip
def test_params_of_another_shape_are_refused(params: object) -> None:
    with pytest.raises(RequestError, match="params="):
        add_params("http://e.com/", params)
