"""libcurl's result codes in netspy's words: what kind of failure, and whether another try can help."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netspy.errors import (
    ContentTypeRejectedError,
    DownloadError,
    NetspyError,
    ResponseTooLargeError,
    ShortageError,
)
from netspy.policy.descriptors import SHORTAGES
from netspy.settings import without_passwords

if TYPE_CHECKING:
    from netspy.downloader.decoding import BodyError


class Kind(NamedTuple):
    """`reason` as in DownloadError; `retryable` is the answer to: could the same request succeed in a
    minute?
    """

    reason: str
    retryable: bool = True


# https://curl.se/libcurl/c/libcurl-errors.html
KINDS: dict[int, Kind] = {
    1: Kind("protocol"),  # UNSUPPORTED_PROTOCOL: the answer is not HTTP/1 or 2
    3: Kind("url", retryable=False),  # URL_MALFORMAT
    5: Kind("proxy"),  # COULDNT_RESOLVE_PROXY
    6: Kind("dns"),  # COULDNT_RESOLVE_HOST
    7: Kind("connect"),  # COULDNT_CONNECT
    8: Kind("protocol"),  # WEIRD_SERVER_REPLY
    16: Kind("protocol"),  # HTTP2
    18: Kind("truncated"),  # PARTIAL_FILE
    28: Kind("timeout"),  # OPERATION_TIMEDOUT
    35: Kind("tls"),  # SSL_CONNECT_ERROR
    43: Kind("protocol", retryable=False),  # BAD_FUNCTION_ARGUMENT
    52: Kind("reset"),  # GOT_NOTHING
    53: Kind("tls", retryable=False),  # SSL_ENGINE_NOTFOUND
    54: Kind("tls", retryable=False),  # SSL_ENGINE_SETFAILED
    55: Kind("reset"),  # SEND_ERROR
    56: Kind("reset"),  # RECV_ERROR
    58: Kind("tls", retryable=False),  # SSL_CERTPROBLEM: our client certificate
    59: Kind("tls", retryable=False),  # SSL_CIPHER
    60: Kind("tls", retryable=False),  # PEER_FAILED_VERIFICATION
    61: Kind("decode"),  # BAD_CONTENT_ENCODING
    66: Kind("tls"),  # SSL_ENGINE_INITFAILED
    77: Kind("tls", retryable=False),  # SSL_CACERT_BADFILE
    80: Kind("reset"),  # SSL_SHUTDOWN_FAILED
    83: Kind("tls", retryable=False),  # SSL_ISSUER_ERROR
    91: Kind("tls", retryable=False),  # SSL_INVALIDCERTSTATUS
    92: Kind("reset"),  # HTTP2_STREAM
    95: Kind("protocol"),  # HTTP3
    96: Kind("connect"),  # QUIC_CONNECT_ERROR
    97: Kind("proxy"),  # PROXY handshake
    98: Kind("tls", retryable=False),  # SSL_CLIENTCERT
}
UNKNOWN = Kind("protocol")
# COULDNT_CONNECT, WEIRD_SERVER_REPLY, OPERATION_TIMEDOUT, RECV_ERROR and HTTP2_STREAM stand for several things each.
AMBIGUOUS = frozenset({7, 8, 28, 56, 92})
TOLD_BY_TEXT: tuple[tuple[str, Kind], ...] = (
    ("resolving timed out", Kind("dns")),
    ("closed cleanly", Kind("reset")),
    ("connect tunnel", Kind("proxy")),
    ("proxy", Kind("proxy")),
    ("chunk", Kind("truncated")),
    ("hexadecimal", Kind("truncated")),
    ("without colon", Kind("protocol", retryable=False)),
    ("header", Kind("protocol")),
    ("content-length", Kind("protocol")),
)


def kind_of(code: int, text: str) -> Kind:
    """The kind of a failed transfer from its CURLcode and libcurl's text."""
    if code == 16 and not text:  # of a connection that ended libcurl says no more
        return Kind("reset")
    if code in AMBIGUOUS:
        low = text.lower()
        for word, kind in TOLD_BY_TEXT:
            if word in low:
                return kind
    return KINDS.get(code, UNKNOWN)


_OUT_OF_MEMORY = 27
_BEFORE_CONNECTED = frozenset({6, 7, 77})  # no name, no connection, no certificates could be had


def is_shortage(code: int, os_error: int) -> bool:
    """Whether a transfer failed because this machine had no file descriptor or memory for it."""
    return code == _OUT_OF_MEMORY or (code in _BEFORE_CONNECTED and os_error in SHORTAGES)


def shortage(method: str, url: str, text: str) -> ShortageError:
    """The error of a transfer for which this machine had no room."""
    return ShortageError(f"{describe_request(method, url)} could not be sent: {text or 'out of memory'}")


def from_curl(
    code: int, text: str, *, method: str, url: str, progressed: bool = False, proxied: bool = False
) -> DownloadError:
    """The error of a transfer that libcurl gave up.

    `progressed`: its head had arrived. `proxied`: it went through a proxy.
    """
    kind = kind_of(code, text)
    if progressed and kind.reason == "reset":
        kind = Kind("truncated")
    if proxied and kind.reason == "connect":  # all connections go to the proxy
        kind = Kind("proxy")
    return download_error(method, url, f"{text or 'libcurl gave no reason'} (libcurl {code})", kind)


def from_body(error: BodyError, *, method: str, url: str) -> DownloadError:
    """The error of a body that can't be had in full."""
    if error.reason == "too_large":
        return ResponseTooLargeError(
            f"{describe_request(method, url)}: {error}; raise MAX_RESPONSE_SIZE if such pages are wanted"
        )
    return download_error(method, url, str(error), Kind(error.reason))


def download_error(method: str, url: str, why: str, kind: Kind) -> DownloadError:
    """A DownloadError whose message says what, which URL and why."""
    return DownloadError(
        f"{describe_request(method, url)} failed ({kind.reason}): {why}",
        reason=kind.reason,
        retryable=kind.retryable,
    )


def content_type_error(method: str, url: str, content_type: str, allowed: list[str]) -> NetspyError:
    """The error of a page whose type isn't wanted."""
    return ContentTypeRejectedError(
        f"{describe_request(method, url)}: its content type {content_type!r:.100} is not in "
        f"ALLOWED_CONTENT_TYPES={allowed!r}"
    )


def describe_request(method: str, url: str) -> str:
    """The request as messages name it: without credentials, and not longer than a line."""
    shown = without_passwords(url)
    return f"{method} {shown if len(shown) <= 300 else shown[:297] + '...'}"
