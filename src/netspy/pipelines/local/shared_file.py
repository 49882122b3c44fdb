"""One file that several processes append to: locked, all or nothing, and mended after a crash.

A batch is written with one append under an exclusive lock and synced to the disk before the call returns,
so that what was reported as stored survives a killed process and, as far as the disk keeps its word, a
power cut. A write that fails (disk full) is cut off again: the file is as long as before, and the batch can
be tried again.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from netspy.policy.retry import backoff_s
from netspy.private_files import narrow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import errno
    import fcntl

LOCK_WAIT_S = 10.0  # an append holds the lock for milliseconds; longer means its holder is frozen
_BLOCK = 1 << 16
_BINARY = getattr(os, "O_BINARY", 0)
_sync = getattr(os, "fdatasync", os.fsync)


class SharedFile:
    """An open file whose lock we hold. Made by `locked`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: changes when the file is replaced."""
        stat = os.fstat(self._fd)
        return stat.st_dev, stat.st_ino

    def narrow(self) -> None:
        """Take it from all but its owner."""
        narrow(self._fd)

    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        os.lseek(self._fd, offset, os.SEEK_SET)
        parts = []
        while length > 0 and (part := os.read(self._fd, length)):
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end`, a megabyte at a time."""
        while start < end and (block := self.read(start, min(1 << 20, end - start))):
            yield block
            start += len(block)

    def overwrite(self, offset: int, data: bytes) -> None:
        """Replace bytes in place. Not synced."""
        os.lseek(self._fd, offset, os.SEEK_SET)
        write_all(self._fd, data)

    def append(self, data: bytes, *, marked: bool = False) -> None:
        """All of `data` on the disk, or (with the OSError that says why) nothing of it in the file.

        `marked`: when the process ends in between, `torn_after` tells of it.
        """
        size = self.size()
        try:
            if marked:
                with suppress(PermissionError):  # of the folder; the file itself may be written
                    self._mark.write_text(f"{self.identity} {size}", encoding="ascii")
            os.lseek(self._fd, size, os.SEEK_SET)
            write_all(self._fd, data)
            _sync(self._fd)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._fd, size)
            raise
        finally:
            if marked:
                self._unmark()
        if size == 0:
            sync_folder(self.path.parent)

    @property
    def _mark(self) -> Path:
        """Is there only while an append goes on, and says where in which file that began."""
        return self.path.with_name(f"{self.path.name}.writing")

    def _unmark(self) -> None:
        with suppress(OSError):
            self._mark.unlink(missing_ok=True)

    def torn_after(self, end: int) -> bool:
        """Whether what stands behind `end` is what an append of ours could not finish, and not somebody else's."""
        try:
            identity, _, began = self._mark.read_text(encoding="ascii").rpartition(" ")
        except (OSError, UnicodeDecodeError):
            return False
        return identity == str(self.identity) and began.isdigit() and int(began) <= end

    def cut(self, end: int) -> None:
        """Move what stands after `end` (a record torn by a crash) to `<file>.torn`, and say so in the log."""
        size = self.size()
        torn = self.path.with_name(self.path.name + ".torn")
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        fd = os.open(torn, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, mode)
        try:
            if sys.platform != "win32":
                os.fchmod(
                    fd, stat.S_IMODE(os.fstat(fd).st_mode) & mode
                )  # nobody reads more than the file itself
            for block in self.blocks(end, size):
                write_all(fd, block)
            write_all(fd, b"\n")
            _sync(fd)
        finally:
            os.close(fd)
        os.ftruncate(self._fd, end)
        self._unmark()
        from loguru import logger

        logger.warning(
            "{}: the last record was torn by a crash; its {} byte(s) are moved to {}",
            self.path,
            size - end,
            torn,
        )

    def replace_by(self, new: Path) -> None:
        """Put the finished file `new` in our place. Whoever waits for the lock opens the new file instead."""
        if sys.platform == "win32":
            os.close(self._fd)  # Windows doesn't replace an open file; the lock is a file of its own there
            self._fd = -1
        new.replace(self.path)
        sync_folder(self.path.parent)

    def rename_to(self, target: Path) -> None:
        """Move the file away; the next writer begins a new one under the old name. We keep the lock."""
        if sys.platform == "win32":
            os.close(self._fd)
            self.path.replace(target)
            self._fd = os.open(target, os.O_RDWR | _BINARY)
        else:
            self.path.replace(target)
        sync_folder(target.parent)
        self.path = target

    def remove(self) -> None:
        """Delete the file, if nobody else did."""
        if sys.platform == "win32":
            self.close()
        with suppress(FileNotFoundError):
            self.path.unlink()
            sync_folder(self.path.parent)

    @property
    def is_gone(self) -> bool:
        """Whether somebody removed the file, or put another in its place: what we write is lost when we end."""
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close the file; on POSIX this ends the lock."""
        if self._fd >= 0:
            unlock(self._fd)
            os.close(self._fd)
            self._fd = -1


def unlock(fd: int) -> None:
    """End a lock of `flock` now. Closing the file doesn't while a process that was forked meanwhile has it open, too."""
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: a single `write` may stop early (disk full, signals, 2 GiB)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: Path) -> None:
    """Make a new or renamed entry of `folder` survive a power cut. Not possible on Windows, nor needed
    there.
    """
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def end_of_last_line(file: SharedFile) -> int:
    """Offset behind the last newline; 0 when there is none."""
    end = file.size()
    while end > 0:
        start = max(0, end - _BLOCK)
        at = file.read(start, end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


@contextmanager
def locked(
    path: Path, *, wait_s: float = LOCK_WAIT_S, create: bool = True, private: bool = False
) -> Iterator[SharedFile]:
    """Open `path` and hold its exclusive lock, between processes and between threads.

    Makes the file and its folder unless `create` is False. `private`: only its owner may read it. Raises TimeoutError
    when another process keeps the lock longer than `wait_s` seconds, FileNotFoundError without `create`, and OSError.
    """
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    give_up = time.monotonic() + wait_s
    if sys.platform == "win32":
        with _windows_lock(path, give_up, wait_s):
            file = SharedFile(path, os.open(path, _flags(create=create), 0o666))
            try:
                yield file
            finally:
                file.close()
        return
    file = _lock_posix(path, give_up, wait_s, create=create)
    try:
        if private:
            file.narrow()
        yield file
    finally:
        file.close()


def _flags(*, create: bool) -> int:
    return os.O_RDWR | _BINARY | getattr(os, "O_CLOEXEC", 0) | (os.O_CREAT if create else 0)


def _busy(path: Path, wait_s: float) -> TimeoutError:
    return TimeoutError(
        f"{path} is locked by another process for more than {wait_s:g} s; "
        "is a crawler frozen or suspended while it writes to this file?"
    )


def _pause(give_up: float, tries: int) -> bool:
    """Wait a little for the lock; False when the time is over."""
    left = give_up - time.monotonic()
    if left <= 0:
        return False
    time.sleep(min(left, backoff_s(tries, first_s=0.001, cap_s=0.032)))
    return True


if sys.platform != "win32":

    def _lock_posix(path: Path, give_up: float, wait_s: float, *, create: bool) -> SharedFile:
        tries = 0
        while True:
            fd = os.open(path, _flags(create=create), 0o666)
            try:
                if _try_flock(fd, path):
                    # The lock is on the file, not on its name; the file may have been replaced meanwhile.
                    with suppress(FileNotFoundError):
                        if os.path.samestat(path.stat(), os.fstat(fd)):
                            found = SharedFile(path, fd)
                            fd = -1
                            return found
                elif not _pause(give_up, tries):
                    raise _busy(path, wait_s)
            finally:
                if fd >= 0:
                    os.close(fd)
            tries += 1

    def _try_flock(fd: int, path: Path) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
            _say_unlocked(path)
        return True

    _unlocked: set[Path] = set()

    def _say_unlocked(path: Path) -> None:
        if path not in _unlocked:
            _unlocked.add(path)
            from loguru import logger

            logger.warning(
                "{}: this file system has no locks; let one process only write here, or use another disk",
                path,
            )

else:

    @contextmanager
    def _windows_lock(path: Path, give_up: float, wait_s: float) -> Iterator[None]:
        fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
        try:
            tries = 0
            while True:
                os.lseek(fd, 0, os.SEEK_SET)
                try:
                    msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
                    break
                except OSError:
                    if not _pause(give_up, tries):
                        raise _busy(path, wait_s) from None
                    tries += 1
            try:
                yield
            finally:
                os.lseek(fd, 0, os.SEEK_SET)
                msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        finally:
            os.close(fd)
