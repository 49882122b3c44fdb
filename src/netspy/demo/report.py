"""The end of `netspy demo`: what the run came to, compared with what the shop has."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from netspy.testing.shop import Shop

TABLE = "product"
SHOWN = ("sku", "title", "brand", "price", "stock", "score")


class Served(NamedTuple):
    """What the shop's log says. `again`: pages that were served in full more than once."""

    answers: int
    pages: int
    failed_once: int
    again: int


class Checked(NamedTuple):
    """`problems` is empty when every product is stored, once and right; `repeated`: further lines in the JSONL file."""

    rows: list[dict[str, Any]]
    problems: list[str]
    repeated: int


def database(folder: Path) -> Path:
    """The run's SQLite file."""
    return folder / "products.db"


def lines_file(folder: Path) -> Path:
    """The run's JSON lines."""
    return folder / f"{TABLE}.jsonl"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of the SQLite table; none when it isn't there."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in db.execute(f'SELECT * FROM "{TABLE}" ORDER BY sku')]  # noqa: S608 - a constant
        except sqlite3.OperationalError:  # no batch was stored yet
            return []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the JSONL file; none when it isn't there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def check(folder: Path, shop: Shop) -> Checked:
    """Compare both files with the shop. A kill may have a row delivered twice: a line of JSON stays, so those are
    counted and not held against it.
    """
    rows, lines = read_rows(database(folder)), read_lines(lines_file(folder))
    by_sku = {str(line.get("sku")): line for line in lines}
    problems = [f"{database(folder).name}: {text}" for text in shop.problems(rows)]
    problems += [f"{lines_file(folder).name}: {text}" for text in shop.problems(by_sku.values())]
    return Checked(rows, problems, len(lines) - len(by_sku))


def served(log: Path) -> Served:
    """Count the shop's answers over all its starts."""
    good: Counter[str] = Counter()
    busy: set[str] = set()
    answers = 0
    if log.exists():
        for line in log.read_text("utf-8").splitlines():
            status, _, path = line.partition(" ")
            answers += 1
            if status == "200":
                good[path] += 1
            elif status.startswith("5"):
                busy.add(path)
    return Served(answers, len(good), len(busy), sum(count > 1 for count in good.values()))


def some(rows: Sequence[dict[str, Any]], count: int = 3) -> list[dict[str, Any]]:
    """A few rows of each language."""
    chinese = [row for row in rows if not str(row["title"]).isascii()]
    english = [row for row in rows if str(row["title"]).isascii()]
    return english[:count] + chinese[:count]


def show_rows(rows: Sequence[dict[str, Any]], *, total: int, terminal: bool) -> None:
    """Print rows: a table on a terminal, plain columns elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        box=box.ROUNDED if terminal else None,
        pad_edge=terminal,
        header_style="bold" if terminal else "",
        title=f"{len(rows)} of {total:,} products" if terminal else None,
        title_justify="left",
        title_style="dim",
    )
    for name in SHOWN:
        numeric = name in {"price", "stock", "score"}
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*[_cell(row.get(name)) for name in SHOWN])
    # Without a terminal nothing tells the width: none of the columns is to be cut.
    console = Console(
        width=None if terminal else 120,
        highlight=False,
        markup=False,
        emoji=False,
        color_system="auto" if terminal else None,
    )
    console.print(table)


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) and value >= 10 else str(value)
