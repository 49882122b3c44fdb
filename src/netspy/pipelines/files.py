"""Files and media: what `file_urls` of an item names is downloaded and stored before the item is."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import random
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from netspy.blocking import Threads
from netspy.errors import (
    ConfigError,
    DownloadError,
    HttpStatusError,
    ItemError,
    NetspyError,
    PipelineError,
    ResponseTooLargeError,
)
from netspy.messages.request import Request
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnavailableError, text_of
from netspy.pipelines.media.keys import check_key, content_type_of, default_key, index_key
from netspy.pipelines.media.stores import store_for
from netspy.pipelines.values import json_bytes
from netspy.policy.politeness import Politeness, SiteState
from netspy.policy.retry import StatusPolicy, may_retry, retry_after_s, retry_delay_s
from netspy.settings import without_passwords

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from netspy.messages.response import Response
    from netspy.pipelines.media.stores import FileStore
    from netspy.settings import Settings

_DOWNLOADER = "netspy.downloader.curl.CurlDownloader"
_SITES_KEPT = 1000
_THREADS = 4  # that talk to the store
_FILE_STATUSES = frozenset({200, 203, 206})
_TOLD = 20  # missing files that get a log line of their own


class Missing(NamedTuple):
    """Why a file can't be had, and whether another try may help."""

    error: str
    passing: bool


class _Site:
    """One host: how many downloads at a time, and when the next may begin."""

    def __init__(self, name: str, most: int) -> None:
        self.slots = asyncio.Semaphore(most)
        self.state = SiteState(name)
        self.users = 0


class FilesPipeline(BasePipeline):
    """Downloads the URLs in the item's `file_urls`, and sets its `files` before the other pipelines store it.

    `files` has an entry for each URL, in their order: `url`, `key` (the name in FILES_STORE), `size` (bytes), `sha256`
    and `content_type`; or `url` and `error`. The key is made of the content and the ending of its URL, so the same
    file is stored once for each ending; a URL whose file is there is not fetched again for FILES_EXPIRE.

    Bodies go to the disk piece by piece, and from there to the store. Downloads are made as those of pages: proxies,
    certificates, redirects and BLOCK_PRIVATE_ADDRESSES included; at most FILES_PER_HOST at a time from one host, with
    DOWNLOAD_DELAY between their starts. What fails for the moment is tried again like a page. A row whose file can't be
    had then is dead-lettered for all its pipelines when another try may help, and stored with the error when it can't
    (404, too large, a forbidden address); FILES_MISSING decides otherwise. A store that is away is waited for.

    For a subclass to set or override: `urls_field`, `result_field`, `make_request`, `key`.
    """

    urls_field = "file_urls"
    result_field = "files"

    _downloader: Any = None

    @property
    def settings(self) -> Settings:
        """The spider's settings."""
        return self._settings

    @settings.setter
    def settings(self, value: Settings) -> None:
        # A wrong FILES_STORE or a missing driver stops the start; a store that is away doesn't.
        self._settings = value
        self._store: FileStore = store_for(value)

    @cached_property
    def _threads(self) -> Threads:
        return Threads("netspy-files", _THREADS)

    def make_request(self, url: str, item: Mapping[str, Any]) -> Request:  # noqa: ARG002 (a hook)
        """The request of a file; override it for headers, a proxy or a login."""
        return Request(url, headers={"Accept": "*/*", "Accept-Encoding": "identity"})

    def key(self, url: str, sha256: str, content_type: str, item: Mapping[str, Any]) -> str:  # noqa: ARG002 (a hook)
        """The name of a file in the store: a relative path. Keep `sha256` in it, or files may replace each other."""
        return default_key(url, sha256, content_type)

    def where(self) -> str:
        """The store, for the run's summary."""
        return self.settings.FILES_STORE

    async def open(self) -> None:
        """Open the store. Raises ConfigError, OSError, UnavailableError."""
        await self._threads.call(self._store.open)
        if self._downloader is None:
            self._downloader = _downloader(self.settings)
        self._statuses = StatusPolicy(msgspec.structs.replace(self.settings, CHECK_STATUS_CODE=True))
        self._limits = Politeness(self.settings)
        self._slots = asyncio.Semaphore(self.settings.FILES_CONCURRENCY)
        self._sites: dict[str, _Site] = {}
        self._missing = 0

    async def prepare_items(
        self, table: str, items: Sequence[dict[str, Any]]
    ) -> Sequence[dict[str, Any] | Exception]:
        """Download what the items name. Raises OSError or UnavailableError when the store can't take files."""
        del table
        wanted: dict[str, asyncio.Task[dict[str, Any] | Missing]] = {}
        urls = [_urls_of(item, self.urls_field) for item in items]
        try:
            for item, named in zip(items, urls, strict=True):
                if not isinstance(named, Exception):
                    for url in named:
                        if url not in wanted:
                            wanted[url] = asyncio.create_task(self._file(url, item))
            if wanted:
                await asyncio.wait(wanted.values(), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in wanted.values():
                task.cancel()
            ended = await asyncio.gather(*wanted.values(), return_exceptions=True)
        # Those that were cancelled because of it come with the one that failed.
        if trouble := [r for r in ended if isinstance(r, Exception)]:
            raise trouble[0]
        results = {url: task.result() for url, task in wanted.items()}
        return [
            named if isinstance(named, Exception) else self._fetch_all(item, named, results)
            for item, named in zip(items, urls, strict=True)
        ]

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> bool:
        """Nothing is left to do: the files are stored when their rows come here."""
        del table, items
        return True

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> bool:
        """As `save_items`."""
        del table, items, update_keys
        return True

    async def close(self) -> None:
        """Close the connections; say how many files are missing."""
        if self._downloader is not None:
            await self._downloader.close()
            self._downloader = None
        await self._threads.call(self._store.close)
        self._threads.close()
        if self._missing > _TOLD:
            from loguru import logger

            logger.warning("{} file(s) could not be had in all", self._missing)

    def _fetch_all(
        self, item: dict[str, Any], urls: Sequence[str], results: Mapping[str, dict[str, Any] | Missing]
    ) -> dict[str, Any] | Exception:
        if not urls:
            return item
        wish = self.settings.FILES_MISSING
        entries: list[dict[str, Any]] = []
        for url in urls:
            result = results[url]
            if isinstance(result, Missing):
                if wish == "dead-letter" or (wish == "auto" and result.passing):
                    return PipelineError(f"a file of the row can't be had: {result.error}")
                entries.append({"url": url, "error": result.error})
            else:
                entries.append({"url": url, **result})
        return {**item, self.result_field: entries}

    # one file

    async def _file(self, url: str, item: Mapping[str, Any]) -> dict[str, Any] | Missing:
        try:
            request = self.make_request(url, item)
            host = request.site
        except NetspyError as error:
            return self._note_missing(url, Missing(text_of(error), passing=False))
        known: dict[str, Any] | None = await self._threads.call(self._known, url)
        if known is not None:
            return known
        site = self._site(host)
        site.users += 1
        try:
            async with site.slots:
                found = await self._fetch(url, request, item, site.state)
        finally:
            site.users -= 1
        return self._note_missing(url, found) if isinstance(found, Missing) else found

    async def _fetch(
        self, url: str, request: Request, item: Mapping[str, Any], site: SiteState
    ) -> dict[str, Any] | Missing:
        """Download and store, with the tries and pauses of a page."""
        tries = 0
        while True:
            now = time.monotonic()
            start = max(now, site.next_at)
            site.next_at = start + self._limits.spacing_s(random.random())
            await asyncio.sleep(start - now)
            asked_s: float | None = None
            try:
                async with self._slots:  # pauses don't hold one: a slow host keeps none of the others waiting
                    return await self._download(url, request, item)
            except _RefusedError as error:
                missing = Missing(str(error), error.passing)
                asked_s = error.asked_s
                site.next_at = max(site.next_at, time.monotonic() + (asked_s or 0.0))
            except ResponseTooLargeError:
                return Missing(
                    f"{without_passwords(url)} is larger than FILES_MAX_SIZE={self.settings.FILES_MAX_SIZE}",
                    passing=False,
                )
            except DownloadError as error:
                missing = Missing(text_of(error), error.retryable)
            except UnavailableError:
                raise  # of the store
            except NetspyError as error:
                return Missing(text_of(error), passing=False)
            if not missing.passing or not may_retry(tries, self.settings):
                return missing
            tries += 1
            await asyncio.sleep(retry_delay_s(tries, self.settings, jitter=random.random(), asked_s=asked_s))

    async def _download(self, url: str, request: Request, item: Mapping[str, Any]) -> dict[str, Any]:
        incoming = await self._threads.call(self._store.incoming)
        try:
            response, size, sha256 = await self._received(request, incoming)
            self._accept(response)
            content_type = content_type_of(response.headers.get("content-type"))
            key = check_key(self.key(url, sha256, content_type, item))
            entry = {"key": key, "size": size, "sha256": sha256, "content_type": content_type}
            await self._threads.call(self._kept, incoming, url, entry)
            return entry
        finally:
            with suppress(FileNotFoundError):
                incoming.unlink()

    async def _received(self, request: Request, into: Path) -> tuple[Response, int, str]:
        """The answer, and the size and digest of the body that is in the file `into` now."""
        digest = hashlib.sha256()
        size = 0
        with into.open("wb") as file:

            def sink(piece: bytes) -> None:
                nonlocal size
                file.write(piece)
                digest.update(piece)
                size += len(piece)

            response: Response = await self._downloader.save(
                request, sink, max_bytes=self.settings.FILES_MAX_SIZE
            )
        return response, size, digest.hexdigest()

    def _accept(self, response: Response) -> None:
        """Raises _RefusedError for a status that brings no file.

        Of the 2xx, 202 says that the work isn't done yet, 204 and 205 that there is nothing, and others talk about the
        request. The downloader lets a 206 pass that brings the Range that the request asks for.
        """
        status = response.status_code
        if status in _FILE_STATUSES:
            return
        passing = status == 202 or self._statuses.judge(status) == "retry"
        asked_s = retry_after_s(
            response.headers.get("retry-after"), now=datetime.now(UTC), maximum=self.settings.RETRY_AFTER_MAX
        )
        raise _RefusedError(
            str(HttpStatusError(status, without_passwords(response.url))),
            passing,
            asked_s if passing else None,
        )

    def _site(self, host: str) -> _Site:
        found = self._sites.get(host)
        if found is None:
            if len(self._sites) >= _SITES_KEPT:
                self._sites = {name: site for name, site in self._sites.items() if site.users}
            found = self._sites[host] = _Site(host, self.settings.FILES_PER_HOST)
        return found

    def _note_missing(self, url: str, missing: Missing) -> Missing:
        self._missing += 1
        if self._missing <= _TOLD:
            from loguru import logger

            logger.warning("file {} can't be had: {}", without_passwords(url), missing.error)
        return missing

    # what the store has; in a thread

    def _known(self, url: str) -> dict[str, Any] | None:
        """The entry of a URL whose file is in the store and not too old."""
        if not self.settings.FILES_EXPIRE:
            return None
        data = self._store.read(index_key(url))
        if data is None:
            return None
        try:
            record = msgspec.json.decode(data, type=_Record)
            fresh = time.time() - record.time < self.settings.FILES_EXPIRE
            if not fresh or self._store.size(record.key) != record.size:
                return None
        except (msgspec.DecodeError, ItemError):
            return None  # not of ours, or damaged: the file is fetched again
        entry = msgspec.structs.asdict(record)
        del entry["time"]
        return entry

    def _kept(self, incoming: Path, url: str, entry: dict[str, Any]) -> None:
        # A key that isn't made of the content may belong to another file of the same size.
        if entry["sha256"] not in entry["key"] or self._store.size(entry["key"]) != entry["size"]:
            self._store.keep(incoming, entry["key"], entry["content_type"])
        self._store.write(index_key(url), json_bytes({**entry, "url": url, "time": time.time()}))


class _Record(msgspec.Struct):
    """What the store remembers of a URL."""

    key: str
    size: int
    sha256: str
    content_type: str
    time: float


class _RefusedError(Exception):
    """The server answered, but not with the file."""

    def __init__(self, text: str, passing: bool, asked_s: float | None) -> None:
        super().__init__(text)
        self.passing = passing
        self.asked_s = asked_s


def _urls_of(item: Mapping[str, Any], field: str) -> list[str] | Exception:
    """The URLs that an item names, each once; an ItemError for what is none."""
    value = item.get(field)
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(url, str) for url in value):
        return list(dict.fromkeys(url for url in value if url))
    return ItemError(f"{field}={value!r:.100} is no URL and no list of URLs")


def _downloader(settings: Any) -> Any:
    """The spider's kind of downloader where it can save files, else netspy's own, with the limits of files.

    A path of a class, not an import: which downloader there is, is a setting.
    """
    ours = msgspec.structs.replace(settings, REQUEST_TIMEOUT=settings.FILES_TIMEOUT)
    for path in (settings.DOWNLOADER, _DOWNLOADER):
        module, _, name = path.replace(":", ".").rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"DOWNLOADER={path!r} can't be loaded: {error}") from None
        if callable(getattr(found, "save", None)):
            return found(ours)
    raise ConfigError(f"{_DOWNLOADER} can't save files")
