"""`netspy status`: a running, a stopped, a finished and a missing crawl, seen from outside."""

import json
import signal

import pytest
from cli_rig import SOON_STALE, Rig, one_line, until

from netspy.cli.rates import BeatRates
from netspy.cluster.nodes import NodeInfo
from netspy.cluster.status import Status
from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import wait_until
from netspy.testing.servers import RedisServer, free_port


def test_a_running_crawl_shows_its_nodes_and_figures_and_a_stopped_one_what_is_left(rig, pages):
    slow = {"PAGES": "4000", "PARSE_SLEEP": "0.2", "NETSPY_SPIDER_THREAD_COUNT": "4", "BEAT": "1"}
    seen = {}

    def both_at_work():
        seen.update(rig.status("main.py"))
        return (seen["state"], [bool(node["rate"]) for node in seen["nodes"]]) == ("crawling", [True, True])

    with rig.start("run", "main.py", "-n", "2", **slow) as crawl:
        pages.wait_hits(1)
        until(both_at_work)
        shown = rig("status", "main.py").check().stdout
        crawl.interrupt()
        assert crawl.finish(30).returncode == 130
    assert (seen["namespace"], seen["class"], seen["kind"], seen["state"]) == (
        "netspy:Pages",
        "Pages",
        "spider",
        "crawling",
    )
    assert seen["queued"] > 0
    assert seen["in_flight"] > 0
    assert [node["alive"] for node in seen["nodes"]] == [True, True]
    assert len({node["pid"] for node in seen["nodes"]}) == 2
    assert all(0 <= node["heartbeat_age"] < 15 for node in seen["nodes"])
    # Eight threads that sleep 0.2 s handle at most 40 pages a second; they do so in bursts.
    assert 0 < seen["rate"] < 100
    assert seen["rate"] == pytest.approx(sum(node["rate"] for node in seen["nodes"]))
    assert seen["eta"] == pytest.approx((seen["queued"] + seen["in_flight"] + seen["delayed"]) / seen["rate"])
    assert "state\tcrawling\n" in shown
    assert shown.count("\talive\t") == 2
    assert "rate\t" in shown
    assert "time left\t" in shown
    after = rig.status("main.py")
    assert (after["state"], after["nodes"], after["in_flight"]) == ("stopped", [], 0)
    assert after["queued"] + after["done"] == 4000
    assert after["fingerprints"] == 4000


def test_what_nodes_counted_is_shown_after_they_have_left(rig):
    rig("run", "main.py").check()
    seen = rig.status("main.py")
    assert (seen["state"], seen["done"], seen["items"], seen["queued"], seen["failed"]) == (
        "finished",
        8,
        8,
        0,
        0,
    )
    assert seen["seed"]["state"] == "seeded"
    assert seen["seed"]["at"] is not None
    shown = rig("status", "main.py").check().stdout
    assert "state\tfinished\n" in shown
    assert "done\t8\n" in shown
    assert "node\t" not in shown


def test_a_killed_node_is_shown_as_dead_until_another_takes_over(rig, pages):
    rig.env["STALE"] = SOON_STALE
    with rig.start("run", "main.py", PAGES="50", PARSE_SLEEP="0.3", NETSPY_SPIDER_THREAD_COUNT="1") as crawl:
        pages.wait_hits(2)
        crawl.kill()
    until(lambda: not rig.status("main.py", "--no-rate")["nodes"][0]["alive"])
    seen = rig.status("main.py")
    assert seen["state"] == "stopped"
    assert seen["in_flight"] >= 1
    assert "\tdead\t" in rig("status", "main.py").check().stdout


def test_columns_on_a_terminal_tabs_in_a_pipe_and_colours_in_neither(rig):
    rig("run", "main.py").check()
    code, screen = rig.on_terminal("status", "main.py")
    assert code == 0
    assert "job           netspy:Pages\n" in screen
    piped = rig("status", "main.py").check().stdout
    assert "job\tnetspy:Pages\n" in piped
    assert "\x1b" not in screen + piped
    assert "\t" not in screen


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["main.py"], ["netspy:Pages"]),
        (["--key", "nobody"], ["netspy:nobody", "REDIS_KEY_PREFIX"]),
        (["--key", "netspy:Pages"], ["leave the prefix netspy: out of --key"]),
        (["air.py"], ["Air is an AirSpider", "netspy.Spider"]),
        (["nothere.py"], ["nothere.py", "no such file"]),
        (["main.py", "-s", "SPIDER_THREAD_COUNT=x"], ["SPIDER_THREAD_COUNT='x'"]),
        (["main.py", "-a", "section=tech", "-a", "x"], ["-a 'x' is not KEY=VALUE"]),
    ],
)
def test_a_job_that_is_not_there_is_one_line_and_exit_code_3(rig, arguments, parts):
    one_line(rig("status", *arguments), 3, *parts)


@pytest.mark.parametrize(
    ("arguments", "part"), [([], "--key REDIS_KEY"), (["main.py", "--runs", "--watch", "1"], "--runs")]
)
def test_a_command_line_that_names_nothing_is_a_usage_error(rig, arguments, part):
    one_line(rig("status", *arguments), 2, part, "netspy status --help")


def test_a_redis_that_is_away_or_refuses_is_one_line_without_the_password(rig, redis_url):
    away = rig("status", "main.py", NETSPY_REDIS_URL=f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    one_line(away, 5, "does not answer", ":***@")
    wrong = rig("status", "main.py", NETSPY_REDIS_URL=redis_url.replace("redis://", "redis://:s3cret@"))
    one_line(wrong, 3, "refuses", ":***@")
    assert "s3cret" not in away.stderr + wrong.stderr
    one_line(rig("status", "main.py", NETSPY_REDIS_URL="http://127.0.0.1"), 3, "REDIS_URL='http://127.0.0.1'")


def test_a_key_of_another_type_is_told_from_a_job(rig, redis):
    redis.set("netspy:Pages:z_requests", "mine")
    one_line(rig("status", "main.py"), 3, "netspy:Pages", "another program")


def test_runs_are_listed_and_the_newest_is_shown_when_none_is_named(rig):
    for run in ("one", "two"):
        rig("run", "main.py", NETSPY_RUN_ID=run).check()
    newest = rig("status", "main.py", "--json").check()
    assert json.loads(newest.stdout)["run_id"] == "two"
    assert "run two, the newest of 2" in newest.stderr
    named = rig("status", "main.py", "--run", "one").check()
    assert "job\tnetspy:Pages:run:one\n" in named.stdout
    assert named.stderr == ""
    by_key = rig.status("--key", "Pages", "--run", "one")
    assert (by_key["done"], by_key["run_id"]) == (8, "one")
    listed = rig("status", "main.py", "--runs").check().stdout.splitlines()
    assert [line.split("\t")[0] for line in listed] == ["run", "two", "one"]
    assert [
        json.loads(line)["exists"]
        for line in rig("status", "main.py", "--runs", "--json").stdout.splitlines()
    ] == [True, True]
    one_line(rig("status", "main.py", "--run", "three"), 3, "no run 'three'", "two, one")


def test_a_job_without_runs_says_so(rig):
    rig("run", "main.py").check()
    result = rig("status", "main.py", "--runs").check()
    assert result.stdout == ""
    assert "no runs" in result.stderr


def test_watching_goes_on_until_ctrl_c_which_is_no_failure(rig):
    rig("run", "main.py").check()
    with rig.start("status", "main.py", "--watch", "0.2", "--json") as watch:
        watch.wait_line('"done":8')
        assert wait_until(lambda: watch.stdout.count("\n") >= 3, 30)
        watch.signal(signal.SIGINT)
        result = watch.finish(30).check(0)
    assert {json.loads(line)["state"] for line in result.stdout.splitlines()} == {"finished"}
    assert result.stderr == ""
    code, screen = rig.on_terminal("status", "main.py", "--watch", "0.2", until="finished")
    assert code == 0
    assert screen.startswith("\x1b[H\x1b[J")
    assert "\x1b[3" not in screen


def test_watching_outlives_a_redis_that_is_away_and_ends_when_the_job_is_reset(pages, redis_server, tmp_path):
    with RedisServer() as own:
        rig = Rig(tmp_path, pages.url(""), own.url)
        rig("run", "main.py").check()
        with rig.start("status", "main.py", "--watch", "0.2") as watch:
            watch.wait_line("state\tfinished")
            own.kill()
            watch.wait_line("Redis does not answer")
            own.restart()
            own.flush()
            result = watch.finish(30).check(3)
    assert "knows no job netspy:Pages" in result.stderr


def test_an_embedded_redis_is_started_for_the_look_and_left_as_it_was(pages, tmp_path, embedded_dir):
    rig = Rig(tmp_path, pages.url(""), "embedded")
    rig.env["NETSPY_EMBEDDED_DATA_DIR"] = str(embedded_dir)
    one_line(rig("status", "main.py"), 3, "EMBEDDED_DATA_DIR", "holds no data")
    assert not embedded_dir.exists()
    rig("run", "main.py").check()
    assert EmbeddedRedis(embedded_dir).running() is None
    assert rig.status("main.py")["done"] == 8
    assert EmbeddedRedis(embedded_dir).running() is None
    with EmbeddedRedis(embedded_dir):
        assert rig.status("--key", "Pages")["done"] == 8
        assert EmbeddedRedis(embedded_dir).running() is not None


def seen(now, *nodes):
    """A status at second `now` of nodes (id, age of the last beat, pages, alive)."""
    infos = [
        NodeInfo(id_, alive, age, "h", 1, "", 0.0, 0, 0, {"request_ok": ok}) for id_, age, ok, alive in nodes
    ]
    return Status("ns", True, "C", "spider", 0.0, 0, 0, 0, 0, None, 0, "", None, infos, {}, now)


def test_rates_come_from_beats_not_from_the_moments_of_looking():
    rates = BeatRates()
    rates.update(seen(100.0, ("a", 2.9, 10, True), ("b", 0.0, 50, True)))
    looked_again = seen(101.0, ("a", 3.9, 10, True), ("b", 1.0, 50, True))
    rates.update(looked_again)
    assert (rates.complete(looked_again), rates.total(looked_again)) == (False, None)
    now = seen(103.5, ("a", 0.4, 16, True), ("b", 0.5, 80, True))  # a: 6 in 6 s; b: 30 in 3 s
    rates.update(now)
    assert rates.complete(now)
    assert [rates.of(node) for node in now.nodes] == pytest.approx([1.0, 10.0])
    assert rates.total(now) == pytest.approx(11.0)


def test_a_late_node_does_not_hide_the_others_rate_and_a_dead_one_has_none():
    rates = BeatRates()
    for now, pages in ((10.0, 0), (13.0, 30)):
        status = seen(now, ("a", 0.0, pages, True), ("late", now, 5, True), ("dead", now, 9, False))
        rates.update(status)
    assert not rates.complete(status)
    assert [rates.of(node) for node in status.nodes] == [pytest.approx(10.0), None, 0.0]
    assert rates.total(status) == pytest.approx(10.0)


def test_old_beats_leave_the_average_and_a_counter_that_shrank_begins_anew():
    rates = BeatRates()
    for second in range(0, 60, 3):
        rates.update(seen(second, ("a", 0.0, 1000 if second else 0, True)))
    last = seen(60.0, ("a", 0.0, 1000, True))
    rates.update(last)
    assert rates.total(last) == 0.0
    again = seen(63.0, ("a", 0.0, 3, True))
    rates.update(again)
    assert rates.total(again) is None
