import json
import signal
from datetime import UTC, datetime, timedelta, timezone

import pytest

from netspy.observe import summary
from netspy.observe.counters import NAMES, Counters
from netspy.observe.outcome import OUTCOMES, ExitCode
from netspy.observe.summary import RunSummary, human, line, merge, parse_line

START = datetime(2025, 1, 31, 12, 0, 0, tzinfo=UTC)

DOCUMENTED = (
    "schema elapsed request_ok request_failed retry dropped robots_dropped content_type_dropped dedup_dropped "
    "parse_error items item_dedup_dropped item_failed dedup_degraded rate spider run_id namespace redis_key"
).split()


def one(**fields):
    counters = Counters()
    counters.inc("request_ok", 40)
    counters.inc("pages", 50)
    counters.inc("items", 30)
    counters.fail("HTTP 404")
    counters.fail("dns")
    counters.fail("dns")
    counters.stats.inc("with_price", 7)
    given = {
        "spider": "新闻Spider",
        "kind": "Spider",
        "outcome": "finished",
        "code": ExitCode.FINISHED,
        "started": START,
        "finished": START + timedelta(seconds=10),
        "elapsed_s": 10.0,
        "outputs": ["mysql://root:s3cret@db/shop: goods 30 rows"],
    }
    return summary.build(counters, **(given | fields))


def test_the_line_is_one_ascii_line_of_json_with_all_documented_names():
    text = line(one(reason="stopped by\nthe user"))
    assert text.startswith("NETSPY_RUN_SUMMARY {")
    assert text.isascii()
    assert len(text.splitlines()) == 1
    data = json.loads(text.partition(" ")[2])
    assert set(DOCUMENTED) <= set(data)
    assert set(NAMES) <= set(data)
    assert (data["schema"], data["spider"], data["request_ok"], data["request_failed"]) == (
        1,
        "新闻Spider",
        40,
        3,
    )
    assert data["reasons"] == {"HTTP 404": 1, "dns": 2}
    assert data["user"] == {"with_price": 7}
    assert data["rate"] == 5.0
    assert data["started"] == "2025-01-31T12:00:00.000+00:00"


def test_no_password_reaches_the_summary():
    text = line(one(reason="redis://:s3cret@h/0 is away"))
    assert "s3cret" not in text
    assert "mysql://root:***@db/shop" in text


def test_the_line_comes_back_as_it_went():
    before = one()
    assert parse_line(line(before) + "\r\n") == before


@pytest.mark.parametrize(
    "text", ["", "hello", "NETSPY_RUN_SUMMARY", "NETSPY_RUN_SUMMARY {", "NETSPY_RUN_SUMMARY_ {}"]
)
def test_other_output_is_not_taken_for_a_summary(text):
    assert parse_line(text) is None


def test_a_summary_of_a_newer_version_is_still_read():
    assert parse_line('NETSPY_RUN_SUMMARY {"schema":2,"spider":"News","new":1}').spider == "News"


def test_several_processes_become_one_run():
    west = timezone(timedelta(hours=-5))
    second = one(
        started=(START + timedelta(seconds=5)).astimezone(west),
        finished=(START + timedelta(seconds=20)).astimezone(west),
        elapsed_s=15.0,
        outputs=["goods.jsonl", "mysql://root:s3cret@db/shop: goods 30 rows"],
    )
    run = merge([one(), second])
    assert (run.request_ok, run.pages, run.items, run.request_failed, run.nodes) == (80, 100, 60, 6, 2)
    assert run.reasons == {"HTTP 404": 2, "dns": 4}
    assert run.user == {"with_price": 14}
    assert run.elapsed == 20.0
    assert run.rate == 5.0
    assert (run.started, run.finished) == ("2025-01-31T12:00:00.000+00:00", "2025-01-31T12:00:20.000+00:00")
    assert run.outputs == ["mysql://root:***@db/shop: goods 30 rows", "goods.jsonl"]
    assert (run.outcome, run.exit_code) == ("finished", 0)


def ended(outcome, code=0, **fields):
    return RunSummary(spider="News", outcome=outcome, exit_code=code, **fields)


@pytest.mark.parametrize(
    ("parts", "outcome", "code"),
    [
        # A process that found nothing left, or only bad pages, is no verdict on the run.
        ([ended("finished", request_ok=9), ended("nothing_to_do")], "finished", 0),
        ([ended("finished", request_ok=9), ended("all_failed", 6, request_failed=2)], "finished", 0),
        ([ended("nothing_to_do"), ended("all_failed", 6, request_failed=2)], "all_failed", 6),
        ([ended("nothing_to_do"), ended("finished")], "finished", 0),
        ([ended("nothing_to_do"), ended("nothing_to_do")], "nothing_to_do", 0),
        ([ended("stopped", 130, request_ok=1), ended("finished", request_ok=1)], "stopped", 130),
        ([ended("stopped", 130), ended("forced", 137)], "forced", 137),
        ([ended("limit", request_ok=5), ended("store_lost", 5)], "store_lost", 5),
        ([ended("seeding_failed", 4), ended("stopped", 143)], "seeding_failed", 4),
        ([ended("failed", 7), ended("forced", 137)], "failed", 7),
    ],
)
def test_the_worst_end_is_the_runs(parts, outcome, code):
    for order in (parts, parts[::-1]):
        run = merge(order)
        assert (run.outcome, run.exit_code) == (outcome, code)


def test_nothing_to_do_in_all_processes_fails_when_asked():
    assert merge([ended("nothing_to_do", 9)] * 2, fail_on_nothing_to_do=True).exit_code == 9


def test_no_process_reported():
    with pytest.raises(ValueError, match="no process of the run has reported"):
        merge([])


def test_people_see_what_was_fetched_stored_failed_and_where_the_items_are():
    text = human(one())
    assert text.splitlines() == [
        "新闻Spider finished after 10 s",
        "  requests   40 done, 3 failed",
        "  fetched    50 pages, 0 B, 5.0/s",
        "  items      30 stored",
        "  failed     2 × dns, 1 × HTTP 404",
        "  counted    with_price 7",
        "  stored in  mysql://root:***@db/shop: goods 30 rows",
    ]


def test_no_place_is_named_where_nothing_was_stored():
    empty = RunSummary(spider="News", pages=1, outputs=["*.jsonl"])
    assert "stored in" not in human(empty)
    assert "  fetched    1 page, 0 B" in human(empty)


def test_many_reasons_are_cut_for_people_only():
    reasons = {f"HTTP {400 + n}": n + 1 for n in range(30)}
    crowded = RunSummary(spider="News", reasons=reasons)
    assert "… 22 more kinds" in human(crowded)
    assert json.loads(line(crowded).partition(" ")[2])["reasons"] == reasons


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_reads_as_a_sentence(outcome):
    assert human(RunSummary(spider="News", outcome=outcome)).startswith("News ")


def test_summary_and_counters_name_the_same_things():
    assert set(NAMES) <= set(RunSummary.__struct_fields__)


def test_dropped_pages_are_work_and_failures_alone_are_no_success():
    counters = Counters()
    assert summary.judge_run("nothing_to_do", counters.own()) == ("nothing_to_do", ExitCode.FINISHED)
    assert summary.judge_run("nothing_to_do", counters.own(), fail_on_nothing_to_do=True) == (
        "nothing_to_do",
        9,
    )
    counters.inc("robots_dropped")
    assert summary.judge_run("nothing_to_do", counters.own()) == ("finished", ExitCode.FINISHED)
    counters.fail("dns")
    for ended in ("finished", "limit", "stopped"):
        assert summary.judge_run(ended, counters.own()) == ("all_failed", ExitCode.ALL_FAILED)
    assert summary.judge_run("stopped", counters.own(), signal=signal.SIGINT) == ("stopped", ExitCode.SIGINT)


def test_a_node_that_found_no_work_because_others_did_it_has_finished():
    assert summary.judge_run("finished", Counters().own()) == ("finished", ExitCode.FINISHED)
    assert summary.judge_run("finished", Counters().own(), fail_on_nothing_to_do=True) == (
        "finished",
        ExitCode.FINISHED,
    )


@pytest.mark.parametrize(
    ("ended", "sig", "code"),
    [
        ("stopped", signal.SIGINT, 130),
        ("stopped", signal.SIGTERM, 143),
        ("stopped", None, 0),
        ("limit", None, 0),
        ("forced", signal.SIGINT, 137),
        ("seeding_failed", None, 4),
        ("store_lost", None, 5),
        ("config_error", None, 3),
        ("failed", None, 7),
    ],
)
def test_an_end_that_is_no_success_stays_what_it_is(ended, sig, code):
    counters = Counters()
    counters.inc("request_ok")
    assert summary.judge_run(ended, counters.own(), signal=sig) == (ended, code)
