"""Write docs/faults.md and docs/zh/faults.md from the results of the fault suite (`make faults`).

    python scripts/faults_table.py build/faults.xml

The results are the property `fault` of each test in pytest's JUnit file; the texts of the rows are in faults.toml. A row
that was measured several times shows the worst of each figure. Nothing is written when a test failed, when a row has no
result, or when a result has no row.

A new row: its texts go to faults.toml, at the place where it is to stand; a test below tests/fault or tests/contract
with the mark `fault` says what came of it, with `note("33", run, report)` of tests/fault/conftest.py or with a JSON
object of the same fields as the property `fault`. `kind` says which table a row is in: "spider" or "air".
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import json
import os
import platform
import sys
import tomllib
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from netspy.frontier.redis.calls import package_version

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path(__file__).with_name("faults.toml")


class Language(NamedTuple):
    """The fixed texts of one page."""

    path: Path
    suffix: str
    head: str
    columns: str
    air: str
    place: str


ENGLISH = Language(
    ROOT / "docs" / "faults.md",
    "",
    """# Faults

English · [简体中文](zh/faults.md)

What is done to a crawl, and what comes of it. `make faults` does all of this with real processes and real servers, on the
machine that runs it, and writes this page; no figure is typed by hand. The tests: `tests/fault/`,
`tests/contract/test_fault_rows.py`. How to put your own spider to the same test: [testing](testing.md#under-faults).

- **lost**: expected rows that were not there in the end.
- **fetched again**: fetches beyond one per page: pages that the fault had interrupted, or that the store had forgotten.
  Requests are delivered at least once; see [guarantees](guarantees.md).
- **stored twice**: rows beyond one per key in a table with a unique key (SQLite).
- **written twice**: the same in a JSONL file, which has no keys.
- **recovered in**: seconds from the fault until the crawl had got over it. The nodes of these tests beat every 0.3 s and
  count as dead after 1.5 or 3 s; the defaults are 3 s and 15 s, so add 12 to 13.5 s where one that was there already takes
  over. One that starts later on the same machine doesn't wait (11c).

Where a row was measured several times (at several places, on several servers), each figure is the worst.
""",
    "| # | fault | what must come of it | lost | fetched again | stored twice | written twice | recovered in | Redis |\n"
    "|---|---|---|--:|--:|--:|--:|--:|---|\n",
    """
## AirSpider

One process, no Redis: its queue is in memory, and after a graceful stop in a file from which the next start goes on
(`RETRY_FAILED_ON_START`). The rows that are missing here are about a Redis, leases and further nodes; a page that kills its
process every time (14) is not counted from one process to the next.
""",
    "Measured on {date}: netspy {netspy}, Python {python}, {cores} cores, {tests} tests.",
)
CHINESE = Language(
    ROOT / "docs" / "zh" / "faults.md",
    "_zh",
    """# 故障表

[English](../faults.md) · 简体中文

对爬取做了什么，结果如何。`make faults` 在运行它的机器上，用真实的进程和真实的服务器逐项执行，
并写出本页；没有一个数字是手工填写的。
测试见 `tests/fault/` 与 `tests/contract/test_fault_rows.py`。如何让自己的爬虫接受同样的考验：[测试](testing.md#在故障下)。

- **丢失**：最终缺少的预期行。
- **重复抓取**：每页一次之外的抓取：被故障打断的页面，或存储忘掉的页面。请求至少投递一次，见[保证](guarantees.md)。
- **重复入库**：带唯一键的表（SQLite）中每个键多出的行。
- **重复写出**：同样的计数，但在没有键的 JSONL 文件中。
- **恢复用时**：从故障到爬取恢复的秒数。测试中的节点每 0.3 秒心跳一次，1.5 秒或 3 秒无心跳即视为死亡；
  默认是 3 秒和 15 秒，因此凡是由已在运行的节点接手的行，请再加 12 到 13.5 秒；之后在同一台机器上启动的节点不用等（11c）。

同一行若测了多次（不同位置、不同服务器），每个数字取最差值。
""",
    "| # | 故障 | 应有的结果 | 丢失 | 重复抓取 | 重复入库 | 重复写出 | 恢复用时 | Redis |\n"
    "|---|---|---|--:|--:|--:|--:|--:|---|\n",
    """
## AirSpider

单进程，没有 Redis：队列在内存里，平稳停止后写入文件，下次启动从那里继续（`RETRY_FAILED_ON_START`）。
这里没有的行都与 Redis、租约或其他节点有关；每次都杀死进程的页面（14）不会跨进程计数。
""",
    "测于 {date}：netspy {netspy}，Python {python}，{cores} 核，{tests} 项测试。",
)


def results(path: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """What the tests measured, the names of those that failed, and how many there were."""
    found, failed, tests = [], [], 0
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - pytest's own file
        tests += 1
        if (
            case.find("failure") is not None
            or case.find("error") is not None
            or case.find("skipped") is not None
        ):
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        noted = (one.get("value") or "{}" for one in case.iter("property") if one.get("name") == "fault")
        found += [json.loads(value) for value in noted]
    return found, failed, tests


def key_of(one: dict[str, Any]) -> tuple[str, str]:
    """Which table a row or a result is for, and its number."""
    return one.get("kind", "spider"), one.get("id") or one["row"]


def table(
    rows: list[dict[str, str]],
    kind: str,
    measured: dict[tuple[str, str], list[dict[str, Any]]],
    language: Language,
) -> str:
    """The rows of one kind. The column with the servers is the last one, and only Redis has it."""
    lines = [line(row, measured[key_of(row)], language.suffix) for row in rows if key_of(row)[0] == kind]
    if kind == "spider":
        return language.columns + "".join(lines)
    cut = [
        one.rstrip("\n").rpartition("|")[0].rpartition("|")[0]
        for one in [*language.columns.splitlines(), *lines]
    ]
    return "".join(f"{one}|\n" for one in cut)


def line(row: dict[str, str], measured: list[dict[str, Any]], suffix: str) -> str:
    """One row of the table."""
    worst = [
        max(one[name] for one in measured)
        for name in ("lost", "fetched_twice", "stored_twice", "written_twice")
    ]
    seconds = [one["seconds"] for one in measured if one["seconds"] is not None]
    cells = [row["id"], row["fault" + suffix], row["must" + suffix], *(f"{n:,}" for n in worst)]
    cells.append(f"{max(seconds):.1f} s" if seconds else "")
    cells.append(", ".join(sorted({one["redis"] for one in measured if one["redis"]})))
    return f"| {' | '.join(cells)} |\n"


def main(argv: list[str]) -> int:
    """Write both pages; 1 and a word why when the results don't allow it."""
    found, failed, tests = results(Path(argv[0]))
    rows = tomllib.loads(ROWS.read_text("utf-8"))["row"]
    measured: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in found:
        measured[key_of(one)].append(one)
    known = {key_of(row) for row in rows}
    problems = [f"{name} did not pass" for name in failed]
    problems += [f"row {row} ({kind}) has no result" for kind, row in sorted(known - set(measured))]
    problems += [
        f"a test gave a result for row {row} ({kind}), which faults.toml lacks"
        for kind, row in sorted(set(measured) - known)
    ]
    if problems:
        sys.stderr.write("docs/faults.md is left as it was:\n  " + "\n  ".join(problems) + "\n")
        return 1
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "netspy": package_version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "tests": tests,
    }
    for language in (ENGLISH, CHINESE):
        text = "\n".join(
            [
                language.head,
                table(rows, "spider", measured, language) + language.air,
                table(rows, "air", measured, language),
                language.place.format(**facts),
            ]
        )
        language.path.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(
        f"{ENGLISH.path.relative_to(ROOT)}, {CHINESE.path.relative_to(ROOT)}: {len(rows)} rows\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
