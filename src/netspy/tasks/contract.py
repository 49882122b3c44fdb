"""The task source's contract: where a TaskSpider's tasks come from, and what happens to each of them.

    waiting ──take──▶ taken ──settled──▶ gone
       ▲                │ └──failed──▶ failed list
       └──release, lease over, consumer gone──┘

A task that was taken belongs to its node for a while. It is never lost: it is settled, failed, given back, or comes
back by itself when the node dies. So delivery is at least once; `Task.token` stays the same over deliveries, and the
frontier knows the requests of a token that it has seen, so a task delivered twice isn't crawled twice.

Back ends: `memory.py`, `redis/`, `amqp.py`, `kafka/`, `sql/table.py`. All pass `netspy.testing.source_contract`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Task(NamedTuple):
    """One task in a node's hands.

    `token` names it in the frontier: text without `{`, at most 200 bytes, the same at every delivery, unique among all
    tasks of the source. `value` is what `task_requests` gets. `receipt` is the source's own handle. `deliveries` counts
    from 1.
    """

    token: str
    value: Any
    receipt: Any = None
    deliveries: int = 1


class Backlog(NamedTuple):
    """What a source still has. None = it can't tell.

    `waiting`: not taken. `taken`: in some node's hands, this one's included. `moved`: rises whenever a task arrives or
    is taken, so that two equal readings mean that nothing happened between them.
    """

    waiting: int | None
    taken: int | None
    moved: int | None = None
    failed: int | None = None


class TaskSource(Protocol):
    """Called on the event loop of one node; calls don't overlap, except `add` and `backlog`, which may come at any time.

    Every method but `open` survives the store's absence: it waits with back-off and goes on, until `close` or
    `give_up_waiting` ends it with StoreLostError. `open` raises ConfigError for a wrong address or missing rights, at
    once, and StoreUnavailableError when the store doesn't answer within the usual start limit.
    """

    holds: bool
    """True: a task is settled when all its requests, those found on its pages included, and their items are done.
    False: it is settled as soon as its requests are in the frontier, which then looks after them. That is for a source in
    the frontier's own store: where the store goes back to an earlier state, the task goes back with its requests."""

    reusable: bool
    """True: a task that is to be done again has the token it had (a row's key). So it is not known by its token whether
    it is new: it is, unless the frontier has requests of it."""

    # A source that reads messages of others also counts those that it couldn't read, in `unreadable: int`.

    async def open(self) -> None:
        """Connect; create what is missing where that is usual (a queue, a key)."""

    async def take(self, limit: int) -> list[Task]:
        """Up to `limit` tasks, at once: an empty list when none is there now. Tasks whose node is gone come first."""

    async def keep(self, tasks: Sequence[Task]) -> None:
        """The node still works on these: don't give them to others. Called every HEARTBEAT_INTERVAL seconds."""

    async def settled(self, tasks: Sequence[Task]) -> None:
        """Done with. Harmless when the task is another node's by now."""

    async def failed(self, failures: Sequence[tuple[Task, str]]) -> None:
        """(task, error): it can't be turned into requests. Kept in the source's failed list with the error."""

    async def release(self, tasks: Sequence[Task]) -> None:
        """Give them back now, before their lease is over."""

    async def add(self, values: Sequence[Any]) -> None:
        """New tasks at the end. They survive a crash of this process when it returns. Raises SerializationError, before
        anything is added, for a value that can't travel.
        """

    async def backlog(self) -> Backlog:
        """What is left."""

    def give_up_waiting(self) -> None:
        """From now on calls that wait for an absent store raise StoreLostError soon."""

    async def close(self) -> None:
        """Disconnect. Tasks still in hand come back by themselves. Safe to call twice."""
