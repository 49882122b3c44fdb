"""What a callback may yield, and what becomes of it: frontier entries, rows, or a report that names the line."""

import datetime as dt
from collections import OrderedDict
from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from netspy.engine.page.callbacks import Callbacks
from netspy.engine.page.output import CallbackOutput, OutputCollector, YieldSite, as_iterator, draw
from netspy.messages.item import Item, UpdateItem
from netspy.messages.request import Request
from netspy.messages.row import Row
from netspy.observe.counters import Counters
from netspy.observe.throttle import ThrottledLog
from netspy.spiders.air import AirSpider
from netspy.spiders.base import BaseParser
from support.engine import env_of


class Log:
    """A logger that keeps its lines."""

    def __init__(self):
        self.lines = []

    def _keep(self, message, *args, **_):
        self.lines.append(message.format(*args))

    debug = info = warning = error = _keep


class News(AirSpider):
    def parse(self, request, response):
        """A callback."""

    def detail(self, request, response):
        """Another one."""


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def collector(log, counters):
    return make_collector(log, counters)


def make_collector(log, counters, *, shared=False, ignore=None, validate=False):
    env = env_of(shared=shared, ITEM_VALIDATE=validate)
    env = env._replace(log=log, counters=counters, throttled=ThrottledLog(log))
    return OutputCollector(env, Callbacks(News(), framework=BaseParser), ignore=ignore, filter_items=True)


def sort(collector, *values, origin=None):
    out = CallbackOutput()
    origin = origin or YieldSite("News.parse", b"c1", "http://example.com/")
    for value in values:
        collector.take(out, value, origin)
    return out


def test_every_allowed_kind_is_taken_and_nested_lists_are_opened(collector, log):
    called = []
    out = sort(
        collector,
        Request("http://example.com/1"),
        {"a": 1},
        Item(b=2),
        None,
        [Item(c=3), ({"d": 4}, [None])],
        lambda: called.append(1),
    )
    assert [entry.payload.url for entry in out.children] == ["http://example.com/1"]
    assert [row.row.data for row in out.rows] == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]
    assert called == [1]
    assert log.lines == []
    assert out.size() == 5


@pytest.mark.parametrize(
    "value", [42, "http://example.com/", b"x", 1.5, {1, 2}, Request, Item, object(), dt.date.today()]
)
def test_anything_else_is_refused_counted_and_named(collector, log, counters, value):
    out = sort(collector, value)
    assert out.size() == 0
    assert counters.get("parse_error") == 1
    [line] = log.lines
    assert type(value).__name__ in line
    assert "News.parse, while handling http://example.com/" in line


def test_a_long_value_is_shown_short(collector, log):
    sort(collector, "x" * 10_000)
    assert len(log.lines[0]) < 400


def test_a_report_names_the_line_that_yielded(collector, log):
    def generator():
        yield None
        yield 42

    made = generator()
    origin = YieldSite("News.parse", b"c1", "http://example.com/")
    origin.generator = made
    out = CallbackOutput()
    for value in made:
        collector.take(out, value, origin)
    line = generator.__code__.co_firstlineno + 2
    assert f"News.parse (test_output.py:{line}), while handling" in log.lines[0]


def test_dicts_and_items_are_taken_as_they_are_at_the_yield(collector):
    row, item = {"n": 1, "tags": ["a"]}, Item(n=1, tags=["a"])
    out = sort(collector, row, item, OrderedDict(row))
    row["n"] = item.n = 2
    row["tags"].append("b")
    item.tags.append("b")
    assert [one.row.data for one in out.rows] == [{"n": 1, "tags": ["a"]}] * 3


def test_a_dict_that_holds_itself_is_a_row_that_its_pipeline_will_refuse(collector, log):
    row: dict = {"n": 1}
    row["me"] = [row]
    out = sort(collector, row)
    assert [one.row.data["n"] for one in out.rows] == [1]
    assert not log.lines


def test_items_carry_table_keys_pipelines_and_fingerprint(collector):
    class Product(Item):
        __table_name__ = "products"
        __unique_key__ = ("sku",)
        __pipelines__ = ("a.B",)

    class Price(UpdateItem):
        __update_key__ = "sku"

    out = sort(collector, Product(sku="a", n=1), Product(sku="a", n=2), Price(sku="a"), {"sku": "a"})
    first, second, price, plain = out.rows
    assert first.row[:1] + first.row[2:] == ("products", ("a.B",), None, ("sku",))
    assert first.fingerprint == second.fingerprint
    assert price.row.update_keys == ("sku",)
    assert plain.fingerprint is None
    assert plain.row.table == "items"


def test_an_item_at_fault_is_refused_alone(collector, log, counters):
    class Bad(Item):
        def pre_to_db(self):
            raise ValueError("no price")

    class Keyed(Item):
        __unique_key__ = ("sku",)

    out = sort(collector, {"n": 1}, Bad(a=1), Keyed(other=1), {"n": 2})
    assert [(row.row.table, row.row.data, bool(row.error)) for row in out.rows] == [
        ("items", {"n": 1}, False), ("bad", {"a": 1}, True), ("keyed", {"other": 1}, True), ("items", {"n": 2}, False),
    ]  # fmt: skip
    bad, keyed = out.rows[1:3]
    assert bad.error.startswith("pre_to_db raised ValueError: no price (test_output.py:")
    assert bad.error.endswith("yielded by News.parse, while handling http://example.com/")
    assert keyed.error.startswith("Keyed has no field 'sku', which its __unique_key__ names")
    assert (bad.item, bad.fingerprint) == (f"{__name__}.{Bad.__qualname__}", None)
    assert counters.get("item_failed") == counters.get("parse_error") == 0, "counted where they are kept"
    assert "pre_to_db raised ValueError: no price (test_output.py:" in log.lines[0]
    assert "it is dead-lettered" in log.lines[0]


def test_dataclasses_structs_and_models_are_items_too(collector, log):
    @dataclass
    class BookItem:
        __unique_key__ = "isbn"
        isbn: str
        tags: list[str]

    class Price(msgspec.Struct):
        __table_name__ = "prices"
        __update_key__ = "isbn"
        isbn: str

    class Shop(pydantic.BaseModel):
        __pipelines__ = ("a.B",)
        name: str

    out = sort(collector, BookItem("a", ["x"]), [Price("b")], Shop(name="c"))
    assert log.lines == []
    book, price, shop = (one.row for one in out.rows)
    assert book == Row("book", {"isbn": "a", "tags": ["x"]}, None, None, ("isbn",))
    assert price == Row("prices", {"isbn": "b"}, None, ("isbn",), ())
    assert shop == Row("shop", {"name": "c"}, ("a.B",), None, ())
    assert all(one.fingerprint for one in out.rows)


def test_types_are_checked_when_asked_for(log, counters):
    @dataclass
    class Book:
        price: float

    strict = make_collector(log, counters, validate=True)
    out = sort(strict, Book("12,50"), Book(12.5))
    assert [one.error.partition(";")[0] for one in out.rows] == [
        "Book.price: expected `float`, got `str`",
        "",
    ]
    assert sort(make_collector(log, counters), Book("12,50")).rows[0].error == ""


def test_a_yielded_function_at_fault_is_refused_alone(collector, log, counters):
    async def later():
        """Nobody awaits it here."""

    def broken():
        raise ValueError("no luck")

    sort(collector, broken, later)
    assert counters.get("parse_error") == 2
    assert "no luck" in log.lines[0]
    assert "async def" in log.lines[1]


def test_a_bad_address_is_skipped_warned_of_once_and_counted_each_time(collector, log, counters):
    out = sort(collector, *[Request("htp//example.com/x") for _ in range(3)], Request("http://example.com/"))
    assert len(out.children) == 1
    assert counters.get("invalid_url") == 3
    assert counters.get("parse_error") == 0
    assert sum("htp//example.com/x" in line for line in log.lines) == 1


def test_equal_requests_have_one_identity_unless_they_bypass_the_filter(collector):
    plain = sort(
        collector, Request("http://example.com/?b=1&a=2"), Request("http://EXAMPLE.com/./?a=2&b=1#x")
    )
    assert plain.children[0].id == plain.children[1].id
    origin = YieldSite("News.parse", b"c1")
    bypass = [Request("http://example.com/", filter_repeat=False) for _ in range(3)]
    ids = [entry.id for entry in sort(collector, *bypass, origin=origin).children]
    assert len(set(ids)) == 3
    again = [entry.id for entry in sort(collector, *bypass, origin=YieldSite("News.parse", b"c1")).children]
    assert again == ids, "the same parent run again yields the same children"
    other = [entry.id for entry in sort(collector, *bypass, origin=YieldSite("News.parse", b"c2")).children]
    assert not set(other) & set(ids)


def test_entries_carry_priority_and_site(collector):
    first, second, third = sort(
        collector,
        Request("http://a.example/1", priority=5),
        Request("http://a.example/2"),
        Request("http://b.example/"),
    ).children
    assert (first.priority, second.priority) == (5, 300)
    assert first.site == second.site != third.site


@pytest.mark.parametrize("role", ["callback", "errback", "download_midware"])
def test_an_unknown_name_is_refused_with_a_suggestion(collector, log, counters, role):
    assert sort(collector, Request("http://example.com/", **{role: "detial"})).children == []
    assert f"whose {role} is unknown: News has no method 'detial'; did you mean 'detail'?" in log.lines[0]
    assert counters.get("parse_error") == 1


def test_one_process_takes_any_callable_and_several_only_what_has_a_name(log, counters):
    request = Request("http://example.com/", callback=lambda request, response: None)
    assert len(sort(make_collector(log, counters), request).children) == 1
    assert sort(make_collector(log, counters, shared=True), request).children == []
    assert "a lambda has no name to travel by" in log.lines[0]
    bad = Request("http://example.com/", callback=7)
    assert sort(make_collector(log, counters), bad).children == []


def test_what_travels_is_bytes_and_what_stays_is_the_request_itself(log, counters):
    request = Request("http://example.com/", cb_kwargs={"day": dt.date(2024, 2, 29)})
    assert sort(make_collector(log, counters), request).children[0].payload is request
    packed = sort(make_collector(log, counters, shared=True), request).children[0].payload
    assert Request.unpack(packed).cb_kwargs == {"day": dt.date(2024, 2, 29)}


def test_as_iterator_knows_what_plain_callbacks_return():
    assert as_iterator(None) is None
    assert list(as_iterator([1, 2])) == [1, 2]
    assert list(as_iterator({"a": 1})) == [{"a": 1}]
    made = iter((1,))
    assert as_iterator(made) is made


def test_drawing_stops_at_the_limit_and_says_whether_there_may_be_more():
    got = []
    values = iter(range(5))
    assert draw(values, got.append, got.__len__, 3)
    assert got == [0, 1, 2]
    assert not draw(values, got.append, got.__len__, 10)
    assert got == [0, 1, 2, 3, 4]
