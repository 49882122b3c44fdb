"""Settings of one fetch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netspy.settings.declaring import described
from netspy.settings.tasks import TaskSettings

_doc = described("download")


class DownloadSettings(TaskSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    REQUEST_TIMEOUT: Annotated[
        float, _doc("One fetch, redirects included, may take this long.", "s", gt=0)
    ] = 22.0
    CONNECT_TIMEOUT: Annotated[
        float, _doc("Name look-up, connection and TLS may take this long.", "s", gt=0)
    ] = 10.0
    IDLE_TIMEOUT: Annotated[
        float, _doc("A transfer without a byte for this long is given up; 0 = off.", "s", ge=0)
    ] = 15.0
    USER_AGENT: Annotated[str, _doc("User-Agent header when a request has none; empty = netspy's own.")] = ""
    RANDOM_USER_AGENT: Annotated[bool, _doc("Send a common browser's User-Agent, one per site.")] = False
    USE_SESSION: Annotated[bool, _doc("Accepted; connections and cookies are always shared.")] = True
    COOKIES_ENABLED: Annotated[bool, _doc("Keep and send cookies.")] = True
    HTTPX_HTTP2: Annotated[bool, _doc("Use HTTP/2 where a TLS server offers it.")] = True
    DOWNLOADER_IMPERSONATE: Annotated[
        str, _doc("Browser whose TLS and HTTP/2 fingerprint is used, e.g. chrome.")
    ] = ""
    VERIFY_TLS: Annotated[bool, _doc("Check certificates; a request's `verify=` overrides it.")] = True
    BLOCK_PRIVATE_ADDRESSES: Annotated[
        bool,
        _doc(
            "Refuse to connect to private, loopback, link-local and cloud metadata addresses, redirects included."
        ),
    ] = False
    MAX_REDIRECTS: Annotated[int, _doc("Redirects followed per fetch.", "hops", ge=0)] = 20
    MAX_RESPONSE_SIZE: Annotated[
        int, _doc("The largest body accepted, after decompression; 0 = no limit.", "bytes", ge=0)
    ] = 33554432
    ALLOWED_CONTENT_TYPES: Annotated[
        list[str], _doc("Content types accepted, `text/*` allowed; empty = all.")
    ] = msgspec.field(default_factory=list)
    DOWNLOADER_MIDDLEWARES: Annotated[
        list[str], _doc("Classes wrapped around each fetch, outermost first.")
    ] = msgspec.field(default_factory=list)
    DOWNLOADER: Annotated[str, _doc("Class path of the downloader.")] = (
        "netspy.downloader.curl.CurlDownloader"
    )
    SELECTOR_ENGINE: Annotated[Literal["turbohtml", "parsel"], _doc("What answers css() and xpath().")] = (
        "turbohtml"
    )
    URL_IGNORE_PARAMS: Annotated[
        list[str],
        _doc("Query parameters left out of the fingerprint, `utm_*` allowed; the URL fetched keeps them."),
    ] = msgspec.field(default_factory=list)
