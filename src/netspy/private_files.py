"""Files that hold secrets: requests with their cookies and credentials, and rows. Only their owner may read them.

The mode is set on the open file as well, so neither the umask nor what the file was before decides. Where modes mean
nothing (Windows, some mounted disks) the files are as they can be.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """`os.open` for a file that only its owner may read; also as the `opener` of `open`. Raises OSError."""
    fd = os.open(path, flags, FILE_MODE)
    narrow(fd)
    return fd


def narrow(file: int | Path) -> None:
    """Take a file, open or by its path, from all but its owner. A device, pipe or link is left as it is."""
    if os.name == "nt":
        return
    with suppress(OSError):  # another owner's, or a disk without modes
        found = os.lstat(file) if isinstance(file, Path) else os.fstat(file)
        if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != FILE_MODE:
            os.chmod(file, FILE_MODE)  # noqa: PTH101 - a descriptor, too


def narrow_folder(folder: Path) -> None:
    """Take a folder of our own from all but its owner."""
    if os.name == "nt":
        return
    with suppress(OSError):
        if stat.S_ISDIR(folder.lstat().st_mode):
            folder.chmod(FOLDER_MODE)
