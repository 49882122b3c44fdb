import io
import os
import sys
import threading
from contextlib import contextmanager

import pytest
from rich.console import Console

from netspy.cluster.nodes import NodeInfo
from netspy.cluster.status import BatchProgress, Status
from netspy.launch.observer import cluster_snapshot, cluster_state, run_id_of
from netspy.launch.output import LONGEST_LINE, OutputMultiplexer
from netspy.observe.panel import render
from netspy.observe.progress import RateMeter, line
from netspy.settings import Settings


def status(**values):
    texts = {"namespace": "n", "owner": "", "kind": "", "seed": "seeded 1 x", "nodes": [], "counters": {}}
    texts |= {"batch": None, "master": ""}
    return Status(**dict.fromkeys(Status._fields, 0) | texts | values)


def node(name):
    return NodeInfo(**dict.fromkeys(NodeInfo._fields, 0) | {"id": name, "alive": True, "counters": {}})


@pytest.mark.parametrize(
    ("values", "stopping", "state"),
    [
        ({"seed": "", "counters": {}}, False, "crawling"),
        ({"seed": "seeding t 1 x", "queued": 5}, False, "seeding"),
        ({"seed": "seeding t 1 x", "queued": 5}, True, "stopping"),
        ({"queued": 5, "leased": 90, "counters": {"request_ok": 900}}, False, "crawling"),
        ({"leased": 90, "counters": {"request_ok": 9}}, False, "crawling"),  # claimed ahead, not nearly done
        ({"leased": 1, "counters": {}}, False, "crawling"),  # the first page
        ({"delayed": 3, "counters": {"request_ok": 900}}, False, "waiting for a further try"),
        ({"leased": 1, "nodes": [node("1"), node("2")], "counters": {"request_ok": 900}}, False, "finishing"),
    ],
)
def test_the_state_is_told_by_the_clusters_status(values, stopping, state):
    assert cluster_state(status(**values), stopping=stopping) == state


def test_figures_are_the_runs_and_include_nodes_that_have_left():
    cluster = status(queued=4, leased=2, failed=3, counters={"request_ok": 40, "dropped": 2, "items": 39})
    shot = cluster_snapshot(cluster, "News", "r1", 5.0, "crawling", RateMeter(), {})
    assert (shot.done, shot.queued, shot.in_flight, shot.failed, shot.items, shot.left) == (
        42,
        4,
        2,
        3,
        39,
        6,
    )


@pytest.fixture
def relayed(monkeypatch):
    """What a relay writes to stdout for the pieces written to its pipe."""

    def write(*pieces):
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        read, write = os.pipe()
        relay = OutputMultiplexer([(read, "stdout")])
        relay.start()
        for piece in pieces:
            os.write(write, piece)
        os.close(write)
        relay.join(30)
        assert not relay.is_alive()
        return out.getvalue()

    return write


def test_lines_come_whole_and_a_last_one_without_its_end_gets_one(relayed):
    assert relayed(b"ein\nwei", "ß\n".encode(), b"rest") == "ein\nweiß\nrest\n"


def test_a_line_without_end_is_passed_on_before_it_fills_the_memory(relayed):
    text = relayed(*[b"x" * 30_000] * 10)
    assert text.replace("\n", "") == "x" * 300_000
    assert len(text) > LONGEST_LINE


def test_a_closed_stdout_does_not_end_the_relay(monkeypatch):
    class Gone(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    read, write = os.pipe()
    relay = OutputMultiplexer([(read, "stdout")])
    relay.start()
    os.write(write, b"a line\n" * 10)
    os.close(write)
    relay.join(30)
    assert not relay.is_alive()


@contextmanager
def held_up(monkeypatch):
    """(a relay that has a line to pass on to a reader who takes none before `reads` is set, `reads`, what was read)."""
    reads = threading.Event()

    class Slow(io.BytesIO):
        def write(self, data):
            assert reads.wait(60)
            return super().write(data)

    out = Slow()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    read, write = os.pipe()
    relay = OutputMultiplexer([(read, "stdout")], rows=True)
    relay.start()
    os.write(write, "ein Stück\n".encode())
    os.close(write)
    yield relay, reads, out
    reads.set()
    relay.join(30)


def test_what_nodes_have_written_reaches_a_slow_reader_before_the_end(monkeypatch):
    ended = []
    with held_up(monkeypatch) as (relay, reads, out):
        waiting = threading.Thread(target=lambda: ended.append(relay.finish(0.1)))
        waiting.start()
        waiting.join(0.8)
        assert ended == []
        reads.set()
        waiting.join(30)
        assert ended == [True]
        assert out.getvalue() == "ein Stück\n".encode()


def test_a_slow_reader_is_not_waited_for_long_when_the_run_is_given_up(monkeypatch):
    with held_up(monkeypatch) as (relay, _, out):
        assert relay.finish(0.3, lambda: True) is False
        assert out.getvalue() == b""


def test_a_pipe_that_something_else_holds_open_is_not_waited_for(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    read, write = os.pipe()
    relay = OutputMultiplexer([(read, "stdout")])
    relay.start()
    os.write(write, b"a line\n")
    assert relay.finish(0.3) is False
    assert out.getvalue() == "a line\n"
    os.close(write)
    assert relay.finish(60) is True


def test_a_batch_and_its_open_tasks_are_shown_and_of_another_spider_neither():
    told = BatchProgress(batch=3, done=812, failed=4, total=1000, left_s=37.0)
    shown = cluster_snapshot(status(batch=told, open_tasks=7), "S", "", 1.0, "crawling", RateMeter(), {})
    assert (shown.batch, shown.tasks) == ("batch 3: 812/1000, 4 failed, 37 s left", 7)
    assert line(shown).startswith("1.0 s  [batch 3: 812/1000, 4 failed, 37 s left]  tasks 7  done 0")
    console = Console(file=io.StringIO(), width=100)
    console.print(render(shown))
    assert "batch 3: 812/1000, 4 failed, 37 s left" in console.file.getvalue()
    plain = cluster_snapshot(status(), "S", "", 1.0, "crawling", RateMeter(), {})
    assert "batch" not in line(plain)
    assert "tasks" not in line(plain)


@pytest.mark.parametrize("kind", ["spider", "task", "batch"])
def test_the_run_id_is_not_a_batch_spiders(kind):
    spider = type("S", (), {"kind": kind})()
    assert run_id_of(spider, Settings(RUN_ID="x")) == ("" if kind == "batch" else "x")
