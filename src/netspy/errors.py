"""Every exception of netspy. Import them from :mod:`netspy` or :mod:`netspy.exceptions`.

`reserved`: raised by nothing yet; the name is for what is not built, and user code may raise it.

NetspyError
├── ConfigError                 a setting, an argument or a store that can't be used as given   (exit 3)
│   └── MissingExtraError       an optional dependency isn't installed
├── StoreLostError              the shared store lost this run's keys while the run was alive   (exit 5)
│   └── StoreUnavailableError   the store did not answer for longer than allowed
├── SpiderError                 the spider's own code or declaration is at fault
│   ├── UnknownCallbackError    a callback name that the spider doesn't have
│   ├── BadYieldError           reserved: a callback yielded what netspy can't take (told in the log)
│   └── SeedingError            reserved: start_requests raised (the run ends as seeding_failed) (exit 4)
├── RequestError                one request can't be made or didn't succeed
│   ├── InvalidUrlError         the URL doesn't parse, or its scheme can't be fetched
│   ├── SerializationError      a value in the request can't travel between processes
│   ├── DownloadError           the fetch failed; `.reason` names how, `.retryable` says whether to try again
│   │   └── ResponseTooLargeError  ShortageError
│   ├── HttpStatusError         the answer's status is not accepted
│   ├── AntiBotError  ProxyUnavailableError  UserUnavailableError   reserved: proxy and account pools
│   └── CallbackTimeoutError    a callback ran past SPIDER_TASK_MAX_SECONDS
├── ContentTypeRejectedError    the content type isn't in ALLOWED_CONTENT_TYPES
├── ResponseError               the response can't be read as asked
│   └── NotJsonError            `.json()` of what is no JSON; a ValueError, too
├── ValidationError             raised by `validate`: fetch this request again
├── NotRetryError               raised by user code: drop this request, don't retry
├── UserCodeError               user code raised what is no Exception (CancelledError, KeyboardInterrupt, …)
├── ItemError                   an item can't be stored as it is
├── PipelineError               a pipeline failed
│   └── RowsFailedError         some rows of a batch are not stored, the others are
└── DedupError                  reserved: the dedup filter can't be used (today: ConfigError)
"""

from __future__ import annotations

from collections.abc import Mapping


def message_of(error: BaseException) -> str:
    """`str(error)`, also where that raises: user code defines exceptions of any kind."""
    try:
        return str(error)
    except BaseException as broken:
        return f"(its message can't be shown: {type(broken).__name__})"


class NetspyError(Exception):
    """Root of everything netspy raises on purpose."""


class ConfigError(NetspyError):
    """A setting, an argument or a store can't be used as given. The message names it, its value and the way out."""


class MissingExtraError(ConfigError):
    """An optional dependency isn't installed; the message gives the command that installs it from the checkout."""

    def __init__(self, feature: str, extra: str) -> None:
        """`feature` is what was asked for; `extra` the name in the project's optional dependencies."""
        super().__init__(
            f"{feature} needs the optional dependencies '{extra}'; "
            f"install them from the netspy checkout: pip install '.[{extra}]'"
        )


class StoreLostError(NetspyError):
    """The shared store no longer holds this run's keys (flushed, wrong database, restart without persistence)."""


class StoreUnavailableError(StoreLostError):
    """The shared store did not answer within the allowed time."""


class SpiderError(NetspyError):
    """The spider's code or declaration is at fault."""


class UnknownCallbackError(SpiderError):
    """A callback name that the spider doesn't have."""


class BadYieldError(SpiderError):
    """Reserved. A callback yielded something that is neither Request, item, dict, callable, None nor a list of these."""


class SeedingError(SpiderError):
    """Reserved. `start_requests` raised; what it had yielded is crawled, the run counts as failed."""


class RequestError(NetspyError):
    """One request can't be made or didn't succeed."""


class InvalidUrlError(RequestError):
    """The URL doesn't parse (WHATWG URL) or its scheme is not http or https."""


class SerializationError(RequestError):
    """A value in the request can't travel between processes unchanged."""


class DownloadError(RequestError):
    """The fetch failed.

    `reason` is one of: dns, connect, tls, timeout, reset, truncated, decode, too_large, redirects, proxy,
    protocol, url, blocked (BLOCK_PRIVATE_ADDRESSES). `retryable` tells whether another try can help.
    """

    def __init__(self, message: str, *, reason: str = "protocol", retryable: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.retryable = retryable


class ResponseTooLargeError(DownloadError):
    """The body is larger than MAX_RESPONSE_SIZE after decompression; the transfer was aborted."""

    def __init__(self, message: str = "the body is larger than MAX_RESPONSE_SIZE") -> None:
        super().__init__(message, reason="too_large", retryable=False)


class ShortageError(DownloadError):
    """No file descriptor or memory was left on this machine: no try of the request, which waits until there is room."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="shortage", retryable=True)


class HttpStatusError(RequestError):
    """The answer's status is not accepted by the status policy."""

    def __init__(self, status_code: int, url: str = "") -> None:
        super().__init__(f"HTTP {status_code}" + (f" for {url}" if url else ""))
        self.status_code = status_code
        self.url = url


class AntiBotError(RequestError):
    """Reserved. The page is an anti-bot challenge."""


class ProxyUnavailableError(RequestError):
    """Reserved. No proxy can be had."""


class UserUnavailableError(RequestError):
    """Reserved. No account can be had from the user pool."""


class CallbackTimeoutError(RequestError):
    """A callback ran longer than SPIDER_TASK_MAX_SECONDS."""


class ContentTypeRejectedError(NetspyError):
    """The answer's content type is not in ALLOWED_CONTENT_TYPES."""


class ResponseError(NetspyError):
    """The response can't be read as asked."""


class NotJsonError(ResponseError, ValueError):
    """`Response.json()` of a body that is none. A ValueError as well, as the standard library's JSONDecodeError is."""


class ValidationError(NetspyError):
    """Raise it in `validate` to have the request fetched again, within its retry budget."""


class NotRetryError(NetspyError):
    """Raise it in `validate`, a middleware or a callback to drop the request without another try."""


class UserCodeError(NetspyError):
    """User code raised what is no Exception (CancelledError, GeneratorExit, KeyboardInterrupt, a BaseException of its own), or
    something where only errors of netspy's are expected (a batch store of its own).

    It counts like any other error of that code; `__cause__` is what was raised.
    """

    def __init__(self, original: BaseException, where: str = "") -> None:
        """`where`: what raised it, for messages that don't say so by themselves."""
        self.name = type(original).__name__
        text = message_of(original)
        told = f"{self.name}: {text}" if text else self.name
        super().__init__(f"{where} raised {told}" if where else told)


class ItemError(NetspyError):
    """An item can't be stored as it is."""


class PipelineError(NetspyError):
    """A pipeline failed to store a batch."""


class RowsFailedError(PipelineError):
    """Some rows of a batch are not stored; all others are. Raised by a pipeline that knows which is which.

    `failed` maps the place of a row in the `items` that the pipeline was given to the reason. An ItemError says that
    the row can't be stored as it is; rows with another error are tried again, without the rest of their batch.
    """

    def __init__(self, failed: Mapping[int, Exception]) -> None:
        first = next(iter(failed.values()), None)
        super().__init__(f"{len(failed)} row(s) not stored: {first}")
        self.failed = dict(failed)


class DedupError(NetspyError):
    """Reserved. The dedup filter can't be used."""
