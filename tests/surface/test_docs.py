"""The docs are true: links lead somewhere, code compiles, marked snippets run, generated pages are current.

A snippet is marked by a comment on the line before its fence: `<!-- run -->`, `<!-- run redis -->` (a private Redis
stands in for its REDIS_URL), `<!-- run embedded -->`. Its https://example.com is a local site here. A snippet without
`if __name__` gets one line more that starts its last spider.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from netspy.cli.app import COMMANDS
from netspy.errors import ConfigError
from netspy.observe.outcome import OUTCOMES, ExitCode
from netspy.observe.summary import RunSummary
from netspy.policy import bloom
from netspy.redisio import keys
from netspy.testing.runner import run_command, run_script, start_command
from netspy.testing.site import Answer, LocalSite

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CHINESE = [ROOT / "README.zh-CN.md", *sorted((DOCS / "zh").glob("*.md"))]
ENGLISH = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
PAGES = [*ENGLISH, *CHINESE, *DECISIONS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

FENCE = re.compile(r"(?:<!-- (?P<mark>run[^>]*?) -->\n+)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST_NAME = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")
SOURCE_NAME = re.compile(
    r"`((?:src/netspy|frontier|engine|policy|messages|redisio|assembly|launch|observe|pipelines|downloader|spiders|cli|testing|tasks)/[\w/.]+\.(?:py|lua))`"
)


class Snippet(NamedTuple):
    page: str
    line: int
    mark: str
    code: str


def without_code(text: str) -> str:
    return FENCE.sub("", text)


def snippets(kind: str = "python") -> list[Snippet]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["kind"] == kind:
                line = text.count("\n", 0, match.start("code")) + 1
                found.append(Snippet(str(page.relative_to(ROOT)), line, match["mark"] or "", match["code"]))
    return found


SNIPPETS = snippets()


def name(value: object) -> str:
    if isinstance(value, Snippet):
        return f"{value.page}:{value.line}"
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


def anchor(heading: str) -> str:
    """A heading's anchor as GitHub makes it."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda m: m[1] or "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page):
    wrong = []
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            wrong.append(target)
        elif fragment and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", without_code(file.read_text(encoding="utf-8")), re.M)
            if fragment not in {anchor(heading) for heading in headings}:
                wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_and_test_that_a_page_names_exists(page):
    text = without_code(page.read_text(encoding="utf-8"))
    wrong = []
    for file, test in TEST_NAME.findall(text):
        path = ROOT / file
        if not path.is_file():
            wrong.append(file)
        elif test and f"def {test}(" not in path.read_text(encoding="utf-8"):
            wrong.append(f"{file}::{test}")
    for file in SOURCE_NAME.findall(text):
        if not (ROOT / file).is_file() and not (ROOT / "src" / "netspy" / file).is_file():
            wrong.append(file)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_python_block_compiles(page):
    for snippet in SNIPPETS:
        if snippet.page == str(page.relative_to(ROOT)):
            place = f"{snippet.page}:{snippet.line}"
            compile(snippet.code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_english_and_chinese_pages_are_twins():
    english = {page.name for page in DOCS.glob("*.md")}
    chinese = {page.name for page in (DOCS / "zh").glob("*.md")}
    assert english == chinese
    for page in [*ENGLISH, *CHINESE]:
        head = page.read_text(encoding="utf-8")[:400]
        assert "简体中文" in head, f"{page} doesn't link its twin"
        assert "English" in head, f"{page} doesn't link its twin"


def test_twins_show_the_same_code():
    def blocks(page: Path) -> list[str]:
        found = [m["code"] for m in FENCE.finditer(page.read_text(encoding="utf-8")) if m["kind"] == "python"]
        return [ast.dump(ast.parse(code)) for code in found]

    assert len(blocks(ROOT / "README.md")) == len(blocks(ROOT / "README.zh-CN.md"))
    for page in DOCS.glob("*.md"):
        assert len(blocks(page)) == len(blocks(DOCS / "zh" / page.name)), page.name


def test_nothing_tells_people_to_install_somebody_elses_package():
    for page in PAGES:
        assert "pip install netspy" not in page.read_text(encoding="utf-8"), page


def test_settings_pages_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "docs_settings.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", [DOCS, DOCS / "zh"], ids=["en", "zh"])
def test_the_page_of_keys_has_every_key(folder):
    text = (folder / "redis-keys.md").read_text(encoding="utf-8")
    missing = [
        doc.name for doc in keys.PAGE if not all(part in text for part in re.split(r"`?, `?", doc.name))
    ]
    assert missing == []


@pytest.mark.parametrize("folder", [DOCS, DOCS / "zh"], ids=["en", "zh"])
def test_the_memory_table_is_the_codes(folder):
    text = (folder / "dedup.md").read_text(encoding="utf-8")
    for row in bloom.memory_table(layers=(1, 2, 4, 6, 7)):
        line = f"| {row.layers} | {row.capacity / 1e6:g} M | {row.megabytes:.0f} MB | {row.error_bound:.2e} |"
        assert line in text
    with pytest.raises(ConfigError):  # the eighth layer, as the page says
        bloom.plan(1_000_000, 1e-6, 8)


@pytest.mark.parametrize("folder", [DOCS, DOCS / "zh"], ids=["en", "zh"])
def test_the_page_on_running_has_every_code_outcome_field_and_command(folder):
    text = (folder / "running.md").read_text(encoding="utf-8")
    wanted = [f"`{name}`" for name in (*RunSummary.__struct_fields__, *OUTCOMES)]
    wanted += [f"`netspy {command}" for command in COMMANDS]
    missing = [word for word in wanted if word not in text and word != "`schema`"]
    assert missing == []
    codes = {
        int(number)
        for line in re.findall(r"^\| ([\d, 、]+) \|", text, re.M)
        for number in re.findall(r"\d+", line)
    }
    assert {int(code) for code in ExitCode} - codes <= {9}
    assert "9" in text


def test_every_command_that_the_docs_name_exists():
    named = {
        word for page in PAGES for word in re.findall(r"`netspy ([a-z]+)\b", page.read_text(encoding="utf-8"))
    }
    assert named - set(COMMANDS) == set()


def news_site(site: LocalSite) -> LocalSite:
    """The site that the docs' examples crawl."""

    def answer(request):
        path = request.path
        if path == "/news":
            links = "".join(f'<h2><a href="/news/{n}">Article {n}</a></h2>' for n in range(1, 4))
            return f'<title>News</title>{links}<a class="next" href="/news?p=2">more</a>'
        if path.startswith("/news/"):
            return f'<title>T</title><h1>Article {path[6:]}</h1><p class="text">Words.</p><span class="price">9.50</span>'
        if path.startswith("/api/"):
            return Answer({"views": 3, "items": [1, 2]})
        return 404 if "missing" in path else f"<title>Page</title><h1>{path}</h1>"

    site.fallback(answer)
    return site


def runnable() -> list[Snippet]:
    return [snippet for snippet in SNIPPETS if snippet.mark]


@pytest.mark.parametrize("snippet", runnable(), ids=name)
def test_marked_snippets_run_as_written(snippet, site, tmp_path, request):
    news_site(site)
    source = snippet.code.replace("https://example.com", site.url("").rstrip("/"))
    env = {"NETSPY_PROGRESS": "off", "NETSPY_RETRY_BACKOFF": "0", "NETSPY_TASK_POLL_INTERVAL": "0.2"}
    env |= {"NETSPY_BATCH_MONITOR_INTERVAL": "0.3", "NETSPY_SPIDER_STARTUP_GRACE": "1"}
    if "redis" in snippet.mark:
        env["NETSPY_REDIS_URL"] = request.getfixturevalue("redis_url")
    if "embedded" in snippet.mark:
        env["NETSPY_REDIS_URL"] = "embedded"
        env["NETSPY_EMBEDDED_DATA_DIR"] = str(request.getfixturevalue("embedded_dir"))
    if not re.search(r"__name__|\b(?:start|run|start_monitor)\(", source):
        classes = re.findall(r"^class (\w+)\(mw\.(?:Air)?Spider\)", source, re.M)
        source += f"\n\n{classes[-1]}().start()\n"
    result = run_script(source, cwd=tmp_path, env=env, timeout=60)
    said = f"{result.stdout}\n{result.stderr}"
    assert result.returncode == 0, said
    assert "Traceback" not in said
    assert site.total > 0 or "LocalSite" in source
    if result.summary:
        assert result.summary["outcome"] in {"finished", "limit", "stopped"}, said
        assert result.summary["parse_error"] == result.summary["callback_error"] == 0, said
        assert result.summary["items"] > 0, said


NETSPY = [sys.executable, "-m", "netspy.cli"]


def first_spider(site: LocalSite, folder: Path) -> None:
    """The README's main.py."""
    code = next(snippet.code for snippet in snippets() if snippet.page == "README.md")
    (folder / "main.py").write_text(
        code.replace("https://example.com", site.url("").rstrip("/")), encoding="utf-8"
    )


@pytest.mark.parametrize("output", ["news.jsonl", "news.csv", "news.db"])
def test_rows_go_to_the_file_that_the_readme_names(output, site, tmp_path):
    news_site(site)
    first_spider(site, tmp_path)
    result = run_command([*NETSPY, "run", "main.py", "-o", output], cwd=tmp_path).check()
    assert result.summary["items"] == 3
    assert (tmp_path / output).stat().st_size > 0


def test_an_airspider_goes_on_after_ctrl_c_as_the_page_on_running_says(site, tmp_path):
    site.route("/", lambda _: Answer("<h2><a href='/news/1'>one</a></h2><h1>x</h1>", delay=0.2), prefix=True)
    first_spider(site, tmp_path)
    source = (tmp_path / "main.py").read_text(encoding="utf-8").replace("range(1, 4)", "range(1, 31)")
    (tmp_path / "main.py").write_text(source, encoding="utf-8")
    command = [*NETSPY, "run", "main.py", "-s", "SPIDER_THREAD_COUNT=2"]
    with start_command(command, cwd=tmp_path) as first:
        site.wait_hits(6)
        first.interrupt()
        stopped = first.finish().check(130)
    went_on = run_command(
        [*command, "-s", "RETRY_FAILED_ON_START=1", "-s", "SPIDER_THREAD_COUNT=16"], cwd=tmp_path
    )
    assert went_on.check().summary["outcome"] == "finished", went_on.stderr
    assert stopped.summary["request_ok"] + went_on.summary["request_ok"] == 31
    assert set(site.all_hits().values()) == {1}


def test_there_are_snippets_to_run():
    assert len(runnable()) >= 8
    assert os.path.commonpath([ROOT, DOCS]) == str(ROOT)
