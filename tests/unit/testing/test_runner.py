"""Scripts as processes: nothing a test starts may stay behind or go unread."""

import os
import signal
import time
from pathlib import Path

import pytest

from netspy.redisio.embedded.process import started_at
from netspy.testing.children import wait_until
from netspy.testing.clock import FakeClock
from netspy.testing.runner import ScriptError, run_command, run_script, start_command, start_script


def test_output_code_and_summary_are_read():
    result = run_script(
        """
import os, sys
print("NETSPY_RUN_SUMMARY {\\"pages\\": 1}")
print("NETSPY_RUN_SUMMARY {\\"pages\\": 2, \\"名\\": \\"值\\"}")
print(os.environ.get("GIVEN"), os.environ.get("HOME"), sys.argv[1:], file=sys.stderr)
sys.exit(4)
""",
        args=["-a", "k=v"],
        env={"GIVEN": "yes", "HOME": None},
    )
    assert result.returncode == 4
    assert result.summary == {"pages": 2, "名": "值"}
    assert result.stderr == "yes None ['-a', 'k=v']\n"
    with pytest.raises(ScriptError, match="ended with 4, expected 0"):
        result.check()


def test_settings_of_whoever_runs_the_tests_do_not_reach_the_script(monkeypatch):
    monkeypatch.setenv("NETSPY_RUN_ID", "theirs")
    assert run_script("import os\nprint(os.environ.get('NETSPY_RUN_ID'))").stdout == "None\n"


def test_a_path_runs_in_the_given_folder_and_other_output_has_no_summary(tmp_path):
    script = tmp_path / "where.py"
    script.write_text("import os; print(os.getcwd())")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    result = run_script(script, cwd=folder)
    assert (result.stdout, result.summary) == (f"{folder}\n", {})


def test_a_fresh_folder_goes_away_with_its_script():
    folder = run_script("import os\nopen('f', 'w').close()\nprint(os.getcwd())").stdout.strip()
    assert not os.path.exists(folder)


def test_a_command_in_its_time_out_is_killed_and_its_output_shown():
    started = time.monotonic()
    with pytest.raises(ScriptError, match=r"still running after 0\.1 s"):
        run_command(["sleep", "100"], timeout=0.1)
    with start_command(["/bin/sh", "-c", "echo so far; exec sleep 100"]) as command:
        command.wait_line("so far")
        with pytest.raises(ScriptError, match=r"(?s)still running after 0.1 s.*so far"):
            command.finish(0.1)
    assert time.monotonic() - started < 60


def test_waiting_for_a_line_gives_it_or_says_why_it_will_not_come():
    with start_script("import sys\nprint('one two', file=sys.stderr)") as script:
        assert script.wait_line("two") == "one two"
        with pytest.raises(ScriptError, match="no line with 'three': the process ended"):
            script.wait_line("three")


def test_signals_reach_the_process_and_ctrl_c_its_children_too():
    with start_script(
        """
import os, signal, sys
child = os.fork()
def told(number, frame):
    who = b"child " if child == 0 else b"parent "
    os.write(1, who + signal.Signals(number).name.encode() + b"\\n")  # one write: two processes share the pipe
    if child:
        os.waitpid(child, 0)
    os._exit(0)
signal.signal(signal.SIGINT, told)
os.write(1, b"ready\\n")
signal.pause()
"""
    ) as script:
        assert wait_until(lambda: script.stdout.count("ready") == 2, 30)
        script.interrupt()
        assert sorted(script.finish(30).check().stdout.splitlines()[2:]) == ["child SIGINT", "parent SIGINT"]


def test_a_paused_process_stands_still_until_it_goes_on():
    with start_script("print('started')\nimport signal\nsignal.pause()") as script:
        script.wait_line("started")
        script.pause()
        stat = Path(f"/proc/{script.pid}/stat")
        state = lambda: stat.read_text().rsplit(")", 1)[1].split()[0]  # noqa: E731
        assert wait_until(lambda: state() == "T", 30)
        script.cont()
        assert wait_until(lambda: state() == "S", 30)
        script.terminate()
        assert script.finish(30).returncode == -signal.SIGTERM
        script.kill()  # of one that has ended: nothing happens


def test_children_do_not_outlive_the_block_nor_a_killed_starter(tmp_path):
    inner = (
        "import os, signal\nif os.fork() == 0: print('grandchild', os.getpid(), flush=True)\nsignal.pause()"
    )
    with start_script(inner, cwd=tmp_path) as script:
        left = int(script.wait_line("grandchild").split()[1])
    assert wait_until(lambda: started_at(left) is None, 30)
    outer = f"""
from netspy.testing.runner import start_script
import signal
with start_script({inner!r}) as script:
    print(script.wait_line("grandchild"), script.pid)
    signal.pause()
"""
    with start_script(outer, cwd=tmp_path) as script:
        pids = [int(word) for word in script.wait_line("grandchild").split()[1:]]
        assert all(started_at(pid) for pid in pids)
        script.kill()
        assert wait_until(lambda: not any(started_at(pid) for pid in pids), 30)


def test_the_clock_moves_only_when_told():
    clock = FakeClock(10)
    assert [clock(), clock.now(), clock.time(), clock.monotonic()] == [10] * 4
    assert clock.advance(2.5) == clock() == 12.5
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    clock.set(3)
    assert clock() == 3


def test_every_public_name_loads_and_importing_loads_none_of_them():
    result = run_script(
        """
import sys, netspy.testing
early = [name for name in sys.modules if name.startswith("netspy.testing.") or name in ("asyncio", "redis")]
missing = [name for name in netspy.testing.__all__ if getattr(netspy.testing, name).__name__ != name]
heavy = [name for name in sys.modules if name.startswith(("netspy.engine", "netspy.assembly", "lxml", "redis"))]
print(early, missing, heavy)
"""
    )
    assert (result.stdout, result.stderr) == ("[] [] []\n", "")
