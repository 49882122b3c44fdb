"""`netspy batch`, `run --monitor`; and what `status` and `reset` show and clear of a batch job."""

import json

import pytest
from cli_rig import one_line, until

from netspy.redisio.keys import BatchNames
from netspy.tasks.batch_queue import BatchKeys
from support.batch_tables import CREATE, admin

SPIDER = """
import os
import netspy as mw
from netspy.core.batch_store import MemoryBatchStore


class CrawlTask(mw.BatchSpider):
    __custom_setting__ = dict(
        PROGRESS="off", TASK_POLL_INTERVAL=0.1, BATCH_MONITOR_INTERVAL=0.2, HEARTBEAT_INTERVAL=0.3,
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"], BATCH_STORE_URL=os.environ["TASKS"],
    )

    def task_requests(self, task):
        yield mw.Request(os.environ["SITE"] + task["url"])

    def parse(self, request, response, task):
        yield {"url": request.url}
        self.update_task(task["id"])


class InMemory(CrawlTask):
    def __init__(self, **arguments):
        super().__init__(batch_store=MemoryBatchStore([{"id": 1, "url": "/p/1"}]), **arguments)
"""
JOB = "crawl_task.py:CrawlTask"


@pytest.fixture
def batch(rig, sqlite_url):
    (rig.folder / "crawl_task.py").write_text(SPIDER)
    rig.env["TASKS"] = sqlite_url
    with admin(sqlite_url) as connection:
        connection.exec_driver_sql(CREATE["sqlite"])
        for n in range(1, 6):
            connection.exec_driver_sql(
                "INSERT INTO crawl_task (url) VALUES (?)", (f"/{'p' if n < 5 else 'q'}/{n}",)
            )
    return rig


def test_a_batch_from_the_check_to_its_end_as_the_commands_show_it(batch, redis, here):
    checked = here("batch", "check", JOB).check()
    assert "tasks\t5: 5 to do, 0 in process, 0 done, 0 failed\n" in checked.stdout
    assert "index\tmissing\n" in checked.stdout
    assert "last batch\tnone yet\n" in checked.stdout
    assert "master\tnone\n" in checked.stdout
    assert "advice: " in checked.stderr
    assert "CREATE INDEX" in checked.stderr
    with batch.start("run", JOB, "--monitor", "--once", NETSPY_RUN_ID="ignored") as master:
        # The master tells how far it is once everything is pushed.
        until(lambda: redis.exists(BatchNames("netspy:CrawlTask").progress))
        assert redis.llen("netspy:CrawlTask:batch_pending") == 5
        seen = json.loads(here("status", JOB, "--no-rate", "--json", NETSPY_RUN_ID="ignored").check().stdout)
        assert (seen["namespace"], seen["state"], seen["run_id"]) == ("netspy:CrawlTask", "no worker", "")
        assert seen["batch"]["total"] == 5
        assert str(master.pid) in seen["master"]
        by_key = json.loads(
            here("status", "--key", "CrawlTask", "--no-rate", "--json", NETSPY_RUN_ID="ignored")
            .check()
            .stdout
        )
        assert by_key["batch"] == seen["batch"] or by_key["batch"]["batch"] == 1
        told = here("batch", "status", JOB).check().stdout
        assert "batch\tbatch 1: 0/5\n" in told
        assert "tasks\t5: 0 to do, 5 in process, 0 done, 0 failed\n" in told
        one_line(here("reset", JOB, "--yes"), 3, "the batch master of netspy:CrawlTask is alive", "--force")
        second = batch("run", JOB, "--monitor", "--once").check(8)
        assert second.summary["outcome"] == "not_master"
        assert str(master.pid) in second.stderr
        worker = batch("run", JOB, NETSPY_RUN_ID="ignored").check()
        assert (worker.summary["items"], worker.summary["run_id"]) == (4, "")
        assert (worker.summary["tasks_done"], worker.summary["tasks_failed"]) == (4, 1)
        done = master.finish(30).check()
    assert done.summary["reason"] == "batch 1: 4/5, 1 failed"
    assert (done.summary["tasks_done"], done.summary["tasks_failed"]) == (4, 1)
    over = here("batch", "status", JOB).check()
    assert "batch\tbatch 1: 4/5, 1 failed, over, due at " in over.stdout
    assert "failed ids\t5\n" in over.stdout
    as_json = json.loads(here("batch", "status", JOB, "--json").check().stdout)
    assert (as_json["done"], as_json["failed"], as_json["failed_ids"], as_json["is_done"]) == (
        4,
        1,
        [5],
        True,
    )
    assert as_json["master"] is None
    shown = here("status", JOB, "--no-rate").check().stdout
    assert "state\tfinished\n" in shown
    assert "batch\tbatch 1: 4/5, 1 failed\n" in shown
    assert "master\tnone\n" in shown
    here("reset", JOB, "--yes", NETSPY_RUN_ID="ignored").check()
    assert set(redis.scan_iter()) == set()


def test_in_memory_the_master_does_it_all_and_from_outside_there_is_nothing_to_see(batch, here):
    result = batch("run", "crawl_task.py:InMemory", "--monitor", "--once", "-o", "-").check()
    assert result.summary["items"] == 1
    assert '"url":' in result.stdout
    one_line(here("batch", "status", "crawl_task.py:InMemory"), 3, "MemoryBatchStore")


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["batch", "check", "main.py"], 3, ["Pages is a Spider", "BatchSpider"]),
        (["batch", "check", JOB, "-a", "task_table=nope"], 3, ["no task table 'nope'", "CREATE TABLE"]),
        (["batch", "check", JOB, "-s", "BATCH_TASK_STATE_FIELD=nope"], 3, ["'nope'"]),
        (["batch", "check", JOB, "-s", "BATCH_CRON=every day"], 3, ["BATCH_CRON"]),
        (["batch", "status", JOB, "-s", "BATCH_STORE_URL=ftp://x"], 3, ["BATCH_STORE_URL"]),
        (["run", "main.py", "--monitor"], 3, ["Pages has no batches", "netspy.BatchSpider"]),
        (["run", "main.py", "--once"], 2, ["--once goes with --monitor"]),
        (["run", JOB, "--monitor", "-n", "2"], 2, ["there is one master"]),
        (["run", JOB, "--monitor", "-o", "x.jsonl"], 2, ["-o is for workers"]),
        (["status", JOB, "--run", "x"], 3, ["BatchSpider", "leave it out"]),
    ],
)
def test_what_can_not_be_done_is_one_line(batch, arguments, code, parts, here):
    one_line(here(*arguments), code, *parts)


def test_a_worker_without_a_master_says_how_to_start_one(batch, sqlite_url):
    result = batch("run", JOB).check()
    assert result.summary["outcome"] == "nothing_to_do"
    assert "start_monitor()" in result.stderr


def test_the_keys_that_reset_knows_are_those_that_the_batch_uses():
    used, known = BatchKeys("ns"), BatchNames("ns")
    assert {*used.pending.all(), used.done, used.lock, used.master, used.progress} == set(known.all())
