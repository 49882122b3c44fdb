"""`netspy demo` as a person meets it: with and without a terminal, stopped, killed, and called wrongly."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from contextlib import closing

import pytest
from demo_support import (
    NETSPY,
    Terminal,
    children,
    command_of,
    demo,
    nodes_of,
    nothing_left,
    plain,
    run_folder,
    stored,
    unfinished,
    wait_stored,
)

from netspy.demo import folder as demo_folder
from netspy.demo.report import check, served
from netspy.demo.spider import demo_shop
from netspy.errors import ConfigError
from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import wait_until
from netspy.testing.private_server import HeldPort
from netspy.testing.runner import run_command

pytestmark = pytest.mark.slow

STEADY = ("--delay-ms", "60:140")  # some 150 pages/s: over in seven seconds, if nobody stops it
LONG = ("--delay-ms", "600:1400")  # over in a minute
ALL_THERE = "checked: all 1,000 products are there"


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    EmbeddedRedis(tmp_path / "data" / "redis").stop()


def one_line(result, code: int, *words: str) -> None:
    result.check(code)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


def test_without_a_terminal_plain_lines_a_checked_result_and_nothing_left_behind(folder):
    with demo(folder, "--fast") as script:
        result = script.finish(60).check()
    assert "\x1b" not in result.stdout + result.stderr
    assert re.search(r"INFO +progress: .*done .*failed", result.stderr)
    assert ALL_THERE in result.stdout
    assert re.search(r"failed +5 × connect, 4 × HTTP 404", result.stdout)
    assert re.search(r"NS-00001 +Walnut kettle", result.stdout)
    assert re.search(r"NS-\d+ +[\u4e00-\u9fff]", result.stdout)
    assert result.stdout.rstrip().splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")
    assert result.summary["nodes"] == 2
    assert result.summary["request_ok"] == 1040
    assert result.summary["items"] == 1000
    here = run_folder(folder)
    assert check(here, demo_shop()).problems == []
    assert served(here / "shop.log").again == 0
    assert unfinished(folder) == {}
    assert nothing_left(folder, 1)
    with demo(folder, "--fast", "-n", "3") as script:
        again = script.finish(60).check()
    assert again.summary["run_id"] != result.summary["run_id"]
    assert again.summary["request_ok"] == 1040


def test_ctrl_c_stops_in_good_order_and_the_next_demo_goes_on_without_fetching_again(folder):
    with demo(folder, *STEADY) as script:
        wait_stored(folder, 150)
        began = time.monotonic()
        script.interrupt()
        first = script.finish(15).check(130)
    assert time.monotonic() - began < 10
    run = unfinished(folder)["run_id"]
    assert "To go on: netspy demo" in first.stdout
    assert first.summary["outcome"] == "stopped"
    assert nothing_left(folder, 2)
    done = first.summary["request_ok"]
    with closing(HeldPort(number=unfinished(folder)["port"])):  # so that no other test gets it meanwhile
        with demo(folder, "--fast") as script:
            second = script.finish(60).check()
    assert f"Going on with run {run}" in second.stdout
    assert f"{done:,} requests are done and stay done" in second.stdout
    assert ALL_THERE in second.stdout
    assert second.summary["run_id"] == run
    assert done + second.summary["request_ok"] == 1040
    assert "whole run  1,040 done, 9 failed" in second.stdout
    assert served(run_folder(folder) / "shop.log").again == 0


def test_a_killed_node_is_replaced_by_the_other_within_seconds(folder):
    with demo(folder, *STEADY) as script:
        wait_stored(folder, 350)
        assert wait_until(lambda: len(nodes_of(script.pid)) == 2, 10)
        killed, _other = nodes_of(script.pid)
        os.kill(killed, signal.SIGKILL)
        began = time.monotonic()
        result = script.finish(60).check()
        seconds = time.monotonic() - began
    assert "died (killed by SIGKILL); the others take its requests over" in result.stderr
    assert ALL_THERE in result.stdout
    assert result.summary["outcome"] == "finished"
    assert seconds < 30
    # Up to a second of the killed node is not counted, the rest is.
    assert 1040 - 200 < result.summary["request_ok"] <= 1040 + 20
    assert served(run_folder(folder) / "shop.log").again <= 40


def test_a_killed_parent_leaves_no_process_and_its_run_goes_on(folder):
    with demo(folder, *STEADY) as script:
        wait_stored(folder, 100)
        mine = children(script.pid)
        assert any("netspy.testing.shop" in command_of(pid) for pid in mine)
        assert wait_until(lambda: len(nodes_of(script.pid)) == 2, 10)
        os.kill(script.pid, signal.SIGKILL)
        # At once, while its nodes are still stopping.
        with demo(folder, "--fast") as second:
            result = second.finish(60).check()
    assert wait_until(lambda: not any(command_of(pid) for pid in mine), 10)
    assert "Going on with run" in result.stdout
    assert ALL_THERE in result.stdout
    assert nothing_left(folder)


def test_a_killed_parent_of_which_nobody_takes_care_leaves_no_server(folder):
    with demo(folder, *STEADY) as script:
        wait_stored(folder, 50)
        mine = children(script.pid)
        os.kill(script.pid, signal.SIGKILL)
        assert wait_until(lambda: not any(command_of(pid) for pid in mine), 15)
        assert nothing_left(folder)
    assert unfinished(folder)


def test_a_killed_redis_is_started_again_and_nothing_is_lost(folder):
    with demo(folder, *STEADY) as script:
        wait_stored(folder, 100)
        server = EmbeddedRedis(folder / "data" / "redis")._known()
        os.kill(server.pid, signal.SIGKILL)
        result = script.finish(60).check()
    assert "the embedded Redis had died and was started again" in result.stderr
    assert ALL_THERE in result.stdout


def test_a_second_demo_in_the_same_folder_is_refused_in_one_line(folder):
    with demo(folder, *LONG) as script:
        wait_stored(folder, 1)
        with demo(folder) as second:
            one_line(second.finish(20), 3, "is running in", str(script.pid), "--dir")
        script.interrupt()
        script.finish(15).check(130)


def test_a_taken_port_is_one_line_and_fresh_begins_anew(folder):
    with demo(folder, *LONG) as script:
        wait_stored(folder, 20)
        script.interrupt()
        script.finish(15).check(130)
    old = unfinished(folder)
    with socket.create_server(("127.0.0.1", old["port"])):
        with demo(folder) as script:
            one_line(script.finish(20), 3, f"port {old['port']}", "--fresh")
        with demo(folder, "--fast", "--fresh") as script:
            result = script.finish(60).check()
    assert result.summary["run_id"] != old["run_id"]
    assert ALL_THERE in result.stdout
    assert nothing_left(folder)


def test_a_folder_that_cannot_be_used_is_one_line(folder):
    (folder / "file").touch()
    for where in (folder / "file", folder / "file" / "below"):
        one_line(run_command([NETSPY, "demo", "--dir", where], cwd=folder), 3, "--dir", str(where))
    one_line(run_command([NETSPY, "demo", "-n", "0"], cwd=folder), 3, "--processes 0")
    one_line(run_command([NETSPY, "demo", "--delay-ms", "x"], cwd=folder), 3, "--delay-ms 'x'")


def test_a_disk_without_room_is_refused_before_the_start(folder, monkeypatch):
    monkeypatch.setattr(demo_folder, "SPACE_NEEDED", 10**18)
    opened = demo_folder.DemoFolder(folder / "data")
    with pytest.raises(ConfigError, match=r"MB left.*make room"):
        opened.open()
    opened.close()


def test_on_a_terminal_a_panel_with_both_nodes_and_a_table_at_the_end(folder):
    terminal = Terminal(folder, *STEADY)
    with terminal.script as script:
        # [^╰]: within one panel. With many of them shown, any characters between the words would take for ever.
        terminal.wait_for(
            r"╭─ ShopDemo [^╰]*done [^╰]*queued [^╰]*in flight [^╰]*/s  ETA [^╰]*node [^╰]*│ 1 [^╰]*│ 2 "
        )
        terminal.wait_for(r"failed after")
        result = script.finish(60).check()
    shown = result.stdout
    assert re.search(r"HTTP 404.*╭─", shown, re.S)  # log lines go above the panel
    assert "done 1,040 " in plain(shown)
    assert re.search(r"│ NS-00001 │", shown)
    assert ALL_THERE in shown
    assert "NETSPY_RUN_SUMMARY" not in shown
    assert shown.rfind("\x1b[?25h") >= shown.rfind("\x1b[?25l")
    assert shown.count("ShopDemo finished after") == 1


def test_ctrl_c_on_the_terminal_reaches_every_node_once(folder):
    terminal = Terminal(folder, *STEADY, columns=80, rows=24)
    with terminal.script as script:
        wait_stored(folder, 50)
        terminal.wait_for(r"│ 1 \S+:\d+ .*│ 2 \S+:\d+ ")
        terminal.press(b"\x03")
        result = script.finish(15).check(130)
    assert result.stdout.count("once more to leave at once") == 2
    assert "To go on: netspy demo" in result.stdout
    assert "Traceback" not in result.stdout
    assert nothing_left(folder, 2)
    # Nothing of the panel is wider than the screen, so nothing of it wraps.
    lines = plain(result.stdout).splitlines()
    assert max(len(line) for line in lines if line.startswith(("│", "╭", "╰"))) <= 80


def test_a_second_ctrl_c_is_out_within_two_seconds(folder):
    def seconds():
        terminal = Terminal(folder, "--fresh", "--delay-ms", "5000:5000")
        with terminal.script as script:
            terminal.wait_for("in flight [1-9]")
            terminal.press(b"\x03")
            terminal.wait_for("once more to leave at once.*once more to leave at once")  # by each node
            began = time.monotonic()
            terminal.press(b"\x03")
            result = script.finish(15).check(137)
            took = time.monotonic() - began
        assert "was stopped by force" in result.stdout
        assert "To go on" in result.stdout
        assert stored(folder) == 0
        assert nothing_left(folder, 2)
        return took

    # One of three: a machine that has something else to do makes any single end slow.
    assert any(seconds() < 2.5 for _ in range(3))
