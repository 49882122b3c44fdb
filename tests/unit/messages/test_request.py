"""A request keeps what it was given, is known by what it fetches, and crosses processes unchanged."""

import copy
import functools
import heapq
import io
import json
import math
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspy.errors import InvalidUrlError, RequestError, SerializationError
from netspy.messages import codec
from netspy.messages.request import REQUEST_KWARGS, Request, callback_problem
from netspy.messages.urls import compile_ignore, site_of

URL = "https://www.example.com/catalogue/page-1.html"


class Spider:
    def parse(self, request, response): ...

    def detail(self, request, response): ...

    def _Spider__hidden(self): ...


def fields(request: Request) -> dict:
    return request.to_dict()


# -- construction


def test_keywords_are_sorted_into_the_downloaders_and_the_users() -> None:
    request = Request(URL, headers={"A": "b"}, timeout=3, page=7, meta={"x": 1})
    assert request.requests_kwargs == {"headers": {"A": "b"}, "timeout": 3}
    assert request.custom == {"page": 7, "meta": {"x": 1}}
    assert request.page == 7
    request.page = 8
    request.depth = 2
    assert request.custom == {"page": 8, "meta": {"x": 1}, "depth": 2}
    assert Request(URL).custom == Request(URL).requests_kwargs == Request(URL).cb_kwargs == {}


def test_defaults_are_the_documented_ones() -> None:
    assert Request(URL).to_dict() == {
        "url": URL, "method": "GET", "callback": None, "errback": None, "priority": 300, "retry_times": 0,
        "filter_repeat": True, "auto_request": True, "use_session": None, "random_user_agent": None,
        "impersonate": None, "render": False, "render_time": None, "wait_for": None, "render_script": None,
        "download_midware": None, "parser_name": None, "encoding": None,
        "cb_kwargs": {}, "requests_kwargs": {}, "custom": {},
    }  # fmt: skip


def test_params_become_part_of_the_url_at_once() -> None:
    request = Request(URL, params={"q": 1, "skip": None})
    assert request.url == URL + "?q=1"
    assert "params" not in request.requests_kwargs


def test_allow_redirects_is_follow_redirects() -> None:
    assert Request(URL, allow_redirects=False).requests_kwargs == {"follow_redirects": False}


def test_the_next_change_of_a_shared_dict_does_not_reach_an_earlier_request() -> None:
    form, kwargs, headers = {"page": 1}, {"n": 1}, {"X": "1"}
    request = Request(URL, "post", data=form, cb_kwargs=kwargs, headers=headers)
    form["page"] = kwargs["n"] = headers["X"] = 2
    assert request.requests_kwargs == {"data": {"page": 1}, "headers": {"X": "1"}}
    assert request.cb_kwargs == {"n": 1}
    assert request.method == "POST"


@pytest.mark.parametrize(
    ("args", "kw", "told"),
    [
        ((b"http://e.com/",), {}, "the URL must be a str, not bytes"),
        ((None,), {}, "must be a str, not NoneType"),
        ((URL, 5), {}, "method must be a str"),
        ((URL, ""), {}, "method must be a str"),
        ((URL,), {"priority": "high"}, "finite int or float"),
        ((URL,), {"priority": math.nan}, "finite int or float"),
        ((URL,), {"priority": math.inf}, "finite int or float"),
        ((URL,), {"priority": 2**60}, "2**53"),
        ((URL,), {"priority": True}, "finite int or float"),
        ((URL,), {"retry_times": None}, "whole number"),
        ((URL,), {"cb_kwargs": [1]}, "names as keys"),
        ((URL,), {"cb_kwargs": {1: 2}}, "names as keys"),
        ((URL,), {"params": 5}, "params=5"),
        ((URL,), {"site": "x"}, "Request(site=…)"),
        ((URL,), {"_options": "x"}, "Request(_options=…)"),
    ],
)
def test_a_wrong_type_is_refused_where_the_request_is_made(args: tuple, kw: dict, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        Request(*args, **kw)
    assert told in str(caught.value)


def test_making_a_request_does_not_judge_its_url() -> None:
    request = Request("http://[b]bold[/b]/")
    with pytest.raises(InvalidUrlError):
        request.digest()
    with pytest.raises(InvalidUrlError):
        _ = request.site


def test_a_rare_option_set_later_counts_and_its_default_takes_no_room() -> None:
    request = Request(URL, render=True)
    other = request.copy()
    request.render = False
    request.impersonate = "chrome"
    assert (request.render, request.impersonate) == (False, "chrome")
    assert (other.render, other.impersonate) == (True, None)
    assert b'"o":{"impersonate":"chrome"}' in request.pack()
    request.impersonate = None
    assert request.pack() == Request(URL).pack()


# -- identity


def test_one_page_one_fingerprint() -> None:
    one = Request("http://e.com/p/1?q=1")
    assert len(one.digest()) == 16
    assert one.fingerprint == one.digest().hex()
    assert one.digest() == Request("http://E.com/./p/%31", params={"q": 1}).digest()
    assert one.digest() == Request("http://e.com/p/1?q=1#f", headers={"a": "b"}, priority=1, page=2).digest()


def test_method_and_body_are_part_of_the_identity() -> None:
    bodies = [
        {}, {"data": {"a": 1}}, {"data": {"a": "1"}}, {"json": {"a": 1}}, {"data": b"a=1"}, {"content": b"a=2"},
        {"data": b"\xff"}, {"files": {"f": (None, b"x")}}, {"json": 0}, {"data": [("a", 1)]},
        {"data": b" json 1 1"}, {"json": 1},
    ]  # fmt: skip
    digests = [Request(URL, "POST", **body).digest() for body in bodies]
    digests += [Request(URL).digest(), Request(URL, "HEAD").digest()]
    assert len(set(digests)) == len(digests)


def test_the_same_body_spelled_otherwise_is_the_same_request() -> None:
    def post(**body: object) -> bytes:
        return Request(URL, "POST", **body).digest()

    assert post(data={"a": 1, "b": [2]}) == post(data={"b": [2], "a": 1})
    assert post(data="a=1") == post(data=b"a=1") == post(content=b"a=1")
    assert post(json=None) == post()
    assert post(data={"s": {"x", "y", "z"}}) == post(data={"s": {"z", "y", "x"}})


def test_ignored_parameters_have_no_part_in_the_fingerprint_only() -> None:
    ignore = compile_ignore(["utm_*"])
    request = Request("http://e.com/?utm_source=a")
    assert request.digest(ignore) == Request("http://e.com/").digest(ignore)
    assert request.digest() != request.digest(ignore)
    assert request.digest(ignore) == Request("http://e.com/?utm_x=b").digest(ignore)
    assert request.url == "http://e.com/?utm_source=a"


def test_a_kept_fingerprint_follows_the_url_and_the_body() -> None:
    request = Request(URL)
    first = request.digest()
    request.url = "http://e.com/"
    assert request.digest() == Request("http://e.com/").digest() != first
    request.requests_kwargs["data"] = b"x"
    with_body = request.digest()
    assert with_body == Request("http://e.com/", data=b"x").digest()
    request.requests_kwargs["data"] = b"y"
    assert request.digest() != with_body
    request.requests_kwargs.clear()
    request.method = "POST"
    assert request.digest() == Request("http://e.com/", "POST").digest()


def test_a_request_that_is_never_fetched_needs_no_url() -> None:
    request = Request("task 7 \ud83d", auto_request=False)
    assert request.digest() == Request("task 7 \ud83d", auto_request=False).digest()
    assert request.digest() != Request("task 8", auto_request=False).digest()
    assert request.site == "00000000"


def test_site_and_host_come_from_the_url() -> None:
    request = Request("https://WWW.example.com:8443/x")
    assert request.site == site_of("https://www.example.com:8443/")
    assert request.host == "www.example.com"


# -- the packed form


def test_a_usual_request_is_small_and_starts_like_an_object() -> None:
    packed = Request(URL, callback=Spider().parse, cb_kwargs={"page": 1}).pack()
    assert packed.startswith(b"{")
    assert len(packed) < 200
    assert json.loads(packed)["v"] == 1


def test_everything_a_request_holds_comes_back_as_it_went_in() -> None:
    spider = Spider()
    request = Request(
        URL + "?b=%ff&a=中'", "POST", callback=spider.parse, errback="detail", priority=-1.5, retry_times=2,
        filter_repeat=False, auto_request=False, use_session=True, random_user_agent=False, impersonate="chrome",
        render=True, render_time=1.5, wait_for="#x", render_script="1+1", download_midware=spider.detail,
        parser_name="p", encoding="gbk",
        cb_kwargs={"at": datetime(2026, 1, 1, tzinfo=UTC), "t": (1, (2,)), "n": 2**70, "d": Decimal("10.50"), "!": 1},
        data=b"\xff", headers={"A": "\u00e9"}, auth=("u", "p"), timeout=(1, 2.5), cookies={"a": "b"},
        ids={1: {2, 3}}, text='"!x"',
    )  # fmt: skip
    back = Request.unpack(request.pack())
    assert fields(back) == fields(request)
    assert [type(value) for value in back.cb_kwargs.values()] == [datetime, tuple, int, Decimal, int]
    assert back.requests_kwargs["data"] == b"\xff"
    assert back.ids == {1: {2, 3}}
    assert back.callback == "parse"
    assert back.pack() == request.pack()
    assert back.digest() == request.digest()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(["GET", "post", "HEAD"]),
            "priority": st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
            "retry_times": st.integers(0, 99),
            "filter_repeat": st.booleans(),
            "cb_kwargs": st.dictionaries(st.text(), st.text() | st.binary() | st.tuples(st.integers())),
            "data": st.binary() | st.text() | st.dictionaries(st.text(), st.dates()),
            "page": st.integers() | st.decimals(allow_nan=False),
            "encoding": st.none() | st.text(),
            "use_session": st.none() | st.booleans(),
        },
    ),
    st.text(st.characters(codec="utf-8")),
)
def test_any_request_comes_back_as_it_went_in(kw: dict, url: str) -> None:
    request = Request(url, **kw)
    back = Request.unpack(request.pack())
    assert fields(back) == fields(request)
    assert type(back.priority) is type(request.priority)
    assert fields(Request.from_dict(codec.decode(codec.encode(request.to_dict())))) == fields(request)


def test_what_cannot_travel_is_refused_by_its_key() -> None:
    with pytest.raises(SerializationError, match=r"^cb_kwargs\['f'\]\[0\]: function can't travel"):
        Request(URL, cb_kwargs={"f": [lambda: 1]}).pack()
    with pytest.raises(SerializationError, match=r"^requests_kwargs\['files'\]\['f'\]: _io\.BytesIO can't"):
        Request(URL, files={"f": io.BytesIO()}).pack()
    with pytest.raises(SerializationError, match=r"^custom\['s'\]: test_request\.Spider can't travel"):
        Request(URL, s=Spider()).pack()
    with pytest.raises(SerializationError, match=r"^request\['wait_for'\]: object can't travel"):
        Request(URL, wait_for=object()).pack()


@pytest.mark.parametrize("callback", [lambda: 1, functools.partial(print), Spider()])
def test_a_callback_without_a_name_is_never_packed(callback: object) -> None:
    with pytest.raises(SerializationError, match=r"errback=.* has no name to travel by"):
        Request(URL, errback=callback).pack()


def test_a_lone_surrogate_travels_in_a_value_and_is_refused_in_the_url() -> None:
    request = Request(URL, cb_kwargs={"t": "\ud83d"}, page="\ud83d", headers={"\ud83d": "1"})
    assert fields(Request.unpack(request.pack())) == fields(request)
    with pytest.raises(SerializationError, match="lone surrogate"):
        Request("http://e.com/\ud83d").pack()


def test_a_payload_too_large_for_a_queue_is_refused() -> None:
    with pytest.raises(SerializationError, match="over the limit"):
        Request(URL, data=b"x" * codec.MAX_BYTES).pack()


def test_a_field_spoilt_after_construction_is_refused_when_packed() -> None:
    request = Request(URL)
    request.priority = math.nan
    with pytest.raises(RequestError, match="finite"):
        request.pack()
    request.priority = 1
    request.url = None
    with pytest.raises(SerializationError, match="must be strings"):
        request.pack()


def test_a_newer_format_is_told_from_a_broken_payload() -> None:
    with pytest.raises(SerializationError, match=r"format version 2.*update this node"):
        Request.unpack(b'{"v":2,"u":"http://e.com/","new":1}')
    with pytest.raises(SerializationError, match="format version 2"):
        Request.unpack(b'{"v":2,"u":"http://e.com/"}')


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"{", b"null", b"[]", b"\x80\x04.", b'{"v":1}', b'{"v":1,"u":5}', b'{"v":1,"u":"x","zz":1}',
        b'{"v":1,"u":"x","p":"1"}', b'{"v":1,"u":"x","k":[]}', b'{"v":1,"u":"x","k":{"!tuple":[1]}}',
        b'{"v":1,"u":"x","x":{"a":{"!what":1}}}', b'{"v":1,"u":"\xff"}', b'{"v":1,"u":"x","k":' + b'{"a":' * 50_000,
    ],
    ids=lambda data: repr(data[:40]),
)  # fmt: skip
def test_a_malformed_payload_is_one_clear_error(data: bytes) -> None:
    with pytest.raises(SerializationError):
        Request.unpack(data)


# -- copies


def test_a_copy_shares_nothing_that_is_changed_in_place() -> None:
    request = Request(
        URL, headers={"A": "1"}, cb_kwargs={"n": 1}, page=1, render=True, callback="parse", retry_times=1
    )
    for other in (request.copy(), copy.copy(request)):
        assert fields(other) == fields(request)
        other.requests_kwargs["headers"]["A"] = "2"
        other.requests_kwargs["proxy"] = "http://p"
        other.cb_kwargs["n"] = 2
        other.page = 2
        other.render = False
        assert request.requests_kwargs == {"headers": {"A": "1"}}
        assert request.cb_kwargs == {"n": 1}
        assert (request.page, request.render) == (1, True)


def test_replace_takes_the_constructors_names() -> None:
    request = Request(URL, headers={"A": "1"}, cb_kwargs={"n": 1}, page=1, callback="parse")
    other = request.replace(
        url="http://e.com/?a=1", method="post", params={"b": 2}, priority=1, retry_times=3, page=2, render=True,
        headers={"B": "2"}, callback=None, cb_kwargs=None, filter_repeat=False, data="x",
    )  # fmt: skip
    assert (other.url, other.method, other.priority, other.retry_times) == (
        "http://e.com/?a=1&b=2",
        "POST",
        1,
        3,
    )
    assert other.requests_kwargs == {"headers": {"B": "2"}, "data": "x"}
    assert (other.page, other.render, other.callback, other.cb_kwargs, other.filter_repeat) == (
        2,
        True,
        None,
        {},
        False,
    )
    assert fields(request) == fields(
        Request(URL, headers={"A": "1"}, cb_kwargs={"n": 1}, page=1, callback="parse")
    )
    for wrong in ({"url": 5}, {"priority": "x"}, {"method": None}, {"retry_times": -1}, {"digest": 1}):
        with pytest.raises(RequestError):
            request.replace(**wrong)


def test_a_subclass_keeps_its_class_in_copies() -> None:
    class Special(Request):
        pass

    special = Special(URL, page=1)
    assert type(special.copy()) is type(special.replace(page=2)) is Special
    assert Special.unpack(special.pack()).page == 1
    assert type(Special.from_dict(special.to_dict())) is Special


def test_from_dict_says_what_is_wrong_with_the_dict() -> None:
    assert fields(Request.from_dict({"url": URL})) == fields(Request(URL))
    with pytest.raises(RequestError, match=r"unknown fields \['urll'\]"):
        Request.from_dict({"url": URL, "urll": 1})
    with pytest.raises(RequestError, match="no url"):
        Request.from_dict({"method": "GET"})


def test_a_request_survives_the_standard_ways_of_copying() -> None:
    request = Request(URL, page=1, render=True, cb_kwargs={"a": [1]})
    assert fields(pickle.loads(pickle.dumps(request))) == fields(request)
    deep = copy.deepcopy(request)
    deep.cb_kwargs["a"].append(2)
    assert request.cb_kwargs == {"a": [1]}


def test_smaller_priority_first() -> None:
    heap = [Request(URL, priority=priority) for priority in (300, 1.5, -1)]
    heapq.heapify(heap)
    assert [heapq.heappop(heap).priority for _ in range(3)] == [-1, 1.5, 300]


def test_the_repr_names_the_page_and_hides_the_password() -> None:
    request = Request("http://u:s3cret@e.com/x", callback=Spider().parse, priority=1, retry_times=2)
    assert repr(request) == "<Request GET http://u:***@e.com/x callback=parse priority=1 retry_times=2>"
    assert len(repr(Request("data:," + "x" * 10_000))) < 300


def test_the_documented_keywords_are_all_known() -> None:
    assert REQUEST_KWARGS == set(
        "params headers cookies data json content files auth timeout follow_redirects allow_redirects verify proxy "
        "proxies cert".split()
    )


# -- callbacks


class Base:
    def parse(self, request, response): ...

    def __hidden(self, request, response): ...

    def hidden(self):
        return self.__hidden

    @staticmethod
    def static(request, response): ...

    @classmethod
    def of_class(cls, request, response): ...

    @functools.wraps(parse)
    def wrapped(self, request, response): ...


class Derived(Base):
    def parse(self, request, response): ...

    def parent(self):
        return super().parse

    table = functools.lru_cache(print)


def module_function(request, response): ...


def badly_decorated(function):
    def wrapper(self, request, response): ...

    return wrapper


class Decorated:
    detail = badly_decorated(None)


def test_methods_and_their_names_travel() -> None:
    spider = Derived()
    good = [
        None, "parse", "_Base__hidden", spider.parse, spider.hidden(), Derived.parse, spider.static, Base.static,
        spider.of_class, Derived.of_class,
    ]  # fmt: skip
    assert [callback_problem(callback, spider) for callback in good] == [None] * len(good)
    assert Request(URL, callback=spider.hidden()).callback_name == "_Base__hidden"
    assert Request(URL, callback=spider.hidden()).pack() == Request(URL, callback="_Base__hidden").pack()
    assert Request(URL).callback_name is None
    assert Request(URL, errback=spider.parse).errback_name == "parse"


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (lambda request, response: None, "a lambda has no name"),
        (functools.partial(Derived().parse, x=1), "a functools.partial has no name"),
        (Base().parse, "Base.parse is a method of another object (Base)"),
        (Derived().parse, "is a method of another object (Derived)"),
        (module_function, "module_function isn't a method of Derived"),
        (Decorated().detail, "is a method of another object"),
        ("parze", "Derived has no method 'parze'; did you mean 'parse'?"),
        ("__class_getitem__", "has no method"),
        (5, "5 is neither a method of Derived nor a method's name"),
        (Base.parse, "the name 'parse' means Derived.parse on Derived, not Base.parse"),
    ],
)
def test_what_cannot_be_found_again_by_its_name_is_told(callback: object, told: str) -> None:
    assert told in str(callback_problem(callback, Derived()))


def test_an_inner_function_and_a_bare_wrapper_are_told() -> None:
    def inner(request, response): ...

    assert "a function inside a function" in callback_problem(inner, Derived())
    spider = Decorated()
    assert "functools.wraps" in callback_problem(spider.detail, spider)


def test_an_overridden_method_called_through_super_is_not_taken_for_its_override() -> None:
    spider = Derived()
    assert "means Derived.parse" in callback_problem(spider.parent(), spider)


def test_methods_of_a_class_made_in_a_function_travel() -> None:
    class Local:
        def parse(self): ...

    spider = Local()
    assert callback_problem(spider.parse, spider) is None
