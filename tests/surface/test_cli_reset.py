"""`netspy reset`: what it removes, that it asks, when it refuses, and that everything is crawled and stored again."""

import pytest
from cli_rig import SOON_STALE, one_line, until

pytestmark = pytest.mark.slow


def keys(redis):
    return set(redis.scan_iter(count=1000))


def test_after_a_reset_no_key_is_left_and_everything_is_crawled_and_stored_again(rig, pages, redis):
    pages.route("/p/3", "no", status=404)
    rig("run", "main.py").check()
    assert "nothing" in rig("run", "main.py").check().stderr
    assert pages.total == 8
    result = rig("reset", "main.py", "--yes").check()
    assert result.stdout.splitlines()[1].split("\t")[0] == "netspy:Pages"
    assert result.stdout.splitlines()[1].split("\t")[2:] == ["0", "0", "0", "1", "8"]
    assert "removed netspy:Pages: " in result.stdout
    assert keys(redis) == set()
    again = rig("run", "main.py").check().summary
    assert (again["request_ok"], again["items"], pages.total) == (7, 7, 16)
    assert len(rig.rows()) == 14


def test_a_job_stopped_in_the_middle_is_cleared_with_its_queue_and_others_are_left_alone(rig, pages, redis):
    rig("run", "main.py", "-a", "redis_key=Other").check()
    others = keys(redis)
    with rig.start("run", "main.py", PAGES="400", PARSE_SLEEP="0.3", NETSPY_SPIDER_THREAD_COUNT="1") as crawl:
        pages.wait_hits(10)
        crawl.terminate()
        crawl.finish(30).check(143)
    shown = rig("reset", "--key", "Pages", "-y").check().stdout
    assert 300 < int(shown.splitlines()[1].split("\t")[2]) < 400
    assert keys(redis) == others
    assert rig("status", "main.py", "-a", "redis_key=Other", "--json").check().stdout


def test_one_run_or_the_job_with_all_its_runs(rig, redis):
    for run in ("one", "two"):
        rig("run", "main.py", NETSPY_RUN_ID=run).check()
    rig("run", "main.py").check()
    assert "removed netspy:Pages:run:one: " in rig("reset", "main.py", "--run", "one", "--yes").check().stdout
    assert not [key for key in keys(redis) if ":run:one" in key]
    listed = rig("status", "main.py", "--runs").check().stdout.splitlines()
    assert [line.split("\t")[0] for line in listed] == ["run", "two"]
    rig("run", "main.py", NETSPY_RUN_ID="three").check()
    result = rig("reset", "main.py", "--yes").check().stdout
    assert [line.split("\t")[0] for line in result.splitlines()[1:-1]] == [
        "netspy:Pages",
        "netspy:Pages:run:two",
        "netspy:Pages:run:three",
    ]
    assert "and 2 runs" in result
    assert keys(redis) == set()


def test_dedup_alone_is_forgotten_so_that_the_next_run_crawls_known_pages_again(rig, pages, redis):
    incremental = {"NETSPY_DEDUP_SCOPE": "spider"}
    rig("run", "main.py", NETSPY_RUN_ID="one", **incremental).check()
    assert (
        rig("run", "main.py", NETSPY_RUN_ID="two", **incremental).check().summary["outcome"]
        == "nothing_to_do"
    )
    one_run = rig("reset", "main.py", "--run", "one", "--yes", **incremental).check()
    assert "--dedup forgets them" in one_run.stderr
    assert pages.total == 8
    result = rig("reset", "main.py", "--dedup", "--yes", **incremental).check()
    assert "\t8\n" in result.stdout
    assert not [key for key in keys(redis) if ":dedup:" in key and ":run:" not in key]
    assert rig("run", "main.py", NETSPY_RUN_ID="three", **incremental).check().summary["items"] == 8
    assert pages.total == 16
    assert rig.status("main.py", "--run", "two")["state"] == "finished"


def test_it_refuses_while_nodes_are_alive_unless_forced(rig, pages, redis):
    with rig.start(
        "run", "main.py", PAGES="2000", PARSE_SLEEP="0.3", NETSPY_SPIDER_THREAD_COUNT="1"
    ) as crawl:
        pages.wait_hits(2)
        one_line(rig("reset", "main.py", "--yes"), 3, "1 live node of netspy:Pages", "--force")
        assert redis.exists("netspy:Pages:z_requests")
        rig("reset", "main.py", "--yes", "--force").check()
        result = crawl.finish(30)
    assert result.returncode == 5
    assert result.summary["outcome"] == "store_lost"


def test_it_asks_and_where_nobody_can_answer_refuses(rig, redis):
    rig("run", "main.py").check()
    before = keys(redis)
    refused = rig("reset", "main.py").check(2)
    assert "--yes" in refused.stderr
    assert refused.stderr.count("\n") == 1
    code, screen = rig.on_terminal("reset", "main.py", answer="n")
    assert code == 130
    assert "Remove all of netspy:Pages from redis://" in screen
    assert keys(redis) == before
    code, screen = rig.on_terminal("reset", "main.py", answer="y")
    assert code == 0
    assert "removed netspy:Pages: " in screen
    assert "\x1b" not in screen
    assert keys(redis) == set()


def test_what_is_left_after_the_queue_was_deleted_by_hand_goes_too(rig, redis):
    rig("run", "main.py").check()
    redis.delete("netspy:Pages:meta", "netspy:Pages:lock:seed", "netspy:Pages:nodes")
    assert keys(redis)
    rig("reset", "main.py", "--yes").check()
    assert keys(redis) == set()


def test_many_runs_are_shown_as_one_line_and_all_go(rig, redis):
    rig("run", "main.py", NETSPY_RUN_ID="real").check()
    redis.zadd("netspy:Pages:runs", {f"r{n}": n for n in range(30)})
    for n in range(30):
        redis.rpush(f"netspy:Pages:run:r{n}:failed_requests", "x", "y")
    shown = rig("reset", "main.py", "--yes").check().stdout.splitlines()
    assert len(shown) == 23
    assert shown[-2].startswith("12 more runs\t")
    assert keys(redis) == set()


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["air.py", "--yes"], 3, ["Air is an AirSpider"]),
        (["--yes"], 2, ["--key REDIS_KEY"]),
        (["main.py", "--run", "", "--yes"], 2, ["--run is empty"]),
        (["main.py", "--run", "a{b", "--yes"], 3, ["RUN_ID='a{b'"]),
        (["main.py", "--yes", "-s", "REDIS_URL=redis://:s3cret@127.0.0.1:1/0"], 5, [":***@127.0.0.1:1"]),
    ],
)
def test_what_can_not_be_done_is_one_line(rig, arguments, code, parts):
    result = rig("reset", *arguments)
    one_line(result, code, *parts)
    assert "s3cret" not in result.stderr


def test_nothing_to_remove_is_said_and_is_no_failure(rig):
    result = rig("reset", "--key", "nobody").check()
    assert result.stdout.startswith("nothing to remove: ")
    assert "netspy:nobody" in result.stdout


def test_an_interrupted_crawl_of_a_killed_node_can_be_reset_once_it_is_stale(rig, pages, redis):
    rig.env["STALE"] = SOON_STALE
    with rig.start("run", "main.py", PAGES="50", PARSE_SLEEP="0.3", NETSPY_SPIDER_THREAD_COUNT="1") as crawl:
        pages.wait_hits(2)
        crawl.kill()
    until(lambda: rig("reset", "main.py", "--yes").returncode == 0)
    assert keys(redis) == set()
