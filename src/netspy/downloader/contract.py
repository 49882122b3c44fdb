"""The downloader's contract: fetch one request, or say why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
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
