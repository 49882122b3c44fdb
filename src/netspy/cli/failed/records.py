"""Where failed requests are kept: a Redis list of a job, or an AirSpider's file. Both are read and thinned alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from netspy.errors import ConfigError
from netspy.policy.failed_record import FailedRecord, read_failed
from netspy.private_files import open_private

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from netspy.cli.job import Job


UNFINISHED = "unfinished"
"""The reason of an AirSpider's records of what it had not come to (assembly.resume)."""


class Numbered(NamedTuple):
    """A record with its place in the list, from 1, and its text as stored."""

    number: int
    record: FailedRecord
    text: bytes


class Records(Protocol):
    """Failed requests, oldest first."""

    name: str

    def count(self) -> int:
        """How many there are."""

    def read(self, start: int = 1) -> Iterator[Numbered]:
        """The records from number `start` on."""

    def drop(self, chosen: list[Numbered] | None) -> int:
        """Remove these, or all. Returns how many were removed."""


class RedisRecords:
    """The list `failed_requests` of a run."""

    def __init__(self, client: redis.Redis, job: Job) -> None:
        self.name = job.scope.ns
        self.client = client
        self.job = job

    def count(self) -> int:
        """The list's length."""
        from netspy.cluster.failed import count_failed

        return count_failed(self.client, self.job.scope)

    def read(self, start: int = 1) -> Iterator[Numbered]:
        """The list, read in pages."""
        from netspy.cluster.failed import list_failed

        for found in list_failed(self.client, self.job.scope, start=start - 1):
            yield Numbered(found.place + 1, found.record, found.text)

    def drop(self, chosen: list[Numbered] | None) -> int:
        """Remove from the list, in one step."""
        from netspy.cluster.failed import drop_failed

        return drop_failed(
            self.client, self.job.scope, None if chosen is None else [one.text for one in chosen]
        )


class FileRecords:
    """FAILED_REQUEST_PATH of an AirSpider: one record per line. A torn last line counts as not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = str(path)

    def count(self) -> int:
        """The file's records."""
        return sum(1 for _ in self._lines())

    def read(self, start: int = 1) -> Iterator[Numbered]:
        """Line by line. Raises ConfigError when the file can't be read."""
        for number, line in enumerate(self._lines(), 1):
            if number >= start:
                yield Numbered(number, read_failed(line), line)

    def drop(self, chosen: list[Numbered] | None) -> int:
        """Put a file without them in the place of this one; an empty one is removed. Not while the spider runs."""
        unwanted = None if chosen is None else {one.number for one in chosen}
        lines = list(self._lines())
        kept = (
            []
            if unwanted is None
            else [line for number, line in enumerate(lines, 1) if number not in unwanted]
        )
        try:
            if kept:
                fresh = self.path.with_name(self.path.name + ".new")
                with open(fresh, "wb", opener=open_private) as file:
                    file.writelines(line + b"\n" for line in kept)
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(self.path)
            else:
                self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} can't be written: {error.strerror}") from None
        return len(lines) - len(kept)

    def _lines(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n") and line.strip():
                        yield line[:-1]
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"{self.path} can't be read: {error.strerror}") from None


def with_fresh_budget(payload: bytes) -> bytes:
    """The request with its retries given back. Raises SerializationError when it can't be read."""
    from netspy.assembly.shared import fresh_budget

    return fresh_budget(payload)
