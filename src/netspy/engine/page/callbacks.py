"""Which of the spider's functions may be called by name, how each of them is called, and which hooks it has."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any, Literal

from netspy.engine.contract import SpiderLike
from netspy.errors import UnknownCallbackError
from netspy.messages.request import Request

Kind = Literal["plain", "coroutine", "async_generator"]


def kind_of(function: Callable[..., Any]) -> Kind:
    """How to call it: on a worker thread, awaited on the loop, or iterated on the loop."""
    if inspect.isasyncgenfunction(function):
        return "async_generator"
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    return "plain"


def is_method(value: Any) -> bool:
    """Whether a value in a class body is a method: it is callable and binds to the object."""
    return (
        callable(getattr(value, "__func__", value))
        and hasattr(type(value), "__get__")
        and not isinstance(value, type)
    )


class Callbacks:
    """The callable names of one spider.

    Only methods that the spider's own classes define, below netspy's base classes, can be called by a name that
    came from outside (a queue may be written by others): never dunder names, attributes, classes, other callable
    values, or netspy's own methods.
    """

    def __init__(self, spider: SpiderLike, *, framework: type, default: str = "parse") -> None:
        self.spider = spider
        self.default = default
        self._kinds: dict[Any, Kind] = {}
        self._methods: dict[str, Callable[..., Any]] = {}
        for klass in reversed(type(spider).__mro__):
            if (
                klass is object
                or issubclass(framework, klass)
                or klass.__module__.startswith("netspy.spiders")
            ):
                continue
            for name, value in vars(klass).items():
                # An attribute of the object may hide a method of that name.
                if not name.startswith("__") and is_method(value) and callable(getattr(spider, name, None)):
                    self._methods[name] = getattr(spider, name)

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def problem(self, name: str) -> str:
        """The text for a name that isn't there."""
        close = difflib.get_close_matches(name, self._methods, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"{type(self.spider).__name__} has no method {name!r:.200}{hint}"

    def named(self, name: str | None) -> Callable[..., Any]:
        """The method of that name. Raises UnknownCallbackError."""
        wanted = self.default if name is None else name
        found = self._methods.get(wanted)
        if found is None:
            raise UnknownCallbackError(self.problem(wanted))
        return found

    def of(self, request: Request) -> Callable[..., Any]:
        """The function a request goes to. Raises UnknownCallbackError."""
        callback = request.callback
        if callback is None or isinstance(callback, str):
            return self.named(callback)
        function: Callable[..., Any] = callback
        return function

    def check(self, request: Request) -> None:
        """Whether every name that the request brings can be called. Raises UnknownCallbackError."""
        for role, name in (("errback", request.errback), ("download_midware", request.download_midware)):
            if name is None or (callable(name) and not isinstance(name, str)):
                continue
            if not isinstance(name, str) or name not in self._methods:
                raise UnknownCallbackError(f"{role}: {self.problem(str(name)[:200])}")

    def kind(self, function: Callable[..., Any]) -> Kind:
        """`kind_of`, remembered per function."""
        key = getattr(function, "__func__", function)
        found = self._kinds.get(key)
        if found is None:
            if len(self._kinds) > 4096:  # lambdas made per page must not pile up
                self._kinds.clear()
            found = self._kinds[key] = kind_of(function)
        return found


def own_hook(spider: SpiderLike, base: type, name: str) -> Callable[..., Any] | None:
    """The spider's hook of that name; None when it is only that of the class `base`."""
    return getattr(spider, name) if getattr(type(spider), name) is not getattr(base, name) else None


class Hooks:
    """The hooks that a page may come to; None = nothing to call. A `validate` is here as plain or as awaited."""

    __slots__ = ("exception_request", "failed_request", "validate", "validate_awaited")

    def __init__(self, spider: SpiderLike, base: type) -> None:
        validate = own_hook(spider, base, "validate")
        awaited = validate is not None and inspect.iscoroutinefunction(validate)
        self.validate = None if awaited else validate
        self.validate_awaited = validate if awaited else None
        self.failed_request = own_hook(spider, base, "failed_request")
        self.exception_request = own_hook(spider, base, "exception_request")
