"""What every task source must do, as checks that run against any of them.

    from netspy.testing.source_contract import CHECKS, Traits

    class Mine(Traits):
        async def make(self):           # one node's source, not opened; each call another node, all on one list of tasks
            return MySource(...)

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_source(check):
        await check(Mine())

`CHECKS` holds `async` functions that take a fresh `Traits`: its list of tasks must be empty. They raise ContractError
with what was wanted and what came. Nothing here needs pytest.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from netspy.errors import SerializationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from netspy.tasks.contract import Task, TaskSource

    Check = Callable[["Traits"], Awaitable[None]]


class ContractError(AssertionError):
    """A source doesn't keep the contract."""


class Traits(ABC):
    """One list of tasks, and what its kind of source can do."""

    shared = True
    """Several sources may work on the list at once, and see each other's tasks."""
    durable = True
    """Tasks survive the source's `close`; a task in its hands then comes to another one."""
    first_in_first_out = True
    """Tasks come in the order in which they were added."""
    patience_s = 60.0
    """How long a task may take to arrive at another node, after its own has closed."""

    @abstractmethod
    async def make(self) -> TaskSource:
        """Another node's source on the same list. Not opened."""

    async def close(self) -> None:  # noqa: B027 - most kinds have nothing to do
        """Called when a check is over."""


@asynccontextmanager
async def _opened(traits: Traits, how_many: int = 1) -> AsyncIterator[list[Any]]:
    sources: list[TaskSource] = []
    try:
        for _ in range(how_many):
            source = await traits.make()
            sources.append(source)
            await source.open()
        yield sources
    finally:
        for source in sources:
            await source.close()
        await traits.close()


async def _take(source: TaskSource, count: int, patience_s: float, *, limit: int = 0) -> list[Task]:
    """Take until `count` tasks are there, or nothing comes for too long."""
    tasks: list[Task] = []
    end = time.monotonic() + patience_s
    while len(tasks) < count and time.monotonic() < end:
        tasks += await source.take(limit or count - len(tasks))
        await asyncio.sleep(0 if tasks else 0.02)
    if len(tasks) != count:
        raise ContractError(f"{count} tasks were wanted from {type(source).__name__}, {len(tasks)} came")
    return tasks


def _same(got: Any, wanted: Any, what: str) -> None:
    if got != wanted:
        raise ContractError(f"{what}: wanted {wanted!r}, got {got!r}")


def _values(tasks: Sequence[Task], traits: Traits) -> list[Any]:
    values = [task.value for task in tasks]
    return values if traits.first_in_first_out else sorted(values, key=repr)


async def a_new_list_is_empty(traits: Traits) -> None:
    """`take` doesn't wait for tasks to come."""
    async with _opened(traits) as [source]:
        _same(await source.take(10), [], "tasks of an empty list")
        backlog = await source.backlog()
        _same(backlog.waiting, 0, "backlog of an empty list")
        if backlog.taken not in {None, 0}:
            raise ContractError(f"taken of an empty list: {backlog.taken}")


async def tasks_arrive_with_tokens_of_their_own(traits: Traits) -> None:
    """Equal values are different tasks; tokens are what the frontier can take."""
    values = [{"n": number} for number in range(5)] + [{"n": 0}]
    async with _opened(traits) as [source]:
        await source.add(values)
        tasks = await _take(source, 6, traits.patience_s)
        wanted = values if traits.first_in_first_out else sorted(values, key=repr)
        _same(_values(tasks, traits), wanted, "values")
        _same(len({task.token for task in tasks}), 6, "different tokens")
        for task in tasks:
            if "{" in task.token or not 0 < len(task.token.encode()) <= 200:
                raise ContractError(f"a token is text of 1 to 200 bytes without a brace, not {task.token!r}")
            _same(task.deliveries, 1, "deliveries of a new task")
        _same(await source.take(10), [], "tasks when all are taken")


async def values_arrive_as_they_were(traits: Traits) -> None:
    """Python's types, unusual text, keys that look like our own marks."""
    values: list[Any] = [
        "text 😀 \ud800",
        0,
        -(2**70),
        1.5,
        None,
        True,
        [1, [2, {"a": ()}]],
        (1, 2),
        {"!tuple": [1]},
        {"a": Decimal("1.10"), "b": b"\x00\xff", "c": datetime(2026, 3, 1, 12, tzinfo=UTC)},
        {"big": "x" * 200_000},
    ]
    async with _opened(traits) as [source]:
        await source.add(values)
        tasks = await _take(source, len(values), traits.patience_s)
        wanted = values if traits.first_in_first_out else sorted(values, key=repr)
        _same(_values(tasks, traits), wanted, "values")


async def a_value_that_cant_travel_adds_nothing(traits: Traits) -> None:
    """All of a call or nothing."""
    async with _opened(traits) as [source]:
        try:
            await source.add([1, object(), 2])
        except SerializationError:
            pass
        else:
            raise ContractError("add() of an object() must raise SerializationError")
        _same(await source.take(10), [], "tasks after a refused add")


async def a_settled_task_is_gone(traits: Traits) -> None:
    """It doesn't come again, to nobody."""
    async with _opened(traits) as [source]:
        await source.add(["a", "b"])
        tasks = await _take(source, 2, traits.patience_s)
        await source.settled(tasks)
        await source.settled(tasks)  # harmless
        _same((await source.backlog()).waiting, 0, "waiting when all is settled")
        await source.close()
        if traits.durable:
            after = await traits.make()
            await after.open()
            try:
                _same(await after.take(10), [], "tasks for the next node")
            finally:
                await after.close()


async def a_released_task_comes_again_with_its_token(traits: Traits) -> None:
    """Given back before its lease is over; the same task, with the same value."""
    async with _opened(traits) as [source]:
        await source.add(["a", "b"])
        first = await _take(source, 2, traits.patience_s)
        await source.release(first)
        again = await _take(source, 2, traits.patience_s)
        _same({(t.token, t.value) for t in again}, {(t.token, t.value) for t in first}, "released tasks")
        await source.settled(again)
        _same(await source.take(10), [], "tasks when all are settled")


async def a_task_of_a_closed_node_comes_to_another_one(traits: Traits) -> None:
    """With its token; what was settled doesn't."""
    if not (traits.durable and traits.shared):
        return
    async with _opened(traits) as [first]:
        await first.add([1, 2, 3, 4])
        taken = await _take(first, 4, traits.patience_s)
        done = [task for task in taken if task.value == 2]
        await first.settled(done)
        await first.close()
        second = await traits.make()
        await second.open()
        try:
            # What was settled out of order may come again where the store knows but one number (Kafka).
            left: dict[str, Any] = {}
            end = time.monotonic() + traits.patience_s
            open_tokens = {task.token: task.value for task in taken if task.value != 2}
            while not open_tokens.keys() <= left.keys() and time.monotonic() < end:
                for task in await second.take(10):
                    left[task.token] = task.value
                    if task.token not in {one.token for one in taken}:
                        raise ContractError(
                            f"token {task.token!r} of {task.value!r} has changed with the node"
                        )
            _same(
                {t: v for t, v in left.items() if t in open_tokens}, open_tokens, "tasks of the closed node"
            )
        finally:
            await second.close()


async def two_nodes_share_the_tasks(traits: Traits) -> None:
    """Each task goes to one of them."""
    if not traits.shared:
        return
    async with _opened(traits, 2) as [first, second]:
        await first.add(list(range(60)))
        got: dict[str, Any] = {}
        end = time.monotonic() + traits.patience_s
        count = 0
        while len(got) < 60 and time.monotonic() < end:
            for source in (first, second):
                tasks = await source.take(7)
                count += len(tasks)
                got |= {task.token: task.value for task in tasks}
                await source.settled(tasks)
        _same(sorted(got.values()), list(range(60)), "values taken by two nodes")
        _same(count, 60, "deliveries")


async def a_failed_task_is_kept_apart(traits: Traits) -> None:
    """It doesn't come again and counts as failed."""
    async with _opened(traits) as [source]:
        await source.add(["bad", "good"])
        tasks = await _take(source, 2, traits.patience_s)
        [bad] = [task for task in tasks if task.value == "bad"]
        [good] = [task for task in tasks if task.value == "good"]
        await source.failed([(bad, "ValueError: no such shop")])
        await source.settled([good])
        _same(await source.take(10), [], "tasks after one failed")
        backlog = await source.backlog()
        _same(backlog.waiting, 0, "waiting after one failed")
        if backlog.failed not in {None, 1}:
            raise ContractError(f"failed: wanted 1, got {backlog.failed}")


async def the_backlog_counts(traits: Traits) -> None:
    """Waiting and taken, as far as the source can tell."""
    async with _opened(traits) as [source]:
        await source.add(list(range(10)))
        before = await source.backlog()
        _same(before.waiting, 10, "waiting")
        tasks = await _take(source, 4, traits.patience_s, limit=4)
        now = await source.backlog()
        _same((now.waiting, now.taken if now.taken is not None else 4), (6, 4), "waiting and taken")
        if before.moved is not None and not (now.moved is not None and now.moved > before.moved):
            raise ContractError(f"moved must rise when tasks are taken: {before.moved} → {now.moved}")
        await source.settled(tasks)
        then = await source.backlog()
        _same((then.waiting, then.taken or 0), (6, 0), "waiting and taken after settling")


async def add_and_backlog_may_come_at_any_time(traits: Traits) -> None:
    """While another call runs."""
    async with _opened(traits) as [source]:
        await source.add(list(range(50)))
        got, *_ = await asyncio.gather(
            _take(source, 80, traits.patience_s, limit=10),
            source.add(list(range(50, 80))),
            source.backlog(),
            source.backlog(),
        )
        _same(sorted(task.value for task in got), list(range(80)), "values")


async def tasks_in_hand_are_kept(traits: Traits) -> None:
    """`keep` of held and of settled tasks is harmless, and close may come twice."""
    async with _opened(traits) as [source]:
        await source.add([1])
        tasks = await _take(source, 1, traits.patience_s)
        await source.keep(tasks)
        _same(await source.take(5), [], "tasks while the only one is kept")
        await source.settled(tasks)
        await source.keep(tasks)
        source.give_up_waiting()
        await source.close()


CHECKS: tuple[Check, ...] = (
    a_new_list_is_empty,
    tasks_arrive_with_tokens_of_their_own,
    values_arrive_as_they_were,
    a_value_that_cant_travel_adds_nothing,
    a_settled_task_is_gone,
    a_released_task_comes_again_with_its_token,
    a_task_of_a_closed_node_comes_to_another_one,
    two_nodes_share_the_tasks,
    a_failed_task_is_kept_apart,
    the_backlog_counts,
    add_and_backlog_may_come_at_any_time,
    tasks_in_hand_are_kept,
)
"""Every rule; run each with a fresh `Traits`."""

OUTLIVES_A_LEASE: frozenset[Check] = frozenset({a_task_of_a_closed_node_comes_to_another_one})
"""Where a source has leases, these wait until one is over. Let the others have long ones: no machine is quick for sure."""
