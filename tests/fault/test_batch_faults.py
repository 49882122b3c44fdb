"""Rows 37 and 38 of the fault table, W4, W5 and W22: a BatchSpider's master and workers killed, frozen and cut off."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from task_support import (
    BATCH,
    QUICK_BATCH,
    done_without_rows,
    make_table,
    query,
    records,
    serve_tasks,
    states,
)

from netspy.testing.children import wait_until
from netspy.testing.proxy import FaultProxy
from support.gate import Gate
from support.redis_cluster import RedisCluster

pytestmark = [pytest.mark.slow, pytest.mark.fault]

STALE = 4.0  # BATCH_LOST_TASK_STALE of these runs
LOCK = 1.5  # HEARTBEAT_STALE
SLACK = 8.0  # seconds; the machine may be busy
HELD = 50  # SPIDER_MAX_UNACKED

full = pytest.mark.faults_full


@pytest.fixture
def crawl(begin, site):
    """`crawl(redis_url, tasks, SETTING="value")`: a task table, and a run whose processes are not started yet."""

    def make(url, tasks, source=BATCH, *, delay=0.0, **env):
        run = begin(url, source, **{**QUICK_BATCH, **env})
        run.namespace = "netspy:Crawl"
        run.expected = serve_tasks(site, tasks, delay=delay)
        table = make_table(run.folder, [site.url(f"/t/{n}") for n in range(tasks)])
        run._env.setdefault("BATCH_STORE_URL", table)
        return run

    return make


def worker(run, **env):
    return run.node(ROLE="worker", SPIDER_KEEP_ALIVE="true", **env)


def monitor(run, role="once", **env):
    return run.node(ROLE=role, **env)


def dismiss(run, *workers):
    """Stop workers, however lately they were started."""
    for one in workers:
        run.wait(lambda one=one: run.node_ids(one), "the worker has started")
        one.terminate()
    run.finish(*workers, code=143)


def wait_done(run):
    """Wait until a master has closed the batch, and said so: a stop between the two leaves that to the next master."""
    run.wait(lambda: run.client.get("netspy:Crawl:batch_done") == b"1", "the batch is done", 60)


def settled(run):
    found = states(run.folder)
    return found.get(1, 0) + found.get(-1, 0)


def finish(run, *masters, workers, tasks, failed=0, batches=1, fetched_twice=HELD):
    """The batch ends; what came of it."""
    for result in run.finish(*masters, timeout=90) if masters else ():
        assert result.summary["tasks_done"] + result.summary["tasks_failed"] == tasks
    assert records(run.folder)[-1] == (tasks - failed, failed, tasks, 1)
    assert len(records(run.folder)) == batches
    assert states(run.folder) == {state: n for state, n in ((1, tasks - failed), (-1, failed)) if n}
    # The batch is done when its tasks are marked; the acks of their pages follow, also those of a dead worker.
    run.wait(lambda: not run.client.hlen("netspy:Crawl:open_tasks"), "no request of a task is left")
    dismiss(run, *workers)
    assert run.client.get("netspy:Crawl:batch_done") == str(batches).encode()
    assert run.client.exists("netspy:Crawl:batch_monitor_lock") == 0
    for key in ("batch_pending", "batch_pending:failed"):
        assert run.client.llen(f"netspy:Crawl:{key}") == 0
    return run.check(run.expected, fetched_twice=fetched_twice)


# -- row 38, and every other step at which a process may be killed


@pytest.mark.parametrize(
    "crash_at",
    [
        pytest.param("master_elected", marks=full),
        pytest.param("batch_reset", marks=full),
        pytest.param("batch_created", marks=full),
        "batch_claimed",
        pytest.param("batch_pushed", marks=full),
        pytest.param("batch_counted", marks=full),
        pytest.param("batch_finished", marks=full),
    ],
)
def test_a_master_killed_at_any_step_is_succeeded_and_the_batch_ends(crash_at, either_url, crawl, note):
    """Case BAT-05 d: killed after the last task was counted, or after the batch was closed."""
    run = crawl(either_url, 30, BATCH_PUSH_LIMIT="7")
    one = worker(run)
    first = monitor(run, crash_at=crash_at)
    run.wait_killed(first)
    assert not done_without_rows(run)
    second = monitor(run)
    if crash_at == "batch_finished":
        # The batch is closed; what is left to do is to say so, without opening another one.
        [result] = run.finish(second)
        assert result.summary["outcome"] == "nothing_to_do"
        report = finish(run, workers=[one], tasks=30)
    else:
        run.wait(lambda: settled(run) == 30, "the successor brings the batch to its end", 60)
        seconds = run.recovered()
        assert seconds < LOCK + STALE + SLACK
        report = finish(run, second, workers=[one], tasks=30)
    assert report.written_twice == 0
    note("38", run, report)


@pytest.mark.parametrize(
    "crash_at",
    [
        pytest.param("after_take", marks=full),
        pytest.param("after_task_put", marks=full),
        pytest.param("after_claim", marks=full),
        pytest.param("in_fetch:5", marks=full),
        pytest.param("before_store", marks=full),
        pytest.param("after_store", marks=full),
        pytest.param("before_ack", marks=full),
        pytest.param("after_actions", marks=full),
        pytest.param("after_settle", marks=full),
    ],
)
def test_a_worker_killed_at_any_step_leaves_no_task_done_whose_rows_are_not_stored(
    crash_at, either_url, crawl, note
):
    """Case BAT-05 e: a task that is done in the table while its rows were in memory only."""
    run = crawl(either_url, 30)
    master = monitor(run)
    victim = worker(run, crash_at=crash_at)
    run.wait_killed(victim)
    assert not done_without_rows(run)
    one = worker(run)
    run.wait(lambda: settled(run) == 30, "the batch goes on", 60)
    assert run.recovered() < LOCK + SLACK, "no task has to wait until it is stale"
    note("W5", run, finish(run, master, workers=[one], tasks=30))


def test_w5_a_worker_killed_at_44_of_100_costs_seconds(either_url, crawl, site, note):
    run = crawl(either_url, 100, BATCH_LOST_TASK_STALE="8", SPIDER_THREAD_COUNT="8")
    gate = Gate(site, "/t/", after=60, delay=0.02)
    master = monitor(run)
    victim = worker(run)
    run.wait(lambda: settled(run) >= 44, "44 tasks are done")
    victim.kill()
    run.fault()
    gate.open()
    assert not done_without_rows(run)
    one = worker(run)
    run.wait(lambda: settled(run) == 100, "100 of 100", 60)
    assert run.recovered() < 8 + SLACK
    note("W5", run, finish(run, master, workers=[one], tasks=100))


# -- row 37


def test_of_two_masters_one_acts_and_one_that_was_frozen_changes_nothing_when_it_wakes(
    either_url, crawl, site, note
):
    run = crawl(either_url, 60, SPIDER_THREAD_COUNT="2")
    gate = Gate(site, "/t/", after=30, delay=0.05)
    one = worker(run)
    masters = [monitor(run, "monitor"), monitor(run, "monitor")]
    site.wait_hits(5)

    def is_master(node):
        held = run.client.get("netspy:Crawl:batch_monitor_lock")
        return held is not None and held.decode().split()[2].endswith(f":{node.pid}")

    run.wait(lambda: any(map(is_master, masters)), "there is a master")
    first = next(filter(is_master, masters))
    second = next(m for m in masters if m is not first)
    second.wait_line("standing by")
    freeze_without_locks(run, first)
    run.fault()
    second.wait_line("master of Crawl")
    run.recovered()
    gate.open()
    fence = query(run.folder, "SELECT token FROM crawl_task_batch_fence")
    first.cont()
    first.wait_line("was lost")
    wait_done(run)
    assert query(run.folder, "SELECT token FROM crawl_task_batch_fence") == fence
    assert len(records(run.folder)) == 1
    for master in (first, second):
        master.terminate()
    run.finish(*masters, code=143)
    report = finish(run, workers=[one], tasks=60, fetched_twice=0)
    note("37", run, report)


def test_a_single_run_beside_a_master_leaves_with_a_code_of_its_own_and_names_it(either_url, crawl):
    run = crawl(either_url, 3, HEARTBEAT_STALE="60")
    first = monitor(run, "monitor")
    first.wait_line("master of Crawl")
    result = monitor(run).finish().check(8)
    assert result.summary["outcome"] == "not_master"
    assert f":{first.pid} since" in result.summary["reason"]
    assert "Traceback" not in result.stderr


# -- W22


def test_w22_a_stopped_master_gives_its_lock_up_and_the_next_one_works_at_once(either_url, crawl, site, note):
    run = crawl(either_url, 40, HEARTBEAT_STALE="60", SPIDER_THREAD_COUNT="2")
    gate = Gate(site, "/t/", after=20, delay=0.05)
    one = worker(run)
    first = monitor(run, "monitor")
    first.wait_line("master of Crawl")
    second = monitor(run, "monitor")
    second.wait_line("standing by")
    site.wait_hits(5)
    first.terminate()
    run.fault()
    second.wait_line("master of Crawl")
    assert run.recovered() < SLACK, "it has not waited for a lock of 60 s to run out"
    run.finish(first, code=143)
    gate.open()
    wait_done(run)
    second.terminate()
    run.finish(second, code=143)
    note("W22", run, finish(run, workers=[one], tasks=40, fetched_twice=0))


# -- W4


@pytest.mark.faults_full
def test_w4_the_second_batch_crawls_everything_again(either_url, crawl, site, note):
    run = crawl(either_url, 100)
    one = worker(run)
    finish_one = run.finish(monitor(run), timeout=60)
    assert finish_one[0].summary["tasks_done"] == 100
    assert site.total == 100
    query(run.folder, "UPDATE crawl_task_batch_record SET batch_date = datetime(batch_date, '-1 hour')")
    second = monitor(run)
    run.finish(second, timeout=60)
    assert records(run.folder) == [(100, 0, 100, 1), (100, 0, 100, 1)]
    assert site.total == 200
    assert set(site.all_hits().values()) == {2}
    report = finish(run, workers=[one], tasks=100, batches=2, fetched_twice=100)
    # The second batch's fetches and lines are wanted.
    note("W4", run, report._replace(fetched_twice=0, written_twice=report.written_twice - 100))


@pytest.mark.faults_full
def test_tasks_that_are_pushed_twice_are_crawled_once(either_url, crawl, note):
    """As when the reply to the push is lost and the master sends it again."""
    run = crawl(either_url, 30)
    pending = "netspy:Crawl:batch_pending"
    master = monitor(run)
    run.wait(lambda: run.client.llen(pending) == 30, "all tasks are pushed")
    run.client.rpush(pending, *run.client.lrange(pending, 0, -1))
    one = worker(run)
    note("38", run, finish(run, master, workers=[one], tasks=30, fetched_twice=0))


# -- a healthy slow batch


def slow_batch(run, tasks, *, seconds):
    """Every task is claimed at the start, and the last ones wait for many times the staleness."""
    master = monitor(run)
    one = worker(run)
    run.wait(lambda: settled(run) == tasks, "all tasks are done", seconds * 6 + 60)
    report = finish(run, master, workers=[one], tasks=tasks, fetched_twice=0)
    assert "without a sign of life" not in master.stderr
    return report


def test_a_slow_batch_whose_tasks_wait_longer_than_they_may_be_stale_is_left_alone(either_url, crawl):
    run = crawl(
        either_url,
        40,
        delay=0.2,
        BATCH_LOST_TASK_STALE="1.5",
        SPIDER_THREAD_COUNT="2",
        COLLECTOR_TASK_COUNT="2",
    )
    slow_batch(run, 40, seconds=4)


@pytest.mark.faults_full
@pytest.mark.timeout(400)
def test_5000_claimed_tasks_of_60_seconds_work_with_a_staleness_of_5_seconds(either_url, crawl):
    run = crawl(
        either_url,
        5000,
        delay=0.09,
        BATCH_LOST_TASK_STALE="5",
        SPIDER_THREAD_COUNT="8",
        TASK_BATCH_SIZE="100",
    )
    began = time.monotonic()
    slow_batch(run, 5000, seconds=60)
    assert time.monotonic() - began > 50


# -- tasks that come to no good end


FORGETFUL = BATCH.replace(
    '        self.update_task(task["id"])\n',
    '        if task["id"] % 3 or os.path.exists("remember"):\n            self.update_task(task["id"])\n',
)


@pytest.mark.faults_full
def test_a_forgotten_update_task_is_warned_of_once_and_its_task_is_crawled_again(
    either_url, crawl, site, note
):
    assert FORGETFUL != BATCH
    run = crawl(either_url, 12, FORGETFUL, BATCH_LOST_TASK_STALE="1.5")
    master, one = monitor(run), worker(run)
    site.wait_until(lambda: all(site.hits(f"/t/{n}") >= 3 for n in (2, 5, 8, 11)))
    assert states(run.folder)[1] == 8
    assert one.stderr.count("without update_task") == 1
    assert "Crawl.parse ended for a task without update_task" in one.stderr
    assert "no callback calls update_task" in master.stderr
    (run.folder / "remember").touch()
    finish(run, master, workers=[one], tasks=12, fetched_twice=None)
    assert all(site.hits(f"/t/{n}") == 1 for n in (0, 1, 3, 4))


TROUBLE = BATCH.replace(
    "    def parse(self, request, response, task):\n",
    """\
    def parse(self, request, response, task):
        if task["id"] == 2:
            self.update_task(task["id"])
            raise ValueError("after the report")
        if task["id"] == 3:
            self.update_task(task["id"], ok=False)
            return
        if task["id"] == 4:
            os.kill(os.getpid(), 9)
        if task["id"] == 5:
            self.update_task(4711)
        if task["id"] == 6:
            self.update_task(task["id"], ok=False)
            yield mw.Request(f"{SITE}/t/4711", callback=self.more)
            return
""",
).replace(
    '\n\nif __name__ == "__main__"',
    """
    def more(self, request, response):
        pass


if __name__ == "__main__\"""",
)


def test_every_bad_end_of_a_task_is_failed_in_the_table_and_the_batch_ends(either_url, crawl, site, note):
    """Ids from 1: 1 and 5 are good, 2 raises after its report, 3 says so, 4 kills its process, 6 says so and goes on, 7 is
    no page, 8 kills its process before it is a request.
    """
    source = TROUBLE.replace(
        '        yield mw.Request(task["url"])\n',
        '        if task["id"] == 8:\n            os.kill(os.getpid(), 9)\n        yield mw.Request(task["url"])\n',
    )
    run = crawl(
        either_url,
        8,
        source,
        HEARTBEAT_INTERVAL="0.15",
        HEARTBEAT_STALE="0.6",
        SPIDER_MAX_RETRY_TIMES="1",
        SPIDER_RETRY_INTERVAL="0",
        TASK_BATCH_SIZE="4",
    )
    site.route("/t/6", status=404)
    master = monitor(run)
    killed = 0
    while settled(run) < 8:
        one = worker(run)
        wait_until(lambda: not one.alive or settled(run) == 8, 40)
        killed += not one.alive
        assert killed < 15
    assert query(run.folder, "SELECT id, batch_status FROM crawl_task ORDER BY id") == [
        (1, 1), (2, -1), (3, -1), (4, -1), (5, 1), (6, -1), (7, -1), (8, -1),
    ]  # fmt: skip
    [result] = run.finish(master)
    assert (result.summary["tasks_done"], result.summary["tasks_failed"]) == (2, 6)
    assert "batch 1 is done with 6 failed of 8: 2, 3, 4, 6, 7, 8" in master.stderr
    assert set(run.stored()) >= {site.url("/t/0"), site.url("/t/4")}
    heard = "\n".join(node.stderr for node in run.nodes)
    assert "Crawl.update_task(4711): 'crawl_task' has no such row" in heard
    assert one.alive
    dismiss(run, one)


# -- outages in each role


@pytest.mark.faults_full
def test_redis_away_in_the_middle_of_a_batch(either_binary, own_server, crawl, site, note):
    server = own_server(either_binary, appendfsync="everysec")
    run = crawl(server.url, 80, delay=0.03)
    master, one = monitor(run), worker(run)
    site.wait_hits(20)
    server.kill()
    run.fault()
    wait_until(lambda: False, LOCK + 1.0)  # longer than the lock lasts
    server.restart()
    fetched = site.total
    run.wait(lambda: site.total > fetched + 5, "the batch goes on")
    run.recovered()
    report = finish(run, master, workers=[one], tasks=80)
    note("38", run, report)


def test_a_stop_while_redis_is_away_is_a_stop(either_binary, own_server, crawl, site):
    server = own_server(either_binary)
    run = crawl(server.url, 40, delay=0.05)
    master = monitor(run, "monitor")
    master.wait_line("master of Crawl")
    server.kill()
    master.wait_line("Redis is away")
    master.terminate()
    result = master.finish(20).check(143)
    assert result.summary["outcome"] == "stopped"


@pytest.mark.faults_full
def test_a_redis_that_forgot_everything_costs_a_second_try_and_no_task(either_url, crawl, site, note):
    """Its master goes on by itself; its worker ends loudly, as any node does, and is started again."""
    run = crawl(either_url, 60, delay=0.05, SPIDER_THREAD_COUNT="2")
    master, first = monitor(run), worker(run)
    site.wait_hits(15)
    run.client.flushall()
    run.fault()
    run.finish(first, code=5)
    assert not done_without_rows(run)
    one = worker(run)
    run.wait(lambda: settled(run) == 60, "the batch comes to its end", 60)
    run.recovered()
    note("38", run, finish(run, master, workers=[one], tasks=60))


POSTGRES = (
    "CREATE TABLE crawl_task (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, url TEXT NOT NULL, "
    "batch_status SMALLINT NOT NULL DEFAULT 0, update_time TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP)"
)
MARIADB = (
    "CREATE TABLE crawl_task (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, url VARCHAR(500) NOT NULL, batch_status "
    "TINYINT NOT NULL DEFAULT 0, update_time DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)"
)


class Database:
    """A task table on a server, reached through a proxy."""

    def __init__(self, server, tasks, site) -> None:
        self.server = server
        self.name = server.create_database().rpartition("/")[2]
        self.proxy = FaultProxy(server.host, server.port)
        server.execute(POSTGRES if server.scheme == "postgresql" else MARIADB, database=self.name)
        if server.scheme == "postgresql":
            server.execute("GRANT ALL ON crawl_task TO PUBLIC", database=self.name)
        for n in range(tasks):
            server.execute(
                "INSERT INTO crawl_task (url) VALUES (%s)", [site.url(f"/t/{n}")], database=self.name
            )

    def __enter__(self):
        self.proxy.start()
        self.url = self.server.url(self.name, port=self.proxy.port)
        return self

    def __exit__(self, *error):
        self.proxy.close()

    def count(self, state):
        return self.server.execute(
            "SELECT count(*) FROM crawl_task WHERE batch_status = %s", [state], database=self.name
        )[0][0]


@pytest.mark.parametrize(
    ("server", "seconds"),
    [
        pytest.param("own_postgres", 2.0, marks=full),
        pytest.param("own_mariadb", 2.0, marks=full),
        # Longer than a call waits by itself.
        pytest.param("own_postgres", 45.0, marks=[full, pytest.mark.timeout(240)]),
        pytest.param("own_mariadb", 45.0, marks=[full, pytest.mark.timeout(240)]),
    ],
)
def test_the_database_away_in_the_middle_of_a_batch(server, seconds, redis_url, crawl, site, note, request):
    server = request.getfixturevalue(server)
    with Database(server, 80, site) as table:
        run = crawl(redis_url, 80, delay=0.03, BATCH_STORE_URL=table.url)
        master, one = monitor(run), worker(run)
        run.wait(lambda: table.count(1) >= 20, "20 tasks are done")
        server.kill()
        wait_until(lambda: False, seconds)
        server.restart()
        run.fault()
        done = table.count(1)
        run.wait(lambda: table.count(1) > done, "the batch goes on", 90)
        run.recovered()
        [result] = run.finish(master)
        assert result.summary["tasks_done"] == 80
        dismiss(run, one)
        note("38", run, run.check(run.expected, fetched_twice=HELD))


@pytest.mark.faults_full
@pytest.mark.parametrize("role", ["monitor", "worker"])
def test_a_stop_at_the_start_does_not_wait_for_a_silent_database(role, redis_url, crawl, site, postgres):
    with Database(postgres, 1, site) as table:
        table.proxy.stall()
        run = crawl(redis_url, 1, BATCH_STORE_URL=table.url, SPIDER_STOP_TIMEOUT="3")
        one = run.node(ROLE=role)
        run.wait(lambda: table.proxy.connections > 0, "it asks the database")
        one.terminate()
        began = time.monotonic()
        assert one.finish(45).check(143).summary["outcome"] == "stopped"
        assert time.monotonic() - began < 3 + SLACK


@pytest.mark.faults_full
def test_a_database_that_does_not_answer_holds_up_no_stop(redis_url, crawl, site, postgres):
    with Database(postgres, 60, site) as table:
        run = crawl(redis_url, 60, delay=0.05, BATCH_STORE_URL=table.url, SPIDER_STOP_TIMEOUT="3")
        master, one = monitor(run, "monitor"), worker(run)
        run.wait(lambda: table.count(1) >= 10, "10 tasks are done")
        table.proxy.stall()
        fetched = site.total
        run.wait(lambda: site.total >= min(60, fetched + 5), "the worker has marks to write")
        master.terminate()
        one.terminate()
        began = time.monotonic()
        run.finish(master, one, code=143, timeout=30)
        assert time.monotonic() - began < 3 + SLACK
        table.proxy.resume()
        second, again = monitor(run), worker(run)
        run.finish(second, timeout=90)
        assert table.count(1) == 60
        dismiss(run, again)
        run.check(run.expected, fetched_twice=HELD)


def freeze_without_locks(run, script):
    """Freeze it at a moment when it is not writing into an SQLite file: nobody else could write there until it wakes."""
    for _ in range(200):
        script.pause()
        try:
            for name in ("sink.db", "tasks.db"):
                with closing(sqlite3.connect(run.folder / name, timeout=0.05)) as db:
                    db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            script.cont()
            wait_until(lambda: False, 0.02)
        else:
            return
    raise AssertionError("it writes all the time")


@pytest.mark.faults_full
def test_a_worker_frozen_until_its_tasks_are_others_breaks_nothing_when_it_wakes(
    either_url, crawl, site, note
):
    run = crawl(either_url, 60, delay=0.05, SPIDER_THREAD_COUNT="4")
    master, first = monitor(run), worker(run)
    site.wait_hits(15)
    freeze_without_locks(run, first)
    run.fault()
    one = worker(run)
    run.wait(lambda: settled(run) == 60, "the batch goes on", 60)
    assert run.recovered() < LOCK + SLACK
    first.cont()
    note("W5", run, finish(run, master, workers=[one, first], tasks=60))


@pytest.mark.faults_full
def test_a_batch_on_redis_cluster(crawl):
    with RedisCluster() as redis:
        run = crawl(redis.url, 60)
        run.namespace = "{netspy:Crawl}"
        master, one = monitor(run), worker(run)
        run.finish(master, timeout=60)
        assert records(run.folder) == [(60, 0, 60, 1)]
        dismiss(run, one)
        run.check(run.expected, fetched_twice=0)
