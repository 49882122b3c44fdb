"""`netspy failed`: what failed is listed, shown, queued again or dropped, on Redis and in an AirSpider's file."""

import json

import pytest
from cli_rig import Rig, one_line

from netspy.testing.children import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def failing(rig, pages):
    """A finished crawl of eight pages of which 1 and 2 answered 404, and 5 500."""
    for path, status in (("/p/1", 404), ("/p/2", 404), ("/p/5", 500)):
        pages.route(path, "no", status=status)
    rig("run", "main.py").check()
    return rig


def mend(pages):
    for path in ("/p/1", "/p/2", "/p/5"):
        pages.route(path, "now it is there")


def listed(rig, *arguments):
    """(reason, path) of the records, in their order."""
    out = rig("failed", "list", *(arguments or ("main.py",)), "--json").check().stdout
    return [(r["reason"], r["url"].partition("/p/")[2]) for r in map(json.loads, out.splitlines())]


def test_failed_requests_are_listed_with_reason_attempts_and_url(failing, pages):
    lines = failing("failed", "list", "main.py").check().stdout.splitlines()
    assert lines[0] == "number\ttime\tattempts\treason\turl"
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert sorted((row[2], row[3], row[4]) for row in rows) == [
        ("1", "HTTP 404", pages.url("/p/1")),
        ("1", "HTTP 404", pages.url("/p/2")),
        ("2", "HTTP 500", pages.url("/p/5")),
    ]
    assert listed(failing, "--key", "Pages", "--reason", "500") == [("HTTP 500", "5")]
    first = next(row for row in rows if row[3] == "HTTP 404")
    assert listed(failing, "main.py", "--reason", "http 404", "--limit", "1") == [("HTTP 404", first[4][-1])]
    limited = failing("failed", "list", "main.py", "--limit", "2").check()
    assert len(limited.stdout.splitlines()) == 3
    assert "1 more" in limited.stderr


def test_nothing_failed_is_said_and_is_no_error(rig):
    rig("run", "main.py").check()
    result = rig("failed", "list", "main.py").check()
    assert result.stdout == ""
    assert "no failed request in netspy:Pages" in result.stderr
    assert rig("failed", "retry", "main.py").check().stdout.startswith("0 failed requests queued again")
    assert rig("failed", "drop", "main.py").check().stdout.startswith("0 failed requests removed")


def test_one_record_is_shown_whole(failing):
    number = [path for _, path in listed(failing)].index("5") + 1
    shown = failing("failed", "show", "main.py", str(number)).check().stdout
    head, _, request = shown.partition("\nrequest\n")
    assert f"number\t{number}\n" in head
    assert "reason\tHTTP 500\n" in head
    assert "attempts\t2\n" in head
    fields = json.loads(request)
    assert fields["url"].endswith("/p/5")
    assert (fields["method"], fields["retry_times"]) == ("GET", 1)
    as_json = json.loads(failing("failed", "show", "--key", "Pages", str(number), "--json").check().stdout)
    assert as_json["request"]["url"] == fields["url"]
    two = failing("failed", "show", "main.py", "1", "3").check().stdout
    assert two.count("\nrequest\n") == 2


def test_what_a_record_says_neither_steers_the_terminal_nor_tells_a_password(failing, redis):
    record = {
        "reason": "\x1b[31mred\r\nnumber",
        "error": "x",
        "attempts": 1,
        "time": 5.0,
        "request": {"v": 1, "u": "http://me:s3cret@h/\x07"},
    }
    redis.rpush("netspy:Pages:failed_requests", json.dumps(record), b"not json \xff")
    for arguments in (("list", "main.py"), ("show", "main.py", "4"), ("show", "main.py", "5")):
        out = failing("failed", *arguments).check().stdout
        assert "s3cret" not in out
        assert not set(out) - {"\n", "\t"} & set(map(chr, range(32)))
        assert "red" in out or "not json" in out
    assert failing("failed", "list", "main.py").stdout.count("\n") == 6
    assert "unreadable" in failing("failed", "list", "main.py").stdout
    retried = failing("failed", "retry", "main.py", "--reason", "unreadable").check()
    assert retried.stdout.startswith("0 failed requests")
    assert "1 record can't be read" in retried.stderr


def test_retried_requests_are_crawled_by_the_next_node_with_all_their_tries(failing, pages, redis):
    result = failing("failed", "retry", "main.py").check()
    assert (
        result.stdout == "3 failed requests queued again in netspy:Pages; the next node to start takes them\n"
    )
    assert redis.llen("netspy:Pages:failed_requests") == 0
    before = pages.hits("/p/5")
    failing("run", "main.py")
    assert pages.hits("/p/5") - before == 2
    mend(pages)
    assert failing("failed", "retry", "main.py").check().stdout.startswith("3 failed requests")
    failing("run", "main.py").check()
    assert listed(failing) == []
    assert sorted(row["url"] for row in failing.rows()) == sorted(pages.url(f"/p/{n}") for n in range(8))


def test_a_running_node_takes_retried_requests_at_once(rig, pages):
    pages.route("/p/5", "no", status=404)
    with rig.start("run", "main.py", NETSPY_SPIDER_KEEP_ALIVE="1") as crawl:
        pages.wait_hits(8)
        while listed(rig) != [("HTTP 404", "5")]:
            assert crawl.alive
        mend(pages)
        assert "1 running node will take them" in rig("failed", "retry", "main.py").check().stdout
        pages.wait_hits(2, path="/p/5")
        crawl.terminate()
        assert crawl.finish(30).summary["items"] == 8


def test_only_those_are_retried_that_are_named(failing):
    everything = listed(failing)
    number = everything.index(("HTTP 404", "2")) + 1
    assert (
        failing("failed", "retry", "main.py", str(number))
        .check()
        .stdout.startswith("1 failed request queued")
    )
    left = listed(failing)
    assert left == [one for one in everything if one != ("HTTP 404", "2")]
    assert (
        failing("failed", "retry", "--key", "Pages", "--reason", "http 5")
        .check()
        .stdout.startswith("1 failed request queued")
    )
    assert listed(failing) == [("HTTP 404", "1")]
    assert failing.status("main.py")["queued"] == 2


def test_records_are_dropped_by_number_by_reason_or_all(failing):
    everything = listed(failing)
    assert (
        failing("failed", "drop", "main.py", "2", "--yes").check().stdout
        == "1 failed request removed from netspy:Pages\n"
    )
    assert listed(failing) == [everything[0], everything[2]]
    reason = everything[0][0]
    failing("failed", "drop", "main.py", "--reason", reason, "-y").check()
    assert listed(failing) == [one for one in (everything[0], everything[2]) if one[0] != reason]
    failing("failed", "drop", "main.py", "--yes").check()
    assert listed(failing) == []


def test_dropping_asks_and_where_nobody_can_answer_refuses(failing):
    one_line(failing("failed", "drop", "main.py"), 2, "--yes", "netspy failed drop --help")
    assert len(listed(failing)) == 3
    code, screen = failing.on_terminal("failed", "drop", "main.py", "1", "2", answer="n")
    assert (code, len(listed(failing))) == (130, 3)
    assert "Remove 2 of 3 failed requests of netspy:Pages? [y/N]" in screen
    code, _ = failing.on_terminal("failed", "drop", "main.py", answer="y")
    assert (code, listed(failing)) == (0, [])


IMPOSSIBLE = (
    (["show", "main.py", "4"], 3, "netspy:Pages has no failed request 4; it has 3"),
    (["drop", "main.py", "1", "99", "--yes"], 3, "no failed request 99"),
    (["retry", "main.py", "99"], 3, "no failed request 99"),
    (["list", "--key", "nobody"], 3, "knows no job netspy:nobody"),
    (["show", "main.py"], 2, "a number that `netspy failed list` shows"),
    (["show", "main.py", "0"], 2, "they begin at 1"),
    (["list", "main.py", "air.py"], 2, "'air.py' is no number"),
    (["list"], 2, "--file PATH"),
    (["list", "main.py", "--file", "x.jsonl"], 2, "leave out the spider"),
    (["list", "--file", "x.jsonl"], 3, "no such file"),
    ([], 2, "Missing command"),
    (["nonsense"], 2, "No such command 'nonsense'"),
)


def test_what_can_not_be_done_is_one_line(failing):
    for arguments, code, part in IMPOSSIBLE:
        one_line(failing("failed", *arguments), code, part)
    assert len(listed(failing)) == 3


def test_a_long_list_is_cut_on_a_terminal_only(rig, redis):
    rig("run", "main.py").check()
    record = {"reason": "HTTP 404", "attempts": 1, "time": 5.0, "request": {"v": 1, "u": "http://h/"}}
    redis.rpush("netspy:Pages:failed_requests", *[json.dumps(record | {"time": 5.0 + n}) for n in range(250)])
    assert len(rig("failed", "list", "main.py").check().stdout.splitlines()) == 251
    _, screen = rig.on_terminal("failed", "list", "main.py")
    assert "200 more; --limit 0 shows all" in screen
    assert "\n     9  19" in screen  # numbers are aligned to the right
    assert (
        rig("failed", "drop", "main.py", "201", "3", "--yes").check().stdout.startswith("2 failed requests")
    )
    left = [
        json.loads(line)["time"] for line in rig("failed", "list", "main.py", "--json").stdout.splitlines()
    ]
    assert len(left) == 248
    assert not [time for time in left if time.startswith(("1970-01-01T00:00:07", "1970-01-01T00:03:25"))]


@pytest.fixture
def air(pages, tmp_path):
    """An AirSpider's crawl: /good is there, /bad answers 500 and /gone 404."""
    pages.route("/good", "yes")
    pages.route("/bad", "no", status=500)
    pages.route("/gone", "no", status=404)
    rig = Rig(tmp_path, pages.url(""))
    rig("run", "air.py").check()
    return rig


def failed_of_air(rig, *arguments):
    out = rig("failed", "list", *(arguments or ("air.py",)), "--json").check().stdout
    return sorted((r["reason"], r["url"].rpartition("/")[2]) for r in map(json.loads, out.splitlines()))


def test_an_air_spiders_records_are_read_from_its_file(air):
    both = [("HTTP 404", "gone"), ("HTTP 500", "bad")]
    assert failed_of_air(air) == both
    assert failed_of_air(air, "--file", "failed_requests.jsonl") == both
    assert failed_of_air(air, "air.py", "--reason", "404") == both[:1]
    assert '"url": ' in air("failed", "show", "air.py", "1").check().stdout
    one_line(air("failed", "retry", "air.py"), 3, "netspy run air.py -s RETRY_FAILED_ON_START=1")
    assert air("failed", "list", "air.py", "-s", "FAILED_REQUEST_PATH=other.jsonl").check().stdout == ""


def test_an_air_spiders_dropped_record_is_not_taken_up_and_the_others_are(air, pages):
    out = air("failed", "drop", "air.py", "--reason", "404", "--yes").check().stdout
    assert out == "1 failed request removed from failed_requests.jsonl\n"
    assert failed_of_air(air) == [("HTTP 500", "bad")]
    pages.clear()
    pages.route("/bad", "mended")
    found = air("run", "air.py", "-s", "RETRY_FAILED_ON_START=1").check()
    assert "going on with 1 request(s) of the last run" in found.stderr
    assert pages.all_hits() == {"/bad": 1, "/good": 1, "/gone": 1}, (
        "what failed once, and the run's own seeds"
    )


def test_an_air_spider_whose_records_are_all_dropped_begins_anew(air, pages):
    one_line(air("failed", "drop", "air.py"), 2, "--yes")
    air("failed", "drop", "--file", "failed_requests.jsonl", "--yes").check()
    assert not (air.folder / "failed_requests.jsonl").exists()
    pages.clear()
    air("run", "air.py", "-s", "RETRY_FAILED_ON_START=1").check()
    assert pages.all_hits() == {"/bad": 2, "/gone": 1, "/good": 1}


def test_before_unfinished_requests_are_dropped_the_question_says_so(air, pages):
    pages.route("/good", "yes", delay=60)
    pages.clear()
    records = air.folder / "failed_requests.jsonl"
    assert records.read_bytes().count(b"\n") == 2
    with air.start("run", "air.py", "-s", "SPIDER_STOP_TIMEOUT=0.5") as crawl:
        pages.wait_hits(1, path="/good")
        # Those that fail have done so, as in the run before; else they would be unfinished, too.
        assert wait_until(lambda: records.read_bytes().count(b"\n") == 4, 30)
        crawl.interrupt()
        crawl.finish(30).check(130)
    assert ("unfinished", "good") in failed_of_air(air)
    code, screen = air.on_terminal("failed", "drop", "air.py", answer="n")
    assert code == 130
    assert "(1 of them are what a stopped run has left to do)" in screen


def test_a_torn_line_is_no_record_and_what_a_run_has_taken_up_is_mentioned(air):
    path = air.folder / "failed_requests.jsonl"
    with path.open("ab") as file:
        file.write(b'{"reason":"half a')
    assert len(failed_of_air(air)) == 2
    path.rename(air.folder / "failed_requests.jsonl.replaying")
    result = air("failed", "list", "air.py").check()
    assert result.stdout == ""
    assert "failed_requests.jsonl.replaying holds records that a run has taken up" in result.stderr
