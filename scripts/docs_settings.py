"""Write docs/settings.md and docs/zh/settings.md from the declarations; --check says whether they are current.

The Chinese sentences are in docs/zh/settings.json, each beside the English one it translates, so that a changed
sentence or a new setting without its translation is noticed.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from netspy.settings import FIELDS, LEGACY, NOT_BUILT, Settings, meta, type_name

DOCS = Path(__file__).resolve().parent.parent / "docs"
TRANSLATIONS = DOCS / "zh" / "settings.json"


class Language(NamedTuple):
    """The fixed texts of one language's page."""

    path: Path
    groups: dict[str, str]
    columns: str
    head: str
    tail: str


ENGLISH = Language(
    DOCS / "settings.md",
    {
        "run": "The run",
        "distributed": "Redis and several nodes",
        "task": "Tasks and batches",
        "download": "Downloads",
        "politeness": "Politeness, statuses, retries",
        "items": "Items and dedup",
        "stores": "Stores",
        "ops": "Logs, progress, alerts",
    },
    "| name | type | default | unit | meaning |",
    """# Settings

English · [简体中文](zh/settings.md)

Made from the declarations in `src/netspy/settings/` by `make docs-settings`; edit them there.

A setting can be given in six places. Weakest first:

1. the default below;
2. `setting.py` (or `settings.py`): the file that `NETSPY_SETTING` names, else that of the current folder, else that of the
   script's own folder; the log says which file was read, and which was not;
3. `setting.NAME = value` in your code (`from netspy import setting`), before the spider starts;
4. the spider's `__custom_setting__`;
5. the environment: `NETSPY_` and the name, for example `NETSPY_SPIDER_THREAD_COUNT=32`;
6. keywords of the constructor, `NewsSpider(SPIDER_THREAD_COUNT=32)`, and `-s NAME=VALUE` on the command line.

`netspy settings` prints every value in force and where it came from; `netspy settings --changed` only those that
something has set. A value of the wrong type, or out of its bounds, stops the start with one line. A name that is close
to a setting's gets a warning (an error with `STRICT_SETTINGS`); other upper-case names are yours. A list in an
environment variable is JSON or words separated by commas. A path may be a `pathlib.Path` and may begin with `~`; a relative
one starts from the current folder, wherever `setting.py` lies.
""",
    """
## Names that are accepted without effect

They belong to other engines. Setting one is allowed and says so once: {legacy}.

## Switches that are refused

Their features are not built. Turning one on stops the start: going on without robots.txt or a proxy would do harm.

{refused}
""",
)
CHINESE = Language(
    DOCS / "zh" / "settings.md",
    {
        "run": "运行",
        "distributed": "Redis 与多节点",
        "task": "任务与批次",
        "download": "下载",
        "politeness": "限速、状态码、重试",
        "items": "数据与去重",
        "stores": "存储",
        "ops": "日志、进度、告警",
    },
    "| 名称 | 类型 | 默认值 | 单位 | 含义 |",
    """# 配置

[English](../settings.md) · 简体中文

本页由 `make docs-settings` 根据 `src/netspy/settings/` 里的声明生成；中文说明放在 `docs/zh/settings.json`。

一个配置项可以写在六个地方，后面的盖过前面的：

1. 下表里的默认值；
2. `setting.py`（或 `settings.py`）：`NETSPY_SETTING` 指定的文件，否则是当前目录的，再否则是脚本所在目录的；日志会说明
   读了哪个文件、没读哪个；
3. 代码里的 `setting.NAME = 值`（`from netspy import setting`），在爬虫启动之前；
4. 爬虫类的 `__custom_setting__`；
5. 环境变量：`NETSPY_` 加上名称，例如 `NETSPY_SPIDER_THREAD_COUNT=32`；
6. 构造参数 `NewsSpider(SPIDER_THREAD_COUNT=32)`，以及命令行的 `-s NAME=VALUE`。

`netspy settings` 打印每一项的当前值和来源；加 `--changed` 只看被改过的。类型不对或超出范围的值会让启动失败，并给出一行
说明。名称和某个配置项很像但不相同时会告警（`STRICT_SETTINGS` 打开时直接报错）；其他大写名称归你自己用。环境变量里的
列表可以写成 JSON，也可以用逗号分隔。路径可以是 `pathlib.Path`，可以以 `~` 开头；相对路径从当前目录算起，与 `setting.py`
在哪里无关。
""",
    """
## 可以写、但不起作用的名称

它们是其他引擎的内部参数。写了不会报错，启动时提示一次：{legacy}。

## 会被拒绝的开关

这些功能还没有做。打开它们会让启动失败，因为装作遵守 robots.txt、或者装作走了代理，后果更坏。

{refused}
""",
)
REFUSED_ZH = {
    "PROXY_ENABLE": "还没有代理池；请给单个请求写 `proxy=`",
    "ROBOTS_OBEY": "还不支持 robots.txt 规则；请在爬虫里自己过滤 URL",
    "GLOBAL_THROTTLE": "还没有集群级限速；请用 DOWNLOAD_DELAY 乘以节点数",
    "RESPONSE_CACHE_ENABLE": "还没有响应缓存",
    "METRICS_PROMETHEUS_PORT": "还没有 Prometheus 导出；请读汇总行或用 `netspy status`",
}
UNITS_ZH = {
    "s": "秒", "requests": "个请求", "rows": "行", "files": "个文件", "tries": "次", "pages": "页", "items": "条",
    "deliveries": "次", "threads": "个线程", "connections": "个连接", "nodes": "个",
    "values": "个值", "path": "路径", "path or URL": "路径或 URL", "URL": "URL",
    "tasks": "个任务", "polls": "次", "hops": "跳", "bytes": "字节",
    "fingerprints": "个指纹", "layers": "层", "BATCH_INTERVAL_UNIT": "BATCH_INTERVAL_UNIT", "": "",
}  # fmt: skip


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return text.replace("|", "\\|")


def page(
    language: Language, sentences: dict[str, str], units: dict[str, str], refused: dict[str, str]
) -> str:
    """One language's page."""
    defaults = Settings()
    sections: dict[str, list[str]] = {group: [] for group in language.groups}
    for name in FIELDS:
        extra: dict[str, Any] = meta(name).extra or {}
        unit = extra.get("unit", "")
        default = f"`{cell(repr(getattr(defaults, name)))}`"
        sections[extra["group"]].append(
            f"| `{name}` | {cell(type_name(name))} | {default} | {units.get(unit, unit)} | {cell(sentences[name])} |"
        )
    parts = [language.head]
    for group, title in language.groups.items():
        parts.append(
            f"\n## {title}\n\n{language.columns}\n|---|---|---|---|---|\n" + "\n".join(sections[group]) + "\n"
        )
    legacy = ", ".join(f"`{name}`" for name in sorted(LEGACY))
    refusals = "\n".join(f"- `{name}`: {refused[name]}" for name in NOT_BUILT)
    parts.append(language.tail.format(legacy=legacy, refused=refusals))
    return "".join(parts)


def problems() -> list[str]:
    """Sentences, units and switches without a current translation."""
    known = json.loads(TRANSLATIONS.read_text(encoding="utf-8"))
    wrong = []
    for name in FIELDS:
        about = meta(name)
        pair = known.get(name)
        if pair is None:
            wrong.append(f"docs/zh/settings.json has no entry for {name}")
        elif pair["en"] != about.description:
            wrong.append(f"docs/zh/settings.json: the sentence of {name} has changed to: {about.description}")
        unit = (about.extra or {}).get("unit", "")
        if unit not in UNITS_ZH:
            wrong.append(f"scripts/docs_settings.py: UNITS_ZH lacks {unit!r} ({name})")
    wrong += [f"docs/zh/settings.json: {name} is no setting" for name in known if name not in FIELDS]
    wrong += [
        f"scripts/docs_settings.py: REFUSED_ZH lacks {name}" for name in NOT_BUILT if name not in REFUSED_ZH
    ]
    return wrong


def pages() -> dict[Path, str]:
    """The text of both pages. Raises KeyError when `problems` has something to say."""
    english = {name: str(meta(name).description) for name in FIELDS}
    known = json.loads(TRANSLATIONS.read_text(encoding="utf-8"))
    chinese = {name: str(known[name]["zh"]) for name in FIELDS}
    return {
        ENGLISH.path: page(ENGLISH, english, {}, NOT_BUILT),
        CHINESE.path: page(CHINESE, chinese, UNITS_ZH, REFUSED_ZH),
    }


def main() -> int:
    """Write the pages, or with --check compare them; exit code 1 when something is missing or out of date."""
    wrong = problems()
    if not wrong:
        for path, text in pages().items():
            current = path.read_text(encoding="utf-8") if path.exists() else ""
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
            elif text != current:
                wrong.append(f"{path.relative_to(DOCS.parent)} is out of date; run: make docs-settings")
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
