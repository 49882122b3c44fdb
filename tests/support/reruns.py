"""A wait of a test with processes that timed out may be run again: once, alone, after all others, and is listed as flaky.

A wait says as little of the code as of a machine that was busy; so it gets one more chance, and more than two such waits
fail the run. What a test *found* wrong (lost, doubled, left leased, another exit code) is never run again. Whatever fails
with processes leaves its folder and their output in `build/failed/`.
"""

from __future__ import annotations

import contextlib
import gc
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from netspy.testing.runner import Script, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FLAKY = 2
KEPT = Path("build") / "failed"
LARGEST_KEPT = 8 << 20
NEEDS = ("process", "server")


def is_timed_out_wait(error: BaseException) -> bool:
    """Whether this tells of a wait that was given up: by a helper of `netspy.testing`, or by pytest-timeout."""
    if isinstance(error, pytest.fail.Exception):
        return str(error.msg).startswith("Timeout (>")
    return isinstance(error, WaitTimeoutError)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield
    if report.failed and call.excinfo and any(item.get_closest_marker(need) for need in NEEDS):
        keep_logs(item, report)
        report.timed_out_wait = report.when == "call" and is_timed_out_wait(call.excinfo.value)
    return report


def keep_logs(item: pytest.Item, report: pytest.TestReport) -> None:
    """The test's report, its folder and what its processes have written, in a folder of its name."""
    folder = item.config.rootpath / KEPT / re.sub(r"[^\w.-]+", "-", item.nodeid)[:150]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said = [report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections)]
    (folder / "report.txt").write_text("\n".join(said), "utf-8")
    # The traceback keeps those of the test alive; there is one test at a time in a process.
    for script in [found for found in gc.get_objects() if isinstance(found, Script)]:
        (folder / f"process-{script.pid}.txt").write_text(
            f"{script.argv}\n--- stdout\n{script.stdout}\n--- stderr\n{script.stderr}", "utf-8"
        )
    own: Any = getattr(item, "funcargs", {}).get("tmp_path")
    for path in own.rglob("*") if own else ():
        with contextlib.suppress(OSError):  # a process may still be at work there
            if path.is_file() and path.stat().st_size <= LARGEST_KEPT:
                copy = folder / "tmp_path" / path.relative_to(own)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the waits that timed out their second chance, before the summary is printed."""
    config = session.config
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(config, "workerinput"):
        return
    failed = terminal.stats.get("failed", [])
    waits = [report for report in failed if getattr(report, "timed_out_wait", False)]
    if len(waits) > MOST_FLAKY:
        return  # flaky or broken: either fails the run
    for report in waits:
        again = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "", "-p", "no:support.reruns", report.nodeid],
            cwd=config.rootpath,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if again.returncode == 0:
            failed.remove(report)
            terminal.stats.setdefault("flaky", []).append(report)
            session.testsfailed -= 1
        else:
            report.sections.append(("run again, alone", again.stdout[-4000:]))
    if not failed:
        terminal.stats.pop("failed", None)
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not session.testsfailed:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: Any) -> None:
    flaky = terminalreporter.stats.get("flaky", [])
    if flaky:
        terminalreporter.section("flaky: a wait timed out; run again alone, it passed", yellow=True)
        for report in flaky:
            terminalreporter.write_line(f"FLAKY {report.nodeid} (logs in {KEPT})")
