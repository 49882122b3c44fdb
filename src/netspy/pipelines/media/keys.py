"""Under which key a file is stored: by its content, and never outside of the store. No I/O here."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from urllib.parse import unquote, urlsplit

from netspy.errors import ItemError

UNKNOWN_TYPE = "application/octet-stream"
_ENDING = re.compile(r"\.([a-z0-9]{1,8})$", re.ASCII)
# Control characters, and what a path on Windows or a shell's pattern would take for something else.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_LONGEST = 900  # bytes: S3 ends at 1,024, a prefix comes on top
_LONGEST_PART = 240
_PAGES = frozenset({"php", "asp", "aspx", "jsp", "cgi", "do", "html", "htm"})  # programs that send files
_COMMON = {
    "image/jpeg": "jpg",
    "text/plain": "txt",
    "image/tiff": "tiff",
    "audio/mpeg": "mp3",
    "image/webp": "webp",
}


def content_type_of(header: str | None) -> str:
    """The media type of a Content-Type header, without its parameters."""
    return (header or "").partition(";")[0].strip().lower() or UNKNOWN_TYPE


def ending(url: str, content_type: str) -> str:
    """`.jpg` and the like: what the URL's path ends with, else what the content type stands for, else "".

    The machine's own table of types is not asked: keys must be the same on all of them.
    """
    found = _ENDING.search(unquote(urlsplit(url).path).lower())
    named = found[1] if found else ""
    if named and named not in _PAGES:
        return f".{named}"
    if content_type in _COMMON:
        return f".{_COMMON[content_type]}"
    if content_type != UNKNOWN_TYPE and (guessed := mimetypes.MimeTypes().guess_extension(content_type)):
        return guessed
    return f".{named}" if named and content_type.startswith("text/html") else ""


def default_key(url: str, sha256: str, content_type: str) -> str:
    """`<first two digits>/<SHA-256 of the content><ending>`: the same content with the same ending has one key.

    An ending of the content alone would depend on which of its URLs came first.
    """
    return f"{sha256[:2]}/{sha256}{ending(url, content_type)}"


def index_key(url: str) -> str:
    """Where the store remembers what it has of a URL."""
    digest = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
    return f".urls/{digest[:2]}/{digest}.json"


def check_key(key: str) -> str:
    """`key` itself. Raises ItemError for one that could leave the store, or meet its own files."""
    parts = key.split("/")
    if (
        any(part in {"", ".", ".."} or part != part.strip(" ") or part.endswith(".") for part in parts)
        or key.startswith(".")
        or _UNSAFE.search(key)
        or any(len(part.encode("utf-8", "replace")) > _LONGEST_PART for part in parts)
        or len(key.encode("utf-8", "replace")) > _LONGEST
        or not key.isprintable()
    ):
        raise ItemError(
            f"{key!r:.200} can't be the key of a file; give a relative path of plain names, such as 'shop/1.jpg'"
        )
    return key
