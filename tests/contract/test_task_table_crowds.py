"""Task tables under load: large ones, many claimers, dead and frozen processes, deadlocks, a server that goes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest
import sqlalchemy
from task_tables import fill, kind_of, run_sql, wait_for

from netspy.core.batch_store import (
    DONE,
    FAILED,
    FencedError,
    TaskCounts,
)
from netspy.errors import StoreUnavailableError
from support.batch_tables import CREATE, admin

# Large tables


@pytest.fixture(scope="module")
def rows_of_sql():
    """SQL that makes `count` rows quickly."""

    def make(kind: str, count: int) -> str:
        if kind == "mysql":
            return f"INSERT INTO crawl_task (id, url) SELECT seq, concat('/p/', seq, repeat('x', 200)) FROM seq_1_to_{count}"
        if kind == "postgresql":
            return f"INSERT INTO crawl_task (id, url) SELECT n, '/p/' || n || repeat('x', 200) FROM generate_series(1, {count}) n"
        return (
            f"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {count}) "
            "INSERT INTO crawl_task (id, url) SELECT x, '/p/' || x || hex(zeroblob(100)) FROM n"
        )

    return make


INDEX = "CREATE INDEX netspy_batch_state ON crawl_task (batch_status, update_time, id)"


def test_large_tables_are_claimed_counted_and_searched_by_the_index(request, any_sql, opened, rows_of_sql):
    kind = kind_of(any_sql)
    run_sql(any_sql, CREATE[kind])
    run_sql(any_sql, rows_of_sql(kind, 30_000))
    if kind != "mysql":  # the table of the test has it there
        assert "create one: CREATE INDEX" in opened(any_sql).index_advice()[0]
        run_sql(any_sql, INDEX)
    if kind == "postgresql":  # what autovacuum does; before, the index can't tell which rows are visible
        postgres = request.getfixturevalue("postgres")
        postgres.execute("VACUUM ANALYZE crawl_task", database=any_sql.rpartition("/")[2])
    else:
        run_sql(any_sql, "ANALYZE TABLE crawl_task" if kind == "mysql" else "ANALYZE")
    store = opened(any_sql, chunk=5000)
    store.ensure_schema()
    assert store.index_advice() == []
    seen: list[tuple[str, Any]] = []

    @sqlalchemy.event.listens_for(store._steps.engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, parameters, _context, _many):
        seen.append((statement, parameters))

    assert len(store.claim_tasks(1500)) == 1500
    store.reset_lost_tasks(600)
    assert store.count_tasks() == TaskCounts(30_000, 28_500, 1500, 0, 0)
    wanted = [
        (s, p)
        for s, p in seen
        if (s.startswith("SELECT") and "batch_status" in s and "LIMIT 1000" in s) or "GROUP BY" in s
    ]
    assert len(wanted) >= 3
    explain = "EXPLAIN QUERY PLAN " if kind == "sqlite" else "EXPLAIN "
    with admin(any_sql) as db:
        for statement, parameters in wanted:
            plan = " | ".join(str(tuple(row)) for row in db.exec_driver_sql(explain + statement, parameters))
            assert any(word in plan for word in ("by_state", "netspy_batch_state", "Impossible WHERE")), plan
            assert "filesort" not in plan, plan
            assert "TEMP B-TREE" not in plan, plan
            assert "Sort" not in plan, plan
    assert store.reset_all_tasks() == 1500
    updates = [p for s, p in seen if s.startswith("UPDATE") and "IS NULL" in s]
    assert len(updates) == 7  # pieces along the primary key, none over 5,000 rows


@pytest.mark.parametrize(
    "any_sql",
    [pytest.param(kind, marks=pytest.mark.faults_full) for kind in ("mariadb", "postgres")] + ["sqlite"],
    indirect=True,
)
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_million_tasks(any_sql, opened, rows_of_sql, record_property):
    kind = kind_of(any_sql)
    run_sql(any_sql, CREATE[kind])
    run_sql(any_sql, rows_of_sql(kind, 1_000_000))
    if kind != "mysql":
        run_sql(any_sql, INDEX)
    run_sql(any_sql, "UPDATE crawl_task SET batch_status = 1")
    store = opened(any_sql)
    store.ensure_schema()
    took = {}
    for name, call in {
        "open a batch": store.reset_all_tasks,
        "open it again": store.reset_all_tasks,
        "count": store.count_tasks,
        "claim 5,000": lambda: store.claim_tasks(5000),
        "search lost": lambda: store.reset_lost_tasks(600),
    }.items():
        began = time.monotonic()
        call()
        took[name] = round(time.monotonic() - began, 2)
    print(kind, took)
    # Nothing of this touches each row, as opening the batch does: it takes a fraction of that, on any machine.
    for quick in ("count", "claim 5,000", "search lost"):
        assert took[quick] < took["open a batch"] / 2, took


# Processes

CLAIMER = """
import sys
from netspy.core.batch_store import SqlBatchStore
store = SqlBatchStore("crawl_task", sys.argv[1], patience=60)
print("ready", flush=True)
sys.stdin.readline()
while True:
    rows = store.claim_tasks(int(sys.argv[2]))
    for row in rows:
        print(row["id"])
    if not rows and not store.count_tasks().todo:
        break
"""


def start_claimers(url: str, processes: int, limit: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, url, str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]


def test_no_task_is_claimed_twice_by_fifty(any_sql, opened):
    """Four processes and 46 threads, all at one table."""
    total = 1000
    fill(any_sql, total)
    processes = start_claimers(any_sql, 4, 11)
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        claimed: list[list[int]] = [[] for _ in range(46)]
        store = opened(any_sql, pool_size=12, patience=60.0)

        def claim(mine: list[int]) -> None:
            while True:
                rows = store.claim_tasks(11)
                mine.extend(row["id"] for row in rows)
                if not rows and not store.count_tasks().todo:
                    return

        threads = [threading.Thread(target=claim, args=(mine,)) for mine in claimed]
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    ids = [id_ for mine in claimed for id_ in mine] + [int(line) for text in outputs for line in text.split()]
    twice = [id_ for id_, times in Counter(ids).items() if times > 1]
    assert twice == []
    assert sorted(ids) == list(range(1, total + 1))


KILLED = """
import sys
from netspy.core.batch_store import SqlBatchStore
store = SqlBatchStore("crawl_task", sys.argv[1])
while True:
    store.claim_tasks(3)
    print("claimed", flush=True)
"""


def test_what_a_killed_process_had_claimed_comes_back(any_sql, opened):
    fill(any_sql, 300)
    process = subprocess.Popen([sys.executable, "-c", KILLED, any_sql], stdout=subprocess.PIPE, text=True)
    for _ in range(4):
        assert process.stdout.readline() == "claimed\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    store = opened(any_sql)
    done: set[int] = set()

    def drained() -> bool:
        store.reset_lost_tasks(0.5)
        rows = store.claim_tasks(1000)
        done.update(row["id"] for row in rows)
        store.mark_tasks([(row["id"], DONE) for row in rows])
        return store.count_tasks().finished

    wait_for(drained)
    assert done == set(range(1, 301))
    assert store.count_tasks() == TaskCounts(300, 0, 0, 300, 0)


def test_a_master_frozen_within_a_reset_cannot_undo_its_successors_work(any_sql, opened):
    fill(any_sql, 60)
    old, new = opened(any_sql, chunk=10), opened(any_sql)
    old.ensure_schema()
    new.ensure_schema()
    old.use_fence(1)
    new.mark_tasks([(n, DONE) for n in range(1, 61)])
    frozen, woken = threading.Event(), threading.Event()
    pieces = 0

    @sqlalchemy.event.listens_for(old._steps.engine, "commit")
    def freeze(_connection):
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            frozen.set()
            woken.wait(30)

    outcome: list[BaseException] = []

    def reset() -> None:
        try:
            old.reset_all_tasks()
        except FencedError as error:
            outcome.append(error)

    thread = threading.Thread(target=reset)
    # The third piece is done but for its commit, so its locks are held; the successor waits for that one only.
    thread.start()
    assert frozen.wait(60)
    successor = threading.Thread(target=new.use_fence, args=(2,))
    successor.start()
    woken.set()
    successor.join(30)
    new.reset_all_tasks()
    new.claim_tasks(60)
    new.mark_tasks([(n, DONE) for n in range(1, 61)])
    thread.join(30)
    assert not thread.is_alive()
    try:
        old.reset_all_tasks()
    except FencedError as error:
        outcome.append(error)
    assert outcome
    assert new.count_tasks() == TaskCounts(60, 0, 0, 60, 0)


def test_finishing_waits_for_marks_that_are_under_way(any_sql, opened):
    """A batch's last marks are in before it is closed, and none comes after."""
    fill(any_sql, 2)
    store, other = opened(any_sql), opened(any_sql)
    store.ensure_schema()
    batch = store.create_batch(store.now(), 2, 1, "day")
    entered, leave = threading.Event(), threading.Event()

    @sqlalchemy.event.listens_for(store._steps.engine, "commit")
    def hold(_connection):
        if not entered.is_set():
            entered.set()
            leave.wait(30)

    marking = threading.Thread(target=store.mark_tasks, args=([(1, DONE)],), kwargs={"batch_id": batch})
    marking.start()
    assert entered.wait(60)
    finished = threading.Event()
    finishing = threading.Thread(target=lambda: (other.finish_batch(batch), finished.set()))
    finishing.start()
    assert not finished.wait(0.3)
    leave.set()
    marking.join(30)
    finishing.join(30)
    assert finished.is_set()
    assert other.mark_tasks([(2, DONE)], batch_id=batch) == [True]
    assert other.count_tasks() == TaskCounts(2, 1, 0, 1, 0)


# Outages


@pytest.mark.parametrize("server", ["own_mariadb", "own_postgres"])
def test_a_database_that_comes_back_is_waited_for_and_one_that_stays_away_is_named(request, opened, server):
    database = request.getfixturevalue(server)
    url = database.create_database()
    fill(url, 10)
    store = opened(url, patience=90.0)
    store.ensure_schema()
    assert len(store.claim_tasks(2)) == 2
    database.kill()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(store.claim_tasks(3)))
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    database.restart()
    thread.join(90)
    assert [row["id"] for row in got] == [3, 4, 5]
    database.kill()
    impatient = opened(url, patience=0.5)
    with pytest.raises(
        StoreUnavailableError, match=r"has not answered for 0\.5 s .*; start it, or correct the address"
    ):
        impatient.count_tasks()
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            store.count_tasks()
        except StoreUnavailableError as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    store.close()
    thread.join(30)
    assert waiting


def test_deadlocks_between_markers_and_resets_are_retried(any_sql, opened):
    fill(any_sql, 200)
    store = opened(any_sql, pool_size=8)
    store.ensure_schema()
    store.use_fence(1)
    stop = time.monotonic() + 0.8
    errors: list[BaseException] = []

    def hammer(work: Any) -> None:
        try:
            while time.monotonic() < stop:
                work()
        except BaseException as error:
            errors.append(error)

    works = [
        lambda: store.mark_tasks([(n, FAILED) for n in range(200, 0, -1)]),
        lambda: store.mark_tasks([(n, DONE) for n in range(1, 201, 3)]),
        store.reset_all_tasks,
        lambda: store.claim_tasks(50),
        lambda: store.touch_tasks(list(range(1, 201))),
        lambda: store.reset_lost_tasks(0.001),
    ]
    threads = [threading.Thread(target=hammer, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.count_tasks().total == 200
