"""Memory, descriptors and log of a long crawl stay flat: scripts/long_run.py, in full and in small."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from netspy.testing.runner import Result

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "long_run.py"


@pytest.fixture(scope="module")
def long_run():
    spec = importlib.util.spec_from_file_location("long_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["long_run"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["long_run"]


@pytest.mark.slow
@pytest.mark.faults_full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["air", "redis"])
def test_200_000_pages_leave_memory_descriptors_and_log_flat(long_run, kind):
    report = long_run.run(kind, 200_000)
    assert report.problems == [], report.line()


@pytest.mark.slow
def test_a_few_thousand_pages_open_nothing_that_stays_open(long_run, monkeypatch):
    """So short a run says nothing about memory; descriptors and log are judged as in the long one."""
    monkeypatch.setattr(long_run, "SLOPE_MB", 1000.0)
    report = long_run.run("air", 4_000)
    assert report.problems == [], report.line()


def samples(long_run, mb_per_50_000, descriptors_at_the_end):
    return [
        long_run.Sample(
            n, n * 1000, 50 + mb_per_50_000 * n / 50, 20 if n < 150 else descriptors_at_the_end, 4
        )
        for n in range(200)
    ]


@pytest.mark.parametrize(
    ("kind", "growth", "descriptors", "lines", "done", "wrong"),
    [
        ("redis", 1.9, 22, 10, 200_000, None),
        ("redis", 2.1, 22, 10, 200_000, "memory grows by 2.1 MB"),
        ("air", 6.4, 22, 10, 200_000, None),
        ("air", 6.6, 22, 10, 200_000, "memory grows by 6.6 MB"),
        ("redis", 0.0, 40, 10, 200_000, "open descriptors grew from 20 to 40"),
        ("redis", 0.0, 20, 5000, 200_000, "5000 lines of log"),
        ("redis", 0.0, 20, 10, 199_999, "199999 pages done"),
    ],
)
def test_what_does_not_stay_flat_is_called_so(long_run, kind, growth, descriptors, lines, done, wrong):
    result = Result(0, "", "x\n" * lines, {"request_ok": done}, 200.0)
    report = long_run.judge(kind, 200_000, samples(long_run, growth, descriptors), result, 200_000)
    assert report.slope_mb == pytest.approx(growth)
    assert [problem.startswith(wrong) for problem in report.problems] == ([True] if wrong else [])
