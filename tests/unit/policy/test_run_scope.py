"""Names of a run in the shared store."""

from __future__ import annotations

import pytest

from netspy.errors import ConfigError
from netspy.policy.run_scope import run_scope
from netspy.redisio.keys import PAGE, RunKeys
from netspy.settings import Settings


def scope(redis_key: str | None = None, **values: object):
    return run_scope(Settings(**values), "NewsSpider", redis_key)


def test_without_run_id_the_job_is_the_namespace_and_lives_for_ever():
    made = scope()
    assert (made.ns, made.dedup, made.run_ttl_ms, made.dedup_ttl_ms, made.incremental) == (
        "netspy:NewsSpider",
        "netspy:NewsSpider",
        0,
        0,
        False,
    )


def test_a_run_id_moves_everything_into_the_run_dedup_included():
    made = scope("news", RUN_ID="42", RUN_TTL=60)
    assert made.job == "netspy:news"
    assert made.ns == made.dedup == "netspy:news:run:42"
    assert made.run_ttl_ms == made.dedup_ttl_ms == 60_000


def test_spider_scope_keeps_dedup_in_the_job_without_lifetime():
    made = scope("news", RUN_ID="42", DEDUP_SCOPE="spider")
    assert (made.ns, made.dedup, made.dedup_ttl_ms, made.incremental) == (
        "netspy:news:run:42",
        "netspy:news",
        0,
        True,
    )


def test_a_batch_spider_ignores_the_run_id():
    made = run_scope(Settings(RUN_ID="42"), "Crawl", use_run_id=False)
    assert (made.ns, made.run_ttl_ms) == ("netspy:Crawl", 0)


def test_in_a_cluster_all_keys_of_a_job_share_one_tag():
    made = run_scope(Settings(RUN_ID="42"), "News", cluster=True)
    keys = RunKeys.of(made)
    assert {name.partition("}")[0] for name in [*keys.all(), keys.runs, *keys.requests.all()]} == {
        "{netspy:News"
    }


@pytest.mark.parametrize("redis_key", ["", "a{b}", "a:run:b", "run:b", "news:items", "items", "a\nb"])
def test_names_that_would_collide_are_refused(redis_key):
    with pytest.raises(ConfigError, match="redis_key"):
        scope(redis_key)


@pytest.mark.parametrize(
    ("name", "value"),
    [("RUN_ID", "a{"), ("RUN_ID", "x:items"), ("REDIS_KEY_PREFIX", "a}"), ("REDIS_KEY_PREFIX", "a:run")],
)
def test_prefixes_and_run_ids_that_would_collide_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        scope("news", **{name: value})


@pytest.mark.parametrize("redis_key", ["news", "site:news", "rerun:x", "running", "myitems", "新闻"])
def test_ordinary_names_are_taken(redis_key):
    assert scope(redis_key).job == f"netspy:{redis_key}"


def test_documented_key_names():
    keys = RunKeys.of(scope("news"))
    assert [keys.queued, keys.inflight, keys.failed, keys.lock, keys.runs] == [
        "netspy:news:z_requests",
        "netspy:news:z_inflight",
        "netspy:news:failed_requests",
        "netspy:news:lock:seed",
        "netspy:news:runs",
    ]
    assert keys.requests.bloom == [f"netspy:news:dedup:bloom{end}" for end in ("", ":1", ":2", ":3")]
    assert (keys.requests.count, keys.requests.exact) == (
        "netspy:news:dedup:bloom:count",
        "netspy:news:dedup:set",
    )


def test_no_two_runs_share_a_key():
    pairs = [("news", ""), ("news", "1"), ("news", "2"), ("news:a", ""), ("news:a", "1"), ("x", "1")]
    names = [
        name
        for key, run in pairs
        for k in [RunKeys.of(scope(key, RUN_ID=run))]
        for name in [*k.all(), *k.requests.all()]
    ]
    assert len(names) == len(set(names))


def test_every_key_stands_on_the_page():
    page = " ".join(doc.name for doc in PAGE)
    keys = RunKeys.of(scope("news"))
    for name in [*keys.all(), keys.runs]:
        rest = name.removeprefix("netspy:news:")
        wanted = rest if not rest.startswith("items:") else "items:dedup"
        assert wanted in page, name
