"""Whatever user code raises is an error of that page, hook or batch: the crawl goes on and ends. In this process.

asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit and a BaseException of one's own are no Exceptions:
each one that gets through to netspy's own tasks stops a worker, the seeding or the storing, and the crawl hangs.
"""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from air_support import Air, Memory, crawl, ok
from test_air_hooks import made_async

import netspy as mw
from netspy.engine.claimer import Claimer
from netspy.engine.leases.keeper import LeaseKeeper
from netspy.engine.leases.outbox import Outbox
from netspy.engine.page.effects import Effects
from netspy.engine.page.handler import PageHandler
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.seeding import Seeder
from netspy.engine.tasks.feeder import Feeder
from netspy.errors import UserCodeError
from netspy.pipelines.base import BasePipeline
from netspy.tasks.memory import MemoryTaskSource

pytestmark = [pytest.mark.usefixtures("workdir"), pytest.mark.timeout(20)]


class Own(BaseException):
    """As of gevent.Timeout's kind."""


RAISED = {
    "cancelled": asyncio.CancelledError, "generator": GeneratorExit, "interrupt": KeyboardInterrupt, "exit": SystemExit,
    "own": Own,
}  # fmt: skip
REASONS = {"CancelledError": 1, "GeneratorExit": 1, "KeyboardInterrupt": 1, "SpiderError": 1, "Own": 1}
TIMES = len(RAISED)
EACH = pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)


def attack(request, stage=""):
    """Raise what the page's path says."""
    where, name = request.url.split("/")[-2:]
    if (not stage or where == stage) and name in RAISED:
        raise RAISED[name]("on purpose")


class Pages(Air):
    """A page for each of the errors, and one that is fine."""

    paths = (*(f"/p/{name}" for name in RAISED), "/p/fine")
    __custom_setting__ = {**Air.__custom_setting__, "SPIDER_MAX_RETRY_TIMES": 1}

    def parse(self, request, response):
        yield {"path": request.url.rpartition("/")[2]}


class InFunction(Pages):
    def parse(self, request, response):
        attack(request)
        return [{"path": "fine"}]


class InGenerator(Pages):
    def parse(self, request, response):
        yield None
        attack(request)
        yield {"path": "fine"}


class InCoroutine(Pages):
    async def parse(self, request, response):
        attack(request)
        return [{"path": "fine"}]


class InAsyncGenerator(Pages):
    async def parse(self, request, response):
        yield None
        attack(request)
        yield {"path": "fine"}


class InHandedOn(Pages):
    def parse(self, request, response):
        return self.later(request)

    async def later(self, request):
        await asyncio.sleep(0)
        attack(request)
        return [{"path": "fine"}]


class InValidate(Pages):
    def validate(self, request, response):
        attack(request)


class InValidateOfAsync(InCoroutine):
    def validate(self, request, response):
        attack(request)


class InMidware(Pages):
    def download_midware(self, request):
        attack(request)


class InOwnMidware(Pages):
    def start_requests(self):
        yield [mw.Request(self.url(path), download_midware="mine") for path in self.paths]

    def mine(self, request):
        attack(request)


def asynchronous(plain, *names):
    """The same spider with these methods as `async def`."""
    changed = {name: made_async(vars(plain)[name]) for name in names}
    return type(f"Async{plain.__name__}", (plain,), changed)


@pytest.mark.parametrize(
    "spider",
    [
        InFunction, InGenerator, InCoroutine, InAsyncGenerator, InHandedOn, InValidate, InValidateOfAsync, InMidware,
        InOwnMidware, asynchronous(InValidate, "validate"), asynchronous(InValidateOfAsync, "validate"),
        asynchronous(InMidware, "download_midware"), asynchronous(InOwnMidware, "mine"),
    ],
)  # fmt: skip
def test_the_page_is_tried_again_and_then_failed_ho_01(home, spider, capsys):
    summary, memory, _ = crawl(spider, home)
    ok(summary)
    assert summary.reasons == REASONS
    assert (summary.request_ok, summary.request_failed, summary.retry) == (1, TIMES, TIMES)
    assert memory.data() == [{"path": "fine"}]
    log = capsys.readouterr().err
    if summary.parse_error:
        assert summary.parse_error == 2 * TIMES
        assert "(test_air_raised.py:" in log
    for name in ("CancelledError", "GeneratorExit", "KeyboardInterrupt", "Own"):
        assert f"{name}: on purpose" in log
    assert "sys.exit(on purpose) was called" in log


class Middleware:
    """Raises at the stage that the page's path names."""

    def process_request(self, request):
        attack(request, "request")

    def process_response(self, request, response):
        attack(request, "response")
        return response

    def process_exception(self, request, exception):
        attack(request, "exception")


class AsyncMiddleware(Middleware):
    async def process_request(self, request):
        attack(request, "request")

    async def process_response(self, request, response):
        await asyncio.sleep(0)
        attack(request, "response")
        return response

    async def process_exception(self, request, exception):
        attack(request, "exception")


@pytest.mark.parametrize("kind", ["Middleware", "AsyncMiddleware"])
def test_a_middleware_costs_the_fetch_ho_01(home, kind):
    class Spider(Pages):
        paths = (
            *(f"/{stage}/{name}" for stage, name in product(("request", "response"), RAISED)), "/p/fine",
        )  # fmt: skip

        def start_requests(self):
            yield from super().start_requests()
            for name in RAISED:
                yield mw.Request(f"http://127.0.0.1:1/exception/{name}")

    summary, memory, _ = crawl(Spider, home, DOWNLOADER_MIDDLEWARES=[f"{__name__}.{kind}"])
    ok(summary)
    assert summary.reasons == {name: 3 for name in REASONS}
    assert memory.data() == [{"path": "fine"}]


class InSub(Pages):
    def parse(self, request, response):
        name = request.url.rpartition("/")[2]
        self.sub(name).download()
        yield {"path": name}

    def sub(self, name):
        return mw.Request(self.url(f"/request/{name}"))


class InAsyncSub(InSub):
    async def parse(self, request, response):
        name = request.url.rpartition("/")[2]
        await self.sub(name).fetch()
        yield {"path": name}


@pytest.mark.parametrize("spider", [InSub, InAsyncSub])
@pytest.mark.parametrize("kind", ["Middleware", "AsyncMiddleware"])
def test_a_download_inside_a_callback_is_an_error_of_the_callback_ho_01(home, spider, kind):
    summary, memory, _ = crawl(spider, home, DOWNLOADER_MIDDLEWARES=[f"{__name__}.{kind}"])
    ok(summary)
    assert summary.reasons == REASONS
    assert memory.data() == [{"path": "fine"}]


class InHooks(Pages):
    """Each page fails for good, and then every hook of it raises."""

    def start_requests(self):
        yield [mw.Request(self.url(path), errback="oops") for path in self.paths]

    def parse(self, request, response):
        raise ZeroDivisionError

    def exception_request(self, request, response, exception):
        yield {"hook": "exception_request"}
        attack(request)

    def oops(self, request, response, exception):
        yield {"hook": "errback"}
        attack(request)

    def failed_request(self, request, response):
        yield {"hook": "failed_request"}
        attack(request)


class InPlainHooks(InHooks):
    def exception_request(self, request, response, exception):
        attack(request)

    oops = exception_request

    def failed_request(self, request, response):
        attack(request)


@pytest.mark.parametrize(
    "spider",
    [
        InHooks, InPlainHooks, asynchronous(InHooks, "exception_request", "oops", "failed_request"),
        asynchronous(InPlainHooks, "exception_request", "oops", "failed_request"),
    ],
)  # fmt: skip
def test_a_hook_of_a_failing_page_costs_only_itself_ho_01(home, spider, capsys):
    summary, _, _ = crawl(spider, home)
    assert summary.outcome == "all_failed"
    assert summary.reasons == {"ZeroDivisionError": TIMES + 1}
    assert summary.callback_error == 3 * TIMES
    log = capsys.readouterr().err
    for name in RAISED.values():
        assert "sys.exit(on purpose)" in log if name is SystemExit else f"{name.__name__}: on purpose" in log


class Refusing(mw.Item):
    kind: str = ""

    def pre_to_db(self):
        if self.kind in RAISED:
            raise RAISED[self.kind]("on purpose")


class Unreadable(mw.Item):
    kind: str = ""

    def to_dict(self):
        raise RAISED[self.kind]("on purpose")


@pytest.mark.parametrize("plain", [True, False])
def test_an_item_or_a_callable_that_raises_costs_only_itself_ho_01(home, plain, capsys):
    def yields(name):
        def call():
            raise RAISED[name]("on purpose")

        if name in RAISED:
            yield Refusing(kind=name)
            yield Unreadable(kind=name)
            yield call
        yield {"path": name}

    class Plain(Pages):
        def parse(self, request, response):
            yield from yields(request.url.rpartition("/")[2])

    class Async(Pages):
        async def parse(self, request, response):
            for value in yields(request.url.rpartition("/")[2]):
                yield value

    summary, memory, _ = crawl(Plain if plain else Async, home)
    ok(summary)
    assert sorted(row["path"] for row in memory.data()) == sorted([*RAISED, "fine"])
    assert summary.item_failed == 2 * TIMES
    assert summary.parse_error == TIMES
    assert "pre_to_db raised" in capsys.readouterr().err


# -- on the loop, beside the page -----------------------------------------------------------------------------


class InTasks(Pages):
    """Puts on the loop what raises there, and goes on."""

    async def parse(self, request, response):
        name = request.url.rpartition("/")[2]

        async def later():
            raise RAISED[name]("on purpose")

        if name in RAISED:
            task = asyncio.create_task(later())
            await asyncio.wait({task})
        yield {"path": name}


class InLoopCallbacks(Pages):
    async def parse(self, request, response):
        name = request.url.rpartition("/")[2]

        def soon():
            raise RAISED[name]("on purpose")

        if name in ("interrupt", "exit"):
            asyncio.get_running_loop().call_soon(soon)
            await asyncio.sleep(0.01)
        yield {"path": name}


class StopsTheLoop(Pages):
    async def parse(self, request, response):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        yield {"path": request.url.rpartition("/")[2]}


@pytest.mark.parametrize("spider", [InTasks, InLoopCallbacks, StopsTheLoop])
def test_what_is_put_on_the_loop_ends_neither_the_loop_nor_the_crawl(home, spider, capsys):
    summary, memory, _ = crawl(spider, home)
    ok(summary)
    assert sorted(row["path"] for row in memory.data()) == sorted([*RAISED, "fine"])
    log = capsys.readouterr().err
    assert "your code has put on the event loop" in log
    assert ("loop.stop() was called" if spider is StopsTheLoop else "sys.exit(on purpose) was called") in log


class CancelsItself(Pages):
    """With what it has yielded before."""

    async def parse(self, request, response):
        name = request.url.rpartition("/")[2]
        yield {"path": name}
        if name != "fine":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)


class CancelsItselfLater(CancelsItself):
    def parse(self, request, response):
        return super().parse(request, response)


class CancelsItselfInValidate(Pages):
    async def validate(self, request, response):
        if not request.url.endswith("fine"):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)


class CancelsItselfInMidware(Pages):
    async def download_midware(self, request):
        if not request.url.endswith("fine"):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "spider", [CancelsItself, CancelsItselfLater, CancelsItselfInValidate, CancelsItselfInMidware]
)
def test_user_code_that_cancels_the_task_it_runs_in_fails_that_page_alone(home, spider):
    summary, memory, _ = crawl(spider, home)
    ok(summary)
    assert summary.reasons == {"CancelledError": TIMES}
    yielded = {"fine"} if spider in (CancelsItselfInValidate, CancelsItselfInMidware) else {*RAISED, "fine"}
    assert {row["path"] for row in memory.data()} == yielded


def test_a_callback_that_takes_no_cancellation_holds_the_crawl_up_for_a_second(home):
    class Stubborn(Pages):
        async def parse(self, request, response):
            while not request.url.endswith("fine"):
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue
            yield {"path": "fine"}

    summary, memory, _ = crawl(Stubborn, home, SPIDER_TASK_MAX_SECONDS=1, SPIDER_MAX_RETRY_TIMES=0)
    assert summary.reasons == {"CallbackTimeoutError": TIMES}
    assert memory.data() == [{"path": "fine"}]


def test_user_code_that_cancels_every_task_ends_the_run_with_a_line(home):
    class Spider(Pages):
        async def parse(self, request, response):
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(0)

    with pytest.raises(UserCodeError, match=r"asyncio.all_tasks\(\)"):
        crawl(Spider, home)


class Unshown(Exception):
    def __str__(self):
        raise Own


@pytest.mark.parametrize("where", ["parse", "pre_to_db", "start_requests", "on_alert"])
def test_an_error_whose_message_can_not_be_shown_is_told_all_the_same(home, where, capsys):
    class Row(mw.Item):
        path: str = ""

        def pre_to_db(self):
            if where == "pre_to_db":
                raise Unshown

    class Spider(Air):
        paths = ("/p/fine",)

        def start_requests(self):
            yield from super().start_requests()
            if where == "start_requests":
                raise Unshown

        def parse(self, request, response):
            if where == "parse":
                raise Unshown
            yield Row(path="fine")

        async def on_alert(self, kind, message):
            raise Unshown

    class Broken(Memory):
        def save_items(self, table, items):
            raise OSError("no store")

    pipelines = [Broken()] if where == "on_alert" else [Memory()]
    crawl(Spider, home, pipelines=pipelines, SPIDER_MAX_RETRY_TIMES=0)
    assert "Unshown: (its message can't be shown: Own)" in capsys.readouterr().err


# -- once per run ----------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("kind", ["plain", "generator", "coroutine", "async generator"])
def test_start_requests_that_raises_fails_the_seeding_and_what_it_yielded_is_crawled_ho_01(home, error, kind):
    class Plain(Pages):
        def start_requests(self):
            raise error("on purpose")

    class Generator(Pages):
        def start_requests(self):
            yield mw.Request(self.url("/p/fine"))
            raise error("on purpose")

    class Coroutine(Pages):
        async def start_requests(self):
            raise error("on purpose")

    class AsyncGenerator(Pages):
        async def start_requests(self):
            yield mw.Request(self.url("/p/fine"))
            raise error("on purpose")

    kinds = {
        "plain": Plain, "generator": Generator, "coroutine": Coroutine, "async generator": AsyncGenerator,
    }  # fmt: skip
    summary, memory, _ = crawl(kinds[kind], home)
    assert (summary.outcome, summary.exit_code) == ("seeding_failed", 4)
    assert len(memory.data()) == ("generator" in kind)


@EACH
@pytest.mark.parametrize("is_async", [False, True])
def test_start_and_end_callback_that_raise_are_told_ho_01(home, error, is_async, capsys):
    class Around(Pages):
        paths = ("/p/fine",)

        def start_callback(self):
            raise error("on purpose")

        def end_callback(self):
            raise error("on purpose")

    spider = asynchronous(Around, "start_callback", "end_callback") if is_async else Around
    summary, memory, _ = crawl(spider, home)
    ok(summary)
    assert summary.callback_error == 2
    assert memory.data() == [{"path": "fine"}]
    assert "on purpose" in capsys.readouterr().err


class Closing:
    """Its other methods do nothing."""

    error: type[BaseException] = ValueError

    def process_request(self, request):
        pass

    def close(self):
        raise self.error("on purpose")


@pytest.mark.parametrize("error", [ValueError, *RAISED.values()])
def test_a_middleware_that_can_not_be_closed_is_told_ho_01(home, error, capsys, monkeypatch):
    class Spider(Pages):
        paths = ("/p/fine",)

    monkeypatch.setattr(Closing, "error", error)
    ok(crawl(Spider, home, DOWNLOADER_MIDDLEWARES=[f"{__name__}.Closing"])[0])
    assert "Closing.close (test_air_raised.py:" in capsys.readouterr().err


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, Own])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("method", ["open", "save_items", "is_away", "close"])
def test_a_pipeline_that_raises_loses_no_row_and_ends_no_run_ho_01(home, error, is_async, method):
    class Spider(Pages):
        __custom_setting__ = {
            **Pages.__custom_setting__, "ITEM_RETRY_TIMES": 0, "ITEM_BATCH_SIZE": 1, "ITEM_RETRY_BACKOFF": 0.0,
        }  # fmt: skip

    class Broken(BasePipeline):
        def save_items(self, table, items):
            if method == "is_away":
                raise ValueError("not stored")

    def broken(self, *args):
        raise error("on purpose")

    async def broken_async(self, *args):
        raise error("on purpose")

    setattr(Broken, method, broken_async if is_async and method != "is_away" else broken)
    memory = Memory()
    summary, _, _ = crawl(Spider, home, pipelines=[memory, Broken()])
    assert len(memory.rows) == TIMES + 1
    if method == "close":
        ok(summary)
    else:
        assert (summary.outcome, summary.item_failed) == ("all_failed", TIMES + 1)


# -- tasks -----------------------------------------------------------------------------------------------------


class Tasks(mw.TaskSpider):
    """Requests that need no fetch."""

    __custom_setting__ = {
        "TASK_POLL_INTERVAL": 0.01, "TASK_EXHAUST_POLLS": 2, "DONE_CHECK_INTERVAL": 0.01, "SPIDER_RETRY_INTERVAL": 0.0,
        "SPIDER_MAX_RETRY_TIMES": 0, "PROGRESS": "off", "RETRY_BACKOFF": 0.0,
    }  # fmt: skip

    def task_requests(self, task):
        yield mw.Request(f"http://x.invalid/{task}", auto_request=False)

    def parse(self, request, response):
        yield {"task": request.url.rpartition("/")[2]}


def work(spider, tasks, **keywords):
    """Run it: (summary, tasks whose rows came)."""
    rows = []
    summary = spider(task_source=MemoryTaskSource(tasks), item_handler=rows.extend, **keywords).run()
    return summary, sorted(row["task"] for row in rows)


class InTaskRequests(Tasks):
    def task_requests(self, task):
        attack(mw.Request(f"http://x.invalid/t/{task}"))
        yield from super().task_requests(task)


class InAsyncTaskRequests(Tasks):
    async def task_requests(self, task):
        attack(mw.Request(f"http://x.invalid/t/{task}"))
        yield mw.Request(f"http://x.invalid/{task}", auto_request=False)


@pytest.mark.parametrize("spider", [InTaskRequests, InAsyncTaskRequests])
def test_task_requests_that_raises_fails_its_task_ho_01(spider):
    summary, rows = work(spider, [*RAISED, "fine"])
    assert rows == ["fine"]
    assert summary.reasons == {"task_requests": TIMES}


@pytest.mark.parametrize("is_async", [False, True])
def test_the_hooks_of_a_tasks_end_are_pages_that_fail_ho_01(is_async):
    class Told(Tasks):
        def parse(self, request, response):
            if request.url.endswith("own"):
                raise ValueError

        def task_done(self, task):
            attack(mw.Request(f"http://x.invalid/t/{task}"))

        def task_failed(self, task):
            attack(mw.Request(f"http://x.invalid/t/{task}"))

    spider = asynchronous(Told, "task_done", "task_failed") if is_async else Told
    summary, _ = work(spider, [*RAISED, "fine"])
    assert summary.reasons == {**REASONS, "ValueError": 1}
    assert summary.tasks_done == 1


@EACH
@pytest.mark.parametrize("is_async", [False, True])
def test_fetch_tasks_that_raises_is_asked_again_ho_01(error, is_async):
    class Fetches(Tasks):
        calls = 0

        def fetch_tasks(self, limit):
            type(self).calls += 1
            if self.calls == 1:
                raise error("on purpose")
            return ["fine"] if self.calls == 2 else []

    spider = asynchronous(Fetches, "fetch_tasks") if is_async else Fetches
    summary, rows = work(spider, [], SPIDER_MAX_RETRY_TIMES=1)
    assert summary.outcome == "finished"
    assert rows == ["fine"]
    assert summary.callback_error == 1


# -- cancellations ---------------------------------------------------------------------------------------------


def test_a_callback_that_awaits_what_was_cancelled_fails_its_page_ho_01(home):
    class Awaits(Pages):
        async def parse(self, request, response):
            gone = asyncio.ensure_future(asyncio.sleep(9))
            gone.cancel()
            await gone

    summary, _, _ = crawl(Awaits, home)
    assert summary.reasons == {"CancelledError": TIMES + 1}


def test_callbacks_that_cancel_the_task_they_run_in_cost_their_pages_and_no_worker_ho_01(home):
    class Cancels(Pages):
        __custom_setting__ = {**Pages.__custom_setting__, "SPIDER_THREAD_COUNT": 2}

        async def parse(self, request, response):
            if not request.url.endswith("fine"):
                asyncio.current_task().cancel()
            await asyncio.sleep(0)
            return [{"path": request.url.rpartition("/")[2]}]

    summary, memory, _ = crawl(Cancels, home)
    ok(summary)
    assert summary.request_failed == TIMES
    assert memory.data() == [{"path": "fine"}]


def test_a_callback_that_swallows_its_time_limit_leaves_a_worker_for_the_next_page_ho_01(home):
    class Swallows(Pages):
        paths = ("/p/1", "/p/2")
        __custom_setting__ = {
            **Pages.__custom_setting__, "SPIDER_THREAD_COUNT": 1, "SPIDER_TASK_MAX_SECONDS": 0.2,
        }  # fmt: skip
        workers = ()

        async def parse(self, request, response):
            # The callback has a task of its own; the worker is the one that waits for it.
            [worker] = [task for task in asyncio.all_tasks() if task.get_name().startswith("netspy-worker")]
            self.workers = (*self.workers, worker)
            if len(self.workers) == 1:
                try:
                    await asyncio.sleep(20)
                except asyncio.CancelledError:
                    return
            raise asyncio.CancelledError("on purpose")

    summary, _, made = crawl(Swallows, home)
    assert summary.reasons == {"CancelledError": 1}
    assert summary.retry == 1
    assert len(set(made.workers)) == 1


class Waits(Tasks):
    """Seeds and a task that take long: every part of the node is there until the node leaves."""

    __custom_setting__ = {**Tasks.__custom_setting__, "SPIDER_STOP_TIMEOUT": 0.1, "HEARTBEAT_INTERVAL": 0.05}
    part = ""

    async def start_callback(self):
        if self.part:
            asyncio.get_running_loop().call_later(0.02, self.end)

    async def start_requests(self):
        yield mw.Request("http://x.invalid/1", auto_request=False)
        await asyncio.sleep(0.06)  # what was yielded is handed over with the next one
        yield mw.Request("http://x.invalid/2", auto_request=False)
        await asyncio.sleep(60)

    async def task_requests(self, task):
        await asyncio.sleep(60)
        yield mw.Request("http://x.invalid/3", auto_request=False)

    def parse(self, request, response):
        self.add_tasks("more")
        yield {"task": "x"}

    def end(self):
        [found] = [task for task in asyncio.all_tasks() if task.get_name() == self.part]
        found.cancel()


STEPS = {
    "netspy-claim": (Claimer, "_claim"), "netspy-tick": (PageHandler, "end_overdue"), "netspy-outbox": (Outbox, "_do_settle"),
    "netspy-items": (ItemBuffer, "_store"), "netspy-effects": (Effects, "_insist"),
    "netspy-seed": (Seeder, "_hand_over"), "netspy-feed": (Feeder, "_due"), "netspy-feed-keep": (MemoryTaskSource, "keep"),
}  # fmt: skip
"""The tasks of a node that live as long as it does, and a step that each of them takes."""


def ended_loudly(part, summary, log):
    assert (summary.outcome, summary.exit_code) == ("failed", 7)
    assert summary.reason.startswith(f"internal error in {part}: ")
    assert f"internal error in {part}: " in log


@pytest.mark.parametrize("part", STEPS)
def test_a_part_of_the_node_that_is_cancelled_ends_the_run_loudly_hv_07(part, capsys):
    ended_loudly(part, work(Waits, ["task"], part=part)[0], capsys.readouterr().err)


@pytest.mark.parametrize("part", STEPS)
def test_a_part_of_the_node_that_raises_ends_the_run_loudly_hv_07(part, capsys, monkeypatch):
    def broken(*args, **keywords):
        raise RuntimeError("broken")

    monkeypatch.setattr(*STEPS[part], broken)
    ended_loudly(part, work(Waits, ["task"], SPIDER_TASK_MAX_SECONDS=0.2)[0], capsys.readouterr().err)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_node_whose_leases_nobody_renews_ends_loudly_hv_07(redis_url, error, capsys, monkeypatch):
    def broken(self):
        raise error("broken")

    class Shared(mw.Spider):
        __custom_setting__ = {**Waits.__custom_setting__, "REDIS_URL": redis_url}
        start_requests = Waits.start_requests

    monkeypatch.setattr(LeaseKeeper, "_watch_loop", broken)
    ended_loudly("netspy-lease-keeper", Shared().run(), capsys.readouterr().err)
