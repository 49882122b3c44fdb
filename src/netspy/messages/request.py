"""A request: what to fetch, which callback gets the answer, and what it carries there.

Making one is cheap and looks at types only; the URL is parsed when the fingerprint is made or the request is sent.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

from netspy.errors import InvalidUrlError, RequestError, SerializationError
from netspy.messages import sub_download
from netspy.messages.callbacks import callback_problem, name_of
from netspy.messages.fingerprint import raw_digest, request_digest
from netspy.messages.urls import add_params, display_url, host_of, site_of
from netspy.messages.wire_format import DEFAULT_PRIORITY, VERSION, Packed, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from netspy.messages.callbacks import Callback
    from netspy.messages.response import Response
    from netspy.messages.urls import Ignore

__all__ = ["REQUEST_KWARGS", "Request", "callback_problem"]

NO_SITE = "00000000"
"""The site of a request without a usable URL, which only `auto_request=False` allows."""


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


class Request:
    """One request.

    `priority`: smaller first. `filter_repeat=False` fetches it although an equal one was seen. `auto_request=False`
    calls the callback without a download (the response is None). `cb_kwargs` are keywords for the callback. Keywords
    that aren't named here go to `requests_kwargs` (those of REQUEST_KWARGS; `params` becomes part of the URL at once,
    `allow_redirects` is `follow_redirects`) or to `custom`, where they are attributes too: `request.page`.

    Raises RequestError for a value of a wrong type, or a keyword that is a name of the class itself.
    """

    __slots__ = (
        "__dict__", "_cb_kwargs", "_digest", "_digest_ignore", "_digest_method", "_digest_url",
        "_options", "_requests_kwargs", "callback", "errback", "filter_repeat", "method", "priority",
        "retry_times", "url",
    )  # fmt: skip

    url: str
    method: str
    callback: Callback
    errback: Callback
    priority: float
    retry_times: int
    filter_repeat: bool

    auto_request: Option[bool] = Option(True)
    use_session: Option[bool | None] = Option(None)
    random_user_agent: Option[bool | None] = Option(None)
    impersonate: Option[str | None] = Option(None)
    render: Option[bool] = Option(False)
    render_time: Option[float | None] = Option(None)
    wait_for: Option[Any] = Option(None)
    render_script: Option[str | None] = Option(None)
    download_midware: Option[Callback] = Option(None)
    parser_name: Option[str | None] = Option(None)
    encoding: Option[str | None] = Option(None)

    def __init__(
        self,
        url: str,
        method: str = "GET",
        *,
        callback: Callback = None,
        errback: Callback = None,
        priority: float = DEFAULT_PRIORITY,
        retry_times: int = 0,
        filter_repeat: bool = True,
        auto_request: bool = True,
        use_session: bool | None = None,
        random_user_agent: bool | None = None,
        impersonate: str | None = None,
        render: bool = False,
        render_time: float | None = None,
        wait_for: Any = None,
        render_script: str | None = None,
        download_midware: Callback = None,
        parser_name: str | None = None,
        encoding: str | None = None,
        cb_kwargs: Mapping[str, Any] | None = None,
        **kw: Any,
    ) -> None:
        self.url = url if type(url) is str else plain_url(url)
        self.method = method if method == "GET" else plain_method(method)
        self.callback = callback
        self.errback = errback
        self.priority = priority if type(priority) is int and -1e9 < priority < 1e9 else finite(priority)
        self.retry_times = retry_times if type(retry_times) is int else count(retry_times)
        self.filter_repeat = filter_repeat
        self._cb_kwargs = None if cb_kwargs is None else own_dict(cb_kwargs, "cb_kwargs")
        self._requests_kwargs: dict[str, Any] | None = None
        self._options: dict[str, Any] | None = None
        self._digest: bytes | None = None
        self._digest_url: str | None = None
        self._digest_method: str | None = None
        self._digest_ignore: Ignore | None = None
        given = (
            auto_request, use_session, random_user_agent, impersonate, render, render_time, wait_for,
            render_script, download_midware, parser_name, encoding,
        )  # fmt: skip
        if given != _OPTION_DEFAULTS:
            pairs = zip(_OPTIONS, given, _OPTION_DEFAULTS, strict=True)
            self._options = {name: value for name, value, usual in pairs if value is not usual} or None
        if kw:
            self._take(kw)

    # -- parts that are made when they are asked for

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        """Keywords for the callback."""
        if self._cb_kwargs is None:
            self._cb_kwargs = {}
        return self._cb_kwargs

    @cb_kwargs.setter
    def cb_kwargs(self, value: Mapping[str, Any] | None) -> None:
        self._cb_kwargs = None if value is None else own_dict(value, "cb_kwargs")

    @property
    def requests_kwargs(self) -> dict[str, Any]:
        """Keywords for the downloader: headers, cookies, data, proxy and so on."""
        if self._requests_kwargs is None:
            self._requests_kwargs = {}
        return self._requests_kwargs

    @requests_kwargs.setter
    def requests_kwargs(self, value: Mapping[str, Any] | None) -> None:
        self._requests_kwargs = None if value is None else own_dict(value, "requests_kwargs")

    @property
    def custom(self) -> dict[str, Any]:
        """The user's own keywords, which are attributes of the request too."""
        return self.__dict__

    @property
    def callback_name(self) -> str | None:
        """The callback's name, by which it travels; None when none was given (`parse` is meant)."""
        return name_of(self.callback)

    @property
    def errback_name(self) -> str | None:
        """The errback's name; None when none was given."""
        return name_of(self.errback)

    # -- identity

    def digest(self, ignore: Ignore | None = None) -> bytes:
        """The fingerprint, 16 bytes: equal for equal method, canonical URL and body.

        `ignore` comes from `urls.compile_ignore`. Raises InvalidUrlError for a URL that doesn't parse, except
        with `auto_request=False`, where the URL is only a label.
        """
        url, method = self.url, self.method
        kept = self._digest
        if (
            kept is not None
            and self._digest_url is url
            and self._digest_method is method
            and self._digest_ignore is ignore
            and not self._requests_kwargs
        ):
            return kept
        try:
            digest = request_digest(method, self.wire_url, self._requests_kwargs, ignore)
        except InvalidUrlError:
            if self.auto_request:
                raise
            digest = raw_digest(method, url)
        if not self._requests_kwargs:  # a body may be changed in place, so its digest isn't kept
            self._digest, self._digest_url = digest, url
            self._digest_method, self._digest_ignore = method, ignore
        return digest

    @property
    def fingerprint(self) -> str:
        """`digest()` as 32 hex digits."""
        return self.digest().hex()

    @property
    def wire_url(self) -> str:
        """`url`, with the `params` that were put into `requests_kwargs` after the request was made."""
        params = None if self._requests_kwargs is None else self._requests_kwargs.get("params")
        return self.url if params is None else add_params(self.url, params)

    @property
    def site(self) -> str:
        """8 hex digits that stand for host and port. Raises InvalidUrlError as `digest` does."""
        try:
            return site_of(self.url)
        except InvalidUrlError:
            if self.auto_request:
                raise
            return NO_SITE

    @property
    def host(self) -> str:
        """The URL's host name. Raises InvalidUrlError."""
        return host_of(self.url)

    # -- other forms

    def copy(self) -> Self:
        """An equal request. Changing its headers, cb_kwargs or custom fields leaves this one as it is."""
        other = object.__new__(type(self))
        for name in _SLOTS:
            setattr(other, name, getattr(self, name))
        if self._cb_kwargs is not None:
            other._cb_kwargs = dict(self._cb_kwargs)
        if self._requests_kwargs is not None:
            other._requests_kwargs = copied(self._requests_kwargs)
        if self.__dict__:
            other.__dict__.update(self.__dict__)
        return other

    __copy__ = copy

    def replace(self, **kw: Any) -> Self:
        """A copy with other values; the names are the constructor's. Raises RequestError."""
        other = self.copy()
        if "url" in kw:
            other.url = plain_url(kw.pop("url"))
        if "method" in kw:
            other.method = plain_method(kw.pop("method"))
        if "priority" in kw:
            other.priority = finite(kw.pop("priority"))
        if "retry_times" in kw:
            other.retry_times = count(kw.pop("retry_times"))
        for name in _SETTABLE & kw.keys():
            setattr(other, name, kw.pop(name))
        if kw:
            other._take(kw)  # noqa: SLF001 - of its own class
        return other

    def to_dict(self) -> dict[str, Any]:
        """Every field under its documented name, callbacks by name. `codec.encode` makes exact JSON of it."""
        data: dict[str, Any] = {
            "url": self.url,
            "method": self.method,
            "callback": self.callback_name,
            "errback": self.errback_name,
            "priority": self.priority,
            "retry_times": self.retry_times,
            "filter_repeat": self.filter_repeat,
        }
        data |= zip(_OPTIONS, _OPTION_DEFAULTS, strict=True)
        if self._options:
            data |= _named(self._options)
        data["cb_kwargs"] = dict(self._cb_kwargs or ())
        data["requests_kwargs"] = copied(self._requests_kwargs or {})
        data["custom"] = dict(self.__dict__)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; fields may be missing, except the URL. Raises RequestError."""
        fields = dict(data)
        own = fields.pop("custom", None) or {}
        keywords = fields.pop("requests_kwargs", None) or {}
        strange = fields.keys() - _FIELDS
        if strange or "url" not in fields:
            problem = f"unknown fields {sorted(strange)}" if strange else "no url"
            raise RequestError(f"not a request: {problem} in {data!r:.200}")
        return cls(**fields, **keywords, **own)

    def pack(self) -> bytes:
        """The form for a queue between processes: a small JSON object, defaults left out.

        Raises SerializationError naming the key of a value that can't travel, or a callback without a name.
        """
        if type(self.url) is not str or type(self.method) is not str:
            raise SerializationError(f"url={self.url!r:.100} and method={self.method!r:.100} must be strings")
        priority = self.priority
        packed = Packed(
            VERSION,
            self.url,
            self.method,
            None if self.callback is None else _travelling(self.callback, "callback"),
            None if self.errback is None else _travelling(self.errback, "errback"),
            priority if type(priority) is int else finite(priority),
            int(self.retry_times),
            bool(self.filter_repeat),
            self._cb_kwargs or None,
            self._requests_kwargs or None,
            self.__dict__ or None,
            None if self._options is None else _named(self._options, _travelling),
        )
        return encode(packed, self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The request that `pack` was called on; callbacks are names. Raises SerializationError."""
        packed = decode(data)
        self = object.__new__(cls)
        self.url = packed.u
        self.method = packed.m
        self.callback = packed.c
        self.errback = packed.e
        self.priority = packed.p
        self.retry_times = packed.r
        self.filter_repeat = packed.f
        self._cb_kwargs = packed.k
        self._requests_kwargs = packed.q
        self._options = packed.o
        self._digest = self._digest_url = self._digest_method = self._digest_ignore = None
        if packed.x:
            if not _RESERVED.isdisjoint(packed.x):  # they would hide Request's own methods
                raise SerializationError(
                    f"not a packed request: custom fields named {sorted(_RESERVED & packed.x.keys())}"
                )
            self.__dict__.update(packed.x)
        return self

    @classmethod
    def from_curl(cls, command: str) -> Self:
        """The request that a curl command line makes (`messages.curl_command`). Raises RequestError."""
        from netspy.messages.curl_command import parse_curl

        return cls(**parse_curl(command))

    # -- downloading inside a callback

    async def fetch(self) -> Response:
        """Download now and return the response: `response = await request.fetch()` in an `async def` callback.

        Raises what the downloader raises; RequestError outside a callback.
        """
        return await sub_download.fetch(self)

    def download(self, downloader: Any = None) -> Any:
        """Download now and return the response; in async code, an awaitable of it.

        `downloader` is an object with `fetch(request)`, to be used outside a spider. Raises as `fetch` does.
        """
        return sub_download.download(self, downloader)

    # -- the rest

    def __lt__(self, other: Request) -> bool:
        return self.priority < other.priority

    def __repr__(self) -> str:
        callback = "" if self.callback is None else f" callback={name_of(self.callback)}"
        priority = "" if self.priority == DEFAULT_PRIORITY else f" priority={self.priority:g}"
        retries = f" retry_times={self.retry_times}" if self.retry_times else ""
        return f"<Request {self.method} {display_url(self.url)[1:-1]}{callback}{priority}{retries}>"

    def _take(self, kw: dict[str, Any]) -> None:
        """Sort keywords into the downloader's and the user's."""
        for name, value in kw.items():
            if name in REQUEST_KWARGS:
                if name == "params":
                    self.url = add_params(self.url, value)
                    continue
                if self._requests_kwargs is None:
                    self._requests_kwargs = {}
                own = value.copy() if type(value) is dict or type(value) is list else value
                self._requests_kwargs["follow_redirects" if name == "allow_redirects" else name] = own
            elif name in _RESERVED:
                raise RequestError(f"Request({name}=…): it is a name of Request itself; choose another name")
            else:
                self.__dict__[name] = value


_OPTIONS = tuple(name for name, value in vars(Request).items() if isinstance(value, Option))
_OPTION_DEFAULTS = tuple(vars(Request)[name].default for name in _OPTIONS)
_SLOTS = tuple(name for name in Request.__slots__ if name != "__dict__")
_RESERVED = frozenset(dir(Request))
_SETTABLE = frozenset({"callback", "errback", "filter_repeat", "cb_kwargs", "requests_kwargs", *_OPTIONS})
_FIELDS = _SETTABLE | {"url", "method", "priority", "retry_times"}


def _named(
    options: dict[str, Any], name: Callable[[Any, str], str | None] = lambda value, _: name_of(value)
) -> dict[str, Any]:
    midware = options.get("download_midware")
    return options if midware is None else {**options, "download_midware": name(midware, "download_midware")}


def _travelling(callback: Any, role: str) -> str:
    name = name_of(callback)
    if name is None or not name.isidentifier():
        raise SerializationError(
            f"{role}={callback!r:.100} has no name to travel by; use a method of the spider, or its name"
        )
    return name
