"""Elasticsearch and OpenSearch, over the bulk API that both have."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from netspy.errors import ConfigError, ItemError, MissingExtraError, RowsFailedError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.documents.bulk import (
    Line,
    document_id,
    failed_rows,
    index_line,
    index_name,
    refusal,
    requests,
    update_line,
)
from netspy.pipelines.errors import UnavailableError, text_of
from netspy.pipelines.own_settings import given
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_REQUEST_BYTES = 8 << 20  # well under http.max_content_length (100 MB), and what a node digests at a time
_CONNECT_S = 5.0
_READ_S = 60.0
_REST_S = 30.0  # a node that didn't answer is asked last for this long
_BULK = "/_bulk?filter_path=errors,items.*.status,items.*.error"


class Host:
    """A node: its address, and until when it is left alone."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        """Raises ConfigError for what is no http or https URL."""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                f"ELASTICSEARCH_HOSTS has {hide_password(url)!r}; give URLs such as http://localhost:9200"
            )
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.url = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
        self.headers = dict(headers)
        if parts.username and "authorization" not in headers:
            self.headers |= _basic(unquote(parts.username), unquote(parts.password or ""))
        self.resting_until = 0.0


def _basic(user: str, password: str) -> dict[str, str]:
    """Basic authentication (RFC 7617) in UTF-8; urllib3's own takes Latin-1."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"authorization": f"Basic {login}"}


class ElasticsearchPipeline(BasePipeline):
    """Stores rows as documents of the index of their table, on ELASTICSEARCH_HOSTS.

    - Items with `__unique_key__` become the document whose `_id` is their key: a row delivered twice is one document,
      and the later one takes its place whole. Without a key, or with one that is None, each row is a new document.
    - An UpdateItem changes the fields it has in the document of its key, and makes the document when there is none.
    - Each row has an answer of its own: one that the index refuses is dead-lettered alone, one that a busy node
      refuses (429, 503) is tried again alone.
    - Values have the forms of JSON lines. Mappings are the index's own: dynamic, or as you made them.
    """

    def __init__(self, hosts: Sequence[str] | str | None = None) -> None:
        """`hosts`: ELASTICSEARCH_HOSTS of this pipeline."""
        self.own_settings = given(
            "ElasticsearchPipeline", ELASTICSEARCH_HOSTS=[hosts] if isinstance(hosts, str) else hosts
        )
        try:
            import urllib3
        except ImportError:
            raise MissingExtraError("ElasticsearchPipeline", "elasticsearch") from None
        self._urllib3 = urllib3
        self._hosts: list[Host] = []
        self._pool: Any = None
        self._keys: dict[str, tuple[str, ...]] = {}

    def where(self) -> str:
        """The nodes, for the run's summary."""
        return ", ".join(hide_password(url) for url in self.settings.ELASTICSEARCH_HOSTS)

    def open(self) -> None:
        """Ask whether a node answers. Raises UnavailableError, ConfigError."""
        settings = self.settings
        headers: dict[str, str] = {}
        if settings.ELASTICSEARCH_API_KEY:
            headers["authorization"] = f"ApiKey {settings.ELASTICSEARCH_API_KEY}"
        elif settings.ELASTICSEARCH_USER:
            headers |= _basic(settings.ELASTICSEARCH_USER, settings.ELASTICSEARCH_PASSWORD)
        self._hosts = [Host(url, headers) for url in settings.ELASTICSEARCH_HOSTS]
        if not self._hosts:
            raise ConfigError(
                "ELASTICSEARCH_HOSTS is empty; give at least one URL, e.g. http://localhost:9200"
            )
        options: dict[str, Any] = {}
        if settings.ELASTICSEARCH_CA_FILE:
            options["ca_certs"] = settings.ELASTICSEARCH_CA_FILE
        self._pool = self._urllib3.PoolManager(
            timeout=self._urllib3.Timeout(connect=_CONNECT_S, read=_READ_S), retries=False, **options
        )
        status, body = self._ask("GET", "/", b"")
        if status >= 400:
            error = refusal(status, body)
            raise error.__cause__ or error

    def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """Remember the key."""
        if unique_key:
            self._keys[table] = unique_key

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Index the batch. Raises RowsFailedError, UnavailableError."""
        index, keys = index_name(table), self._keys.get(table, ())
        lines: list[Line] = []
        failed: dict[int, Exception] = {}
        for place, item in enumerate(items):
            try:
                lines.append(index_line(place, index, document_id(keys, item) if keys else None, item))
            except ItemError as error:
                failed[place] = error
        return self._write(lines, failed)

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> bool:
        """Change the documents of these keys. Raises as `save_items`."""
        index = index_name(table)
        lines: list[Line] = []
        failed: dict[int, Exception] = {}
        for place, item in enumerate(items):
            try:
                identity = document_id(update_keys, item) if update_keys else None
                if identity is None:
                    raise ItemError(f"an UpdateItem of table {table!r} has no value for its __update_key__")
                lines.append(update_line(place, index, identity, item))
            except ItemError as error:
                failed[place] = error
        return self._write(lines, failed)

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _write(self, lines: list[Line], failed: dict[int, Exception]) -> bool:
        waiting = list(requests(lines, _REQUEST_BYTES))[::-1]
        asked = False  # whether a part was taken
        while waiting:
            part = waiting.pop()
            try:
                found = self._bulk(part)
            except ItemError as error:  # the request as a whole, so one of its rows
                if len(part) > 1:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                else:
                    failed[part[0].place] = error
            except UnavailableError as error:
                if not asked and not failed:
                    raise
                failed |= {line.place: error for left in (part, *waiting) for line in left}
                break
            else:
                asked = True
                failed |= found
        if failed:
            raise RowsFailedError(failed)
        return True

    def _bulk(self, part: list[Line]) -> dict[int, Exception]:
        """Why rows of the part are not stored, by place. Raises what `refused` says of the request as a whole."""
        status, body = self._ask("POST", _BULK, b"".join(line.data for line in part))
        if status != 200:
            raise refusal(status, body)
        return failed_rows(part, body)

    def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Ask the nodes in turn until one answers. Raises UnavailableError when none does."""
        trouble = ""
        for host in self._in_turn():
            headers = host.headers | ({"content-type": "application/x-ndjson"} if body else {})
            try:
                answer = self._pool.request(
                    method, f"{host.url}{path}", body=body or None, headers=headers, redirect=False
                )
            except self._urllib3.exceptions.HTTPError as error:
                trouble = f"{host.url}: {text_of(error)}"
                host.resting_until = time.monotonic() + _REST_S
                continue
            if answer.status in {502, 503, 504}:  # this node, or what stands before it, has no service
                trouble = f"{host.url}: {refusal(answer.status, answer.data)}"
                host.resting_until = time.monotonic() + _REST_S
                continue
            host.resting_until = 0.0
            return answer.status, answer.data
        raise UnavailableError(f"no node of ELASTICSEARCH_HOSTS answers: {trouble}")

    def _in_turn(self) -> Iterator[Host]:
        """The nodes, another one first each time; those that didn't answer lately last."""
        now = time.monotonic()
        self._hosts.append(self._hosts.pop(0))
        yield from sorted(self._hosts, key=lambda host: host.resting_until > now)
