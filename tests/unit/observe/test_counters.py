import sys
import threading

import pytest

from netspy.observe.counters import MAX_REASONS, MAX_USER_NAMES, NAMES, OTHER, Counters


def test_counts_from_many_threads_are_exact():
    counters = Counters()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def count():
        for _ in range(2000):
            counters.inc("pages")
            counters.stats.inc("mine", 2)
            counters.fail("dns")

    threads = [threading.Thread(target=count) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counters.get("pages") == 16_000
    assert counters.get("mine") == 32_000
    assert counters.reasons == {"dns": 16_000}
    assert counters.get("request_failed") == 16_000


def test_a_misspelt_name_of_ours_is_an_error():
    with pytest.raises(KeyError):
        Counters().inc("request_okay")


def test_a_spider_cannot_change_what_netspy_counts():
    counters = Counters()
    with pytest.raises(ValueError, match="netspy itself counts 'items'"):
        counters.stats.inc("items")
    assert counters.get("items") == 0


def test_a_spider_reads_all_counters_through_its_stats():
    counters = Counters()
    counters.inc("items", 3)
    counters.stats.inc("with_price")
    assert counters.stats.get("items") == 3
    assert counters.stats.get("with_price") == 1
    assert counters.stats.get("never") == 0
    assert counters.stats.as_dict() == {**dict.fromkeys(NAMES, 0), "items": 3, "with_price": 1}
    assert counters.own() == {**dict.fromkeys(NAMES, 0), "items": 3}


def test_a_counter_per_url_does_not_eat_the_memory():
    counters = Counters()
    for n in range(5000):
        counters.stats.inc(f"page {n}")
        counters.fail(f"odd reason {n}")
    assert len(counters.user) == MAX_USER_NAMES + 1
    assert len(counters.reasons) == MAX_REASONS + 1
    assert counters.user[OTHER] == 5000 - MAX_USER_NAMES
    assert sum(counters.reasons.values()) == 5000 == counters.get("request_failed")
