"""The body of a request, from the keywords of Request: content, json, data, files."""

from __future__ import annotations

import json as json_module
import mimetypes
import os
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from netspy.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORM = "application/x-www-form-urlencoded"


class Body(NamedTuple):
    """Bytes to send and what they are; `content_type` is None where only the caller knows."""

    content: bytes
    content_type: str | None


def encode(
    options: Mapping[str, Any],
    *,
    encoding: str = "utf-8",
    boundary: Callable[[], str] = lambda: os.urandom(16).hex(),
) -> Body | None:
    """The body that `options` (requests_kwargs) ask for, None for a request without one.

    `encoding` is that of form text. Raises RequestError when the keywords contradict each other or a value
    can't be sent.
    """
    content, json, data, files = (options.get(name) for name in ("content", "json", "data", "files"))
    if content is None and json is None and data is None and not files:
        return None
    given = [name for name in ("content", "json", "data") if options.get(name) is not None]
    if len(given) > 1 or (files and given not in ([], ["data"])):
        raise RequestError(
            f"a request has one body, but {' and '.join([*given, *(['files'] if files else [])])} are given"
        )
    if files:
        return multipart(data, files, encoding=encoding, boundary=boundary())
    if json is not None:
        return json_body(json)
    if content is not None:
        return Body(raw(content, "content", encoding), None)
    if isinstance(data, str | bytes | bytearray | memoryview):
        return Body(raw(data, "data", encoding), None)
    try:
        return Body(urlencode(fields(data), encoding=encoding).encode("ascii"), FORM)
    except (TypeError, ValueError) as error:
        raise RequestError(f"data= of type {type(data).__name__} can't be sent as a form: {error}") from None


def json_body(value: Any) -> Body:
    """`value` as JSON in UTF-8. Raises RequestError for what JSON doesn't know, NaN included."""
    try:
        text = json_module.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RequestError(f"json= can't be written as JSON: {error}") from None
    return Body(text.encode("utf-8", "surrogatepass"), "application/json")


def raw(value: Any, name: str, encoding: str) -> bytes:
    """Bytes as they are, text in `encoding`. Raises RequestError for anything else."""
    if isinstance(value, str):
        return value.encode(encoding, "xmlcharrefreplace")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise RequestError(f"{name}= takes str or bytes, not {type(value).__name__}")


def fields(data: Any) -> list[tuple[str, Any]]:
    """Form fields as pairs: lists repeat their name, None leaves a field out, booleans read as in JSON."""
    pairs = data.items() if hasattr(data, "items") else data
    out: list[tuple[str, Any]] = []
    for name, value in pairs:
        values = value if isinstance(value, list | tuple | set) else (value,)
        out += [
            (str(name), str(one).lower() if isinstance(one, bool) else one)
            for one in values
            if one is not None
        ]
    return out


def multipart(data: Any, files: Any, *, encoding: str, boundary: str) -> Body:
    """multipart/form-data (RFC 7578): the fields of `data`, then `files`.

    A file is bytes, text, an open file, or a tuple (file name, one of these[, content type]).
    Raises RequestError for anything else.
    """
    mark = boundary.encode("ascii")
    parts: list[bytes] = []
    if isinstance(data, str | bytes):
        raise RequestError("data= next to files= must be a dict or pairs, so that it can be form fields")
    for name, value in fields(data or {}):
        text = value if isinstance(value, bytes) else str(value).encode(encoding, "xmlcharrefreplace")
        parts += [part_head(mark, name, None, None, encoding), text, b"\r\n"]
    for name, file in files.items() if hasattr(files, "items") else files:
        file_name, content, content_type = read_file(name, file)
        parts += [
            part_head(mark, name, file_name, content_type, encoding),
            raw(content, "files", encoding),
            b"\r\n",
        ]
    parts.append(b"--" + mark + b"--\r\n")
    return Body(b"".join(parts), f"multipart/form-data; boundary={boundary}")


def read_file(name: str, file: Any) -> tuple[str, Any, str]:
    """File name, content and content type of one value of `files`."""
    file_name, content, content_type = name, file, None
    if isinstance(file, tuple | list):
        if not 2 <= len(file) <= 4:
            raise RequestError(
                f"files[{name!r}] has {len(file)} parts; give (file name, content[, content type])"
            )
        file_name, content = str(file[0] or name), file[1]
        content_type = file[2] if len(file) > 2 else None
    if hasattr(content, "read"):
        if file_name == name:
            file_name = os.path.basename(str(getattr(content, "name", name)))  # noqa: PTH119  a name, not a path of ours
        content = content.read()
    return (
        file_name,
        content,
        content_type or mimetypes.guess_type(file_name)[0] or "application/octet-stream",
    )


def part_head(
    mark: bytes, name: str, file_name: str | None, content_type: str | None, encoding: str
) -> bytes:
    """The head of one part; names are escaped as browsers do it (HTML "multipart form data")."""
    text = f'Content-Disposition: form-data; name="{escape(name)}"'
    if file_name is not None:
        text += f'; filename="{escape(file_name)}"'
    if content_type is not None:
        text += f"\r\nContent-Type: {content_type.replace(chr(13), '').replace(chr(10), '')}"
    return b"--" + mark + b"\r\n" + text.encode(encoding, "xmlcharrefreplace") + b"\r\n\r\n"


def escape(name: str) -> str:
    """A field or file name for a Content-Disposition line."""
    return str(name).replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
