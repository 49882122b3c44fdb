import pytest

from netspy.observe.progress import (
    NodeView,
    RateMeter,
    Snapshot,
    clock_time,
    duration,
    eta,
    line,
    rate_text,
)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_the_line_reads_as_documented():
    shot = Snapshot(
        spider="News", elapsed_s=12, done=340, queued=1204, in_flight=32, failed=2, rate=28.13, eta_s=43
    )
    assert line(shot) == "12 s  done 340  queued 1,204  in flight 32  failed 2  28.1/s  ETA 0:43"


def test_the_line_tells_delayed_items_nodes_and_what_is_going_on():
    nodes = (NodeView(name="1"), NodeView(name="2"), NodeView(name="3", alive=False))
    shot = Snapshot(
        spider="News", done=1, delayed=3, items=7, nodes=nodes, state="Redis away 12 s", finishing="SIGINT"
    )
    assert line(shot) == (
        "0.0 s  done 1  queued 0  in flight 0  delayed 3  failed 0  items 7  0.0/s  nodes 2 (+1 dead)  "
        "[Redis away 12 s]  [SIGINT]"
    )


def test_no_time_left_is_claimed_when_nothing_moves():
    assert eta(10, 0.0) is None
    assert eta(0, 0.0) == 0.0
    assert eta(100, 4.0) == 25.0


def test_the_rate_follows_the_last_ten_seconds_only():
    clock = Clock()
    meter = RateMeter(clock)
    count = 0
    for _ in range(100):  # 50 s at 10/s
        clock.now += 0.5
        count += 5
        meter.update(count)
    assert meter.rate == pytest.approx(10)
    for _ in range(30):  # 15 s at 100/s
        clock.now += 0.5
        count += 50
        meter.update(count)
    assert meter.rate == pytest.approx(100)


def test_the_rate_falls_to_zero_when_the_crawl_stands_still():
    clock = Clock()
    meter = RateMeter(clock)
    for count in range(0, 100, 10):
        clock.now += 1
        meter.update(count)
    for _ in range(12):
        clock.now += 1
        meter.update(90)
    assert meter.rate == 0


def test_a_resumed_run_does_not_start_with_a_huge_rate():
    clock = Clock()
    meter = RateMeter(clock)
    assert meter.update(1_000_000) == 0
    clock.now += 1
    assert meter.update(1_000_020) == pytest.approx(20)


def test_a_count_that_shrinks_starts_anew():
    clock = Clock()
    meter = RateMeter(clock)
    meter.update(0)
    clock.now += 1
    meter.update(500)
    clock.now += 1
    assert meter.update(10) == 0
    clock.now += 1
    assert meter.update(15) == pytest.approx(5)


def test_readings_stay_bounded_however_often_one_asks():
    clock = Clock()
    meter = RateMeter(clock)
    for n in range(20_000):
        clock.now += 0.001
        meter.update(n)
    assert len(meter._readings) < 220
    assert meter.rate == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (43.4, "0:43"), (59.6, "1:00"), (725, "12:05"), (11229, "3:07:09"), (184020, "2d 03:07")],
)
def test_clock_times(seconds, shown):
    assert clock_time(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0.0 s"), (0.44, "0.4 s"), (9.96, "10 s"), (59.4, "59 s"), (59.7, "1:00")]
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("rate", "shown"), [(0, "0.0/s"), (0.125, "7.5/min"), (28.13, "28.1/s"), (1204.4, "1,204/s")]
)
def test_rates(rate, shown):
    assert rate_text(rate) == shown
