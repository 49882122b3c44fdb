"""The scenarios of the distributed spider's specification, with real processes on a real Redis."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

import pytest
from scenario_support import SPIDER, urls, wait_nodes

from netspy.testing.runner import start_script
from netspy.testing.site import LocalSite
from support.gate import Gate

pytestmark = pytest.mark.slow


def env(site: LocalSite, redis_url: str, **more: str) -> dict[str, str]:
    return {"SITE": site.url("").rstrip("/"), "NETSPY_REDIS_URL": redis_url, **more}


def expected(site: LocalSite, n: int) -> list[str]:
    return sorted(site.url(f"/p/{i}") for i in range(n))


def assert_each_once(site: LocalSite, n: int) -> None:
    assert {path: count for path, count in site.all_hits().items() if count != 1} == {}
    assert site.total == n


def test_two_nodes_started_in_the_same_second_share_without_overlap(numbered, redis_url, tmp_path):
    gate = Gate(numbered, "/p/")
    common = env(numbered, redis_url, PAGES="63", PARSE_SLEEP="0.1", NETSPY_SPIDER_THREAD_COUNT="4")
    a = start_script(SPIDER, env=common, cwd=tmp_path)
    b = start_script(SPIDER, env=common, cwd=tmp_path)
    with a, b:
        wait_nodes(redis_url, 2)
        gate.open()
        results = [a.finish(60).check(), b.finish(60).check()]
    done = [result.summary["request_ok"] for result in results]
    assert sum(done) == 63
    assert min(done) > 10
    assert_each_once(numbered, 63)
    assert urls(tmp_path) == expected(numbered, 63)


def test_a_killed_nodes_requests_are_done_by_the_next(numbered, redis_url, tmp_path):
    common = env(
        numbered, redis_url, PARSE_SLEEP="0.25", NETSPY_SPIDER_THREAD_COUNT="2", NETSPY_HEARTBEAT_INTERVAL="0.3",
        NETSPY_HEARTBEAT_STALE="1.5",
    )  # fmt: skip
    with start_script(SPIDER, env=common, cwd=tmp_path) as first:
        numbered.wait_hits(5)
        first.kill()
    with start_script(SPIDER, env=common, cwd=tmp_path) as second:
        result = second.finish(60).check()
    assert set(urls(tmp_path)) == set(expected(numbered, 24))
    assert result.summary["reclaimed"] >= 1
    assert len(set(numbered.all_hits())) == 24
    assert result.summary["outcome"] == "finished"


def test_the_work_of_a_dead_node_is_taken_over_when_its_heartbeat_is_stale_not_when_the_lease_ends(
    numbered, redis_url, tmp_path
):
    common = env(
        numbered, redis_url, PAGES="40", PARSE_SLEEP="0.2", NETSPY_SPIDER_THREAD_COUNT="4", NETSPY_HEARTBEAT_INTERVAL="0.3",
        NETSPY_HEARTBEAT_STALE="1.5", NETSPY_SPIDER_TASK_LEASE="600",
    )  # fmt: skip
    a = start_script(SPIDER, env=common, cwd=tmp_path)
    b = start_script(SPIDER, env=common, cwd=tmp_path)
    with a, b:
        numbered.wait_hits(12)
        a.kill()
        began = time.monotonic()
        b.finish(60).check()
        assert time.monotonic() - began < 25
    assert set(urls(tmp_path)) == set(expected(numbered, 40))


def test_slow_but_healthy_nodes_lose_nothing_to_each_other(numbered, redis_url, tmp_path):
    """Each page takes longer than a lease."""
    common = env(
        numbered, redis_url, PAGES="4", PARSE_SLEEP="3.5", NETSPY_SPIDER_THREAD_COUNT="1", NETSPY_HEARTBEAT_INTERVAL="0.4",
        NETSPY_HEARTBEAT_STALE="2.5", NETSPY_SPIDER_TASK_LEASE="2.5",
    )  # fmt: skip
    a = start_script(SPIDER, env=common, cwd=tmp_path)
    b = start_script(SPIDER, env=common, cwd=tmp_path)
    with a, b:
        results = [a.finish(60).check(), b.finish(60).check()]
    assert_each_once(numbered, 4)
    assert [result.summary["lease_lost"] for result in results] == [0, 0]


def test_while_one_node_seeds_slowly_pages_are_fetched_and_nobody_leaves(numbered, redis_url, tmp_path):
    """Longer than the seeding lock lasts, and than the start-up grace."""
    common = env(
        numbered, redis_url, PAGES="12", SEED_SLEEP="0.5", NETSPY_SPIDER_STARTUP_GRACE="0.5", NETSPY_SPIDER_SEEDING_TTL="2.5",
        NETSPY_HEARTBEAT_INTERVAL="0.3", NETSPY_HEARTBEAT_STALE="2.5", NETSPY_DONE_CHECK_INTERVAL="0.1",
    )  # fmt: skip
    a = start_script(SPIDER, env=common, cwd=tmp_path)
    with a:
        numbered.wait_hits(2)
        with start_script(SPIDER, env=common, cwd=tmp_path) as b:
            assert numbered.total < 8
            numbered.wait_hits(9)  # the seeder has three more pauses before it
            assert a.alive
            assert b.alive, "it left while another node was seeding"
            results = [a.finish(60).check(), b.finish(60).check()]
    assert_each_once(numbered, 12)
    assert "took over the seeding" not in a.stderr + b.stderr, "the seeder renews its lock"
    assert all(result.summary["outcome"] == "finished" for result in results)


def test_a_killed_seeder_is_replaced_and_every_seed_arrives_once(numbered, redis_url, tmp_path):
    common = env(
        numbered, redis_url, PAGES="60", SEED_SLEEP="0.05", NETSPY_SPIDER_SEEDING_TTL="1.5", NETSPY_HEARTBEAT_INTERVAL="0.3",
        NETSPY_HEARTBEAT_STALE="1.5",
    )  # fmt: skip
    a = start_script(SPIDER, env=common, cwd=tmp_path)
    with a:
        numbered.wait_hits(10)
        with start_script(SPIDER, env=common, cwd=tmp_path) as b:
            b.wait_line("")
            a.kill()
            b.finish(60).check()
    assert set(urls(tmp_path)) == set(expected(numbered, 60))


def test_a_new_run_id_crawls_again_and_the_same_one_goes_on(numbered, redis_url, tmp_path):
    for run, total in (("one", 24), ("two", 48)):
        with start_script(SPIDER, env=env(numbered, redis_url, NETSPY_RUN_ID=run), cwd=tmp_path) as script:
            script.finish(60).check()
        assert numbered.total == total
    common = env(
        numbered, redis_url, NETSPY_RUN_ID="three", PARSE_SLEEP="0.2", NETSPY_SPIDER_THREAD_COUNT="2"
    )
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(54)
        script.interrupt()
        assert script.finish(30).returncode == 130
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        script.finish(60).check()
    assert numbered.total == 72
    assert Counter(numbered.all_hits().values()) == Counter({3: 24})


@pytest.mark.parametrize("age", ["young", "old"])
def test_a_finished_job_says_so_and_leaves_at_once(age, numbered, redis_url, redis_server, tmp_path):
    with start_script(SPIDER, env=env(numbered, redis_url), cwd=tmp_path) as script:
        script.finish(60).check()
    with closing(redis_server.client()) as client:
        mark = client.get("netspy:Pages:lock:seed")
        word, when, who = mark.split(" ")
        assert word == "seeded"
        if age == "old":
            client.set("netspy:Pages:lock:seed", f"seeded {int(when) - 60_000} {who}", keepttl=True)
    again = env(numbered, redis_url, NETSPY_SPIDER_STARTUP_GRACE="60")
    with start_script(SPIDER, env=again, cwd=tmp_path) as script:
        result = script.finish(60).check()
    assert result.summary["outcome"] == "nothing_to_do"
    warned = [line for line in result.stderr.splitlines() if "WARNING" in line and "RUN_ID" in line]
    assert len(warned) == 1, "what to do about it, once"
    assert "is finished" in warned[0]
    assert "netspy reset" in warned[0]
    assert ("nothing to do: " in warned[0]) == (age == "old"), (
        "at once, when others can't have seeded just now"
    )
    assert result.summary["elapsed"] < 6
    assert numbered.total == 24


def test_a_finished_job_whose_requests_all_failed_says_so_too(numbered, redis_url, tmp_path):
    numbered.route("/p/", "not here", prefix=True, status=404)
    common = env(numbered, redis_url, PAGES="2")
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        assert script.finish(60).check(6).summary["outcome"] == "all_failed"
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        result = script.finish(60).check()
    assert result.summary["outcome"] == "nothing_to_do"
    assert "netspy reset" in result.summary["reason"]
    assert [line for line in result.stderr.splitlines() if "WARNING" in line and "RUN_ID" in line]


def test_nothing_to_do_can_be_made_an_error(numbered, redis_url, tmp_path):
    common = env(numbered, redis_url, NETSPY_FAIL_ON_NOTHING_TO_DO="1")
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        script.finish(60).check()
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        script.finish(60).check(9)


def test_the_documented_del_steps_crawl_and_store_again(numbered, redis_url, redis_server, tmp_path):
    source = SPIDER.replace(
        'yield {"url"', 'yield Page(url=request.url, node=os.getpid())\n        return\n        yield {"url"'
    ).replace("class Pages", "class Page(mw.Item):\n    pass\n\n\nclass Pages")
    source = source.replace(
        "netspy.pipelines.sqlite.SqlitePipeline", "netspy.pipelines.jsonl.JsonlPipeline"
    ).replace("node=os.getpid()", "n=1")
    with start_script(source, env=env(numbered, redis_url), cwd=tmp_path) as script:
        assert script.finish(60).check().summary["items"] == 24
    client = redis_server.client()
    client.delete("netspy:Pages:lock:seed", "netspy:Pages:z_requests")
    client.delete(*[f"netspy:Pages:dedup:bloom{suffix}" for suffix in ("", ":1", ":2", ":3", ":count")])
    client.close()
    with start_script(source, env=env(numbered, redis_url), cwd=tmp_path) as script:
        result = script.finish(60).check()
    assert result.summary["request_ok"] == 24
    assert result.summary["items"] == 24
    assert len((tmp_path / "page.jsonl").read_text().splitlines()) == 48


def test_items_are_stored_before_the_ack_so_a_kill_during_a_slow_write_loses_no_row(
    numbered, redis_url, tmp_path
):
    source = SPIDER.replace(
        "BASE =",
        """from netspy.pipelines.sqlite import SqlitePipeline


class Slow(SqlitePipeline):
    def save_items(self, table, items):
        time.sleep(0.3)
        return super().save_items(table, items)


BASE =""",
    ).replace('["netspy.pipelines.sqlite.SqlitePipeline"]', "[Slow]")
    source = source.replace("ITEM_PIPELINES=[Slow], ", "").replace(
        "Pages().start()", "Pages(pipelines=[Slow]).start()"
    )
    common = env(
        numbered, redis_url, PAGES="400", NETSPY_HEARTBEAT_INTERVAL="0.3", NETSPY_HEARTBEAT_STALE="1.5", NETSPY_ITEM_BATCH_SIZE="20",
    )  # fmt: skip
    with start_script(source, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(120)
        script.kill()
    with start_script(source, env=common, cwd=tmp_path) as script:
        script.finish(90).check()
    assert set(urls(tmp_path)) == set(expected(numbered, 400))


def test_discovered_links_survive_a_kill(site, redis_url, tmp_path):
    for n in range(10):
        links = "".join(f'<a href="/d/{n}-{i}">x</a>' for i in range(50))
        site.route(f"/l/{n}", f"<html>{links}</html>")
    site.route("/d/", "<h1>x</h1>", prefix=True)
    source = SPIDER.replace("/p/{n}", "/l/{n}").replace(
        "        yield {",
        '        yield from (mw.Request(response.urljoin(h), callback=self.detail) for h in response.css("a::attr(href)").getall())\n\n'
        "    def detail(self, request, response):\n        yield {",
    )
    common = env(site, redis_url, PAGES="10", NETSPY_HEARTBEAT_INTERVAL="0.3", NETSPY_HEARTBEAT_STALE="1.5")
    for hits in (4, 40, 200):
        with start_script(source, env=common, cwd=tmp_path) as script:
            site.wait_hits(hits)
            script.kill()
    with start_script(source, env=common, cwd=tmp_path) as script:
        script.finish(60).check()
    assert len(set(urls(tmp_path))) == 500


def test_processes_are_one_run_with_one_summary_of_the_whole(numbered, redis_url, tmp_path):
    source = SPIDER.replace("Pages().start()", "Pages().start(processes=3)")
    with start_script(
        source,
        env=env(numbered, redis_url, PAGES="60", PARSE_SLEEP="0.05", NETSPY_SPIDER_THREAD_COUNT="2"),
        cwd=tmp_path,
    ) as script:
        result = script.finish(60).check()
    assert result.stdout.count("NETSPY_RUN_SUMMARY") == 1
    assert result.stdout.rstrip().splitlines()[-1].startswith("NETSPY_RUN_SUMMARY ")
    assert result.summary["request_ok"] == 60
    assert result.summary["nodes"] == 3
    assert len({row for row in urls(tmp_path)}) == 60
    assert_each_once(numbered, 60)


def test_a_graceful_stop_is_quick_and_gives_everything_back(numbered, redis_url, redis_server, tmp_path):
    numbered.route("/p/", lambda request: "x", prefix=True, delay=60.0)
    common = env(numbered, redis_url, NETSPY_SPIDER_THREAD_COUNT="4", NETSPY_SPIDER_STOP_TIMEOUT="2")
    with start_script(SPIDER, env=common, cwd=tmp_path) as script:
        numbered.wait_hits(4)
        began = time.monotonic()
        script.terminate()
        result = script.finish(20)
    assert time.monotonic() - began < 8
    assert result.returncode == 143
    assert result.summary["outcome"] == "stopped"
    client = redis_server.client()
    assert client.zcard("netspy:Pages:z_inflight") == 0
    assert client.zcard("netspy:Pages:z_requests") == 24
    client.close()


def test_a_raising_start_requests_is_a_failed_run_and_the_mended_one_goes_on(numbered, redis_url, tmp_path):
    broken = SPIDER.replace(
        '            yield mw.Request(f"{BASE}/p/{n}")',
        '            if n == 10:\n                raise ValueError("no more")\n            yield mw.Request(f"{BASE}/p/{n}")',
    )
    with start_script(broken, env=env(numbered, redis_url), cwd=tmp_path) as script:
        result = script.finish(60).check(4)
    assert "no more" in result.stderr
    assert result.summary["outcome"] == "seeding_failed"
    assert numbered.total == 10
    with start_script(SPIDER, env=env(numbered, redis_url), cwd=tmp_path) as script:
        script.finish(60).check()
    assert_each_once(numbered, 24)
