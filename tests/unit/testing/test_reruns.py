"""Which failures of the suite may be run again, and which never."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
SETTINGS = """
[pytest]
markers = process
addopts = -p support.reruns -p no:cacheprovider -p no:randomly
"""
FIRST_TIME = """
import pytest
from pathlib import Path
from netspy.testing.runner import WaitTimeoutError, start_script

SEEN = Path(__file__).with_name("seen.txt")


def first(name):
    with SEEN.open("a") as file:
        file.write(name + "\\n")
    return SEEN.read_text().split().count(name) == 1


def wait_in_vain():
    with start_script("import time\\nprint('so far', flush=True)\\ntime.sleep(60)\\n") as script:
        script.wait_line("so far")
        script.wait_line("never", timeout=0.01)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """`run(source)`: the plugin's run of these tests, and how often each was run."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    pytester.makeini(SETTINGS)

    def go(source, *options):
        pytester.makepyfile(test_it=FIRST_TIME + source)
        result = pytester.runpytest_subprocess(*options, timeout=100)
        return result, (pytester.path / "seen.txt").read_text().split()

    return go


@pytest.mark.parametrize("options", [("-n0",), ("-n2",)])
def test_a_wait_that_timed_out_is_run_once_more_listed_and_its_logs_are_kept(run, pytester, options):
    result, seen = run(
        """
@pytest.mark.process
def test_slow(tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}")
    if first("slow"):
        wait_in_vain()


def test_other():
    first("other")
""",
        *options,
    )
    assert result.ret == 0
    assert sorted(seen) == ["other", "slow", "slow"]
    result.stdout.fnmatch_lines(["*FLAKY test_it.py::test_slow*", "*1 passed, 1 flaky*"])
    kept = pytester.path / "build" / "failed" / "test_it.py-test_slow"
    assert (kept / "tmp_path" / "rows.jsonl").read_text() == "{}"
    assert "WaitTimeoutError" in (kept / "report.txt").read_text()
    [process] = kept.glob("process-*.txt")
    assert "so far" in process.read_text()


def test_a_wait_that_times_out_again_fails_the_run(run):
    result, seen = run("@pytest.mark.process\ndef test_slow():\n    first('slow')\n    wait_in_vain()\n")
    assert result.ret == 1
    assert seen == ["slow", "slow"]
    result.stdout.fnmatch_lines(["*1 failed*"])


@pytest.mark.parametrize(
    ("mark", "failure"),
    [
        ("process", "assert 3 == 2, 'rows are doubled'"),
        ("process", "from netspy.testing.runner import run_script; run_script('1/0\\n').check()"),
        ("process", "start_script('print(1)\\n').wait_line('never')"),
        ("process", "raise TimeoutError('of the code under test')"),
        ("filterwarnings('error')", "wait_in_vain()"),
    ],
    ids=["assertion", "exit code", "ended", "error", "no process"],
)
def test_what_a_test_found_wrong_is_never_run_again(run, mark, failure):
    result, seen = run(f"@pytest.mark.{mark}\ndef test_found():\n    if first('found'):\n        {failure}\n")
    assert result.ret == 1
    assert seen == ["found"]


def test_a_test_that_pytest_timeout_ended_is_run_once_more(run):
    result, seen = run(
        "@pytest.mark.process\n@pytest.mark.timeout(0.5)\ndef test_hangs():\n"
        "    if first('hangs'):\n        __import__('threading').Event().wait(60)\n"
    )
    assert result.ret == 0
    assert seen == ["hangs", "hangs"]


def test_more_than_two_waits_that_timed_out_fail_the_run_at_once(run):
    result, seen = run(
        "@pytest.mark.process\n@pytest.mark.parametrize('name', ['a', 'b', 'c'])\ndef test_slow(name):\n"
        "    if first(name):\n        wait_in_vain()\n"
    )
    assert result.ret == 1
    assert seen == ["a", "b", "c"]
