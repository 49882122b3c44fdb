"""What unit tests build a part of a node from: an environment that keeps what it was told, leases, a quiet logger."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from types import SimpleNamespace

from netspy.engine.control import Control, NodeGauge
from netspy.engine.env import Env
from netspy.engine.finish import FinishWatch
from netspy.engine.leases.held import HeldLeases
from netspy.engine.leases.outbox import Outbox
from netspy.engine.leases.site_slots import SiteSlots
from netspy.engine.page.callbacks import Callbacks, Hooks, own_hook
from netspy.engine.page.effects import Effects
from netspy.engine.page.fetch import Fetcher
from netspy.engine.page.handler import PageHandler
from netspy.engine.page.item_buffer import ItemBuffer
from netspy.engine.page.outcome import PageOutcome
from netspy.engine.page.output import OutputCollector, YieldSite
from netspy.engine.page.page import Page
from netspy.engine.page.task_pages import TaskPages
from netspy.engine.page.threads import CallbackPool
from netspy.engine.page.user_code import UserCode
from netspy.engine.parts import Parts, TaskParts
from netspy.engine.seeding import SeedCoordinator, Seeder
from netspy.engine.tasks.requests import TaskRequests
from netspy.frontier.memory.frontier import MemoryFrontier
from netspy.messages.entry import Lease, NewEntry
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.observe.counters import Counters
from netspy.observe.throttle import ThrottledLog
from netspy.policy.politeness import Politeness
from netspy.settings import Settings
from netspy.tasks.master_lock import NotMasterError
from netspy.testing.clock import FakeClock


class Lines:
    """A logger that keeps its lines, each as `level: text`."""

    def __init__(self):
        self.lines = []

    def __getattr__(self, level):
        if level not in {"debug", "info", "warning", "error"}:
            raise AttributeError(level)
        return lambda message, *args: self.lines.append(f"{level}: {message.format(*args)}")

    def __contains__(self, text):
        return any(text in line for line in self.lines)


class Alerts(list):
    """Takes alerts as (kind, message)."""

    def __call__(self, kind, message):
        self.append((kind, message))


def env_of(*, name="shop", shared=False, clock=None, jitter=0.0, **settings):
    """An `Env` with these settings. Its clock is turned by hand, its alerts and log lines are kept."""
    log = Lines()
    return Env(
        name=name,
        settings=Settings(**settings),
        log=log,
        throttled=ThrottledLog(log),
        counters=Counters(),
        alert=Alerts(),
        shared=shared,
        clock=clock or FakeClock(),
        jitter=lambda: jitter,
    )


def lease_of(url="http://a.example/", *, seq=1, valid_until=float("inf"), task="", **fields):
    """A lease as the memory frontier hands it out."""
    request = url if isinstance(url, Request) else Request(url, **fields)
    return Lease(
        seq=seq,
        payload=request,
        priority=request.priority,
        site=request.site,
        deliveries=1,
        suspicion=0,
        member=b"",
        valid_until=valid_until,
        task=task,
    )


LOCK_S = 10.0
"""For how long a master lock of `FakeBatchQueue` lasts."""


class FakeBatchQueue:
    """What a batch's master asks of Redis, in this process. `rival()` is another master at the same place.

    `pushed` has (batch, round, id, row) of what no worker has taken yet, `live` the ids that are being worked on.
    """

    def __init__(self, clock=None, *, who="host:1", beside=None):
        self.clock = clock or FakeClock()
        self.who = who
        self.place = {"master": None, "until": 0.0, "fence": 0} if beside is None else beside.place
        self.opened = False
        self.begun = 0
        self.round = 0
        self.renewed = 0
        self.pushed = []
        self.live = []
        self.done = []
        self.told = []

    def rival(self, who="host:2"):
        return FakeBatchQueue(self.clock, who=who, beside=self)

    @property
    def is_master(self):
        return self.place["master"] == self.who and self.clock() < self.place["until"]

    def _check(self):
        if not self.is_master:
            left_s = max(0.0, self.place["until"] - self.clock())
            raise NotMasterError(self._text() if left_s else "", left_s)

    def _text(self):
        return f"token {self.place['fence']} {self.place['master']} 2026-01-01"

    async def open(self):
        self.opened = True

    async def acquire(self, at_least=1):
        left_s = self.place["until"] - self.clock()
        if left_s > 0 and self.place["master"] != self.who:
            raise NotMasterError(self._text(), left_s)
        fence = max(self.place["fence"] + 1, at_least)
        self.place.update(master=self.who, until=self.clock() + LOCK_S, fence=fence)
        return fence

    async def renew(self):
        self._check()
        self.renewed += 1
        self.place["until"] = self.clock() + LOCK_S

    async def release(self):
        if self.is_master:
            self.place["until"] = 0.0

    async def begin(self):
        self._check()
        self.begun += 1
        self.round = 0

    async def again(self):
        self._check()
        self.round += 1

    async def push(self, batch, pairs):
        self._check()
        self.pushed += [(batch, self.round, task_id, row) for task_id, row in pairs]
        return len(self.pushed)

    async def finished(self, batch):
        self._check()
        self.done.append(batch)

    async def tell(self, progress):
        self._check()
        self.told.append(progress)

    async def waiting(self):
        return len(self.pushed)

    async def live_ids(self, batch):
        yield [task_id for of, _, task_id, _ in self.pushed if of == batch]
        yield list(self.live)


# -- node


async def until(condition, *, within_s=20):
    """Let the loop, and other threads, go on until `condition()`."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)


class TurningControl(Control):
    """Waits by turning the clock: `waits` has the seconds of each wait. At the end of a wait the next of `steps` is
    called; when none is left the node is told to stop.
    """

    def __init__(self, env, *steps):
        super().__init__(env.log)
        self._clock, self._steps = env.clock, list(steps)
        self.waits = []

    async def changed(self, within_s):
        if await super().changed(0.0):
            return True
        self.waits.append(round(within_s, 6))
        if not self._steps:
            self.stop("the test is over")
            return True
        self._steps.pop(0)()
        if await super().changed(0.0):
            return True
        self._clock.advance(max(within_s, 0.0))
        return False


class Spider:
    """The user's spider as the engine sees it: no seeds, no hooks. Its requests need no download."""

    name = "shop"

    def start_requests(self):
        return ()

    def request_from_seed(self, url):
        return Request(url, auto_request=False)

    def task_requests(self, task):
        return f"http://a.example/{task}"

    def request_from_task(self, value, task):
        return self.request_from_seed(value) if isinstance(value, str) else value

    def download_midware(self, request):
        """No hook."""

    def validate(self, request, response):
        """No hook."""

    def failed_request(self, request, response):
        """No hook."""

    def exception_request(self, request, response, exception):
        """No hook."""

    def start_callback(self):
        """No hook."""

    def end_callback(self):
        """No hook."""

    def on_alert(self, kind, message):
        """No hook."""


class Rows:
    """A store of items: keeps the rows' data. `gate` holds writing up, `waited_for` names pipelines that are away."""

    def __init__(self, told=None):
        self.told = [] if told is None else told
        self.stored = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waited_for = []

    async def write(self, batch):
        await self.gate.wait()
        self.told.append("items stored")
        self.stored += [row.data for row in batch]
        return SimpleNamespace(stored=len(batch), failed=0, failed_at=())

    async def refuse(self, rows):
        """Nothing is refused here."""

    def shorten_deadline(self, deadline):
        """No deadline to shorten."""

    async def close(self):
        self.told.append("pipelines closed")


class NoDownloader:
    """A downloader that nobody should ask."""

    def __init__(self, told=None):
        self.told = [] if told is None else told

    async def fetch(self, request):
        raise AssertionError(f"{request.url} was to be downloaded")

    async def close(self):
        self.told.append("downloader closed")


class Gated(MemoryFrontier):
    """A memory frontier that notes what is asked of it, and can be held up: `gates["claim"].clear()`."""

    def __init__(self, told=None, **keywords):
        super().__init__(**keywords)
        self.told = [] if told is None else told
        self.limits = []
        self.gates = defaultdict(_open_gate)

    async def _asked(self, name):
        self.told.append(name)
        await self.gates[name].wait()

    async def claim(self, limit, **keywords):
        self.limits.append(limit)
        await self._asked("claim")
        return await super().claim(limit, **keywords)

    async def put(self, entries, **keywords):
        await self._asked("put")
        return await super().put(entries, **keywords)

    async def settle(self, settlements):
        await self._asked("settle")
        return await super().settle(settlements)

    async def release(self, leases):
        await self._asked("release")
        return await super().release(leases)

    async def counts(self):
        await self._asked("counts")
        return await super().counts()

    async def seed_acquire(self):
        await self._asked("seed_acquire")
        return await super().seed_acquire()

    async def close(self):
        await self._asked("frontier closed")


def _open_gate():
    gate = asyncio.Event()
    gate.set()
    return gate


def entries_of(*urls, **fields):
    """Requests for these pages as new entries of a frontier in memory."""
    requests = [Request(url, **{"auto_request": False} | fields) for url in urls]
    return [NewEntry(one, one.digest(None), one.priority, one.site) for one in requests]


class Bench:
    """The real parts that a part of a node is built from, each as `Components` makes it, none started. Made on the loop."""

    def __init__(self, spider=None, *, frontier=None, control=None, **settings):
        self.spider = Spider() if spider is None else spider
        self.env = env = env_of(**settings)
        self.control = control(env) if control is not None else Control(env.log)
        self.clock, self.log, self.counters = env.clock, env.log, env.counters
        self.held = HeldLeases(env.counters, env.log)
        self.gauge = NodeGauge()
        self.failed = []
        self.frontier = frontier or Gated(clock=env.clock, on_failed=self.failed.append)
        self.slots = SiteSlots(Politeness(env.settings), clock=env.clock, jitter=env.jitter)
        self.rows = Rows()
        self.items = ItemBuffer(env, self.control, self.rows, None)
        self.outbox = Outbox(env, self.control, self.frontier, self.held)
        self.callbacks = Callbacks(self.spider, framework=Spider)
        self.collector = OutputCollector(env, self.callbacks)
        self.threads = 4
        self._pool = None

    @property
    def pool(self):
        """The threads for plain user code; they end when the loop's pool is closed."""
        if self._pool is None:
            self._pool = CallbackPool(maximum=self.threads)
        return self._pool

    def seeder(self):
        return Seeder(
            self.env, self.spider, self.frontier, self.outbox, self.items, self.collector, self.gauge
        )

    def seeding(self, **keywords):
        return SeedCoordinator(
            self.env,
            self.control,
            self.gauge,
            self.frontier,
            keywords.pop("make_seeder", self.seeder),
            **keywords,
        )

    def finish(self, *, seeding=None, feeder=None, elapsed_s=lambda: 0.0, **keywords):
        return FinishWatch(
            self.env,
            self.control,
            self.gauge,
            self.frontier,
            seeding or self.seeding(),
            feeder,
            waiting_in=(self.slots, self.outbox, self.items),
            elapsed_s=elapsed_s,
            **keywords,
        )

    def user_code(self):
        hooks = Hooks(self.spider, Spider)
        return UserCode(self.env, self.pool, self.callbacks, hooks, self.collector, self.outbox, self.items)

    def outcome(self, user_code=None):
        return PageOutcome(self.env, self.control, self.slots, user_code or self.user_code(), self.outbox)

    def task_requests(self, tasks, effects=None):
        return TaskRequests(
            self.env,
            self.control,
            self.gauge,
            tasks,
            self.outbox,
            self.items,
            self.collector,
            self.pool,
            effects,
        )

    async def seeded(self):
        """The frontier has been seeded; by nobody who is here."""
        grant = await self.frontier.seed_acquire()
        assert await self.frontier.seed_finish(grant.token)

    async def close(self):
        """End what was started."""
        self.control.leaving = True
        await self.outbox.stop()
        await self.items.stop()
        if self._pool is not None:
            self._pool.close()


def tasks_of(spider, source, **changes):
    """The task side of a spider whose tasks come from `source`."""
    given = {
        "spider": spider, "source": source, "adopt": getattr(source, "adopt", None), "fetch": None,
        "closing": lambda _value: None, "ended": None, "salt": lambda _token: b"", "doers": {},
    }  # fmt: skip
    return TaskParts(**given | changes)


def parts_of(spider=None, env=None, **changes):
    """What a node is put together from: in memory, nothing to download, rows kept in `writer.stored`."""
    env = env or env_of()
    given = {
        "spider": spider or Spider(), "base": Spider, "settings": env.settings, "frontier": Gated(), "keeper": None,
        "make_downloader": NoDownloader, "middlewares": (), "writer": Rows(), "item_filter": None,
        "counters": env.counters, "logger": env.log, "alert": env.alert, "shared": False, "ignore": None,
        "keep_alive": False, "observe": None, "observe_every_s": 0.0,
    }  # fmt: skip
    return Parts(**given | changes)


# -- page


class FakeDownloader:
    """Answers from `answers`: by URL a status, a response, or an error to raise; 200 for others. `asked` has the URLs.

    `gate` holds answers up.
    """

    def __init__(self, answers=None):
        self.answers = answers or {}
        self.asked = []
        self.gate = _open_gate()

    async def fetch(self, request):
        self.asked.append(request.url)
        await self.gate.wait()
        answer = self.answers.get(request.url, 200)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Response) else Response(url=request.url, status_code=answer)


class PageBench(Bench):
    """What one page comes past, as `Components` puts it together: `handle` it as a worker does, or work on its `page`.

    `told` has what the stores were asked, in order; `done` what was carried out besides, by kind.
    """

    def __init__(self, spider=None, *, answers=None, middlewares=(), tasks=None, threads=4, **settings):
        super().__init__(spider, **settings)
        self.threads = threads
        self.told = self.rows.told = self.frontier.told
        self.downloader = FakeDownloader(answers)
        self.fetcher = Fetcher(
            self.downloader,
            middlewares=middlewares,
            download_midware=own_hook(self.spider, Spider, "download_midware"),
            named_midware=self.callbacks.named,
            pool=self.pool,
            selector_engine="turbohtml",
        )
        self.done = []
        self.effects = Effects(self.env, self.control, {"mark": self._mark})
        self.code = self.user_code()
        self.ending = self.outcome(self.code)
        self.tasks = None
        if tasks is not None:
            self.tasks = TaskPages(self.env, tasks_of(self.spider, None, **tasks), self.effects)
        self.handler = PageHandler(
            self.env, self.control, self.held, self.slots, self.fetcher, self.code, self.ending, self.outbox, self.tasks
        )  # fmt: skip

    async def _mark(self, values):
        self.told.append("marked")
        self.done += values

    def start(self):
        """Let the stores' tasks run."""
        self.outbox.start()
        self.items.start()
        self.effects.start()

    async def lease(self, url="http://a.example/", *, task="", mark=None, **fields):
        """A request of the frontier that a worker has taken."""
        request = url if isinstance(url, Request) else Request(url, **fields)
        entry = NewEntry(request, request.digest(None), request.priority, request.site, task)
        await self.frontier.put([entry], tasks=[mark] if mark else [])
        return await self.claimed()

    async def claimed(self):
        """The next request that is due, taken by a worker; None when there is none."""
        leases = (await self.frontier.claim(1)).leases
        if not leases:
            return None
        self.held.took(leases)
        self.slots.add(leases)
        self.told.clear()
        return await self.slots.take()

    async def page(self, url="http://a.example/", **fields):
        """A page at work whose request was fetched and answered with 200."""
        lease = await self.lease(url, **fields)
        request = lease.payload
        self.slots.on_ended(lease.site)
        page = Page(
            lease, request, YieldSite("shop.parse", b"c1", request.url, task=lease.task), self.clock()
        )
        page.effects = self.effects
        page.response = Response(url=request.url, status_code=200)
        page.function = self.callbacks.of(request)
        return page

    async def handle(self, url="http://a.example/", **fields):
        """Take one page from the frontier to its end in the store; returns its lease."""
        lease = await self.lease(url, **fields)
        await self.handler.handle(lease)
        await self.drained()
        return lease

    async def drained(self):
        """Everything that was handed over is in the stores."""
        await self.items.flush_all()
        await self.effects.drained()
        await self.outbox.drained()

    @property
    def records(self):
        """The failed list, as dicts."""
        return [json.loads(record) for record in self.failed]

    async def queued(self):
        """URLs of the requests that could be claimed now; claims them."""
        return [lease.payload.url for lease in (await self.frontier.claim(100)).leases]

    async def waits_s(self, at_most=1000.0, step=0.5):
        """After how many seconds a request is due that isn't yet; None when there is none. Turns the clock."""
        waited = 0.0
        while waited <= at_most:
            if await self.queued():
                return waited
            self.clock.advance(step)
            waited += step
        return None

    async def close(self):
        await self.effects.stop()
        await super().close()
