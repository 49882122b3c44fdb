"""Settings of how sites are spared, and of when a request is tried again."""

from __future__ import annotations

from typing import Annotated

import msgspec

from netspy.settings.declaring import described
from netspy.settings.download import DownloadSettings

_doc = described("politeness")


class PolitenessSettings(DownloadSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    CONCURRENT_REQUESTS_PER_DOMAIN: Annotated[
        int, _doc("Requests in flight per host and node; 0 = no limit.", "requests", ge=0)
    ] = 8
    DOWNLOAD_DELAY: Annotated[float, _doc("Between two requests to one host on a node.", "s", ge=0)] = 0.0
    RANDOMIZE_DOWNLOAD_DELAY: Annotated[bool, _doc("Vary DOWNLOAD_DELAY between 0.5 and 1.5 times.")] = True
    CHECK_STATUS_CODE: Annotated[
        bool, _doc("Apply the status policy; off: every status reaches the callback.")
    ] = True
    RETRY_STATUS_CODES: Annotated[list[int], _doc("Statuses tried again.")] = msgspec.field(
        default_factory=lambda: [429, 500, 502, 503, 504]
    )
    ACCEPT_STATUS_CODES: Annotated[
        list[int], _doc("Statuses besides 2xx and 3xx that reach the callback.")
    ] = msgspec.field(default_factory=list)
    RETRY_AFTER_MAX: Annotated[float, _doc("The longest Retry-After that is obeyed.", "s", ge=0)] = 60.0
    RETRY_BACKOFF: Annotated[
        float, _doc("First back-off before a retry; doubled each time, with jitter; 0 = at once.", "s", ge=0)
    ] = 0.5
    RETRY_BACKOFF_MAX: Annotated[float, _doc("The longest back-off.", "s", ge=0)] = 60.0
    CIRCUIT_FAILURE_THRESHOLD: Annotated[
        int, _doc("Failures in a row on one host after which it cools down; 0 = off.", "requests", ge=0)
    ] = 10
    CIRCUIT_COOLDOWN: Annotated[float, _doc("How long a host cools down.", "s", ge=0)] = 60.0
