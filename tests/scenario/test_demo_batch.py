"""`netspy demo --batch`: two batches, a worker killed on the way, and a verdict that notices what is missing."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from demo_support import NETSPY, demo, nothing_left, run_folder

from netspy.demo import batch_run
from netspy.redisio.embedded.server import EmbeddedRedis
from netspy.testing.children import wait_until
from netspy.testing.runner import run_command

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    EmbeddedRedis(tmp_path / "data" / "redis").stop()


def query(path, sql):
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql).fetchall()


def test_everything_arrives_in_both_batches_though_a_worker_is_killed_and_a_loss_would_be_noticed(folder):
    with demo(folder, "--batch", "--fast") as script:
        result = script.finish(120).check()
    assert "checked: both batches have all 1,000 products" in result.stdout
    assert re.search(r"kill -9 \d+: a worker is gone, with \d+ of 1,003 tasks settled", result.stdout)
    assert "worker-1 killed, worker-2 stopped, worker-3 stopped" in result.stdout
    assert "batch 1 is done with 3 failed of 1003: 1001, 1002, 1003" in result.stderr
    here = run_folder(folder)
    assert query(here / "visits.db", "SELECT batch, count(*), count(DISTINCT sku) FROM visit GROUP BY 1") == [
        (1, 1000, 1000),
        (2, 1000, 1000),
    ]
    assert nothing_left(folder, 10)
    # The verdict isn't a formality: each of these is what a demo that lost something would have left behind.
    place = batch_run._Place(here, folder / "data" / "redis", "unused")
    assert batch_run.problems(place, 1003) == []
    query(here / "visits.db", "DELETE FROM visit WHERE batch = 2 AND sku = 'NS-00007'")
    query(here / "tasks.db", "UPDATE product_page SET batch_status = 2 WHERE id = 5")
    query(here / "tasks.db", "UPDATE product_page_batch_record SET done_count = 999 WHERE id = 1")
    wrong = batch_run.problems(place, 1003)
    assert len(wrong) == 3
    assert "batch 1: total, done, failed, over are (1003, 999, 3, 1)" in wrong[0]
    assert "1 of 1000 lost: NS-00007" in wrong[1]
    assert "{-1: 3, 1: 999, 2: 1}" in wrong[2]


def test_ctrl_c_ends_master_and_workers(folder):
    with demo(folder, "--batch") as script:
        assert wait_until(lambda: "batch 1: " in script.stderr, 60)
        script.interrupt()
        script.finish(30).check(130)
    assert nothing_left(folder, 10)


def test_options_that_make_no_sense_with_it_are_refused(folder):
    result = run_command([NETSPY, "demo", "--batch", "-n", "3"], cwd=folder).check(2)
    assert "two workers" in result.stderr
