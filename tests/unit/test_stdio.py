"""A process without standard streams, and output that nobody takes any more."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from netspy.stdio import NoStream, is_missing, lead_nowhere, write_last

OPEN_MISSING = """
import os, sys
from netspy.stdio import closed, is_missing, open_missing
before = closed()
open_missing()
names = [name for name in ("stdin", "stdout", "stderr") if is_missing(getattr(sys, name))]
print("to nobody"); sys.stderr.write("to nobody")
with open("out", "w") as out:
    out.write(f"{before} {closed()} {names} {out.fileno() > 2}")
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("<&-", "[0] [] ['stdin'] True"),
        (">&-", "[1] [] ['stdout'] True"),
        ("2>&-", "[2] [] ['stderr'] True"),
        ("<&- 2>&-", "[0, 2] [] ['stdin', 'stderr'] True"),
        ("<&- >&- 2>&-", "[0, 1, 2] [] ['stdin', 'stdout', 'stderr'] True"),
        ("", "[] [] [] True"),
    ],
)
def test_a_closed_standard_stream_leads_nowhere_and_no_file_gets_its_number(how, told, tmp_path):
    """Case HO-04."""
    command = ["bash", "-c", f'"$0" -c "$1" {how}', sys.executable, OPEN_MISSING]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == told


def pipe_without_reader() -> io.TextIOWrapper:
    read, write = os.pipe()
    os.close(read)
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(write, "w")), encoding="utf-8")


def test_a_reader_that_left_is_told_of_once_and_fails_nothing_after_it():
    """Case HO-05."""
    stream = pipe_without_reader()
    stream.write("still in the buffer")
    assert isinstance(write_last(stream, "the last line\n"), BrokenPipeError)
    stream.write("more")
    stream.close()  # would raise, as the interpreter's own flush would


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_an_answer_too():
    with open("/dev/full", "w", encoding="utf-8") as stream:
        error = write_last(stream, "the last line\n")
        assert isinstance(error, OSError)
        assert write_last(stream, "another\n") is None


def test_a_closed_stream_a_missing_one_and_one_without_a_file():
    stream = io.StringIO()
    assert write_last(stream, "line\n") is None
    assert stream.getvalue() == "line\n"
    stream.close()
    assert isinstance(write_last(stream, "line\n"), ValueError)
    assert write_last(None, "line\n") is None
    lead_nowhere(stream)


def test_a_pipe_that_is_full_and_does_not_block_gets_everything():
    read, write = os.pipe()
    os.set_blocking(write, False)
    reader = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.exit(len(sys.stdin.read()) % 251)"], stdin=read
    )
    os.close(read)
    text = "x" * 500_003
    with io.TextIOWrapper(io.BufferedWriter(io.FileIO(write, "w")), encoding="utf-8") as stream:
        assert write_last(stream, text) is None
    assert reader.wait(30) == len(text) % 251


def test_only_a_stand_in_is_missing():
    assert is_missing(None)
    assert not is_missing(io.StringIO())
    assert is_missing(NoStream(io.BytesIO()))
