"""A table's name as a file name that can't leave the output folder, on any file system."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_UNSAFE = re.compile(r"[^\w.\-]+", re.UNICODE)
# Device names of Windows, with any extension (Microsoft, "Naming Files, Paths, and Namespaces").
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_LONGEST = 180  # bytes: file systems stop at 255, and an extension and a temporary suffix come on top


def file_stem(table: str) -> str:
    """`table` itself when it is a harmless file name, else its harmless characters and a digest of the whole.

    The digest keeps two tables apart whose names differ only in the characters that were replaced.
    """
    stem = _UNSAFE.sub("_", table).strip(".").encode("utf-8")[:_LONGEST].decode("utf-8", "ignore")
    if _RESERVED.fullmatch(stem):
        stem = f"_{stem}"
    if stem and stem == table:
        return stem
    digest = hashlib.blake2b(table.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{stem or 'table'}-{digest}"


def beside(path: Path, table: str, main: str) -> Path:
    """Where a table's rows go when one file was named: the table `main` into `path` itself, any other into
    `<stem>.<table><suffix>` next to it.
    """
    return path if table == main else with_mark(path, file_stem(table))


def with_mark(path: Path, mark: str) -> Path:
    """`<stem>.<mark><suffix>`; the suffix of a compressed file (`.jsonl.gz`) stays whole."""
    packing = path.suffix if path.suffix.lower() in {".gz", ".zst"} else ""
    name = path.name.removesuffix(packing)
    stem, dot, suffix = name.rpartition(".")
    return path.with_name(f"{stem}.{mark}.{suffix}{packing}" if stem and dot else f"{name}.{mark}{packing}")


def next_number(path: Path) -> Path:
    """The name under which a full file is put away: `<stem>.<number><suffix>`, the number one above those there."""
    before, after = with_mark(path, "\0").name.split("\0")
    taken = (
        entry.name.removeprefix(before).removesuffix(after)
        for entry in path.parent.iterdir()
        if entry.name.startswith(before) and entry.name.endswith(after)
    )
    highest = max((int(number) for number in taken if number.isascii() and number.isdigit()), default=0)
    return with_mark(path, f"{highest + 1:05d}")
