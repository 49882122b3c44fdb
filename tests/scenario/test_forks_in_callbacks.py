"""F8: what a callback forks holds up nothing, is no second node, and its end is not the node's."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress

import pytest

from netspy.pipelines.local.shared_file import locked
from netspy.testing.runner import start_script

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

SCRIPT = """
import multiprocessing, os, signal, subprocess, sys, time
import netspy as mw
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.jsonl import JsonlPipeline

HOW = sys.argv[1]


class Forks(mw.AirSpider):
    __custom_setting__ = dict(
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"], PROGRESS="off", ITEM_BATCH_SIZE=5,
        BUFFER_FLUSH_INTERVAL=0.01,
    )

    def start_requests(self):
        for n in range(60):
            yield mw.Request(f"http://a.example/{n}", auto_request=False)

    def parse(self, request, response):
        yield {"url": request.url}
        if request.url.endswith("7"):
            self.forks()

    def forks(self):
        if HOW in ("multiprocessing", "terminated"):
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=HOW != "terminated")
            child.start()
            print("child", child.pid, flush=True)
            if HOW == "terminated":
                child.terminate()
                child.join(10)
                assert child.exitcode == -signal.SIGTERM, child.exitcode
            return
        child = os.fork()
        if child:
            print("child", child, flush=True)
            if HOW != "sleeps":
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == {"exits": 3, "raises": 1, "returns": 0}[HOW], status
        elif HOW == "sleeps":
            time.sleep(60)
            os._exit(0)
        elif HOW == "exits":
            sys.exit(3)
        elif HOW == "raises":
            raise ValueError("in the child")


class ForkingPipeline(BasePipeline):
    forks = Forks.forks

    def save_items(self, table, items):
        self.forks()


class ForksInAPipeline(Forks):
    def parse(self, request, response):
        yield {"url": request.url}


class ForksOnTheLoop(Forks):
    async def parse(self, request, response):
        yield {"url": request.url}
        if request.url.endswith("7"):
            self.forks()


if sys.argv[2] == "pipeline":
    ForksInAPipeline(pipelines=[ForkingPipeline(), JsonlPipeline()]).start()
else:
    (Forks if sys.argv[2] == "plain" else ForksOnTheLoop)().start()
"""


@pytest.mark.parametrize("kind", ["plain", "async", "pipeline"])
@pytest.mark.parametrize("how", ["sleeps", "multiprocessing", "terminated", "exits", "raises", "returns"])
def test_f8_a_fork_in_a_callback_costs_no_time_and_no_row_and_doubles_none(tmp_path, how, kind):
    """F8: the child may live long, be ended by a signal, exit, raise, or come back from the callback."""
    began = time.monotonic()
    try:
        with start_script(SCRIPT, args=[how, kind], cwd=tmp_path) as script:
            result = script.finish(30).check()
    finally:
        for line in script.stdout.splitlines():
            if line.startswith("child "):
                with suppress(ProcessLookupError):
                    os.kill(int(line.split()[1]), signal.SIGKILL)
    assert time.monotonic() - began < 20
    assert result.summary["outcome"] == "finished"
    assert result.stdout.count("NETSPY_RUN_SUMMARY") == 1
    stored = [json.loads(line)["url"] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert sorted(stored) == sorted(f"http://a.example/{n}" for n in range(60))
    assert result.summary["items"] == 60
    assert result.summary["reasons"] == {}


def test_f8_a_lock_ends_with_its_block_also_when_a_process_was_forked_meanwhile(tmp_path):
    """F8: the child has the open file, and with it the lock, for as long as it lives."""
    reading, writing = os.pipe()
    with locked(tmp_path / "items.jsonl"):
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        with locked(tmp_path / "items.jsonl", wait_s=0.0) as file:
            file.append(b"{}\n")
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
