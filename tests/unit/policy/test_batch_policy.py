"""The life of a batch: when the next is due, what a master's pass does, how progress reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netspy.errors import ConfigError
from netspy.policy.batch import (
    BatchRecord,
    Pace,
    Schedule,
    TaskCounts,
    duration_text,
    interval_seconds,
    next_step,
    overdue_seconds,
    progress_text,
)
from netspy.settings import Settings
from netspy.tasks.cron import CronFirings, batch_schedule

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOURLY = Schedule(3600.0)
OPEN = BatchRecord(3, NOON)
DONE = BatchRecord(3, NOON, is_done=True)
LEFT = TaskCounts(10, 4, 2, 3, 1)
ALL = TaskCounts(10, 0, 0, 9, 1)


def after(**span: float) -> datetime:
    return NOON + timedelta(**span)


# Passes


def test_without_any_batch_one_is_opened_at_once():
    step = next_step(None, None, NOON, HOURLY)
    assert (step.action, step.at) == ("open", NOON)


def test_an_open_batch_goes_on_until_every_task_is_settled():
    assert next_step(OPEN, None, after(hours=9), HOURLY).action == "work"
    assert next_step(OPEN, LEFT, after(hours=9), HOURLY).action == "work"
    step = next_step(OPEN, ALL, NOON, HOURLY)
    assert (step.action, step.batch) == ("finish", OPEN)


def test_an_empty_table_finishes_its_batch_and_waits_for_the_next():
    assert next_step(OPEN, TaskCounts(0, 0, 0, 0, 0), NOON, HOURLY).action == "finish"
    step = next_step(DONE, None, NOON, HOURLY)
    assert (step.action, step.at) == ("wait", after(hours=1))


def test_no_batch_is_opened_before_its_time_and_one_at_it():
    assert next_step(DONE, ALL, after(seconds=3599), HOURLY).action == "wait"
    assert next_step(DONE, ALL, after(seconds=3600), HOURLY).action == "open"


def test_a_single_run_opens_what_is_due_brings_it_to_its_end_and_leaves():
    assert next_step(None, None, NOON, HOURLY, once=True).action == "open"
    assert next_step(OPEN, LEFT, NOON, HOURLY, once=True).action == "work"
    assert next_step(OPEN, ALL, NOON, HOURLY, once=True).action == "finish"
    assert next_step(DONE, ALL, after(hours=5), HOURLY, once=True, brought_to_end=True).action == "leave"
    early = next_step(DONE, ALL, after(minutes=5), HOURLY, once=True)
    assert early.action == "leave"
    assert early.why == "batch 3 is done and the next one is due at 2026-05-01 13:00:00 UTC"
    assert next_step(DONE, ALL, after(hours=5), HOURLY, once=True).action == "open"


def test_batches_keep_their_grid_and_missed_ones_are_opened_once():
    late = next_step(DONE, ALL, after(hours=1, seconds=9.7), HOURLY)
    assert late.at == after(hours=1)
    away = next_step(DONE, ALL, after(hours=5, minutes=59), HOURLY)
    assert away.at == after(hours=5)
    assert HOURLY.due_after(away.at) == after(hours=6)


def test_a_resident_master_with_cron_waits_for_the_first_firing_and_does_not_miss_it():
    nightly = Schedule(60.0, CronFirings("0 3 * * *", "Asia/Shanghai"))
    began = NOON
    wait = next_step(None, None, began, nightly, since=began)
    assert (wait.action, wait.at) == ("wait", datetime(2026, 5, 1, 19, tzinfo=UTC))
    assert next_step(None, None, wait.at - timedelta(seconds=1), nightly, since=began).action == "wait"
    step = next_step(None, None, wait.at + timedelta(seconds=9), nightly, since=began)
    assert (step.action, step.at) == ("open", wait.at)
    assert next_step(None, None, began, nightly, once=True).action == "open"


# Changes of clocks


def test_hourly_batches_over_a_repeated_hour_are_an_hour_apart():
    """Case BAT-01, hourly."""
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    second = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    berlin = ZoneInfo("Europe/Berlin")
    assert (
        first.astimezone(berlin).strftime("%H:%M") == second.astimezone(berlin).strftime("%H:%M") == "02:30"
    )
    done = BatchRecord(1, first, is_done=True)
    assert next_step(done, None, second - timedelta(seconds=1), HOURLY).action == "wait"
    assert next_step(done, None, second, HOURLY).at == second


def test_a_day_is_elapsed_time_whatever_the_clocks_do():
    """Case BAT-01, daily."""
    local_midnight = datetime(2026, 3, 8, 8, tzinfo=UTC)  # Los Angeles, the day its clocks go forward
    assert Schedule(86_400.0).due_after(local_midnight) == local_midnight + timedelta(hours=24)


def firings(expression: str, zone: str, start: datetime, count: int) -> list[datetime]:
    cron, found = CronFirings(expression, zone), [start]
    for _ in range(count):
        found.append(cron.after(found[-1]))
    return found[1:]


def test_every_local_midnight_by_cron_comes_once_a_day_over_both_changes():
    zone = ZoneInfo("America/Los_Angeles")
    for day in (datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 10, 31, 12, tzinfo=UTC)):
        days = [f.astimezone(zone) for f in firings("0 0 * * *", "America/Los_Angeles", day, 4)]
        assert [d.strftime("%H:%M") for d in days] == ["00:00"] * 4
        assert [(b.date() - a.date()).days for a, b in pairwise(days)] == [1, 1, 1]
    assert firings("0 0 * * *", "America/Los_Angeles", datetime(2026, 3, 8, 8, tzinfo=UTC), 1) == [
        datetime(2026, 3, 9, 7, tzinfo=UTC)  # 23 hours later
    ]


@pytest.mark.parametrize(
    "start", [datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)]
)
def test_a_firing_in_the_missing_or_the_repeated_hour_happens_once(start):
    found = firings("30 2 * * *", "Europe/Berlin", start, 3)
    assert found == sorted(set(found))
    assert [f.date() for f in found] == [(start + timedelta(days=n)).date() for n in (1, 2, 3)]


def test_within_a_repeated_hour_the_next_firing_is_never_in_the_past():
    second_quarter_past_two = datetime(
        2026, 10, 25, 1, 15, tzinfo=UTC
    )  # the 02:30 of that day was 45 minutes ago
    assert firings("30 2 * * *", "Europe/Berlin", second_quarter_past_two, 1) == [
        datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    ]
    assert CronFirings("30 2 * * *", "Europe/Berlin").at_or_before(second_quarter_past_two) == datetime(
        2026, 10, 25, 0, 30, tzinfo=UTC
    )


def test_months_without_that_day_are_passed_over():
    assert [f.strftime("%m-%d") for f in firings("0 0 31 * *", "UTC", datetime(2026, 1, 31, 1, tzinfo=UTC), 3)] == [
        "03-31", "05-31", "07-31",
    ]  # fmt: skip
    assert firings("0 0 29 2 *", "UTC", datetime(2026, 1, 1, tzinfo=UTC), 1) == [
        datetime(2028, 2, 29, tzinfo=UTC)
    ]


ZONES = st.sampled_from(
    ["Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Shanghai", "UTC"]
)
CRONS = st.sampled_from(
    ["30 2 * * *", "0 0 * * *", "*/20 * * * *", "5 1,2,3 * * 0", "0 */6 * * *", "15 2 28-31 * *"]
)


@given(ZONES, CRONS, st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)))
def test_the_last_firing_up_to_now_and_the_next_one_enclose_now(zone, expression, moment):
    cron, now = CronFirings(expression, zone), moment.replace(tzinfo=UTC)
    last, following = cron.at_or_before(now), cron.after(now)
    assert last <= now < following
    assert cron.at_or_before(following) == following
    # A batch that was opened is not opened again.
    opened = next_step(
        BatchRecord(1, last - timedelta(days=40), is_done=True), None, now, Schedule(1.0, cron)
    )
    assert opened.action == "open"
    assert next_step(BatchRecord(2, opened.at, is_done=True), None, now, Schedule(1.0, cron)).action == "wait"


@example(1.0390625, 3224797.0, 0.0)
@given(
    st.floats(1, 1e6, allow_nan=False),
    st.floats(0, 1e8, allow_nan=False),
    st.floats(0, 0.999999, allow_nan=False),
)
def test_what_is_due_is_opened_once_for_any_interval(every, later, fraction):
    schedule = Schedule(every)
    now = after(seconds=later + fraction)
    step = next_step(DONE, None, now, schedule)
    if step.action == "wait":
        assert step.at > now
        return
    assert NOON <= step.at <= now
    follow = schedule.due_after(step.at)
    assert follow > now - timedelta(seconds=1)  # dates are whole seconds


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"BATCH_CRON": "0 3 * *"}, r"BATCH_CRON='0 3 \* \*' has 4 fields"),
        ({"BATCH_CRON": "0 25 * * *"}, "can't be read: Bad hour"),
        ({"BATCH_CRON": "0 0 30 2 *"}, "BATCH_CRON='0 0 30 2 .'"),
        ({"BATCH_CRON": "@daily"}, "has 1 fields"),
        (
            {"BATCH_CRON": "0 3 * * *", "BATCH_TIMEZONE": "Mars/Olympus"},
            "BATCH_TIMEZONE='Mars/Olympus' is no time zone",
        ),
        ({"BATCH_CRON": "0 3 * * *", "BATCH_TIMEZONE": "../../etc/passwd"}, "is no time zone"),
        ({"BATCH_INTERVAL": 1e-9}, "between a second and a hundred years"),
        ({"BATCH_INTERVAL": 1e9}, "between a second and a hundred years"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_one_clear_error(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        batch_schedule(Settings(**settings))


def test_intervals_in_days_hours_and_minutes():
    assert [interval_seconds(1.5, unit) for unit in ("day", "hour", "minute")] == [129_600, 5400, 90]
    assert batch_schedule(Settings(BATCH_INTERVAL_UNIT="minute"), 2).every_s == 120
    with pytest.raises(ConfigError, match="BATCH_INTERVAL_UNIT='week' is none of day, hour, minute"):
        interval_seconds(1, "week")


# Progress


def test_progress_reads_as_the_panel_shows_it():
    counts = TaskCounts(1000, 150, 34, 812, 4)
    assert progress_text(3, counts, 37.2) == "batch 3: 812/1000, 4 failed, 37 s left"
    assert progress_text(3, TaskCounts(10, 0, 0, 10, 0, other=2), 0.0) == "batch 3: 10/10, 2 left out"
    assert progress_text(1, TaskCounts(0, 0, 0, 0, 0)) == "batch 1: 0/0"
    assert progress_text(3, counts, None, 7300) == "batch 3: 812/1000, 4 failed, overdue by 2 h 2 min"


def test_a_batch_is_overdue_when_the_next_one_is_due():
    assert overdue_seconds(OPEN, after(minutes=59), HOURLY) == 0
    assert overdue_seconds(OPEN, after(minutes=70), HOURLY) == 600
    assert overdue_seconds(DONE, after(minutes=70), HOURLY) == 0


def test_the_time_left_follows_the_last_minutes_and_begins_anew_with_a_batch():
    pace = Pace(window_s=60)
    assert pace.seconds_left(10) is None
    pace.note(0, 0)
    assert pace.seconds_left(10) is None
    pace.note(10, 20)
    assert pace.seconds_left(10) == 5
    assert pace.seconds_left(0) == 0
    for second in range(20, 200, 10):  # slower now
        pace.note(second, 20 + (second - 10) // 10)
    assert pace.seconds_left(10) == pytest.approx(100)
    pace.note(210, 0)
    assert pace.seconds_left(10) is None
    pace.note(220, 0)
    assert pace.seconds_left(10) is None


def test_durations_have_one_or_two_units():
    assert [duration_text(s) for s in (0.2, 119, 120, 7140, 7260, 86_400, 4 * 86_400 + 3 * 3600)] == [
        "0 s", "119 s", "2 min", "119 min", "2 h 1 min", "24 h", "4 d 3 h",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("every_s", "early_s", "opens"),
    [
        (86_400, 3, True),
        (86_400, 599, True),
        (86_400, 601, False),
        (3_600, 170, True),
        (3_600, 190, False),
        (60, 4, False),
    ],
)
def test_a_single_run_that_cron_calls_a_little_early_skips_no_batch(every_s, early_s, opens):
    """The batch has the date at which it was due, so that the days don't creep."""
    schedule = Schedule(every_s)
    latest = BatchRecord(1, NOON, is_done=True)
    due = NOON + timedelta(seconds=every_s)
    step = next_step(latest, None, due - timedelta(seconds=early_s), schedule, once=True)
    if opens:
        assert (step.action, step.at) == ("open", due)
    else:
        assert step.action == "leave"
        assert "the next one is due at" in step.why
    assert next_step(latest, None, due - timedelta(seconds=early_s), schedule).action == "wait"
