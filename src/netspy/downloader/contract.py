"""The downloader's contract: fetch one request, or say why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.messages.request import Request
    from netspy.messages.response import Response


class Downloader(Protocol):
    """Fetches requests on the event loop that created it. Own back ends are named by the setting
    DOWNLOADER.
    """

    async def fetch(self, request: Request) -> Response:
        """The final response, redirects followed and the body complete and decoded (content coding).

        Any HTTP status is a response; judging it is the status policy's work. Raises DownloadError (with
        `.reason` and `.retryable`), ResponseTooLargeError, ContentTypeRejectedError, InvalidUrlError.
        """

    async def close(self) -> None:
        """Abort what runs and close connections. Safe to call twice."""


class FileDownloader(Protocol):
    """A downloader that can fetch what is too large to hold in memory."""

    async def save(self, request: Request, sink: Callable[[bytes], object], *, max_bytes: int) -> Response:
        """As `Downloader.fetch`, but the body of a 2xx answer goes to `sink` piece by piece, on the event loop.

        The response's content is empty; bodies of other answers are dropped. ALLOWED_CONTENT_TYPES and
        MAX_RESPONSE_SIZE are for pages and don't count; ResponseTooLargeError ends it after `max_bytes` decoded
        bytes (0 = no limit). What `sink` raises ends the transfer and is raised. A transfer that fails may have
        given pieces to the sink before.
        """
