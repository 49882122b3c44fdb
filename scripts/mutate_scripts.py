"""Break each Lua script in one place at a time and see which test notices.

    python scripts/mutate_scripts.py                 # all of scripts/mutations.toml, writes docs/mutations.md and its twin
    python scripts/mutate_scripts.py claim steady    # only those whose file name or description contains one of the words;
                                                     # the other lines of the page stay as they are
    python scripts/mutate_scripts.py --list

The package is copied, the copy is broken and put before the real one by PYTHONPATH; the contract tests run against it, then
the model, until a test fails. A mutation that none notices is a survivor: exit code 1, and the page isn't written.
"""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "netspy"
LIST = Path(__file__).with_name("mutations.toml")
MODEL = "tests/contract/test_frontier_model.py"
# The quick ones first: most mutations end there.
STAGES: tuple[tuple[str, ...], ...] = (
    tuple(
        f"tests/contract/{name}.py"
        for name in (
            "test_frontier",
            "test_frontier_hazards",
            "test_redis_trouble",
            "test_bloom_redis",
            "test_cluster",
            "test_frontier_tasks",
            "test_store_went_back",
            "test_earlier_runs",
            "test_task_list",
            "test_batch_queue",
            "test_task_sources",
            "test_streams_of_others",
        )
    ),
    (MODEL,),
)
STAGE_SECONDS = 400
TEST_SECONDS = 60
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/[\w/.]+\.py)::(\w+)", re.MULTILINE)


class Mutation(NamedTuple):
    """One fault: in `file` (below src/netspy) the text `old`, which occurs once, becomes `new`."""

    file: str
    en: str
    zh: str
    old: str
    new: str

    def broken(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError when `old` is not there exactly once."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.file}: {self.en}: the text to replace occurs {found} times: {self.old!r}"
            )
        return text.replace(self.old, self.new)


class Verdict(NamedTuple):
    """Which test noticed a mutation; `test` is empty for a survivor."""

    mutation: Mutation
    file: str
    test: str
    seconds: float


def mutations() -> list[Mutation]:
    """The list, checked against the scripts as they are. Raises ValueError for an entry that doesn't fit."""
    with LIST.open("rb") as source:
        found = [Mutation(**entry) for entry in tomllib.load(source)["mutation"]]
    for mutation in found:
        mutation.broken((PACKAGE / mutation.file).read_text("utf-8"))
    return found


def run_tests(overlay: Path, arguments: tuple[str, ...]) -> tuple[str, str] | None:
    """File and name of the first test that fails with this copy of the package; None when all pass."""
    # The hypothesis seed makes the model's histories the same for each mutation.
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0",
        f"--timeout={TEST_SECONDS}", *arguments,
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(overlay)}
    try:
        done = subprocess.run(  # noqa: S603 - our own tests
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=STAGE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return arguments[0], "(the tests hung)"
    if done.returncode == 0:
        return None
    failed = _FAILED.search(done.stdout)
    if failed is None:
        # pytest-timeout ends the process when a test hangs.
        if "Timeout" in done.stdout + done.stderr:
            return arguments[0], "(a test hung)"
        raise RuntimeError(f"pytest could not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return failed[1], failed[2]


def judge(mutation: Mutation | None, overlay: Path) -> tuple[str, str]:
    """Break the copy, run the stages, mend the copy. ("", "") when no test fails."""
    path = overlay / "netspy" / mutation.file if mutation is not None else None
    whole = path.read_text("utf-8") if path is not None else ""
    if path is not None and mutation is not None:
        path.write_text(mutation.broken(whole), encoding="utf-8")
    try:
        for stage in STAGES:
            failed = run_tests(overlay, stage)
            if failed is not None:
                return failed
        return "", ""
    finally:
        if path is not None:
            path.write_text(whole, encoding="utf-8")


def run(chosen: list[Mutation], jobs: int) -> list[Verdict]:
    """All verdicts, in the order of the list. Raises RuntimeError when the tests fail without any mutation."""
    with tempfile.TemporaryDirectory(prefix="netspy-mutations-") as folder:
        overlays: SimpleQueue[Path] = SimpleQueue()
        for n in range(jobs):
            copy = Path(folder) / str(n)
            shutil.copytree(PACKAGE, copy / "netspy", ignore=shutil.ignore_patterns("__pycache__"))
            overlays.put(copy)
        baseline = overlays.get()
        file, test = judge(None, baseline)
        overlays.put(baseline)
        if test:
            raise RuntimeError(f"without any mutation {file}::{test} fails; mend that first")

        def one(mutation: Mutation) -> Verdict:
            overlay = overlays.get()
            began = time.monotonic()
            try:
                verdict = Verdict(mutation, *judge(mutation, overlay), time.monotonic() - began)
            finally:
                overlays.put(overlay)
            sys.stderr.write(
                f"{verdict.seconds:5.0f} s  {mutation.file}: {mutation.en}: {verdict.test or 'SURVIVED'}\n"
            )
            sys.stderr.flush()
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, chosen))


PAGES = {
    "en": (
        "docs/mutations.md",
        "English · [简体中文](zh/mutations.md)",
        "# What the tests notice",
        "Each Lua script, broken in one place at a time, and the first test that notices. Written by `make mutations`, "  # noqa: ISC004 - one sentence
        "never by hand; a mutation that no test notices makes it fail.",
        "{n} mutations, {n} noticed.",
        ("script", "what is broken", "noticed by"),
    ),
    "zh": (
        "docs/zh/mutations.md",
        "[English](../mutations.md) · 简体中文",
        "# 测试能发现什么",
        "每个 Lua 脚本每次只破坏一处，以及最先发现它的测试。由 `make mutations` 写出，从不手写；有变异无测试发现时它就失败。",
        "{n} 处变异，{n} 处被发现。",
        ("脚本", "破坏了什么", "由谁发现"),
    ),
}


def start_of_row(mutation: Mutation, language: str) -> str:
    """What a mutation's line of the page begins with; the test follows."""
    return f"| `{mutation.file}` | {mutation.en if language == 'en' else mutation.zh} | "


def page(language: str, known: list[Mutation], verdicts: list[Verdict], earlier: str) -> str:
    """The page in one language: a line for each known mutation, from `verdicts`, otherwise that of the `earlier` page.

    Raises LookupError for a mutation that is in neither.
    """
    _path, twin, title, intro, total, columns = PAGES[language]
    found = {
        verdict.mutation: f"`{verdict.file}::{verdict.test}` |"
        if verdict.test.isidentifier()
        else f"`{verdict.file}` {verdict.test} |"
        for verdict in verdicts
    }
    rows = []
    for mutation in known:
        start = start_of_row(mutation, language)
        if mutation in found:
            rows.append(start + found[mutation])
            continue
        row = next((line for line in earlier.splitlines() if line.startswith(start + "`tests/")), None)
        if row is None:
            raise LookupError(f"{mutation.file}: {mutation.en}")
        rows.append(row)
    lines = [title, "", twin, "", intro, "", total.format(n=len(rows)), ""]
    lines += ["| " + " | ".join(columns) + " |", "| --- | --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def write_pages(known: list[Mutation], verdicts: list[Verdict]) -> str:
    """Write the page in both languages; the first mutation that was never run, if any: then nothing is written."""
    texts = {}
    for language, (path, *_) in PAGES.items():
        place = ROOT / path
        earlier = place.read_text("utf-8") if place.exists() else ""
        try:
            texts[place] = page(language, known, verdicts, earlier)
        except LookupError as missing:
            return str(missing.args[0])
    for place, text in texts.items():
        place.write_text(text, encoding="utf-8")
    return ""


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for; 1 when a mutation survived."""
    parser = argparse.ArgumentParser(
        description="Break each Lua script in one place and see which test notices."
    )
    parser.add_argument(
        "words", nargs="*", help="only mutations whose file or description contains one of these"
    )
    parser.add_argument("--list", action="store_true", help="print the mutations and leave")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time (default: 2)")
    options = parser.parse_args(argv)
    known = mutations()
    chosen = [
        m for m in known if not options.words or any(word in f"{m.file} {m.en}" for word in options.words)
    ]
    if options.list:
        sys.stdout.write("".join(f"{m.file}: {m.en}\n" for m in chosen))
        return 0
    if not chosen:
        parser.error(f"no mutation contains {' or '.join(options.words)}; see --list")
    verdicts = run(chosen, max(1, options.jobs))
    survivors = [verdict for verdict in verdicts if not verdict.test]
    sys.stdout.write(f"{len(verdicts)} mutations, {len(verdicts) - len(survivors)} noticed\n")
    for verdict in survivors:
        sys.stdout.write(f"SURVIVED  {verdict.mutation.file}: {verdict.mutation.en}\n")
    if survivors:
        return 1
    missing = write_pages(known, verdicts)
    if missing:
        sys.stdout.write(f"the page isn't written: no result yet of {missing}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
