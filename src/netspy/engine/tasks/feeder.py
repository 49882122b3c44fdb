"""Feeding: tasks from their source into the frontier, as requests, while the node crawls.

A task is taken under a lease, `task_requests` draws its requests, and once the items that it yielded besides are stored
they go to the frontier in one step that counts them for the task. Then the source is told: at once, or, where it holds
tasks to their end (a broker), when the frontier says that nothing of the task is left. A node that dies anywhere in
between leaves a task that comes back, and requests that are known when it does.

A store that went back to an earlier state has no requests of a task either. So the node remembers under which history of
the store each task was put. Where that is another one than now, the task may be gone: it is turned into requests again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from netspy import crash
from netspy.engine.control import Control, NodeGauge, wait_for_event
from netspy.engine.env import Env
from netspy.engine.page.page import TaskAtWork
from netspy.engine.parts import TaskParts
from netspy.engine.tasks.requests import (
    CHUNK,
    Drawn,
    NothingTakenError,
    TaskRequests,
    fetch_tasks,
    split_travelling,
)
from netspy.errors import SerializationError, SpiderError, StoreLostError
from netspy.frontier.contract import Frontier
from netspy.messages.entry import TaskMark, TaskState
from netspy.observe.faults import MAX_TEXT, describe_error, user_line
from netspy.policy.retry import backoff_s
from netspy.raised import failure
from netspy.tasks.contract import Backlog, Task

_PAUSE_S = 0.05
_AT_A_TIME = 8  # task_requests that wait for something, side by side
_GATHER_S = 0.02  # requests of quick task_requests are put together for so long
_LOOK_S = 0.5  # between two looks whether held tasks have come to their end
_LONGEST_PAUSE_S = 60.0
_ALONE_AT = (
    3  # the delivery from which on a task comes alone; only what died with its node then counts against it
)


class _Put(NamedTuple):
    """A task whose requests are in the frontier, and the store's history under which they were put."""

    task: Task
    history: str | None


class Feeder:
    """The task feeder of one node. `run` and `look_after` are its two tasks; everything else is asked on the loop."""

    def __init__(
        self,
        env: Env,
        control: Control,
        gauge: NodeGauge,
        parts: TaskParts,
        frontier: Frontier,
        requests: TaskRequests,
        *,
        keep_alive: bool = False,
    ) -> None:
        """No tasks are taken while more than SPIDER_SEED_AHEAD requests wait. `keep_alive`: a source that fails again and
        again doesn't end the run.
        """
        self._parts = parts
        self._source = parts.source
        self._counts_deaths = getattr(parts.source, "counts_deaths", False)
        self._name = env.name
        self._settings = env.settings
        self._control = control
        self._frontier = frontier
        self._requests = requests
        self._outbox = requests.outbox
        self._pool = requests.pool
        self._counters = env.counters
        self._log = env.log
        self._throttled = env.throttled
        self._clock = env.clock
        self._keep_alive = keep_alive
        self._gauge = gauge
        self._wake = asyncio.Event()
        self._stopping = False
        self.tasks: list[asyncio.Task[None]] = []
        self._in_hand: dict[str, Task] = {}  # taken, not all requests in the frontier yet
        self._ready: list[Drawn] = []  # of those in hand: drawn, and their items are stored
        self._held: dict[str, _Put] = {}  # in the frontier, and the source wants to know of the end
        # task_requests raised, or the store went back to an earlier state: drawn again at that time
        self._later: list[tuple[float, Task]] = []
        self._tries: dict[str, int] = {}
        self._empty_polls = 0
        self._fetch_errors = 0

    # -- what the node asks ----------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Tasks are in this node's hands."""
        return bool(self._in_hand or self._later)

    @property
    def exhausted(self) -> bool:
        """The source was empty TASK_EXHAUST_POLLS times in a row, and nothing is in this node's hands."""
        return self._empty_polls >= self._settings.TASK_EXHAUST_POLLS and not self.busy and not self._held

    async def open_because(self, backlog: Backlog) -> str | None:
        """Why the source may still bring work, given what it says of itself; None when it is at its end."""
        if self.busy or self._held:
            return f"{len(self._in_hand) + len(self._held) + len(self._later)} task(s) in hand"
        if backlog.waiting:
            return f"{backlog.waiting} task(s) waiting"
        if backlog.taken:
            return f"{backlog.taken} task(s) in other nodes' hands"
        if not self.exhausted:
            return f"the task source was empty {self._empty_polls} time(s) of {self._settings.TASK_EXHAUST_POLLS}"
        return await self._parts.open_because() if self._parts.open_because is not None else None

    async def backlog(self) -> Backlog:
        """What the source says of itself."""
        return await self._source.backlog()

    def start(self) -> None:
        """Start the two tasks."""
        spawn = self._control.spawn
        self.tasks = [spawn(self.run(), "netspy-feed"), spawn(self.look_after(), "netspy-feed-keep")]

    def stop(self) -> None:
        """Take no more."""
        self._stopping = True
        self._wake.set()
        for task in self.tasks[1:]:
            task.cancel()

    async def give_back(self) -> None:
        """What is still in hand goes back to the source, before its lease is over."""
        left = self._all_in_hand()
        if left:
            await self._source.release(left)

    def _all_in_hand(self) -> list[Task]:
        return [
            *self._in_hand.values(),
            *(task for _, task in self._later),
            *(put.task for put in self._held.values()),
        ]

    # -- the two tasks ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take tasks and feed them until stopped."""
        while not self._stopping:
            self._wake.clear()
            await self.put_ready()
            tasks = self._due()
            room = self._settings.TASK_BATCH_SIZE - len(tasks)
            took = 0
            if room > 0 and not self._ahead():
                fresh = await self._take(room)
                if fresh is None:  # fetch_tasks failed: that says nothing about the source
                    await wait_for_event(
                        self._wake,
                        backoff_s(
                            self._fetch_errors,
                            first_s=self._settings.TASK_POLL_INTERVAL,
                            cap_s=_LONGEST_PAUSE_S,
                        ),
                    )
                    continue
                took = len(fresh)
                tasks += fresh
                if took:
                    self._empty_polls = 0
                    self._counters.inc("tasks_taken", took)
                elif not self.busy:
                    self._empty_polls += 1
                    self._control.wake()
            if tasks:
                await self._feed(tasks)
            if not took:
                ahead = self._ahead()
                await wait_for_event(
                    self._wake, _PAUSE_S if ahead or self._later else self._settings.TASK_POLL_INTERVAL
                )

    async def look_after(self) -> None:
        """Tell the source which tasks this node still works on, and which of those it holds have come to their end."""
        beat_s = self._settings.HEARTBEAT_INTERVAL
        kept = self._clock()
        while True:
            await asyncio.sleep(min(_LOOK_S, beat_s / 2))
            if self._held:
                await self._see_ends()
            now = self._clock()
            if now - kept >= beat_s:
                kept = now
                mine = self._all_in_hand()
                if mine:
                    await self._source.keep(mine)
            self._throttled.flush()

    async def _see_ends(self) -> None:
        tokens = list(self._held)
        for at in range(0, len(tokens), CHUNK):
            some = tokens[at : at + CHUNK]
            puts = [self._held[token] for token in some]
            states, history = await self._frontier.open_tasks(_asked(puts))
            for (task, _), state in zip(puts, states, strict=True):
                if state == TaskState.OPEN:
                    self._held[task.token] = _Put(task, history)
            ended = _in_state(TaskState.ENDED, puts, states)
            if ended:
                await self._source.settled(ended)
                for task in ended:
                    self._held.pop(task.token, None)
                self._control.wake()
            self._draw_again(_in_state(TaskState.LOST, puts, states))

    def _ahead(self) -> bool:
        return (
            self._gauge.is_ahead(self._settings.SPIDER_SEED_AHEAD)
            or len(self._held) + len(self._in_hand) >= 10 * self._settings.TASK_BATCH_SIZE
        )

    # -- taking ----------------------------------------------------------------------------------------------

    async def _take(self, limit: int) -> list[Task] | None:
        tasks = await self._source.take(limit)
        self._remember(tasks)
        if crash.armed and tasks:
            crash.reached("after_take")
        fetch = self._parts.fetch
        if fetch is None or len(tasks) >= limit:
            return tasks
        try:
            rows = await fetch_tasks(fetch, limit - len(tasks), self._pool)
        except BaseException as caught:
            self._fetch_failed(failure(caught))
            return tasks or None
        self._fetch_errors = 0
        if rows and self._parts.adopt is not None:
            # In the source's leased list before anything else: a node that dies from here on loses none of them.
            try:
                adopted = await self._parts.adopt(rows)
            except SerializationError:
                adopted = await self._parts.adopt(self._without_bad(rows))
            self._remember(adopted)
            if crash.armed:
                crash.reached("after_fetch_tasks")
            tasks += adopted
        return tasks

    def _fetch_failed(self, error: Exception) -> None:
        self._fetch_errors += 1
        self._counters.inc("callback_error")
        text = f"{self._name}.fetch_tasks ({user_line(error)}) raised {describe_error(error)}"
        self._throttled.error("fetch_tasks", text)
        if self._fetch_errors > self._settings.SPIDER_MAX_RETRY_TIMES and not self._keep_alive:
            self._control.stop(f"{text}, {self._fetch_errors} times in a row", "failed")

    def _without_bad(self, rows: Sequence[Any]) -> list[Any]:
        """Those that can travel: one that can't takes no other one along."""
        good, trouble = split_travelling(rows)
        for why in trouble:
            self._counters.fail("fetch_tasks")
            self._throttled.error("travel", f"{self._name}.fetch_tasks: {why}; it is left out")
        return good

    def _remember(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._in_hand[task.token] = task

    def _due(self) -> list[Task]:
        now = self._clock()
        due = [entry for entry in self._later if entry[0] <= now][: self._settings.TASK_BATCH_SIZE]
        for entry in due:
            self._later.remove(entry)
        tasks = [task for _, task in due]
        self._remember(tasks)
        return tasks

    # -- feeding ---------------------------------------------------------------------------------------------

    async def _feed(self, tasks: Sequence[Task]) -> None:
        if getattr(self._source, "reusable", False):
            tasks = await self._without_open(tasks)
        since = self._clock()
        for at in range(0, len(tasks), _AT_A_TIME):
            if self._stopping:
                return  # what was drawn and not put is still in hand, and goes back with the rest
            await asyncio.gather(*(self._draw(task) for task in tasks[at : at + _AT_A_TIME]))
            late = self._clock() - since >= _GATHER_S or at + _AT_A_TIME >= len(tasks)
            if late or sum(len(one.requests) for one in self._ready) >= CHUNK:
                await self.put_ready()
                since = self._clock()

    def _is_ready(self, drawn: Drawn) -> None:
        """Its items are stored: the task may be over once its requests are in the frontier."""
        self._ready.append(drawn)
        self._wake.set()

    async def put_ready(self) -> None:
        """All requests of the tasks that are ready, or the last ones, in one step; then the source is told."""
        fed, self._ready = self._ready, []
        if not fed:
            return
        entries = [entry for one in fed for entry in one.requests]
        marks = [self._requests.mark(one.task, history=one.history) for one in fed]
        history = await self._outbox.put(entries, tasks=marks)
        self._gauge.fed += len(entries)
        if crash.armed:
            crash.reached("after_task_put")
        puts = [_Put(one.task, one.history or history) for one in fed]
        now = self._frontier.history
        await self._handed_over([put for put in puts if put.history == now])
        self._draw_again([put.task for put in puts if put.history != now])

    async def _without_open(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks whose requests are all in the frontier, put there by a node that is gone, need no more than holding."""
        states, history = await self._frontier.open_tasks([(task.token, None) for task in tasks])
        known = [task for task, state in zip(tasks, states, strict=True) if state == TaskState.OPEN]
        await self._handed_over([_Put(task, history) for task in known])
        return [task for task, state in zip(tasks, states, strict=True) if state != TaskState.OPEN]

    async def _handed_over(self, puts: Sequence[_Put]) -> None:
        if not puts:
            return
        lost: list[Task] = []
        if self._source.holds:
            self._held.update((put.task.token, put) for put in puts)
        else:
            await self._source.settled([put.task for put in puts])
            # The store may have gone back before the source, which is in it, heard of the end: to a state in which
            # the task was taken and not put.
            states, _ = await self._frontier.open_tasks(_asked(puts))
            lost = _in_state(TaskState.LOST, puts, states)
        for task, _ in puts:
            self._tries.pop(task.token, None)
            self._in_hand.pop(task.token, None)
        self._draw_again(lost)
        self._control.wake()

    def _draw_again(self, tasks: Sequence[Task]) -> None:
        """These were put before the store went back to an earlier state, or while it did. They stay this node's: the
        source may have forgotten them too.
        """
        for task in tasks:
            self._in_hand.pop(task.token, None)
            self._held.pop(task.token, None)
            self._later.append((self._clock(), task))
        if tasks:
            self._wake.set()
            self._log.warning(
                "the store went back to an earlier state: {} task(s) whose requests may be gone are turned into requests "
                "again",
                len(tasks),
            )

    async def _draw(self, task: Task) -> None:
        """Have the requests of a task ready; all but the last chunk of them are in the frontier already."""
        if self._counts_deaths and task.deliveries >= _ALONE_AT + self._settings.SPIDER_MAX_DELIVERIES:
            why = f"its node died {task.deliveries - 1} times before it was turned into requests"
            self._throttled.error("poison", f"{self._name}: task {str(task.value)[:MAX_TEXT]}: {why}")
            self._counters.inc("poisoned")
            await self._fail(task, why, "poison")
            return
        work = self._requests.at_work(task)
        try:
            drawn = await self._requests.requests_of(task, work)
        except NothingTakenError as error:  # said already, and it will not get better
            await work.ended()
            await self._fail(task, str(error), "task_requests")
        except BaseException as caught:
            await self._raised(task, work, failure(caught))
        else:
            work.finish(lambda: self._is_ready(drawn))

    async def _raised(self, task: Task, work: TaskAtWork, error: Exception) -> None:
        tries = self._tries[task.token] = self._tries.get(task.token, 0) + 1
        text = f"{self._name}.task_requests ({user_line(error)}) raised {describe_error(error)}"
        self._throttled.error(text, f"{text}, for task {str(task.value)[:MAX_TEXT]}")
        self._counters.inc("callback_error")
        if isinstance(error, StoreLostError):
            raise error
        # The task comes again, and asks for these again when it succeeds.
        work.actions = [action for action in work.actions if not action.on_success]
        if tries <= self._settings.SPIDER_MAX_RETRY_TIMES and not isinstance(error, SpiderError):
            first_s = max(self._settings.SPIDER_RETRY_INTERVAL, _LOOK_S)
            wait_s = backoff_s(tries - 1, first_s=first_s, cap_s=_LONGEST_PAUSE_S)
            self._later.append((self._clock() + wait_s, task))
            self._in_hand.pop(task.token, None)
            work.finish(lambda: None)
            return
        await work.ended()
        await self._fail(task, describe_error(error), "task_requests")

    async def _fail(self, task: Task, why: str, reason: str) -> None:
        """It can't be turned into requests: to the source's failed list, and the spider hears of it."""
        self._counters.fail(reason)
        closing, _ = self._requests.closing(task, failures="!1")
        # What it had yielded stays in the frontier; the spider hears of the failure through a last request.
        await self._outbox.put([closing] if closing is not None else [], tasks=[TaskMark(task.token)])
        await self._source.failed([(task, why)])
        self._tries.pop(task.token, None)
        self._in_hand.pop(task.token, None)
        self._control.wake()


def _asked(puts: Sequence[_Put]) -> list[tuple[str, str | None]]:
    return [(put.task.token, put.history) for put in puts]


def _in_state(wanted: TaskState, puts: Sequence[_Put], states: Sequence[TaskState]) -> list[Task]:
    return [put.task for put, state in zip(puts, states, strict=True) if state == wanted]
