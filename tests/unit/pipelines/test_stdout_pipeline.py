"""Rows on standard output: each once, and none that was reported as not written."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from contextlib import contextmanager

import pytest

from netspy.pipelines.console import ConsolePipeline
from netspy.pipelines.stdout import StdoutPipeline, writes_stdout


@contextmanager
def stdout_is(out):
    """`out` in the place of standard output; closed at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        try:
            yield
        finally:
            out.close()


def read_all(fd, into) -> None:
    while piece := os.read(fd, 65536):
        into += piece


def test_a_pipe_that_does_not_block_gets_every_byte_once():
    read, write = os.pipe()
    os.set_blocking(write, False)
    rows = [{"n": n, "text": "书" * 1000} for n in range(500)]  # far more than a pipe holds
    got = bytearray()
    reader = threading.Thread(target=read_all, args=(read, got))
    reader.start()
    with stdout_is(os.fdopen(write, "w", encoding="ascii")):  # as under LC_ALL=C
        sys.stdout.write("before ")
        assert StdoutPipeline().save_items("t", rows) is True
    reader.join(60)
    os.close(read)
    assert bytes(got).startswith(b"before {")
    assert [json.loads(line) for line in got.decode().removeprefix("before ").splitlines()] == rows


class Leaving(io.FileIO):
    """Output whose reader is away until `back` is set."""

    back = False

    def write(self, data):
        if not self.back:
            raise BrokenPipeError
        return super().write(data)


def test_a_batch_that_could_not_be_written_is_not_written_later_and_stops_the_crawl_once():
    read, write = os.pipe()
    raw = Leaving(write, "w")
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    pipeline = StdoutPipeline()
    with stdout_is(io.TextIOWrapper(io.BufferedWriter(raw))):
        try:
            for _ in range(3):
                with pytest.raises(BrokenPipeError):
                    pipeline.save_items("t", [{"n": 1}])
        finally:
            signal.signal(signal.SIGTERM, before)
        raw.back = True
        pipeline.save_items("t", [{"n": 2}])
    assert told == [1]
    assert os.read(read, 1000) == b'{"n":2}\n'
    os.close(read)


@pytest.mark.parametrize(
    ("pipelines", "expected"),
    [
        ([], False),
        ([ConsolePipeline], False),
        (["netspy.pipelines.console.ConsolePipeline", "netspy.pipelines.stdout.StdoutPipeline"], True),
        (["netspy.pipelines.stdout:StdoutPipeline"], True),
        ([StdoutPipeline], True),
        ([StdoutPipeline()], True),
    ],
)
def test_it_is_known_beforehand_whether_rows_go_to_stdout(pipelines, expected):
    assert writes_stdout(pipelines) is expected
