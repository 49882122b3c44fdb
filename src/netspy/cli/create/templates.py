"""The text of what `netspy create` writes: it runs as it is and passes `ruff check` and `ruff format`."""

from __future__ import annotations

import textwrap

from netspy import settings

KINDS = {"air": "AirSpider", "spider": "Spider", "task": "TaskSpider", "batch": "BatchSpider"}

_ABOUT_KIND = {
    "air": """\
    One process, nothing to install. To crawl with several processes or machines, or to
    survive a crash, change the base class to mw.Spider.
""",
    "spider": """\
    Queue and dedup live in Redis (setting REDIS_URL; "embedded" starts a private one):
    run this as often as you like, on as many machines as you like.
""",
    "task": """\
    Push tasks from anywhere with {class_name}.push_tasks({{"url": "…"}}) or `netspy tasks push`.
    Tasks and queue live in Redis (setting REDIS_URL; "embedded" starts a private one):
    run this as often as you like, on as many machines as you like.
""",
    "batch": """\
    The task table is {table} in the database of BATCH_STORE_URL or MYSQL_*; `netspy batch check`
    says what it needs. Start one master, `netspy run FILE --monitor`, and as many workers as you
    like. They share a Redis (setting REDIS_URL; "embedded" starts a private one).
""",
}

_START = {
    "air": """\
    def start_requests(self):
        yield mw.Request("https://example.com/", callback=self.parse)

    def parse(self, request, response):
        yield {"url": request.url, "title": response.css("title::text").get()}
        # Follow links with: yield response.follow("/next", callback=self.parse)
""",
    "task": """\
    def task_requests(self, task):
        yield mw.Request(task["url"], callback=self.parse)

    def parse(self, request, response):
        yield {"url": request.url, "title": response.css("title::text").get()}
        # Found something more to do? self.add_tasks({"url": response.urljoin("/next")})
""",
    "batch": """\
    def task_requests(self, task):
        yield mw.Request(task["url"], callback=self.parse)

    def parse(self, request, response, task):
        yield {"url": request.url, "title": response.css("title::text").get()}
        self.update_task(task["id"])  # written once the row above is stored
""",
}
_START["spider"] = _START["air"]


def spider_module(class_name: str, kind: str) -> str:
    """A spider that fetches pages and yields their titles. `kind`: a key of KINDS."""
    table = f'__task_table__ = "{task_table(class_name)}"'
    body = f"    {table}\n\n{_START[kind]}" if kind == "batch" else _START[kind]
    about = _ABOUT_KIND[kind].format(class_name=class_name, table=task_table(class_name))
    return f'''\
"""{class_name}: fetches pages and yields one row for each."""

import netspy as mw


class {class_name}(mw.{KINDS[kind]}):
    """Start it with `netspy run` or `python`.

{about}    """

{body}

if __name__ == "__main__":
    {class_name}().start()
'''


def task_table(class_name: str) -> str:
    """The task table of a new BatchSpider: `HotNewsSpider` → `hot_news_task`."""
    from netspy.messages.item import snake_case  # most commands need no messages

    return f"{snake_case(class_name.removesuffix('Spider') or class_name)}_task"


def item_module(class_name: str, table: str) -> str:
    """An item class for rows of `table`."""
    return f'''\
"""{class_name}: one row of the table {table}."""

import netspy as mw


class {class_name}(mw.Item):
    """Give the fields as keywords: {class_name}(url=..., title=...)."""

    __table_name__ = "{table}"
    # Rows with the same values here are one row; without it, rows that are equal in all fields.
    __unique_key__ = ("url",)
'''


def main_module(spider_file: str, class_name: str) -> str:
    """The project's main.py."""
    return f'''\
"""Starts the crawl: `netspy run main.py` or `python main.py`."""

from spiders.{spider_file} import {class_name}

if __name__ == "__main__":
    {class_name}().start()
'''


def package_module(what: str) -> str:
    """An `__init__.py`."""
    return f'"""The {what} of this project."""\n'


def readme(project: str, spider_file: str) -> str:
    """The project's README."""
    return f"""\
# {project}

    netspy run main.py                    # crawl
    netspy run main.py -s LOG_LEVEL=DEBUG # with another setting
    netspy settings --spider main.py      # every setting and where it comes from
    netspy create -s NAME                 # another spider in spiders/
    netspy create -i NAME                 # an item in items/

`spiders/{spider_file}.py` says what is crawled, `setting.py` how.
"""


GITIGNORE = """\
__pycache__/
.netspy/
failed_requests.jsonl
failed_items.jsonl
*.db
*.log
"""


def setting_module() -> str:
    """A setting.py with every setting at its default, commented out."""
    values = settings.Settings()
    lines = [
        '"""Settings of this project.',
        "",
        "Each line `# NAME = value` shows a default; remove the `# ` to set it. Stronger than this file:",
        "a spider's __custom_setting__, NETSPY_* environment variables, and `netspy run -s NAME=value`.",
        "`netspy settings --changed` shows what is in force.",
        '"""',
    ]
    group = ""
    for name in settings.FIELDS:
        about = settings.meta(name)
        extra = about.extra or {}
        if extra.get("group", "") != group:
            group = extra.get("group", "")
            lines += ["", f"# ---- {group} ----"]
        unit = f" [{extra['unit']}]" if extra.get("unit") else ""
        lines.append("")
        lines += [f"# {line}" for line in textwrap.wrap(f"{about.description or ''}{unit}", 96)]
        lines.append(f"# {name} = {getattr(values, name)!r}")
    return "\n".join(lines) + "\n"
