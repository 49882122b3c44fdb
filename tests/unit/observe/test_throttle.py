import threading

from netspy.observe.throttle import Once, Throttled


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def throttled(**options):
    said, clock = [], Clock()
    return Throttled(said.append, clock=clock, **options), said, clock


def test_a_flood_of_one_line_is_cut_and_counted():
    throttle, said, clock = throttled(limit=3, interval_s=60)
    for n in range(127):
        throttle("dns", f"dns failed {n}")
    assert said == ["dns failed 0", "dns failed 1", "dns failed 2"]
    clock.now = 60
    assert throttle("dns", "dns failed again")
    assert said[3:] == ["… 124 more like this; the last: dns failed 126", "dns failed again"]


def test_the_count_comes_without_a_further_line_too():
    throttle, said, clock = throttled(limit=1, interval_s=60)
    throttle("a", "a1")
    assert not throttle("a", "a2")
    throttle.flush()
    assert said == ["a1"]
    clock.now = 61
    throttle.flush()
    throttle.flush()
    assert said == ["a1", "… 1 more like this; the last: a2"]


def test_at_the_end_everything_held_back_is_reported():
    throttle, said, _ = throttled(limit=1, interval_s=60)
    for key in ("a", "a", "b", "b", "c"):
        throttle(key, key)
    throttle.flush(everything=True)
    assert said == ["a", "b", "c", "… 1 more like this; the last: a", "… 1 more like this; the last: b"]


def test_keys_do_not_share_their_allowance():
    throttle, said, _ = throttled(limit=1)
    throttle("a", "a")
    throttle("b", "b")
    assert said == ["a", "b"]


def test_endless_new_keys_stay_bounded_in_lines_and_memory():
    throttle, said, clock = throttled(limit=2, interval_s=60, max_keys=10)
    for n in range(10_000):
        throttle(f"key {n}", f"line {n}")
    assert len(said) == 10 + 2
    assert len(throttle._windows) <= 11
    clock.now = 61
    throttle("key new", "line new")
    assert said[-1] == "line new"
    assert any("9,988 more like this" in line for line in said)


def test_lines_from_many_threads_are_all_counted():
    throttle, said, _ = throttled(limit=5)

    def flood():
        for _ in range(500):
            throttle("x", "x")

    threads = [threading.Thread(target=flood) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    throttle.flush(everything=True)
    assert said == ["x"] * 5 + ["… 3,995 more like this; the last: x"]


def test_once_is_true_once_per_key_and_bounded():
    once = Once(max_keys=2)
    assert [once("a"), once("a"), once("b"), once("c"), once("b")] == [True, False, True, False, False]
