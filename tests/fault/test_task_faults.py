"""Row 40 of the fault table, W2 and W24: a TaskSpider's nodes killed between a task and its last row."""

from __future__ import annotations

import sqlite3

import pytest
from task_support import (
    HEAD,
    NOTHING,
    QUICK,
    TASKS,
    done_without_rows,
    failed_tasks,
    left_in_list,
    make_table,
    push,
    serve_tasks,
    states,
)

from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault]

STALE = 1.5
SLACK = 8.0  # seconds; the machine may be busy
HELD = 50  # SPIDER_MAX_UNACKED of these runs

full = pytest.mark.faults_full


@pytest.fixture
def shop(begin):
    def make(url, source=TASKS, **env):
        run = begin(url, source, **{**QUICK, **env})
        run.namespace = "netspy:Shop"
        return run

    return make


def taken_over(run):
    """Wait until nothing is left of a dead node: neither leased tasks nor leased requests."""
    run.wait(lambda: not left_in_list(run)["taken"] and not run.count("z_inflight"), "its work is taken over")
    return run.recovered()


@pytest.mark.parametrize(
    "crash_at",
    [
        "after_take",
        pytest.param("after_take:2", marks=full),
        pytest.param("after_task_put", marks=full),
        pytest.param("after_task_put:3", marks=full),
        pytest.param("after_claim:2", marks=full),
        pytest.param("in_fetch:9", marks=full),
        pytest.param("before_store", marks=full),
        pytest.param("before_ack", marks=full),
        pytest.param("after_settle:2", marks=full),
    ],
)
def test_a_node_killed_after_it_took_tasks_loses_none(crash_at, either_url, shop, site, note):
    expected = serve_tasks(site, 60)
    run = shop(either_url)
    push(run, 60)
    run.wait_killed(run.node(crash_at=crash_at))
    before = left_in_list(run)
    run.finish(run.node())
    run.recovered()
    report = run.check(expected, fetched_twice=HELD)
    assert left_in_list(run) == NOTHING
    if crash_at.startswith("after_take"):
        assert before["taken"] > 0
    note("40" if crash_at.startswith("after_take") else "W24", run, report)


def test_w2_300_of_300_with_a_node_killed_in_the_middle(either_url, shop, site, note):
    expected = serve_tasks(site, 300, delay=0.01)
    gate = Gate(site, "/t/", after=130, delay=0.01)
    run = shop(either_url, TASK_BATCH_SIZE="50")
    push(run, 300)
    victim, survivor = run.node(), run.node()
    site.wait_hits(120)
    run.wait(lambda: run.leases_of(victim) and run.leases_of(survivor), "both have work")
    victim.kill()
    run.fault()
    gate.open()
    assert run.wait_taken_over(victim) < STALE + SLACK
    run.finish(survivor)
    report = run.check(expected, fetched_twice=HELD)
    assert len(run.stored()) == 300
    assert left_in_list(run) == NOTHING
    note("W2", run, report)


FETCHING = TASKS.replace(
    '    task_key = "shop"\n',
    """\
    task_key = "shop"

    def fetch_tasks(self, limit):
        with sqlite3.connect("rows.db", timeout=20) as db:
            rows = db.execute("SELECT id FROM row WHERE taken = 0 ORDER BY id LIMIT ?", (limit,)).fetchall()
            db.executemany("UPDATE row SET taken = 1 WHERE id = ?", rows)
        return [n for (n,) in rows]
""",
)


def rows_to_fetch(folder, count):
    with sqlite3.connect(folder / "rows.db") as db:
        db.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL)")
        db.executemany("INSERT INTO row VALUES (?, 0)", [(n,) for n in range(count)])
    db.close()


@pytest.mark.parametrize(
    "crash_at",
    [
        "after_fetch_tasks:2",
        pytest.param("after_task_put", marks=full),
        pytest.param("after_fetch_tasks", marks=full),
    ],
)
def test_rows_that_fetch_tasks_marked_as_taken_survive_its_node(crash_at, either_url, shop, site, note):
    assert FETCHING != TASKS
    expected = serve_tasks(site, 50)
    run = shop(either_url, FETCHING)
    rows_to_fetch(run.folder, 50)
    run.wait_killed(run.node(crash_at=crash_at))
    assert left_in_list(run)["taken"] > 0, "the database says they are taken, so nobody fetches them again"
    run.finish(run.node())
    run.recovered()
    report = run.check(expected, fetched_twice=HELD)
    assert left_in_list(run) == NOTHING
    note("W24", run, report)


GROWING = TASKS.replace(
    "        yield Page(url=request.url)\n",
    "        yield Page(url=request.url)\n        if task < 20:\n            self.add_tasks(task + 20, task + 40)\n",
)


@pytest.mark.parametrize(
    "crash_at", [pytest.param("after_actions", marks=full), pytest.param("before_ack", marks=full)]
)
def test_tasks_added_on_a_page_are_there_before_the_page_is_done(crash_at, either_url, shop, site, note):
    assert GROWING != TASKS
    expected = serve_tasks(site, 60)
    run = shop(either_url, GROWING, SPIDER_MAX_RETRY_TIMES="3")
    push(run, 20)
    run.wait_killed(run.node(crash_at=crash_at))
    if crash_at == "after_actions":
        left = left_in_list(run)
        assert left["waiting"] + left["taken"] > 0
        assert run.count("z_inflight") > 0, "their page is not acked"
    run.finish(run.node())
    run.recovered()
    report = run.check(expected, fetched_twice=None)
    assert left_in_list(run) == NOTHING
    note("40", run, report)


WIDE = (
    HEAD
    + """\
class Shop(mw.TaskSpider):
    task_key = "shop"

    def task_requests(self, task):
        for n in range(2000):
            if n == 1300 and not os.path.exists("died"):
                open("died", "w").close()
                os.kill(os.getpid(), 9)
            yield mw.Request(f"{SITE}/t/{n}", cb_kwargs={"task": task})

    def parse(self, request, response, task):
        yield Page(url=request.url)

    def task_done(self, task):
        with open("ended", "a") as file:
            file.write(f"{task}\\n")


if __name__ == "__main__":
    Shop().start()
"""
)


def test_a_node_killed_in_the_middle_of_a_tasks_2000_requests_puts_none_twice(either_url, shop, site, note):
    expected = serve_tasks(site, 2000)
    run = shop(either_url, WIDE, SPIDER_THREAD_COUNT="16", SPIDER_MAX_UNACKED="200")
    push(run, 1)
    victim = run.node()
    run.wait_killed(victim)
    run.finish(run.node())
    run.recovered()
    report = run.check(expected, fetched_twice=200)
    assert left_in_list(run) == NOTHING
    assert (run.folder / "ended").read_text() == "0\n", "the task ended once, after its last request"
    note("40", run, report)


DEADLY = TASKS.replace(
    '        time.sleep(env("DRAW_SLEEP"))\n',
    "        if task == 7:\n            os.kill(os.getpid(), 9)\n",
).replace(
    '\n\nif __name__ == "__main__"',
    """
    def task_failed(self, task):
        with open("failed", "a") as file:
            file.write(f"{task}\\n")


if __name__ == "__main__\"""",
)


def test_a_task_that_kills_its_process_every_time_fails_and_its_neighbours_do_not(
    either_url, shop, site, note
):
    expected = serve_tasks(site, 30) - {site.url("/t/7")}
    run = shop(either_url, DEADLY, HEARTBEAT_INTERVAL="0.15", HEARTBEAT_STALE="0.6")
    push(run, 30)
    run.fault()
    # The last node may have nothing but the deadly task, which it fails: code 6.
    killed = run.finish_by_restarts(at_most=8, codes=(0, 6))
    run.recovered()
    assert killed == 5, "twice with others, three times alone"
    report = run.check(expected, fetched_twice=HELD)
    [record] = failed_tasks(run)
    assert (record["task"], record["deliveries"]) == ("7", 6)
    assert "died 5 times" in record["error"]
    assert (run.folder / "failed").read_text() == "7\n", "the spider was told"
    assert left_in_list(run) == {**NOTHING, "failed": 1}
    note("40", run, report)


def test_redis_killed_and_back_in_the_middle_loses_no_task(either_binary, own_server, shop, site, note):
    server = own_server(either_binary, appendfsync="everysec")
    expected = serve_tasks(site, 200, delay=0.02)
    gate = Gate(site, "/t/", after=100, delay=0.02)
    run = shop(server.url)
    push(run, 200)
    nodes = [run.node(), run.node()]
    site.wait_hits(60)
    server.kill()
    run.fault()
    server.restart()
    fetched = site.total
    gate.open()
    run.wait(lambda: site.total > fetched + 10, "the crawl goes on")
    run.recovered()
    run.finish(*nodes)
    report = run.check(expected, fetched_twice=2 * HELD)
    assert left_in_list(run) == NOTHING
    note("40", run, report)


def test_a_stopped_node_gives_its_tasks_back_at_once(either_url, shop, site, note):
    """SIGTERM while the requests of a task are being drawn: nothing waits for a lease."""
    expected = serve_tasks(site, 40)
    run = shop(either_url, HEARTBEAT_STALE="60", HEARTBEAT_INTERVAL="1", DRAW_SLEEP="0.1", KEEP="1")
    push(run, 40)
    first = run.node(SPIDER_KEEP_ALIVE="true")
    site.wait_hits(8)
    first.terminate()
    run.fault()
    run.finish(first, code=143)
    run.recovered()
    second = run.node(DRAW_SLEEP="0")
    run.finish(second, timeout=30)
    report = run.check(expected, fetched_twice=0)
    assert left_in_list(run) == NOTHING
    note("40", run, report)


FORGOTTEN = (
    HEAD
    + """\
def there(name):
    while not os.path.exists(name):
        time.sleep(0.01)


class Shop(mw.TaskSpider):
    task_key = "shop"

    def task_requests(self, task):
        there("go")
        for n in range(560):
            if n == 510:
                there("rest")
            yield mw.Request(f"{SITE}/t/{n}")

    def parse(self, request, response):
        yield Page(url=request.url)


if __name__ == "__main__":
    Shop().start()
"""
)
"""One task of 560 requests: none before the file `go` is there, and the last fifty after the file `rest`."""

FORGOTTEN_FETCHED = FORGOTTEN.replace(
    "    def task_requests(self, task):\n",
    """\
    def fetch_tasks(self, limit):
        there("go")
        if os.path.exists("fetched"):
            return []
        open("fetched", "w").close()
        return ["once only"]

    def task_requests(self, task):
""",
)

FORGOTTEN_LATE = FORGOTTEN.replace(
    'if __name__ == "__main__":\n',
    """\
from netspy.blocking import in_thread
from netspy.tasks.redis.list import RedisTaskList

settled = RedisTaskList.settled


async def late(self, tasks):
    await in_thread(lambda: there("settled"))
    await settled(self, tasks)


RedisTaskList.settled = late

if __name__ == "__main__":
""",
)
"""The task list hears of the end of the feeding only after the file `settled` is there."""


@pytest.mark.parametrize(
    "source", ["list", "fetch_tasks", "list that hears of it late", pytest.param("table", marks=full)]
)
def test_requests_of_a_task_that_redis_has_forgotten_are_put_again(
    source, either_binary, own_server, shop, site, note
):
    """The snapshot is older than the first of a task's requests; the last ones are put after it is back."""
    server = own_server(either_binary, save="3600 1000000")
    expected = serve_tasks(site, 560)
    gate = Gate(site, "/t/")
    late = source == "list that hears of it late"
    script = {"fetch_tasks": FORGOTTEN_FETCHED, "list that hears of it late": FORGOTTEN_LATE}
    run = shop(server.url, script.get(source, FORGOTTEN), SPIDER_THREAD_COUNT="16")
    more = {}
    if source == "table":
        more["TASK_SOURCE"] = f"{make_table(run.folder, ['one'])}?table=crawl_task"
    elif source != "fetch_tasks":
        push(run, 1)
    node = run.node(**more)
    if source == "table":
        run.wait(lambda: states(run.folder) == {2: 1}, "the row is taken")
    elif source != "fetch_tasks":
        run.wait(lambda: left_in_list(run)["taken"], "the task is taken")
    run.wait(
        lambda: (run.client.get("netspy:Shop:lock:seed") or b"").startswith(b"seeded"), "the run has begun"
    )
    run.client.save()
    (run.folder / "go").touch()
    if late:
        (run.folder / "rest").touch()
    put = 560 if late else 500
    run.wait(lambda: run.count("z_requests") + run.count("z_inflight") >= put, f"{put} requests are put")
    server.kill()
    server.start()
    run.fault()
    assert run.count("z_requests") + run.count("z_inflight") == 0, "they are forgotten"
    for name in ("rest", "settled"):
        (run.folder / name).touch()
    gate.open()
    run.finish(node)
    run.recovered()
    report = run.check(expected, fetched_twice=2 * HELD)
    assert left_in_list(run) == NOTHING
    if source == "table":
        assert states(run.folder) == {1: 1}
    note("17b", run, report)


ROWS = (
    HEAD
    + """\
class Shop(mw.TaskSpider):
    def task_requests(self, task):
        while not os.path.exists("go"):
            time.sleep(0.01)
        yield mw.Request(task["url"])

    def parse(self, request, response):
        yield Page(url=request.url)


if __name__ == "__main__":
    Shop().start()
"""
)
"""Each row of the table is one page, asked for after the file `go` is there."""


@pytest.fixture
def table(either_binary, own_server, shop, site):
    """A node with sixty rows of a table in Redis, and a snapshot of Redis before that: run, server, node, gate, pages."""
    server = own_server(either_binary, save="3600 1000000")
    expected = serve_tasks(site, 60)
    gate = Gate(site, "/t/", after=20)
    run = shop(server.url, ROWS, TASK_BATCH_SIZE="60", SPIDER_MAX_UNACKED="20")
    run._env["TASK_SOURCE"] = f"{make_table(run.folder, sorted(expected))}?table=crawl_task"
    node = run.node()
    run.wait(lambda: states(run.folder) == {2: 60}, "all rows are taken")
    run.wait(
        lambda: (run.client.get("netspy:Shop:lock:seed") or b"").startswith(b"seeded"), "the run has begun"
    )
    run.client.save()
    (run.folder / "go").touch()
    run.wait(lambda: states(run.folder).get(1, 0) >= 10, "the first rows are done")
    run.wait(lambda: run.count("z_requests") + run.count("z_inflight") >= 20, "the rest is in Redis")
    return run, server, node, gate, expected


def test_rows_of_a_table_that_redis_has_forgotten_are_not_called_done(table, note):
    run, server, node, gate, expected = table
    server.kill()
    server.start()
    run.fault()
    assert run.count("z_requests") + run.count("z_inflight") == 0
    run.wait(lambda: run.count("z_requests"), "they are put again")
    assert not done_without_rows(run)
    run.recovered()
    gate.open()
    run.finish(node)
    report = run.check(expected, fetched_twice=2 * HELD)
    assert states(run.folder) == {1: 60}
    note("17b", run, report)


@pytest.mark.parametrize("how", ["back with nothing", pytest.param("flushed", marks=full)])
def test_a_redis_that_forgot_the_run_calls_no_row_of_a_table_done(how, table, note):
    run, server, node, gate, expected = table
    if how == "flushed":
        server.flush()
    else:
        server.kill()
        (server.folder / "dump.rdb").unlink()
        server.start()
    run.fault()
    run.finish(node, code=5)
    run.recovered()
    assert not done_without_rows(run)
    gate.open()
    run.finish(run.node())
    report = run.check(expected, fetched_twice=2 * HELD)
    assert states(run.folder) == {1: 60}
    note("18b", run, report)
