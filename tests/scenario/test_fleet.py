"""Several node processes under one parent: signals, deaths, output, and the one summary."""

from __future__ import annotations

import os
import signal
import time

import pytest
from demo_support import nodes_of, state_of
from scenario_support import SPIDER, urls, wait_nodes

from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import wait_until
from netspy.testing.runner import start_script
from support.gate import Gate

pytestmark = pytest.mark.slow

FLEET = SPIDER.replace("Pages().start()", 'Pages().start(processes=int(os.environ.get("N", "2")))')


def env(site, redis_url, **more):
    return {
        "SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url, "NETSPY_HEARTBEAT_INTERVAL": "0.3",
        "NETSPY_HEARTBEAT_STALE": "10", "NETSPY_SPIDER_STARTUP_GRACE": "1", **more,
    }  # fmt: skip


def one_summary(result):
    assert result.stdout.count("NETSPY_RUN_SUMMARY") == 1
    assert result.stdout.rstrip().splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")
    return result.summary


def both_of(script):
    """The two node processes, as soon as both have been started."""
    assert wait_until(lambda: len(nodes_of(script.pid)) == 2, 30)
    return nodes_of(script.pid)


@pytest.mark.parametrize(
    ("number", "group", "code"),
    [
        (signal.SIGINT, False, 130),
        (signal.SIGINT, True, 130),
        (signal.SIGTERM, False, 143),
        (signal.SIGTERM, True, 143),
    ],
)
def test_one_signal_to_parent_or_group_stops_all_nodes_gracefully(
    numbered, redis_url, tmp_path, number, group, code
):
    common = env(numbered, redis_url, PAGES="300", PARSE_SLEEP="0.1", NETSPY_SPIDER_THREAD_COUNT="2")
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(10)
        script.signal(number, group=group)
        result = script.finish(15).check(code)
    summary = one_summary(result)
    assert summary["outcome"] == "stopped"
    assert summary["nodes"] == 2
    assert result.stderr.count("Pages was stopped after") == 1
    # What the nodes counted is what they stored: nothing was lost, nothing given up half way.
    assert summary["request_ok"] == summary["items"] == len(urls(tmp_path))


def test_a_second_signal_ends_nodes_whose_loop_is_blocked_within_two_seconds(numbered, redis_url, tmp_path):
    # One request a node at a time, so that the seeder does not claim what the other one is to block on.
    source = FLEET.replace("def parse(", "async def parse(")
    common = env(
        numbered,
        redis_url,
        PARSE_SLEEP="60",
        PAGES="200",
        NETSPY_SPIDER_THREAD_COUNT="1",
        NETSPY_COLLECTOR_TASK_COUNT="1",
    )
    with start_script(source, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(2)
        nodes = both_of(script)
        # Two of a kind may arrive as one, while the first is not heeded yet.
        script.interrupt()
        script.terminate()
        began = time.monotonic()
        assert wait_until(lambda: not any(state_of(pid) for pid in nodes), 15)
        script.wait_line("NETSPY_RUN_SUMMARY", 15)
        # What is left is Python's own end of the parent, which takes as long as the machine is busy.
        assert time.monotonic() - began < 2.5
        result = script.finish(15).check(137)
    assert one_summary(result)["outcome"] == "forced"
    assert not any(state_of(pid) for pid in nodes)


def test_a_killed_node_counts_with_its_last_heartbeat_and_is_no_zombie(numbered, redis_url, tmp_path):
    # The parent reads the dead one's record while it is there; what is counted and not acked is done and counted again.
    common = env(
        numbered, redis_url, PAGES="60", PARSE_SLEEP="0.15", NETSPY_SPIDER_THREAD_COUNT="2", NETSPY_HEARTBEAT_STALE="3",
        NETSPY_SPIDER_MAX_UNACKED="4",
    )  # fmt: skip
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(24)
        killed, other = both_of(script)
        os.kill(killed, signal.SIGKILL)
        script.wait_line("died (killed by SIGKILL); the others take its requests over")
        assert state_of(killed) == ""
        assert state_of(other) != ""
        result = script.finish(60).check()
    summary = one_summary(result)
    assert summary["outcome"] == "finished"
    assert "node process" in summary["reason"]
    assert len(set(urls(tmp_path))) == 60
    # The other node alone did fewer: the killed one's share is in the sum, but for its last 0.3 s.
    assert 50 <= summary["request_ok"] <= 64


def test_when_every_node_dies_that_is_an_error_and_the_next_start_goes_on(numbered, redis_url, tmp_path):
    common = env(
        numbered, redis_url, PARSE_SLEEP="0.2", NETSPY_SPIDER_THREAD_COUNT="1", NETSPY_HEARTBEAT_STALE="1.5"
    )
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(6)
        for pid in both_of(script):
            os.kill(pid, signal.SIGKILL)
        result = script.finish(15).check(7)
    assert one_summary(result)["outcome"] == "failed"
    assert "every node process died" in result.summary["reason"]
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        script.finish(60).check()
    assert len(set(urls(tmp_path))) == 24


def test_what_keeps_every_node_from_starting_is_one_line(numbered, redis_url, tmp_path):
    common = env(numbered, redis_url, N="3", NETSPY_DOWNLOADER="no.such.Downloader")
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        result = script.finish(60)
    assert result.returncode == 3
    said = [line for line in result.stderr.splitlines() if "no.such" in line]
    assert len(said) == 1
    assert said[0].startswith("netspy: error: ")
    assert one_summary(result)["outcome"] == "config_error"


def test_output_comes_whole_and_log_lines_say_which_node(numbered, redis_url, tmp_path):
    source = FLEET.replace(
        "        yield {",
        '        print("page " + request.url + " " + "x" * 5000)\n        self.logger.info("did it")\n        yield {',
        1,
    )
    gate = Gate(numbered, "/p/")
    common = env(
        numbered,
        redis_url,
        PAGES="200",
        PARSE_SLEEP="0.05",
        NETSPY_SPIDER_THREAD_COUNT="4",
        NETSPY_COLLECTOR_TASK_COUNT="8",
    )
    with start_script(source, env=common, cwd=tmp_path) as script:
        wait_nodes(redis_url, 2)
        gate.open()
        result = script.finish(60).check()
    pages = [line for line in result.stdout.splitlines() if line.startswith("page ")]
    assert len(pages) == 200
    assert all(line.endswith(" " + "x" * 5000) for line in pages)
    said = [line for line in result.stderr.splitlines() if "did it" in line]
    assert len(said) == 200
    assert {line.split("Pages[")[1][0] for line in said} == {"1", "2"}
    one_summary(result)


def test_printing_callbacks_end_well_when_the_parent_was_killed(numbered, redis_url, tmp_path):
    source = FLEET.replace("        yield {", '        print("page " * 100, flush=True)\n        yield {', 1)
    common = env(
        numbered, redis_url, PARSE_SLEEP="0.5", NETSPY_SPIDER_THREAD_COUNT="4", NETSPY_LOG_FILE="log.txt"
    )
    with start_script(source, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(10)
        nodes = both_of(script)
        script.kill()
        assert wait_until(lambda: not any(state_of(pid) for pid in nodes), 15)
    stored = len(urls(tmp_path))
    with start_script(source, env=common, cwd=tmp_path) as script:
        result = script.finish(60).check()
    # A callback that had met a closed pipe would have raised: its page would be missing here.
    assert result.summary["request_failed"] == result.summary["parse_error"] == 0
    assert stored + result.summary["request_ok"] == 24
    assert len(urls(tmp_path)) == 24


def test_a_stopped_job_pauses_with_its_nodes_and_goes_on_with_them(numbered, redis_url, tmp_path):
    common = env(numbered, redis_url, PAGES="60", PARSE_SLEEP="0.1", NETSPY_SPIDER_THREAD_COUNT="2")
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(6)
        nodes = both_of(script)
        script.signal(signal.SIGTSTP)
        # In a session without a shell the kernel ignores SIGTSTP's default action, so the parent goes on at once.
        script.finish(60).check()
        assert not any(state_of(pid) for pid in nodes)
    assert len(set(urls(tmp_path))) == 60


def test_an_embedded_server_serves_all_and_ends_with_the_last(numbered, tmp_path):
    with start_script(FLEET, env=env(numbered, "embedded", PAGES="60", N="3"), cwd=tmp_path) as script:
        result = script.finish(60).check()
    assert one_summary(result)["request_ok"] == 60
    assert EmbeddedRedis(tmp_path / ".netspy").running() is None


@pytest.mark.parametrize("n", ["1", "2"])
def test_a_killed_embedded_server_is_started_again_and_the_crawl_goes_on(numbered, tmp_path, n):
    common = env(numbered, "embedded", PAGES="60", N=n, PARSE_SLEEP="0.1", NETSPY_SPIDER_THREAD_COUNT="2")
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(8)
        os.kill(EmbeddedRedis(tmp_path / ".netspy")._known().pid, signal.SIGKILL)
        result = script.finish(60).check()
    assert result.stderr.count("the embedded Redis had died and was started again") == 1
    assert len(set(urls(tmp_path))) == 60
    assert EmbeddedRedis(tmp_path / ".netspy").running() is None


@pytest.mark.parametrize("n", ["1", "2"])
def test_a_forced_stop_leaves_no_embedded_server(numbered, tmp_path, n):
    common = env(numbered, "embedded", N=n, PARSE_SLEEP="20")
    with start_script(FLEET, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(2)
        script.interrupt()
        script.wait_line("once more to leave at once")
        script.interrupt()
        assert one_summary(script.finish(15).check(137))["outcome"] == "forced"
    assert EmbeddedRedis(tmp_path / ".netspy").running() is None
