"""Who is surely dead on this machine: real processes, dead, buried or not, and everything that proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from netspy.frontier.redis import liveness
from netspy.frontier.redis.calls import report_json
from netspy.frontier.redis.liveness import ProcessIdentity, is_gone, this_process
from netspy.testing.children import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc to ask")


def record(place: ProcessIdentity, **changed: object) -> bytes:
    told = {"host": "h", "pid": place.pid, "kernel": place.kernel, "born": place.born}
    return json.dumps({**told, **changed}).encode()


@pytest.fixture
def mine() -> ProcessIdentity:
    place = this_process()
    assert place is not None
    return place


@pytest.fixture
def child(mine: ProcessIdentity) -> Iterator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    """A process that lives until it is killed, and its place."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state = liveness._look(process.pid)
    assert state is not None
    with process:
        yield process, mine._replace(pid=process.pid, born=state[0])
        process.kill()


def test_what_a_node_writes_of_itself_names_this_process(mine):
    assert not is_gone(report_json(None, 0.0), mine)
    written = json.loads(report_json(None, 0.0))
    assert ProcessIdentity(written["kernel"], written["pid"], written["born"]) == mine
    assert mine.pid == os.getpid()


def test_a_living_process_is_not_gone_and_a_killed_one_is_before_and_after_its_burial(child, mine):
    process, place = child
    assert not is_gone(record(place), mine)
    process.kill()
    assert wait_until(lambda: is_gone(record(place), mine), 10), (
        "dead, though its parent hasn't asked for it yet"
    )
    process.wait(10)
    assert is_gone(record(place), mine)


def test_another_process_under_the_same_number_proves_the_death(mine):
    assert is_gone(record(mine._replace(born=mine.born - 1)), mine)


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": "another-boot:4026531836"},
        {"kernel": ""},
        {"born": 0},
        {"pid": 0},
        {"pid": 1, "born": 7},
        {"pid": -1},
        {"pid": 1 << 40},
        {"pid": "17"},
        {"kernel": ["a"]},
    ],
)
def test_what_says_nothing_of_this_machine_proves_nothing(changed, mine):
    assert not is_gone(record(mine._replace(born=mine.born - 1), **changed), mine)


def test_a_clone_of_the_machine_with_a_name_of_its_own_proves_nothing(mine, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "clone-2")
    clone = this_process()
    assert clone is not None
    assert not is_gone(record(mine._replace(born=mine.born - 1)), clone)
    assert is_gone(record(clone._replace(born=clone.born - 1)), clone)


@pytest.mark.parametrize("junk", [None, b"", b"{", b"[1]", b"\x80\x04", b"{}", b"[" * 100_000])
def test_a_record_that_cannot_be_read_proves_nothing(junk, mine):
    assert not is_gone(junk, mine)


def test_a_process_that_is_hidden_from_us_is_not_gone(child, mine, monkeypatch, tmp_path):
    """As with the mount option hidepid: there is such a process, and nothing to read about it."""
    monkeypatch.setattr(liveness, "_PROC", tmp_path)
    assert not is_gone(record(child[1]), mine)
    assert this_process() is None, "without /proc nobody claims to know"
