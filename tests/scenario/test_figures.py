"""The figures that scripts/spec_figures.py prints, measured anew in small and held against what is promised."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from netspy.testing.runner import run_command

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "spec_figures.py"


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("spec_figures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["spec_figures"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["spec_figures"]


def share(text: str) -> float:
    return float(text.rstrip("%")) / 100


def test_all_24_pages_survive_a_kill_under_a_lease_and_without_one_none_is_lost_silently(figures):
    with_lease, without = figures.kill().rows
    assert with_lease == ("600 s", "24 / 24", 0, 0)
    assert without[0] == "0 (off)"
    done, listed, silent = int(without[1].split()[0]), without[2], without[3]
    assert silent == 0
    assert done + listed == 24
    assert listed > 0


def test_two_nodes_of_one_second_share_63_requests_without_overlap(figures):
    for grace, split, overlap, rows in figures.two_nodes().rows:
        a, b = map(int, re.match(r"(\d+) \+ (\d+) = 63$", split).groups())
        assert min(a, b) >= 15, grace
        assert (overlap, rows) == (0, "63 / 63")


def test_a_healthy_node_keeps_its_five_and_a_dead_ones_three_are_recovered(figures):
    assert figures.renewal().rows == [("0 / 5", 3, "5 / 5")]


def test_a_slow_store_loses_no_row_and_what_is_fetched_again_is_bounded(figures):
    [(_, rows, silent, again)] = figures.slow_pipeline((0.3,), unacked=100).rows
    assert (rows, silent) == ("400 / 400", 0)
    assert again <= 100


def test_one_overfull_layer_goes_blind_and_layers_stay_within_twice_their_target(figures):
    rows = {
        row[1]: [share(cell) for cell in row[2:]] for row in figures.bloom(capacity=2_000, probes=8_000).rows
    }
    for one, one_redis, layered, coarse, coarse_redis in rows.values():
        assert one == one_redis  # the same bits in the process and in the script
        assert coarse == coarse_redis
        assert layered == 0
        assert coarse <= 2 * 0.01
    assert rows["1×"][0] == 0
    assert rows["5×"][0] > 0.05
    assert rows["8×"][0] > 0.4
    assert rows["15×"][0] > 0.9
    assert rows["15×"][3] > 0.01  # the bound is met, not made by a filter that is far too large


def test_memory_stays_within_one_and_a_half_of_the_reference_where_it_can_be_had_at_all(figures):
    rows = figures.memory().rows
    assert [row[0] for row in rows] == [1, 4, 6, 8]
    assert all(float(row[4]) <= 1.5 for row in rows[:3])
    assert rows[3][2].startswith("refused")
    assert [row[5] for row in rows] == ["1.00e-06", "1.88e-06", "1.97e-06", "1.99e-06"]


def test_the_script_prints_markdown_and_refuses_names_it_does_not_know():
    result = run_command([sys.executable, SCRIPT, "memory"]).check()
    lines = result.stdout.splitlines()
    assert lines[0].startswith("### ")
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1
    wrong = run_command([sys.executable, SCRIPT, "memroy"])
    assert wrong.returncode == 2
    assert "'memroy' is no figure" in wrong.stderr
