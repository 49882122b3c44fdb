"""`netspy tasks`: pushing files, counting, failed tasks; and what `status` and `reset` do with tasks."""

import json
import os
import signal
import sys

import pytest
from cli_rig import NETSPY, one_line

from netspy.redisio.keys import task_list
from netspy.tasks.redis.list import TaskKeys
from netspy.testing.children import wait_until
from netspy.testing.runner import run_command, start_command
from netspy.testing.servers import free_port

SPIDER = """
import os
import netspy as mw


class Products(mw.TaskSpider):
    __custom_setting__ = dict(
        PROGRESS="off", TASK_POLL_INTERVAL=0.1, HEARTBEAT_INTERVAL=0.3, SPIDER_MAX_RETRY_TIMES=0,
        ITEM_PIPELINES=["netspy.pipelines.jsonl.JsonlPipeline"],
    )

    def task_requests(self, task):
        yield mw.Request(f"{os.environ['SITE']}/p/{task['id']}")

    def parse(self, request, response):
        yield {"url": request.url}

    def task_done(self, task):
        pass
"""
LIST = "netspy:Products:tasks"


@pytest.fixture
def tasks(rig):
    (rig.folder / "products.py").write_text(SPIDER)
    return rig


def pushed(redis):
    return [json.loads(text) for text in redis.lrange(LIST, 0, -1)]


def test_a_file_is_pushed_counted_crawled_and_its_failures_are_listed_and_pushed_again(tasks, redis, here):
    (tasks.folder / "t.jsonl").write_text('{"id": 1}\n\n{"id": 2}\n"no dict"\n')
    assert (
        here("tasks", "push", "t.jsonl", "--spider", "products.py").check().stdout
        == f"pushed 3 tasks to {LIST}\n"
    )
    assert pushed(redis) == [{"id": 1}, {"id": 2}, "no dict"]
    seen = json.loads(here("tasks", "status", "products.py", "--json").check().stdout)
    assert (seen["waiting"], seen["taken"], seen["failed"], seen["open"]) == (3, 0, 0, 0)
    assert tasks("run", "products.py").check().summary["items"] == 2
    result = here("tasks", "status", "products.py").check()
    assert "failed\t1\n" in result.stdout
    assert "done\t2\n" in result.stdout
    assert "netspy tasks failed" in result.stderr
    listed = here("tasks", "failed", "products.py").check().stdout.splitlines()
    assert [line.split("\t")[0] for line in listed] == ["n", "1"]
    assert "TypeError" in listed[1]
    assert json.loads(here("tasks", "failed", "--task-key", "Products", "--json").stdout)["task"] == "no dict"
    nothing = here("tasks", "retry", "products.py", "--error", "Timeout").check().stdout
    assert nothing == f"pushed 0 failed tasks again to {LIST}\n"
    one_line(here("tasks", "retry", "products.py", "2"), 3, "no failed task 2", "there are 1")
    again = here("tasks", "retry", "products.py", "1").check().stdout
    assert again == f"pushed 1 failed task again to {LIST}\n"
    assert pushed(redis) == ["no dict"]
    assert "no failed task" in here("tasks", "failed", "products.py").check().stderr


def test_a_bad_line_ends_it_with_nothing_pushed_and_can_be_left_out(tasks, redis, here):
    (tasks.folder / "t.jsonl").write_text('{"id": 1}\n' * 1500 + "oops\n" + '{"id": 2}\n')
    one_line(
        here("tasks", "push", "t.jsonl", "--spider", "products.py"), 3, "line 1501", "'oops'", "--skip-bad"
    )
    assert redis.llen(LIST) == 0
    result = here("tasks", "push", "t.jsonl", "--spider", "products.py", "--skip-bad").check()
    assert result.stdout == f"pushed 1,501 tasks to {LIST}\n"
    assert "line 1501 is left out" in result.stderr
    assert "1 line left out" in result.stderr
    assert redis.llen(LIST) == 1501
    assert redis.lindex(LIST, -1) == '{"id":2}'


def test_standard_input_is_pushed_in_pieces_and_says_where_to_go_on(tasks, redis):
    lines = tasks.folder / "lines"
    lines.write_text('{"id": 1}\n' * 2300 + "oops\n")
    script = f"{' '.join(NETSPY)} tasks push - --task-key Products < lines"
    result = run_command(["sh", "-c", script], cwd=tasks.folder, env=tasks.env).check(3)
    assert redis.llen(LIST) == 2000
    assert "2,000 tasks pushed before that; go on with --from-line 2001" in result.stderr
    assert "line 2301" in result.stderr
    lines.write_text('{"id": 1}\n' * 2300)
    rest = script.replace("tasks push -", "tasks push - --from-line 2001")
    run_command(["sh", "-c", rest], cwd=tasks.folder, env=tasks.env).check()
    assert redis.llen(LIST) == 2300


def test_ctrl_c_while_it_waits_for_more_input_says_where_to_go_on(tasks, redis):
    os.mkfifo(tasks.folder / "lines")
    script = f"exec {' '.join(NETSPY)} tasks push - --task-key Products < lines"
    with start_command(["sh", "-c", script], cwd=tasks.folder, env=tasks.env) as running:
        with (tasks.folder / "lines").open("w") as pipe:
            pipe.write('{"id": 1}\n' * 1500)
            pipe.flush()
            assert wait_until(lambda: redis.llen(LIST) == 1000, 60)
            running.signal(signal.SIGINT)
            result = running.finish(60).check(130)
    assert result.stderr == "netspy: 1,000 tasks pushed before that; go on with --from-line 1001\n"
    assert redis.llen(LIST) == 1000


def test_standard_input_that_was_closed_is_one_clear_error(tasks, redis, here, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    one_line(here("tasks", "push", "-", "--spider", "products.py"), 3, "standard input is closed")


def test_a_csv_file_on_a_terminal_shows_how_far_it_is(tasks, redis):
    (tasks.folder / "t.csv").write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in range(1200)))
    code, screen = tasks.on_terminal("tasks", "push", "t.csv", "--spider", "products.py")
    assert code == 0
    assert "pushed 1,000 of 1,200  " in screen
    assert screen.endswith(f"pushed 1,200 tasks to {LIST}\n")
    assert pushed(redis)[3] == {"id": "3", "name": "n3"}


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["push", "t.txt"], 2, ["--task-key NAME"]),
        (["push", "none.txt", "--task-key", "x"], 3, ["none.txt", "No such file"]),
        (["push", "t.dat", "--task-key", "x"], 3, ["--format"]),
        (["push", "t.txt", "--task-key", "x", "--format", "xml"], 2, ["xml", "jsonl"]),
        (["push", "t.txt", "--spider", "main.py"], 3, ["Pages is a Spider", "TaskSpider"]),
        (["push", "t.txt", "--spider", "air.py"], 3, ["Air is an AirSpider"]),
        (["push", "t.txt", "--spider", "products.py", "-s", "TASK_SOURCE=memory"], 3, ["memory"]),
        (["push", "t.txt", "--spider", "products.py", "-s", "TASK_SOURCE=ftp://x"], 3, ["ftp"]),
        (["status"], 2, ["--task-key NAME"]),
        (["failed", "products.py", "-s", "TASK_SOURCE=amqp://u:s3cret@h/"], 3, ["***", "NAME.failed"]),
        (["retry", "products.py", "0"], 2, ["begin at 1"]),
    ],
)
def test_what_can_not_be_done_is_one_line(tasks, arguments, code, parts, here):
    (tasks.folder / "t.txt").write_text("a\n")
    (tasks.folder / "t.dat").write_text("a\n")
    result = here("tasks", *arguments)
    one_line(result, code, *parts)
    assert "s3cret" not in result.stderr


def test_a_redis_that_is_away_is_exit_code_5(tasks, here):
    (tasks.folder / "t.txt").write_text("a\n")
    away = {"NETSPY_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0", "NETSPY_REDIS_START_TIMEOUT": "0.2"}
    one_line(here("tasks", "push", "t.txt", "--spider", "products.py", **away), 5, "redis://127.0.0.1")


def test_rows_that_a_task_table_would_not_take_are_named_by_their_lines(tasks, sqlite_url, here):
    from support.batch_tables import CREATE, admin

    with admin(sqlite_url) as connection:
        connection.exec_driver_sql(CREATE["sqlite"])
    (tasks.folder / "t.jsonl").write_text('{"url": "http://a/"}\n"http://b/"\n')
    source = f"TASK_SOURCE={sqlite_url}?table=crawl_task"
    push = ("tasks", "push", "t.jsonl", "--spider", "products.py", "-s", source)
    one_line(here(*push), 3, "lines 1 to 2", "dict of its columns", "none of them was pushed")
    (tasks.folder / "t.jsonl").write_text('{"url": "http://a/"}\n')
    assert here(*push).check().stdout.startswith("pushed 1 task to sqlite:///")
    with admin(sqlite_url) as connection:
        assert connection.exec_driver_sql("SELECT url FROM crawl_task").all() == [("http://a/",)]
    counted = here("tasks", "status", "products.py", "--json", "-s", source).check()
    assert json.loads(counted.stdout)["waiting"] == 1


@pytest.mark.parametrize("store", ["server", "embedded"])
def test_a_stream_is_pushed_to_and_looked_at_without_a_group_for_a_mistyped_name(tasks, redis, here, store):
    (tasks.folder / "t.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    env = {"NETSPY_REDIS_URL": "embedded"} if store == "embedded" else {}
    source = ("-s", "TASK_SOURCE=stream:netspy:shop")
    pushed = here("tasks", "push", "t.jsonl", "--task-key", "Prodcuts", *source, **env).check()
    assert pushed.stdout == "pushed 2 tasks to stream:netspy:shop\n"
    counted = json.loads(here("tasks", "status", "products.py", "--json", *source, **env).check().stdout)
    assert (counted["waiting"], counted["taken"], counted["failed"]) == (2, 0, 0)
    if store == "server":
        assert redis.xinfo_groups("netspy:shop") == []
    one_line(here("tasks", "failed", "products.py", *source, **env), 3, "KEY:failed")


def test_a_reset_leaves_the_task_list_unless_it_is_told_to_clear_it(tasks, redis, here):
    (tasks.folder / "t.jsonl").write_text('{"id": 1}\n')
    here("tasks", "push", "t.jsonl", "--spider", "products.py").check()
    tasks("run", "products.py").check()
    here("tasks", "push", "t.jsonl", "--spider", "products.py").check()
    shown = here("status", "products.py", "--no-rate").check().stdout
    assert "class\tProducts (task)\n" in shown
    assert "open tasks\t0\n" in shown
    first = here("reset", "products.py", "--yes").check()
    assert f"{LIST} keeps its 1 task; --tasks removes them too" in first.stderr
    assert redis.llen(LIST) == 1
    assert {key for key in redis.scan_iter() if not key.startswith(LIST)} == set()
    second = here("reset", "products.py", "--yes", "--tasks").check()
    assert second.stdout.splitlines()[1].split("\t")[:3] == [LIST, "2", "1"]
    assert {key for key in redis.scan_iter() if ":call:" not in key} == set()
    one_line(here("reset", "main.py", "--tasks", "--yes"), 3, "no task list")
    one_line(here("reset", "products.py", "--tasks", "--dedup"), 2, "--tasks goes with the whole job")


def test_the_keys_that_reset_knows_are_those_that_the_source_uses():
    assert task_list("x") == TaskKeys("x").all()
