"""What an AirSpider keeps on disk: requests that failed, what was unfinished at a stop, and what it had seen.

`FAILED_REQUEST_PATH` holds one JSON record per line (the same records as the Redis list `failed_requests`); what was
unfinished has the reason "unfinished". Beside it, `<path>.seen` holds the content of the run's repeat filter, so that a
resumed run repeats nothing. What stands in the file and is no record goes to `<path>.unreadable`, and is never deleted.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from netspy.errors import ConfigError, SerializationError
from netspy.messages.request import Request
from netspy.pipelines.local.shared_file import unlock
from netspy.policy.failed_record import FailedRecord, of_spider, pack_failed, read_failed
from netspy.private_files import narrow, open_private

if sys.platform != "win32":
    import fcntl

UNFINISHED = "unfinished"
_MAGIC, _MAGIC_2 = b"netspy-seen-3", b"netspy-seen-2"  # the older one has no digest
_LENGTH = struct.Struct(">I")
_LOCK_WAIT_S = 2.0
_LOOKED_AT = 1000  # lines, for one that says whose the file is


class FailedFile:
    """Appends a spider's records of failed requests; the file is opened at the first one.

    `path` is FAILED_REQUEST_PATH, or a file beside it when that is another spider's by then. What can't be written (a
    full disk) is kept and tried again with the next record and at the end; `on_trouble` is told once.
    """

    def __init__(self, wanted: str, spider: str, on_trouble: Callable[[OSError], None]) -> None:
        self.path = path_for(Path(wanted), spider)
        self._wanted = Path(wanted)
        self.spider = spider
        self.unwritten: list[bytes] = []
        self._on_trouble = on_trouble
        self._told = False
        self._file: int | None = None

    def check(self) -> None:
        """Whether the file can be made at all. Raises ConfigError."""
        folder = self.path.parent
        while not folder.exists():
            folder = folder.parent
        wrong = self.path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK)
        if wrong or (self.path.exists() and not os.access(self.path, os.W_OK)):
            raise ConfigError(
                f"FAILED_REQUEST_PATH={str(self.path)!r} can't be written; name a file in a folder that can"
            )

    def append(self, record: bytes) -> None:
        """One record, one line, one write, so that a killed process leaves at most a torn last line."""
        self.unwritten.append(of_spider(record, self.spider) + b"\n")
        self.flush()

    @contextmanager
    def settled(self) -> Iterator[Path]:
        """Where this spider's records go, looked up anew while it has none: another spider may have begun there.

        No other spider decides the same during the block, which is to write what shows whose file it is.
        """
        if self._file is not None:
            yield self.path
            return
        self._wanted.parent.mkdir(parents=True, exist_ok=True)
        with _undisputed(self._wanted.parent):
            self.path = path_for(self._wanted, self.spider)
            yield self.path

    def flush(self) -> None:
        """Write what is not in the file yet."""
        while self.unwritten:
            try:
                self._write(self.unwritten[0])
            except OSError as error:
                if not self._told:
                    self._told = True
                    self._on_trouble(error)
                return
            del self.unwritten[0]

    def _write(self, line: bytes) -> None:
        with self.settled() as path:
            if self._file is None:
                self._file = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                _end_last_line(path)
            written = os.write(self._file, line)
            if written != len(line):
                _end_last_line(path)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def _undisputed(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: without it two spiders that begin, or stop, in the same moment take the same file.

    Where a folder can't be locked (Windows, some network file systems), or when the lock isn't to be had within
    _LOCK_WAIT_S (its holder is frozen), the block runs without it.
    """
    fd = -1
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
    try:
        give_up = time.monotonic() + _LOCK_WAIT_S
        while fd >= 0 and not _try_lock(fd) and time.monotonic() < give_up:
            time.sleep(0.002)
        yield
    finally:
        if fd >= 0:
            unlock(fd)  # a forked process may have the folder open, too
            os.close(fd)


def _try_lock(fd: int) -> bool:
    """False while somebody else has it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # there are no locks here
    return True


def _end_last_line(path: Path) -> int:
    """End the last line of a file that ends without a newline: a whole record (a hand wrote it) stays, what a killed
    process left of one is put aside. Returns how many lines were.
    """
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        at = end
        while at > 0:
            step = min(at, 65536)
            file.seek(at - step)
            newline = file.read(step).rfind(b"\n")
            if newline >= 0:
                at = at - step + newline + 1
                break
            at -= step
        if at == end:
            return 0
        file.seek(at)
        rest = file.read()
        if read_failed(rest).payload is not None:
            file.write(b"\n")
            return 0
        _put_aside(path, [rest + b"\n"])
        file.truncate(at)
        return 1


def unreadable_path(path: Path) -> Path:
    """Where the lines are that are no records."""
    name = path.name.removesuffix(".replaying")
    return path.with_name(name + ".unreadable")


def _put_aside(path: Path, lines: list[bytes]) -> None:
    """On the disk when it returns; a line that a start which was killed has put there already is not put there twice."""
    aside = unreadable_path(path)
    known = Counter(aside.read_bytes().splitlines(keepends=True)) if aside.exists() else Counter()
    fresh: list[bytes] = []
    for line in lines:
        if known[line] > 0:
            known[line] -= 1
        else:
            fresh.append(line)
    if not fresh:
        return
    with open(aside, "ab", opener=open_private) as file:
        file.writelines(fresh)
        file.flush()
        os.fsync(file.fileno())


class Seen(NamedTuple):
    """What a `.seen` file holds; `seeded` is as in Resumed.

    Of a damaged one nothing is believed: a bit too many in a filter is a page that nobody crawls.
    """

    chunks: list[bytes]
    seeded: bool | None
    damaged: bool = False


class Resumed(NamedTuple):
    """What a dump holds. `files` may go once the requests are done."""

    requests: list[tuple[Request, float]]
    seen: Seen
    unreadable: int
    files: list[Path]

    @property
    def seeded(self) -> bool | None:
        """Whether the seeding of the run that was stopped had come to its end; None when no run was stopped: there are failed
        requests only.
        """
        return self.seen.seeded


def seen_path(path: Path) -> Path:
    """Where the fingerprints are."""
    return path.with_name(path.name + ".seen")


def replaying_path(path: Path) -> Path:
    """The name a dump has while it is being worked off, so that a crash in the middle loses nothing of it."""
    return path.with_name(path.name + ".replaying")


def has_unfinished(path: Path) -> bool:
    """Whether the last run left work behind."""
    return seen_path(path).exists() or replaying_path(path).exists()


def claim_dump(path: Path, wanted: Callable[[FailedRecord], bool] | None = None) -> Resumed | None:
    """Take the dump for this run: the file is renamed to `*.replaying` first. None when there is nothing.

    A `*.replaying` left by a crashed run is read as well. Failed records that are not `wanted` go back to the file, and
    what can't be read as a request to `*.unreadable`. Raises ConfigError when a file can't be read or written.
    """
    replaying = replaying_path(path)
    torn = 0
    try:
        for file in (path, replaying, seen_path(path), unreadable_path(path)):
            narrow(file)
        if path.is_file():
            if replaying.exists():
                torn += _end_last_line(path)
                _merge(path, replaying)
                path.unlink()
            else:
                path.rename(replaying)
        if not replaying.exists() and not seen_path(path).exists():
            return None
        if replaying.exists():
            torn += _end_last_line(replaying)
        chosen, unreadable = _sort(path, replaying, wanted)
        _put_aside(path, unreadable)
        seen = _read_seen(seen_path(path))
    except OSError as error:
        raise ConfigError(
            f"FAILED_REQUEST_PATH={str(path)!r} can't be read: {error.strerror}; check its permissions"
        ) from None
    requests: list[tuple[Request, float]] = []
    for record, request in chosen:
        if record.reason != UNFINISHED:
            request.retry_times = 0
        requests.append((request, record.priority))
    return Resumed(requests, seen, len(unreadable) + torn, [replaying, seen_path(path)])


def _lines(path: Path) -> Iterator[bytes]:
    """The whole ones. Equal ones are requests of their own, yielded with `filter_repeat=False`."""
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _merge(path: Path, replaying: Path) -> None:
    """Append `path` to `replaying`, but for what a crash has left in both: records that were being put back."""
    known = Counter(_lines(replaying))
    _end_last_line(replaying)
    with open(replaying, "ab", opener=open_private) as file:
        for line in _lines(path):
            if known[line] > 0:
                known[line] -= 1
            else:
                file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _sort(
    path: Path, replaying: Path, wanted: Callable[[FailedRecord], bool] | None
) -> tuple[list[tuple[FailedRecord, Request]], list[bytes]]:
    """The records that are to be tried, and the lines that are none; the other records stand in `path` again."""
    chosen: list[tuple[FailedRecord, Request]] = []
    others: list[bytes] = []
    unreadable: list[bytes] = []
    for line in _lines(replaying) if replaying.exists() else ():
        if not line.strip():
            continue
        record = read_failed(line[:-1])
        try:
            request = Request.unpack(record.payload or b"")
        except SerializationError:
            unreadable.append(line)
            continue
        if record.reason == UNFINISHED or wanted is None or wanted(record):
            chosen.append((record, request))
        else:
            others.append(line)
    if others:
        with open(path, "ab", opener=open_private) as file:
            file.writelines(others)
            file.flush()
            os.fsync(file.fileno())
    return chosen, unreadable


def _read_seen(path: Path) -> Seen:
    if not path.exists():
        return Seen([], None)
    with path.open("rb") as file:
        head = _read_head(file.readline())
        if head is None:
            return Seen([], seeded=False, damaged=True)
        body = file.read()
    chunks: list[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        chunks.append(body[at : at + length])
        at += length
    whole = at == len(body) and head.digest in (None, _hash(body).hexdigest())
    return Seen(chunks, head.seeded) if whole else Seen([], head.seeded, damaged=True)


class _Head(NamedTuple):
    """The first line of a `.seen` file. `digest`: None in one of the older version."""

    seeded: bool
    digest: str | None
    spider: str


def _read_head(line: bytes) -> _Head | None:
    """None for what is no such line."""
    magic, _, rest = line.partition(b" ")
    words = rest.decode("utf-8", "replace").rstrip("\r\n").split(" ", 1 if magic == _MAGIC_2 else 2)
    if not line.endswith(b"\n") or magic not in (_MAGIC, _MAGIC_2) or len(words) < 2:
        return None
    return _Head(words[0] == "1", None if magic == _MAGIC_2 else words[1], words[-1])


_hash = partial(blake2b, digest_size=16)


def owner_of(path: Path) -> str | None:
    """The spider whose records lie at `path`; None when there are none, or they don't say."""
    for file in (path, replaying_path(path)):
        if not file.is_file():
            continue  # a device such as /dev/full has no lines, and no end
        try:
            with file.open("rb") as lines:
                found = (read_failed(line[:-1]).spider for line in islice(lines, _LOOKED_AT))
                owner = next(filter(None, found), "")
        except OSError:
            continue
        if owner:
            return owner
    try:
        with seen_path(path).open("rb") as seen:
            head = seen.readline(1024)
    except OSError:
        return None
    known = _read_head(head)
    return (known.spider or None) if known is not None else None


def path_for(path: Path, spider: str) -> Path:
    """Where this spider's records are: `path`, unless another spider's lie there.

    Two spiders in one folder with one FAILED_REQUEST_PATH must not take each other's work.
    """
    own = path.with_name(f"{path.stem}.{spider}{path.suffix}")
    if own.exists() or has_unfinished(own) or owner_of(path) not in {None, spider}:
        return own
    return path


def dump(
    path: Path,
    unfinished: Iterable[tuple[Request, float]],
    seen: Iterable[bytes],
    *,
    seeded: bool,
    spider: str,
) -> tuple[int, int]:
    """Write what is left. Returns (kept, can't be kept: values that don't travel)."""
    kept = lost = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _end_last_line(path)
    with open(path, "ab", opener=open_private) as file:
        for request, priority in unfinished:
            try:
                payload = request.pack()
                site = request.site
            except (SerializationError, ValueError):
                lost += 1
                continue
            record = pack_failed(
                payload, reason=UNFINISHED, error="the run was stopped before this request was done",
                attempts=request.retry_times, time=time.time(), priority=priority, site=site,
            )  # fmt: skip
            file.write(of_spider(record, spider) + b"\n")
            kept += 1
        file.flush()
        os.fsync(file.fileno())
    fresh = seen_path(path).with_suffix(".tmp")
    digest = _hash()

    def head() -> bytes:
        return b"%s %d %s %s\n" % (_MAGIC, seeded, digest.hexdigest().encode(), spider.encode())

    with open(fresh, "wb", opener=open_private) as file:
        file.write(head())
        for chunk in seen:
            piece = _LENGTH.pack(len(chunk)) + chunk
            digest.update(piece)
            file.write(piece)
        file.seek(0)
        file.write(head())
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(seen_path(path))
    return kept, lost


def set_aside(path: Path) -> Path | None:
    """Rename a dump that this run does not go on from, so that it isn't mixed with this run's. Its new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = None
    for old in (path, replaying_path(path)):
        if old.exists():
            aside = old.with_name(f"{path.stem}.{stamp}{'.replaying' if old != path else ''}{path.suffix}")
            narrow(old)
            old.rename(aside)
    narrow(unreadable_path(path))
    seen_path(path).unlink(missing_ok=True)
    return aside
