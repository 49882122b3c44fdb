"""Retry, finish, claiming and politeness decide with plain values."""

from datetime import UTC, datetime

import pytest

from netspy.messages.entry import Counts
from netspy.policy.claiming import claim_limit, last_chances_may_come, suspect_room, suspicion_limit
from netspy.policy.finish import finished_job_left_behind, unfinished_because
from netspy.policy.politeness import Politeness, SiteState, tells_of_the_site
from netspy.policy.retry import StatusPolicy, may_retry, retry_after_s, retry_delay_s
from netspy.settings import Settings

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def counts(**kw) -> Counts:
    return Counts(**({"queued": 0, "leased": 0, "delayed": 0, "failed": 0, "seed": "seeded"} | kw))


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "accept"),
        (204, "accept"),
        (304, "accept"),
        (404, "fail"),
        (403, "fail"),
        (429, "retry"),
        (503, "retry"),
        (501, "fail"),
    ],
)
def test_default_status_policy(status, verdict):
    assert StatusPolicy(Settings()).judge(status) == verdict


def test_accept_beats_retry_and_check_off_accepts_everything():
    assert StatusPolicy(Settings(ACCEPT_STATUS_CODES=[404, 503])).judge(404) == "accept"
    assert StatusPolicy(Settings(ACCEPT_STATUS_CODES=[404, 503])).judge(503) == "accept"
    assert StatusPolicy(Settings(CHECK_STATUS_CODE=False)).judge(500) == "accept"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 120 ", 60.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Mon, 02 Mar 2026 12:00:00 GMT", 60.0),
        ("soon", None),
        ("-3", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_and_bounded(header, seconds):
    assert retry_after_s(header, now=NOW, maximum=60.0) == seconds


def test_backoff_doubles_up_to_its_maximum_and_jitter_stays_in_bounds():
    settings = Settings(RETRY_BACKOFF=1.0, RETRY_BACKOFF_MAX=5.0, SPIDER_RETRY_INTERVAL=0.25)
    highest = [retry_delay_s(n, settings, jitter=1.0) for n in (1, 2, 3, 4, 5)]
    assert highest == [1.25, 2.25, 4.25, 5.25, 5.25]
    assert retry_delay_s(3, settings, jitter=0.0) == 2.25
    assert retry_delay_s(3, settings, jitter=0.5, asked_s=9.0) == 9.25


def test_retry_budget():
    settings = Settings(SPIDER_MAX_RETRY_TIMES=2)
    assert [may_retry(n, settings) for n in (0, 1, 2, 3)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (counts(seed="seeding", seed_detail="node 3"), "node 3"),
        (counts(seed="none"), "nobody has seeded"),
        (counts(queued=2), "2 request(s) queued"),
        (counts(leased=1), "1 request(s) leased"),
        (counts(delayed=4), "4 request(s) delayed"),
    ],
)
def test_a_run_with_work_anywhere_is_not_over(state, word):
    assert word in (unfinished_because(state) or "")


def test_an_empty_seeded_run_is_over_unless_the_source_may_go_on():
    assert unfinished_because(counts()) is None
    assert unfinished_because(counts(), source_open="3 task(s) waiting") == "3 task(s) waiting"
    assert unfinished_because(counts(seed="failed")) is None


def test_only_a_node_without_work_waits_for_the_grace_and_only_after_a_fresh_seeding():
    fresh, old = counts(seed_age_s=1.0, live_nodes=2), counts(seed_age_s=500.0, live_nodes=2)
    assert unfinished_because(counts(seed_age_s=1.0), had_work=False, node_age_s=2, grace_s=10) is None
    assert unfinished_because(fresh, had_work=False, node_age_s=2, grace_s=10)
    assert unfinished_because(fresh, had_work=True, node_age_s=2, grace_s=10) is None
    assert unfinished_because(fresh, had_work=False, node_age_s=11, grace_s=10) is None
    assert unfinished_because(old, had_work=False, node_age_s=2, grace_s=10) is None


def test_a_finished_job_is_told_from_nodes_that_start_together():
    assert finished_job_left_behind(counts(seed_age_s=500.0))
    assert not finished_job_left_behind(counts(seed_age_s=2.0))
    assert not finished_job_left_behind(counts(seed_age_s=500.0, queued=1))
    assert not finished_job_left_behind(counts(seed_age_s=500.0, live_nodes=2))


def test_a_claim_is_about_twice_the_free_slots_and_waits_until_half_is_used():
    def limit(**kw):
        return claim_limit(
            **(
                {"slots": 16, "free_slots": 16, "held": 0, "ceiling": 100, "queued": None, "live_nodes": 1}
                | kw
            )
        )

    assert limit() == 32
    assert limit(ceiling=10) == 10
    assert limit(free_slots=0) == 16
    assert limit(free_slots=0, held=9) == 0
    assert limit(free_slots=0, held=8) == 8
    assert limit(slots=64, free_slots=64) == 100
    assert limit(queued=999) == 32
    assert limit(queued=1000, free_slots=0) == 100


def test_a_short_queue_is_shared_among_live_nodes():
    assert claim_limit(slots=16, free_slots=4, held=0, ceiling=100, queued=10, live_nodes=4) == 4
    assert claim_limit(slots=16, free_slots=0, held=0, ceiling=100, queued=8, live_nodes=4) == 2
    assert claim_limit(slots=16, free_slots=0, held=2, ceiling=100, queued=8, live_nodes=4) == 0


def test_site_concurrency_and_spacing():
    limits = Politeness(
        Settings(CONCURRENT_REQUESTS_PER_DOMAIN=2, DOWNLOAD_DELAY=1.0, RANDOMIZE_DOWNLOAD_DELAY=False)
    )
    site = SiteState("aa")
    assert site.ready_at(limits) == 0.0
    site.started(limits, 100.0, 0.0)
    assert site.ready_at(limits) == 101.0
    site.started(limits, 101.0, 0.0)
    assert site.ready_at(limits) == float("inf")
    site.ended(101.5)
    assert site.ready_at(limits) == 102.0


def test_randomized_spacing_lies_between_half_and_one_and_a_half():
    limits = Politeness(Settings(DOWNLOAD_DELAY=2.0))
    assert limits.spacing_s(0.0) == 1.0
    assert limits.spacing_s(1.0) == 3.0


def test_retry_after_cools_the_site():
    limits = Politeness(Settings())
    site = SiteState("aa")
    site.started(limits, 10.0, 0.0)
    site.ended(10.0, asked_s=5.0)
    assert site.ready_at(limits) == 15.0


def test_the_circuit_opens_after_failures_in_a_row_and_a_success_resets_it():
    limits = Politeness(Settings(CIRCUIT_FAILURE_THRESHOLD=3, CIRCUIT_COOLDOWN=30.0))
    site = SiteState("aa")
    assert [site.judged(limits, 0.0, failed=True) for _ in range(2)] == [False, False]
    assert not site.judged(limits, 0.0, failed=False)
    assert [site.judged(limits, 5.0, failed=True) for _ in range(3)] == [False, False, True]
    assert site.ready_at(limits) == 35.0


def test_the_more_often_a_request_was_there_when_a_process_died_the_fewer_share_its_fate():
    assert suspect_room([]) == (64, 8, 1)
    assert suspect_room([1, 1, 2]) == (62, 7, 0)
    assert suspect_room([1] * 70) == (0, 8, 0)
    assert suspect_room([3]) == suspect_room([1, 9]) == (0, 0, 0)
    assert suspect_room([], last_chances=False) == (64, 8, 0)


def test_only_what_was_lost_with_a_process_while_alone_there_counts_as_poison():
    # Suspicions 1 and 2 share their process with others; at 3, 4 and 5 an entry is the only suspect.
    assert [suspicion_limit(n) for n in (1, 3)] == [3, 5]


def test_last_chances_wait_for_a_node_that_lives_and_has_nothing_else_to_do():
    facts = {
        "alive_s": 30.0,
        "calm_s": 20.0,
        "nothing_else": True,
        "since_offer_s": 1.0,
        "offer_every_s": 60.0,
    }
    assert last_chances_may_come(**facts)
    assert not last_chances_may_come(**facts | {"alive_s": 19.0})
    assert not last_chances_may_come(**facts | {"nothing_else": False})
    # A queue that never runs empty hides them for a while only; a young node takes none even then.
    endless = facts | {"nothing_else": False, "since_offer_s": 60.0}
    assert last_chances_may_come(**endless)
    assert not last_chances_may_come(**endless | {"alive_s": 19.0})


def test_a_site_that_says_too_fast_is_slowed_at_once_and_recovers():
    limits = Politeness(Settings(RETRY_BACKOFF=1.0, RETRY_BACKOFF_MAX=5.0))
    site = SiteState("aa")
    site.too_fast(limits, 100.0)
    assert (site.ready_at(limits), site.slow_s) == (101.0, 1.0)
    site.too_fast(limits, 100.5)  # an answer to what was under way
    assert (site.ready_at(limits), site.slow_s) == (101.0, 1.0)
    site.started(limits, 101.0, 0.0)
    assert site.ready_at(limits) == 102.0
    for at, slow_s in ((102.0, 2.0), (104.0, 4.0), (108.0, 5.0)):
        site.too_fast(limits, at)
        assert site.slow_s == slow_s
    steps = []
    while site.slow_s:
        site.judged(limits, 200.0, failed=False)
        steps.append(site.slow_s)
    assert steps == [2.5, 1.25, 0.625, 0.3125, 0.15625, 0.078125, 0.0]


@pytest.mark.parametrize(
    ("status", "tells"), [(403, True), (429, True), (500, True), (503, True), (404, False), (410, False)]
)
def test_which_statuses_speak_of_the_site(status, tells):
    assert tells_of_the_site(status) is tells
