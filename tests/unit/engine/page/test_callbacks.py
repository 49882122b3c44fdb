"""Which names call what: only what the spider's own classes define, whatever a queue that others can write says."""

import pytest

from netspy.engine.page.callbacks import Callbacks, kind_of
from netspy.errors import UnknownCallbackError
from netspy.messages.request import Request
from netspy.spiders.air import AirSpider
from netspy.spiders.base import BaseParser
from netspy.spiders.distributed import Spider


class Mixin:
    def from_mixin(self, request, response):
        """Defined beside netspy's classes."""


class Parent(Mixin, AirSpider):
    def parse(self, request, response):
        """A callback."""

    def shared(self, request, response):
        """Overridden below."""


class News(Parent):
    address = "http://example.com/"
    table = {"a": 1}

    def detail(self, request, response):
        """A callback."""

    async def later(self, request, response):
        """A callback."""

    async def stream(self, request, response):
        """A callback."""
        yield None

    def shared(self, request, response):
        """Overrides the parent's."""

    def __private(self, request, response):
        """Travels under its mangled name."""

    @staticmethod
    def static(request, response):
        """A callback."""

    @classmethod
    def of_class(cls, request, response):
        """A callback."""

    @property
    def computed(self):
        raise AssertionError("a property must not be run to look for callbacks")

    class Inner:
        """A class is no callback."""


@pytest.fixture
def spider():
    return News()


@pytest.fixture
def callbacks(spider):
    return Callbacks(spider, framework=BaseParser)


@pytest.mark.parametrize(
    "name", ["parse", "detail", "later", "stream", "static", "of_class", "from_mixin", "_News__private"]
)
def test_the_spiders_own_methods_are_found(callbacks, spider, name):
    assert callbacks.named(name) == getattr(spider, name)
    assert name in callbacks


def test_the_overriding_method_is_the_one_called(callbacks, spider):
    assert callbacks.named("shared").__func__ is News.shared


def test_a_request_without_a_callback_goes_to_parse(callbacks, spider):
    assert callbacks.of(Request("http://example.com/")) == spider.parse
    assert callbacks.of(Request("http://example.com/", callback="detail")) == spider.detail
    function = lambda request, response: None  # noqa: E731
    assert callbacks.of(Request("http://example.com/", callback=function)) is function


@pytest.mark.parametrize(
    "name",
    [
        "__class__", "__init__", "__init_subclass__", "__dict__", "__reduce__", "start", "run", "stop", "_running", "_overrides",
        "load_settings", "override_settings", "begin_run", "settings", "counters", "stats", "logger", "name", "address", "table",
        "computed", "Inner", "parse.__globals__", "os.system", "detail ", "", "Detail", "no\nsuch", "failed_request", "start_requests",
    ],
)  # fmt: skip
def test_nothing_else_can_be_called_by_name(callbacks, name):
    assert name not in callbacks
    with pytest.raises(UnknownCallbackError, match="News has no method"):
        callbacks.named(name)


def test_a_name_that_is_nearly_right_is_suggested(callbacks):
    with pytest.raises(UnknownCallbackError, match="did you mean 'detail'"):
        callbacks.named("detial")
    with pytest.raises(UnknownCallbackError, match=r"^News has no method 'zzz'$"):
        callbacks.named("zzz")


def test_a_spider_without_parse_has_none():
    class Bare(Spider):
        """Defines nothing."""

    with pytest.raises(UnknownCallbackError, match="Bare has no method 'parse'"):
        Callbacks(Bare(), framework=BaseParser).of(Request("http://example.com/"))


def test_kinds_are_told_apart_and_remembered_within_bounds(callbacks, spider):
    assert callbacks.kind(spider.detail) == "plain"
    assert callbacks.kind(spider.later) == "coroutine"
    assert callbacks.kind(spider.stream) == "async_generator"
    assert kind_of(lambda: None) == "plain"
    for _ in range(5000):
        callbacks.kind(lambda: None)
    assert len(callbacks._kinds) <= 4097
