"""The body of a request, from the keywords of Request: content, json, data, files."""

from __future__ import annotations

import json as json_module
import mimetypes
import os
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from netspy.errors import RequestError
from netspy.messages.pairs import pairs_of, text_of

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
    return Body(urlencode(fields(data), encoding=encoding).encode("ascii"), FORM)


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


def fields(data: Any) -> list[tuple[str, str | bytes]]:
    """Form fields as pairs: lists repeat their name, None leaves a field out. Raises RequestError."""
    return [
        (name, text_of(one, f"the value of {name!r:.80} in data="))
        for name, value in pairs_of(data, "data")
        for one in (value if isinstance(value, list | tuple | set) else (value,))
        if one is not None
    ]


def multipart(data: Any, files: Any, *, encoding: str, boundary: str) -> Body:
    """multipart/form-data (RFC 7578): the fields of `data`, then `files`.

    A file is bytes, text, an open file, or a tuple (file name, one of these[, content type]). With the file name None
    it is a field that is no file. Raises RequestError for anything else.
    """
    mark = boundary.encode("ascii")
    parts: list[bytes] = []
    if isinstance(data, str | bytes):
        raise RequestError("data= next to files= must be a dict or pairs, so that it can be form fields")
    for name, value in fields(data or {}):
        parts += [part_head(mark, name, None, None, encoding), raw(value, "data", encoding), b"\r\n"]
    for name, file in pairs_of(files, "files"):
        file_name, content, content_type = read_file(name, file)
        parts += [
            part_head(mark, name, file_name, content_type, encoding),
            raw(content, "files", encoding),
            b"\r\n",
        ]
    parts.append(b"--" + mark + b"--\r\n")
    return Body(b"".join(parts), f"multipart/form-data; boundary={boundary}")


def read_file(name: str, file: Any) -> tuple[str | None, Any, str | None]:
    """File name, content and content type of one value of `files`; None for what its part doesn't say.

    A file name that was given stays, "" (a browser's empty file input) as well; without one an open file's own name is
    taken, else the field's. Raises RequestError.
    """
    if isinstance(file, tuple | list):
        if not 2 <= len(file) <= 3:
            raise RequestError(
                f"files[{name!r:.80}] has {len(file)} parts; give (file name, content[, content type])"
            )
        file_name, content, content_type = file[0], file[1], file[2] if len(file) == 3 else None
        if isinstance(file_name, os.PathLike):
            file_name = os.path.basename(os.fspath(file_name))  # noqa: PTH119  a name, not a path of ours
        for given in (file_name, content_type):
            if given is not None and not isinstance(given, str):
                raise RequestError(
                    f"files[{name!r:.80}] has a {type(given).__name__} for a name or type; "
                    "give (file name, content[, content type])"
                )
    else:
        own_name = getattr(file, "name", None)
        file_name = os.path.basename(own_name) if isinstance(own_name, str) else name  # noqa: PTH119  as above
        content, content_type = file, None
    if hasattr(content, "read"):
        content = _read(content, name)
    if file_name is not None and not content_type:
        content_type = mimetypes.guess_type(file_name)[0] or "application/octet-stream"
    return file_name, content, content_type or None


def _read(file: Any, name: str) -> Any:
    """What is left of an open file, which is put back where it was: a second try sends the same."""
    try:
        start = file.tell()
        content = file.read()
        file.seek(start)
    except (AttributeError, OSError, ValueError) as error:
        raise RequestError(
            f"files[{name!r:.80}] can't be read more than once, as a second try would need ({error}); give its bytes"
        ) from None
    return content


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
