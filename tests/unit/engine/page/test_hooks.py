"""Which hooks a page comes to: only those that the user wrote, so that what isn't there costs nothing."""

from __future__ import annotations

from netspy.engine.page.callbacks import Hooks, own_hook
from netspy.spiders.air import AirSpider
from netspy.spiders.base import BaseParser
from support.engine import Spider


class Hooked(Spider):
    def validate(self, request, response):
        """A hook."""

    def failed_request(self, request, response):
        """A hook."""


class Below(Hooked):
    async def validate(self, request, response):
        """Overrides the parent's, and is awaited."""


def all_of(hooks):
    return {name for name in Hooks.__slots__ if getattr(hooks, name) is not None}


def test_what_the_framework_has_itself_is_no_hook():
    assert all_of(Hooks(Spider(), Spider)) == set()
    assert all_of(Hooks(type("Shop", (AirSpider,), {})(), BaseParser)) == set()


def test_what_the_users_classes_define_is_called_also_from_a_parent():
    spider = Hooked()
    hooks = Hooks(spider, Spider)
    assert all_of(hooks) == {"validate", "failed_request"}
    assert hooks.validate == spider.validate
    assert all_of(Hooks(Below(), Spider)) == {"validate_awaited", "failed_request"}


def test_a_validate_that_is_awaited_is_never_called_on_a_thread():
    hooks = Hooks(Below(), Spider)
    assert hooks.validate is None
    assert hooks.validate_awaited is not None


def test_a_mixin_beside_the_framework_counts_as_the_users():
    class Mixin:
        def exception_request(self, request, response, exception):
            """A hook."""

    mixed = type("Mixed", (Mixin, Spider), {})()
    assert own_hook(mixed, Spider, "exception_request") == mixed.exception_request
    assert own_hook(mixed, Spider, "failed_request") is None
