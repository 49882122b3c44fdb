"""Elasticsearch and OpenSearch: the bulk request, and what its answer says of each row. No I/O here."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from netspy.errors import ConfigError, ItemError, PipelineError
from netspy.pipelines.errors import UnavailableError
from netspy.pipelines.values import clean_text, json_bytes, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_ID_BYTES = 512  # the longest `_id`
_INDEX_BYTES = 200  # the longest name is 255; aliases and snapshots add to it
_UNSAFE = re.compile(r"""[\\/*?"<>|\s,#:\x00-\x1f]+""")
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_CONFLICT = 409


def index_name(table: str) -> str:
    """`table` where it is a valid index name, else its harmless characters in lower case and a digest.

    The rules are those of the create index API; a leading dot is for the system's own indices.
    """
    name = _UNSAFE.sub("_", clean_text(table).lower()).lstrip("-_+.")
    if name == table and name and len(name.encode()) <= _INDEX_BYTES:
        return name
    digest = hashlib.blake2b(table.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{name.encode()[:_INDEX_BYTES].decode('utf-8', 'ignore') or 'table'}-{digest}"


def document_id(keys: Sequence[str], item: Mapping[Any, Any]) -> str | None:
    """The `_id` of an item: its key's text, or its keys as a JSON list; None when every part is None.

    Longer ones than Elasticsearch takes are hashed (SHA-256). Raises ItemError when a key field isn't there.
    """
    missing = [key for key in keys if key not in item]
    if missing:
        raise ItemError(f"an item has no field {missing[0]!r}, by which its document is found")
    values = [item[key] for key in keys]
    if all(value is None for value in values):
        return None
    single = text_of(values[0]) if len(values) == 1 else ""
    made = single or json_bytes(values).decode("utf-8")
    if len(made.encode("utf-8")) > _ID_BYTES:
        return f"sha256-{hashlib.sha256(made.encode('utf-8')).hexdigest()}"
    return made


class Line(NamedTuple):
    """One row of a bulk request: its place in the batch, and its two lines."""

    place: int
    data: bytes


def index_line(place: int, index: str, identity: str | None, item: Mapping[Any, Any]) -> Line:
    """The document becomes the item; a new one when it has no identity. Raises ItemError."""
    action = {"_index": index} if identity is None else {"_index": index, "_id": identity}
    return Line(place, json_bytes({"index": action}) + b"\n" + json_bytes(item) + b"\n")


def update_line(place: int, index: str, identity: str, item: Mapping[Any, Any]) -> Line:
    """The document gets the item's fields, or is made of them. Raises ItemError."""
    action = {"_index": index, "_id": identity, "retry_on_conflict": 3}
    body = json_bytes({"doc": item, "doc_as_upsert": True})
    return Line(place, json_bytes({"update": action}) + b"\n" + body + b"\n")


def requests(lines: Iterable[Line], most: int) -> Iterator[list[Line]]:
    """The lines in requests of at most `most` bytes; a longer line goes alone."""
    part: list[Line] = []
    size = 0
    for line in lines:
        if part and size + len(line.data) > most:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line.data)
    if part:
        yield part


def refusal(status: int, body: bytes) -> Exception:
    """The error of a request that was answered as a whole with `status`."""
    text = f"HTTP {status}: {_reason(body)}"
    if status in _BUSY:
        return UnavailableError(text)
    if status in {401, 403}:
        error = UnavailableError(f"{text}; see ELASTICSEARCH_API_KEY, ELASTICSEARCH_USER and _PASSWORD")
        error.__cause__ = ConfigError(text)  # people must act: the crawl doesn't wait for it
        return error
    return ItemError(text) if status in {400, 413} else PipelineError(text)


def failed_rows(part: Sequence[Line], body: bytes) -> dict[int, Exception]:
    """Why rows are not stored, by place. Raises PipelineError for an answer that isn't one of the bulk API."""
    try:
        answer = msgspec.json.decode(body)
        if not answer["errors"]:
            return {}
        results = [next(iter(entry.values())) for entry in answer["items"]]
        judged = {
            line.place: _classify(result)
            for line, result in zip(part, results, strict=True)
            if not 200 <= result["status"] < 300
        }
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise PipelineError(f"this is no answer of the bulk API: {body[:200]!r} ({error})") from error
    return judged


def _classify(result: Mapping[str, Any]) -> Exception:
    status, error = result["status"], result.get("error")
    text = f"{status} {_describe(error)}"
    if status in _BUSY or "cluster_block_exception" in text:  # a node whose disk is full
        return UnavailableError(text)
    return PipelineError(text) if status == _CONFLICT else ItemError(text)


def _describe(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    cause = error.get("caused_by")
    inner = f" ({cause.get('type')}: {cause.get('reason')})" if isinstance(cause, dict) else ""
    return f"{error.get('type')}: {error.get('reason')}{inner}"


def _reason(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
        return _describe(found["error"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return body[:200].decode("utf-8", "replace") or "no reason given"
