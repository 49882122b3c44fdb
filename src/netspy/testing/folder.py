"""Files of a folder as answers: content types, index.html, 404, and nothing from outside the folder."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from netspy.testing.wire import Answer, Incoming

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {
    ".css": "text/css",
    ".csv": "text/csv",
    ".gif": "image/gif",
    ".gz": "application/gzip",
    ".htm": "text/html",
    ".html": "text/html",
    ".ico": "image/vnd.microsoft.icon",
    ".inv": "application/octet-stream",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
    ".xml": "application/xml",
    ".zip": "application/zip",
}
"""By file name extension. Without charset: an HTML file's own declaration counts, as on most servers."""


class FolderRoute:
    """A handler for LocalSite: files under `root` appear below `prefix`, which ends in a slash."""

    def __init__(self, root: Path, prefix: str) -> None:
        self.root = root
        self.prefix = prefix

    def __call__(self, request: Incoming) -> Answer | None:
        """The file, a folder's index.html, a redirect to the folder's slash, or None: nothing is there."""
        if request.method not in ("GET", "HEAD"):
            return Answer(status=405, headers={"Allow": "GET, HEAD"})
        path = unquote(request.path[len(self.prefix) :])
        # Normalised as text, not resolved: documentation folders link to files elsewhere, and may.
        inside = posixpath.normpath("/" + path).lstrip("/")
        if "\0" in inside:
            return None
        found = self.root / inside
        if found.is_dir():
            if path and not path.endswith("/"):
                return Answer(status=301, headers={"Location": quote(f"{self.prefix}{inside}/")})
            found /= "index.html"
        if not found.is_file():
            return None
        return Answer(
            found.read_bytes(), content_type=TYPES.get(found.suffix.lower(), "application/octet-stream")
        )
