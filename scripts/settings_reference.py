"""Write docs/settings.md from the declarations in netspy/settings.py; --check says whether it is current."""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import sys
from pathlib import Path

from netspy.settings import FIELDS, Settings, meta, type_name

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

GROUPS = {
    "run": "The run",
    "distributed": "Redis and several nodes",
    "task": "Tasks and batches",
    "download": "Downloads",
    "politeness": "Politeness, statuses, retries",
    "items": "Items and dedup",
    "ops": "Logs, progress, alerts",
}

HEAD = """# Settings

Made from the declarations in `src/netspy/settings.py` by `make docs-settings`; edit them there.

Order, weakest first: the defaults below, the project's `setting.py` (`NETSPY_SETTING` names another file),
the spider's `__custom_setting__`, the environment (`NETSPY_` + name), constructor keywords and command-line
flags. `netspy settings` shows every value in force and where it came from.
"""


def page() -> str:
    """The whole page."""
    defaults = Settings()
    sections: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in FIELDS:
        about = meta(name)
        extra = about.extra or {}
        unit = f", {extra['unit']}" if extra.get("unit") else ""
        kind = type_name(name).replace("|", "\\|")
        default = f"`{getattr(defaults, name)!r}`".replace("|", "\\|")
        text = (about.description or "").replace("|", "\\|")
        sections[extra["group"]].append(f"| `{name}` | {kind}{unit} | {default} | {text} |")
    parts = [HEAD]
    for group, title in GROUPS.items():
        rows = "\n".join(sections[group])
        parts.append(
            f"\n## {title}\n\n| name | type, unit | default | meaning |\n|---|---|---|---|\n{rows}\n"
        )
    return "".join(parts)


def main() -> int:
    """Write the page, or with --check compare it; the exit code is 1 when it was out of date."""
    text = page()
    current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" in sys.argv[1:]:
        if text != current:
            sys.stderr.write("docs/settings.md is out of date; run: make docs-settings\n")
        return int(text != current)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
