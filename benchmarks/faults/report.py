"""The results as Markdown tables, in the docs' two languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases import CASES
from frameworks import FRAMEWORKS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"en": DOCS / "comparison.md", "zh": DOCS / "zh" / "comparison.md"}
BEGIN, END = "<!-- benchmarks/faults: begin -->", "<!-- benchmarks/faults: end -->"

TITLES = {
    "en": {
        "none": "No fault (the control)",
        "kill-10": "`kill -9` after 10 pages, second start",
        "kill-40": "`kill -9` after 40 pages, second start",
        "kill-500": "`kill -9` after 500 pages, second start",
        "seeder": "`kill -9` of the seeder half way, second start",
        "redis": "Redis stopped for 2 s in mid-crawl",
        "reply": "One lost reply to a request for work",
        "pipeline": "Writes of 1.5 s and `kill -9`, second start",
    },
    "zh": {
        "none": "无故障（对照）",
        "kill-10": "抓取 10 页后 `kill -9`，再次启动",
        "kill-40": "抓取 40 页后 `kill -9`，再次启动",
        "kill-500": "抓取 500 页后 `kill -9`，再次启动",
        "seeder": "播种到一半时 `kill -9`，再次启动",
        "redis": "抓取途中 Redis 停 2 秒",
        "reply": "一次取任务的回复丢失",
        "pipeline": "每次写入 1.5 秒，途中 `kill -9`，再次启动",
    },
}

HEAD = {
    "en": "| | expected | stored | lost | fetched twice | rows twice | exit codes | seconds | note |",
    "zh": "| | 应有 | 已存 | 丢失 | 重复抓取 | 重复写入 | 退出码 | 秒 | 说明 |",
}

NOTES = {
    "en": {
        "early": "ended before the kill",
        "hung": "hung: no page for {} s, ended",
        "slow": "still crawling after {} s, ended",
        "crashed": "the node crashed: {}",
        "again": "started again",
        "silent": "says nothing of the loss: exit 0",
        "unfetched": "no page fetched before the kill",
        "untouched": "no reply could be dropped",
        "traces": "tracebacks: {}",
    },
    "zh": {
        "early": "在 kill 之前已结束",
        "hung": "挂起：{} 秒无抓取，被结束",
        "slow": "{} 秒后仍在抓取，被结束",
        "crashed": "节点崩溃：{}",
        "again": "再次启动",
        "silent": "未报告丢失：退出码 0",
        "unfetched": "kill 之前一页未抓",
        "untouched": "未能丢弃任何回复",
        "traces": "traceback：{}",
    },
}

NAMES = {
    "zh": {
        "registry": "同名包，默认去重",
        "registry-redis": "同名包，Redis 去重",
    }
}


def tables(found: dict[str, Any], language: str) -> str:
    """All tables, headed by date and versions."""
    parts = [f"{found['date']}. {found['machine']}.", ""]
    parts += [f"- {label(name, language)}: {text}" for name, text in found["versions"].items()]
    for case in CASES:
        if case not in found["results"]:
            continue
        parts += [
            "",
            f"### {TITLES[language][case]}",
            "",
            HEAD[language],
            "|---|" + "---:|" * 5 + "---|---:|---|",
        ]
        parts += [
            line(name, found["results"][case][name], language)
            for name in FRAMEWORKS
            if name in found["results"][case]
        ]
    return "\n".join(parts)


def label(name: str, language: str) -> str:
    return NAMES.get(language, {}).get(name, FRAMEWORKS[name].label)


def line(name: str, row: dict[str, Any], language: str) -> str:
    notes = "; ".join(NOTES[language][what].format(value or "?") for what, value in row["notes"])
    lost = f"**{row['lost']:,}**" if row["lost"] else "0"
    cells = [
        label(name, language),
        f"{row['expected']:,}",
        f"{row['stored']:,}",
        lost,
        f"{row['fetched_twice']:,}",
        f"{row['rows_twice']:,}",
        ", ".join(row["codes"]),
        f"{row['seconds']:.1f}",
        notes,
    ]
    return "| " + " | ".join(cells) + " |"


def write(found: dict[str, Any], language: str) -> None:
    """Replace what stands between the marks of a page. Raises ValueError when it has no marks."""
    page = PAGES[language]
    text = page.read_text("utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    page.write_text(f"{head}{BEGIN}\n\n{tables(found, language)}\n\n{END}{tail}", "utf-8")
