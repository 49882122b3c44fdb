"""A TaskSpider without a server: the feeder, its hooks, and what becomes of tasks that can't be used."""

from __future__ import annotations

import asyncio
import threading

import pytest

import netspy as mw
from netspy.tasks.memory import MemoryTaskSource

QUICK = {
    "TASK_POLL_INTERVAL": 0.05,
    "TASK_EXHAUST_POLLS": 2,
    "DONE_CHECK_INTERVAL": 0.05,
    "SPIDER_RETRY_INTERVAL": 0.0,
}


def crawl(cls, tasks, **kw):
    rows = []
    source = tasks if isinstance(tasks, MemoryTaskSource) else MemoryTaskSource(tasks)
    spider = cls(task_source=source, item_handler=rows.extend, **{**QUICK, **kw})
    summary = spider.run()
    return spider, source, rows, summary


class Plain(mw.TaskSpider):
    """Requests that need no fetch, so no site is needed."""

    def task_requests(self, task):
        yield mw.Request(f"http://x.invalid/{task}", auto_request=False, cb_kwargs={"task": task})

    def parse(self, request, response, task):
        yield {"task": task}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_task_is_served_and_the_run_ends_by_itself():
    spider, source, rows, summary = crawl(Plain, range(250))
    assert sorted(row["task"] for row in rows) == list(range(250))
    assert (summary.outcome, summary.tasks_taken) == ("finished", 250)
    assert source.left() == []
    assert not spider.shared


def test_equal_tasks_are_all_served():
    _, _, rows, _ = crawl(Plain, ["a", "a", "b"])
    assert sorted(row["task"] for row in rows) == ["a", "a", "b"]


def test_no_task_is_nothing_to_do():
    _, _, rows, summary = crawl(Plain, [])
    assert (rows, summary.outcome, summary.exit_code) == ([], "nothing_to_do", 0)


def test_the_end_of_a_task_is_told_after_its_children_are_done():
    told = []

    class Deep(Plain):
        def parse(self, request, response, task):
            yield mw.Request(
                f"http://x.invalid/{task}/more",
                callback=self.more,
                auto_request=False,
                cb_kwargs={"task": task},
            )

        def more(self, request, response, task):
            told.append(("more", task))
            yield {"task": task}
            if task == "bad":
                raise ValueError("broken page")

        def task_done(self, task):
            told.append(("done", task))

        def task_failed(self, task):
            told.append(("failed", task))
            yield {"task": f"failed {task}"}

    _, _, rows, summary = crawl(Deep, ["good", "bad"], SPIDER_MAX_RETRY_TIMES=0)
    assert told.index(("more", "good")) < told.index(("done", "good"))
    assert told.index(("more", "bad")) < told.index(("failed", "bad"))
    assert {"task": "failed bad"} in rows
    assert (summary.tasks_done, summary.tasks_failed, summary.request_ok) == (1, 1, 3)


def test_task_requests_that_raises_is_tried_again_and_then_told_of():
    calls, told = [], []

    class Raising(Plain):
        def task_requests(self, task):
            calls.append(task)
            if task == "bad" or (task == "flaky" and calls.count("flaky") < 2):
                raise ValueError("cannot be turned into requests")
            yield from super().task_requests(task)

        def task_failed(self, task):
            told.append(task)

    _, source, rows, summary = crawl(Raising, ["bad", "flaky", "good"], SPIDER_MAX_RETRY_TIMES=1)
    assert sorted(row["task"] for row in rows) == ["flaky", "good"]
    assert calls.count("bad") == 2
    assert told == ["bad"]
    assert [task for task, _ in source.failures] == ["bad"]
    assert summary.reasons == {"task_requests": 1}


def test_many_requests_of_one_task_come_in_pieces_and_end_once():
    ends = []

    class Wide(mw.TaskSpider):
        def task_requests(self, task):
            for n in range(1300):
                yield mw.Request(f"http://x.invalid/{n}", auto_request=False, cb_kwargs={"n": n})

        def parse(self, request, response, n):
            yield {"n": n}

        def task_done(self, task):
            ends.append(task)

    _, _, rows, _ = crawl(Wide, ["one"])
    assert sorted(row["n"] for row in rows) == list(range(1300))
    assert ends == ["one"]


@pytest.mark.parametrize("kind", ["coroutine", "async generator", "returned list", "a text"])
def test_task_requests_may_be_written_in_any_way(kind):
    class Any(Plain):
        if kind == "coroutine":

            async def task_requests(self, task):
                await asyncio.sleep(0)
                return list(Plain.task_requests(self, task))

        elif kind == "async generator":

            async def task_requests(self, task):
                await asyncio.sleep(0)
                for request in Plain.task_requests(self, task):
                    yield request

        elif kind == "returned list":

            def task_requests(self, task):
                return list(Plain.task_requests(self, task))

        else:

            def task_requests(self, task):
                return "http://x.invalid/page"

            def request_from_seed(self, url):
                return mw.Request(url, auto_request=False, cb_kwargs={"task": url})

    _, _, rows, _ = crawl(Any, ["t"])
    assert rows == [{"task": "http://x.invalid/page" if kind == "a text" else "t"}]


@pytest.mark.parametrize(
    "kind", ["plain", "generator", "coroutine", "async generator", "handed on", "too many"]
)
def test_fetch_tasks_brings_more_until_it_has_none(kind):
    left, threads = list(range(30)), set()

    def take(limit):
        threads.add(threading.current_thread().name)
        limit = 30 if kind == "too many" else limit
        some, left[:limit] = left[:limit], []
        return some or None

    class Fetching(Plain):
        if kind == "coroutine":

            async def fetch_tasks(self, limit):
                return take(limit)

        elif kind == "async generator":

            async def fetch_tasks(self, limit):
                for task in take(limit) or ():
                    yield task

        elif kind == "generator":

            def fetch_tasks(self, limit):
                yield from take(limit) or ()

        elif kind == "handed on":

            def fetch_tasks(self, limit):
                return asyncio.sleep(0, tuple(take(limit) or ()))

        else:

            def fetch_tasks(self, limit):
                return take(limit)

    _, source, rows, summary = crawl(Fetching, ["pushed"], TASK_BATCH_SIZE=7)
    assert {row["task"] for row in rows} == {"pushed", *range(30)}
    assert source.left() == []
    assert summary.reasons == {}
    on_the_loop = {"MainThread"} if "async" in kind or kind == "coroutine" else set()
    assert {name for name in threads if not name.startswith("netspy-callback")} == on_the_loop


@pytest.mark.parametrize("given", [{"id": 1}, "http://x.invalid/", b"1", 7])
def test_fetch_tasks_that_gives_no_list_is_told_so_and_nothing_is_made_of_it(given):
    class Wrong(Plain):
        def fetch_tasks(self, limit):
            return given

    _, _, rows, summary = crawl(Wrong, [], SPIDER_MAX_RETRY_TIMES=0)
    assert rows == []
    assert summary.exit_code == 7
    assert f"it returned {type(given).__name__} {given!r}; return a list of tasks" in summary.reason


def test_a_fetched_task_that_cannot_travel_takes_no_other_one_along(capfd):
    rounds = [[1, object(), 3]]

    class Mixed(Plain):
        def fetch_tasks(self, limit):
            return rounds.pop() if rounds else []

    _, source, rows, summary = crawl(Mixed, [])
    assert sorted(row["task"] for row in rows) == [1, 3]
    assert source.left() == []
    assert summary.reasons == {"fetch_tasks": 1}
    assert "Mixed.fetch_tasks: task <object object" in capfd.readouterr().err


@pytest.mark.parametrize("wrong", [mw.Request("no url"), 5, "mailto:somebody"])
def test_a_task_of_which_nothing_can_be_taken_has_failed(wrong):
    told = []

    class Wrong(Plain):
        def task_requests(self, task):
            if task == "half":
                yield from super().task_requests(task)
            yield wrong

        def task_done(self, task):
            told.append(f"done {task}")

        def task_failed(self, task):
            told.append(f"failed {task}")

    _, source, rows, summary = crawl(Wrong, ["whole", "half"])
    assert rows == [{"task": "half"}]
    assert sorted(told) == ["done half", "failed whole"]
    [(task, why)] = source.failures
    assert task == "whole"
    assert repr(wrong) in why or "URL" in why or "can't take" in why
    assert summary.reasons == {"task_requests": 1}


def test_tasks_that_yield_nothing_are_done_and_the_end_says_that_there_were_some(capfd):
    told = []

    class Nothing(Plain):
        def task_requests(self, task):
            return None

        def task_done(self, task):
            told.append(task)

    _, source, _, summary = crawl(Nothing, [1, 2])
    assert sorted(told) == [1, 2]
    assert (source.left(), source.failures) == ([], [])
    assert summary.outcome == "nothing_to_do"
    assert "task_requests yielded no request for 2 task(s)" in capfd.readouterr().err


def test_fetch_tasks_that_always_raises_is_a_failed_run():
    class Broken(Plain):
        def fetch_tasks(self, limit):
            raise OSError("no database")

    _, _, rows, summary = crawl(Broken, ["pushed"], SPIDER_MAX_RETRY_TIMES=1)
    assert rows == [{"task": "pushed"}], "what was there is crawled"
    assert (summary.outcome, summary.exit_code) == ("failed", 7)
    assert "fetch_tasks" in summary.reason
    assert "no database" in summary.reason


def test_tasks_added_on_a_page_are_served_in_the_same_run():
    class Growing(Plain):
        def parse(self, request, response, task):
            yield {"task": task}
            if task < 5:
                self.add_tasks(task + 1)

    _, _, rows, _ = crawl(Growing, [0])
    assert [row["task"] for row in rows] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("where", ["start_requests", "task_requests", "parse", "task_done"])
def test_tasks_may_be_added_anywhere_also_to_the_memory_that_a_setting_names(where):
    rounds, rows = [["first"]], []

    def told(self, here, task=None):
        if here == where and task in {None, "first"}:
            self.add_tasks("added")

    class Adding(Plain):
        def fetch_tasks(self, limit):
            return rounds.pop() if rounds else []

        def start_requests(self):
            told(self, "start_requests")
            return ()

        def task_requests(self, task):
            told(self, "task_requests", task)
            return super().task_requests(task)

        def parse(self, request, response, task):
            told(self, "parse", task)
            return super().parse(request, response, task)

        def task_done(self, task):
            told(self, "task_done", task)

    Adding(TASK_SOURCE="memory", item_handler=rows.extend, **QUICK).run()
    assert sorted(row["task"] for row in rows) == ["added", "first"]


def test_a_task_that_cannot_travel_is_refused_where_it_is_added():
    class Wrong(Plain):
        def parse(self, request, response, task):
            self.add_tasks({"lock": object()})

    _, _, _, summary = crawl(Wrong, ["t"], SPIDER_MAX_RETRY_TIMES=0)
    assert (summary.request_failed, summary.parse_error) == (1, 1)


def test_children_are_deduplicated_and_requests_of_tasks_are_not():
    seen = []

    class Same(mw.TaskSpider):
        def task_requests(self, task):
            yield mw.Request("http://x.invalid/same", auto_request=False)

        def parse(self, request, response):
            seen.append("same")
            yield mw.Request("http://x.invalid/child", callback=self.child, auto_request=False)

        def child(self, request, response):
            seen.append("child")

    crawl(Same, [1, 2, 3])
    assert (seen.count("same"), seen.count("child")) == (3, 1)


def test_a_spider_without_task_requests_cannot_start():
    class Bare(mw.TaskSpider):
        pass

    with pytest.raises(mw.ConfigError, match="task_requests"):
        Bare(task_source=MemoryTaskSource()).run()
