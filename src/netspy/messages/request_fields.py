"""What a request's fields may hold, and how the rare ones are kept."""

from __future__ import annotations

from math import isfinite
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from netspy.errors import RequestError

REQUEST_KWARGS = frozenset(
    {
        "params", "headers", "cookies", "data", "json", "content", "files", "auth", "timeout",
        "follow_redirects", "allow_redirects", "verify", "proxy", "proxies", "cert",
    }
)  # fmt: skip
"""Keywords that go to `Request.requests_kwargs`; other unknown keywords are the user's own
(`Request.custom`)."""


_PRIORITY_MAX = 2**53  # a queue's scores are doubles; beyond it neighbouring whole numbers are one
T = TypeVar("T")


class _HasOptions(Protocol):
    _options: dict[str, Any] | None


class Option(Generic[T]):
    """An attribute that few requests set: it takes room only where it differs from its default."""

    __slots__ = ("default", "name")

    def __init__(self, default: T) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, request: None, owner: type) -> Self: ...
    @overload
    def __get__(self, request: _HasOptions, owner: type) -> T: ...
    def __get__(self, request: _HasOptions | None, owner: type) -> Any:
        if request is None:
            return self
        options = request._options  # noqa: SLF001 - the descriptor is a part of Request
        return self.default if options is None else options.get(self.name, self.default)

    def __set__(self, request: _HasOptions, value: T) -> None:
        options = dict(request._options or ())  # noqa: SLF001 - as above
        if value is self.default:
            options.pop(self.name, None)
        else:
            options[self.name] = value
        request._options = options or None  # noqa: SLF001 - as above


def plain_url(url: Any) -> str:
    """The URL as an exact str. Raises RequestError for another type."""
    if not isinstance(url, str):
        raise RequestError(f"Request(url={url!r:.100}): the URL must be a str, not {type(url).__name__}")
    return str(url)


def plain_method(method: Any) -> str:
    """The method in upper case. Raises RequestError for another type."""
    if not isinstance(method, str) or not method:
        raise RequestError(f"Request(method={method!r:.100}): the method must be a str such as 'POST'")
    return str(method).upper()


def finite(priority: Any) -> float:
    """The priority itself. Raises RequestError unless a queue can sort by it."""
    if type(priority) is int and -_PRIORITY_MAX <= priority <= _PRIORITY_MAX:
        return priority
    if type(priority) is float and isfinite(priority):
        return priority
    raise RequestError(
        f"Request(priority={priority!r:.100}): the priority must be a finite int or float within ±2**53"
    )


def count(retry_times: Any) -> int:
    """The number itself. Raises RequestError for anything but a whole number from 0 up."""
    if type(retry_times) is not int or retry_times < 0:
        raise RequestError(f"Request(retry_times={retry_times!r:.100}): it must be a whole number from 0 up")
    return retry_times


def own_dict(value: Any, name: str) -> dict[str, Any]:
    """A copy, so that the caller's next change of its dict doesn't reach this request."""
    try:
        own = dict(value)
    except (TypeError, ValueError):
        own = {None: value}
    for key in own:
        if not isinstance(key, str):
            raise RequestError(f"Request({name}={value!r:.100}): a dict with names as keys is wanted")
    return own


def copied(values: dict[str, Any]) -> dict[str, Any]:
    """A copy that shares no dict or list with the original, one level down."""
    return {
        name: value.copy() if type(value) is dict or type(value) is list else value
        for name, value in values.items()
    }
