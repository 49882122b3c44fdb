"""How commands show what they found: columns on a terminal, tabs elsewhere, questions before anything is lost."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from netspy.observe.log import is_terminal, without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def visible(text: str) -> str:
    """`text` for a person's eyes: URLs' passwords hidden, and nothing in it that steers a terminal."""
    plain = without_passwords(text)
    if plain.isprintable():
        return plain
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode("ascii") for ch in plain)


def local_time(seconds: float) -> str:
    """`2026-03-01 12:00:05` in this machine's time zone; empty for 0, which means unknown."""
    try:
        return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}" if seconds else ""
    except (ValueError, OverflowError, OSError):  # what another program wrote there is no time
        return ""


def iso_time(seconds: float) -> str | None:
    """ISO 8601 in UTC, to the millisecond; None for 0, which means unknown."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


def json_line(value: Any) -> str:
    """One line of JSON; what JSON has no form for, as text."""
    return msgspec.json.encode(value, enc_hook=repr).decode("utf-8")


def facts(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Names and values, one pair per line."""
    if not is_terminal(sys.stdout):
        return [f"{name}\t{visible(value)}" for name, value in rows]
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {visible(value)}" for name, value in rows]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> list[str]:
    """A table with its headings. `right` names the columns of numbers. The last column may be of any length."""
    cells = [list(head), *([visible(cell) for cell in row] for row in rows)]
    if not is_terminal(sys.stdout):
        return ["\t".join(row) for row in cells]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    numbers = {head.index(name) for name in right}
    return [
        "  ".join(
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def say(text: str) -> None:
    """One line on stderr: what a person should know beside the result."""
    sys.stderr.write(f"netspy: {visible(text)}\n")


def ask(question: str, *, yes: bool) -> None:
    """Go on only if the person agrees, or has with --yes.

    Raises a usage error (exit 2) where nobody can be asked, and Abort (exit 130) for a no.
    """
    if yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise typer.BadParameter("this asks first, and there is no terminal to ask on; --yes answers")
    sys.stdout.flush()
    typer.confirm(visible(question), abort=True, err=True)


def things(count: int, one: str, many: str = "") -> str:
    """`1 request`, `1,204 requests`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
