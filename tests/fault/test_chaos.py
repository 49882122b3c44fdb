"""Row 50: nodes, network and Redis fail at random for a while; whatever the seed, nothing is lost.

A seed that fails here is run again, event by event, with the command that the failure prints.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos.py"


@pytest.fixture(scope="module")
def chaos():
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("chaos", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["chaos"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))
    for name in ("chaos", "chaos_plan", "chaos_site"):
        del sys.modules[name]


@pytest.fixture
def plans(chaos):
    """What the plan is made of."""
    return sys.modules["chaos_plan"]


def assert_nothing_lost(chaos, record_property, seed, seconds, nodes, *, embedded=False):
    report = chaos.run(seed, seconds, nodes, embedded=embedded)
    assert not report.problems, (
        f"again: {chaos.replay(seed, seconds, nodes, embedded=embedded)}\nlogs: {report.logs}"
    )
    assert report.processes >= nodes
    row = {
        "row": "50", "redis": report.redis, "lost": 0, "fetched_twice": report.fetched_twice, "stored_twice": 0,
        "written_twice": 0, "seconds": None,  # there is no moment from which on the faults are over for every page
    }  # fmt: skip
    record_property("fault", json.dumps(row))


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_few_seconds_of_chaos_lose_nothing(chaos, record_property):
    assert_nothing_lost(chaos, record_property, seed=11, seconds=5, nodes=3)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.faults_full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("embedded", [False, True], ids=["on PATH", "embedded"])
@pytest.mark.parametrize("seed", [101, 202])
def test_half_a_minute_of_chaos_loses_nothing(chaos, record_property, seed, embedded):
    assert_nothing_lost(chaos, record_property, seed=seed, seconds=25, nodes=4, embedded=embedded)


def test_a_seed_gives_the_same_events_again_and_another_seed_others(chaos):
    assert chaos.plan(5, 25, 4) == chaos.plan(5, 25, 4)
    assert chaos.plan(5, 25, 4) != chaos.plan(6, 25, 4)


def test_over_thirty_seeds_every_kind_of_trouble_comes_to_every_node(plans):
    events = [event for seed in range(1, 31) for event in plans.plan(seed, 25, 4)]
    kinds = Counter(event.kind for event in events)
    assert set(kinds) == {*plans.NODE_KINDS, *plans.NETWORK_KINDS, *plans.REDIS_KINDS}
    assert {event.node for event in events if event.kind == "kill"} == set(range(4))
    assert {event.detail for event in events if event.kind == "lose"} == set(plans.LOST_ANSWERS)
    # Both sides of what makes a node dead.
    frozen = [event.seconds for event in events if event.kind == "freeze"]
    assert min(frozen) < 1.5 < max(frozen)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_the_checker_notices_a_page_that_was_lost(chaos, monkeypatch):
    # A page that no link leads to stands for one whose link was lost.
    real = chaos.Site.expected
    monkeypatch.setattr(chaos.Site, "expected", lambda site: real(site) | {"/item/never/found"})
    monkeypatch.setattr(chaos, "plan", lambda *args: [])
    report = chaos.run(1, 2, 2)
    assert any("1 pages are lost" in problem for problem in report.problems)
    assert any("while 1 pages were missing" in problem for problem in report.problems)
    chaos.shutil.rmtree(report.logs)
