"""The rows of a task table: claim, read, mark, count, reset. Used by the batch store and by the SQL task source.

A claim commits the state DOING before its rows leave this module: a process that dies then leaves DOING rows, which are
lost when their time is stale, and go back to TODO. All times are the server's, in UTC.

`Guard`: what every step of a writer does first in its transaction; it returns the server's clock. A batch master's guard
holds the fence row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from netspy.errors import ConfigError
from netspy.policy.batch import DOING, DONE, FAILED, TODO, TaskCounts
from netspy.tasks.batch_store import sift
from netspy.tasks.sql.rows import read_row, sqlite_readers
from netspy.tasks.sql.schema import TaskTable, check_task_table
from netspy.tasks.sql.steps import IN_LIST, Names, SqlSteps, chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

Guard = Callable[["Connection"], datetime]

DEFAULT_CHUNK = 5000  # rows that one transaction resets: their locks are held for tenths of a second

# The states from which a mark applies. A late DONE counts even when the task was given up: its rows are stored.
_MARKED_FROM = {DONE: (TODO, DOING, FAILED), FAILED: (TODO, DOING), TODO: (DOING,)}


class SqlTasks:
    """One task table."""

    def __init__(
        self,
        steps: SqlSteps,
        table: str,
        id_field: str,
        state_field: str,
        time_field: str,
        *,
        chunk: int = DEFAULT_CHUNK,
    ) -> None:
        self.steps = steps
        self.plain = (table, id_field, state_field, time_field)
        self._chunk = chunk
        self._names: Names | None = None
        self._checked: TaskTable | None = None
        self._told_keyless = False

    @property
    def names(self) -> Names:
        """The table's and columns' quoted names; asks the server for its dialect once."""
        if self._names is None:
            self._names = Names(self.steps.dialect, *self.plain)
        return self._names

    @property
    def about(self) -> TaskTable:
        """What the check of the table found; checks it once. Raises ConfigError."""
        if self._checked is None:
            names = self.names
            self._checked = self.steps.run(
                lambda connection: check_task_table(connection, names, self.steps.address.shown)
            )
        return self._checked

    @property
    def _known(self) -> str:
        """The condition that a row has an id, where it may have none; such rows are no tasks."""
        return f" AND {self.names.id} IS NOT NULL" if self.about.keyless else ""

    def clock(self, connection: Connection) -> datetime:
        """The server's clock: the guard of those who need no other."""
        return utc(connection.exec_driver_sql(f"SELECT {self.names.now}", ()).scalar())

    def stored(self, moment: datetime) -> Any:
        """An instant as a parameter: the servers get UTC without a zone, as their sessions are; SQLite gets a text."""
        plain = moment.astimezone(UTC).replace(tzinfo=None)
        return plain.isoformat(" ", "milliseconds") if self.names.dialect.kind == "sqlite" else plain

    # Claims

    def claim(self, limit: int, guard: Guard) -> list[Any]:
        """Ids of up to `limit` TODO rows, oldest time first, now DOING. Committed when it returns."""
        names, about = self.names, self.about
        # Without the index, sorting by time would lock every TODO row, and other claims would find none.
        order = f"{names.time}, {names.id}" if about.indexed else names.id

        def step(connection: Connection, wanted: int) -> list[Any]:
            guard(connection)
            query = (
                f"SELECT {names.id} FROM {names.table} WHERE {names.state} = {TODO}{self._known} ORDER BY {order} "  # noqa: S608 (quoted)
                f"LIMIT {wanted:d}{names.dialect.skip_locked}"
            )
            ids = [row[0] for row in connection.exec_driver_sql(query, ())]
            if self._update(connection, ids, names.set_state(DOING)) != len(ids):
                raise self._unreachable(connection, ids)
            return ids

        claimed: list[Any] = []
        while len(claimed) < limit:
            wanted = min(IN_LIST, limit - len(claimed))
            got = self.steps.run(lambda connection, wanted=wanted: step(connection, wanted))  # type: ignore[misc]
            claimed += got
            if len(got) < wanted:
                break
        return claimed

    def _unreachable(self, connection: Connection, ids: Sequence[Any]) -> ConfigError:
        """Why an update by these ids, which were just read, changed more or fewer rows."""
        table, id_field, _, _ = self.plain
        for id_ in ids:
            query = (
                f"SELECT COUNT(*) FROM {self.names.table} WHERE {self.names.id} = {self.names.dialect.mark}"  # noqa: S608 (quoted)
            )
            found = int(connection.exec_driver_sql(query, (id_,)).scalar_one())
            if found != 1:
                break
        return ConfigError(
            f"{self.steps.address.shown}: {found} rows of {table} are found by {id_field} = {id_!r}, which was read from one of "
            "them, so its task can't be marked and its batch would never end; the key must be unique as the database compares "
            "it, and of a type that it finds again"
        )

    def read(self, ids: Sequence[Any]) -> tuple[list[dict[str, Any]], list[tuple[Any, str]]]:
        """The rows of `ids` in their order, and (id, reason) of those that can't be read or can't travel."""
        good: list[dict[str, Any]] = []
        bad: list[tuple[Any, str]] = []
        for piece in chunks(ids):
            try:
                rows = self._rows(piece)
            except ConfigError:
                # One value that the driver can't read spoils the answer for all; alone it spoils only its own row.
                rows = []
                for id_ in piece:
                    try:
                        rows += self._rows([id_])
                    except ConfigError as error:
                        bad.append((id_, str(error)))
            travelling, refused = sift(rows, self.names.plain[1])
            good += travelling
            bad += refused
        return good, bad

    def touch(self, ids: Iterable[Any], guard: Guard) -> int:
        """Set the time of those that are DOING to now; returns how many."""
        names, touched = self.names, 0

        def step(connection: Connection, piece: Sequence[Any]) -> int:
            guard(connection)
            return self._update(connection, piece, names.set_state(DOING), f" AND {names.state} = {DOING}")

        for piece in chunks(in_order(map(self.as_id, ids))):
            touched += self.steps.run(lambda connection, piece=piece: step(connection, piece))  # type: ignore[misc]
        return touched

    # Marks

    def mark(
        self, connection: Connection, marks: Iterable[tuple[Any, int]], *, apply: bool = True
    ) -> set[Any]:
        """Set states in this transaction (`apply` False: only look); returns the ids that no row has.

        The ids are as `as_id` gives them. A task marked both DONE and FAILED is DONE.
        """
        by_state: dict[int, set[Any]] = {}
        for id_, state in marks:
            by_state.setdefault(state, set()).add(id_)
        names = self.names
        unseen: list[Any] = []
        for state in (TODO, FAILED, DONE):
            states = ", ".join(map(str, _MARKED_FROM[state]))
            missing_state = "" if state == TODO else f" OR {names.state} IS NULL"
            allowed = f" AND ({names.state} IN ({states}){missing_state})"
            for piece in chunks(in_order(by_state.get(state, ()))):
                if not apply or self._update(connection, piece, names.set_state(state), allowed) < len(piece):
                    unseen += piece
        return self._without_row(connection, unseen)

    def as_id(self, task_id: Any) -> Any:
        """`task_id` as the id column's own type, so that servers compare it exactly and by the index; None: no such id.

        MySQL compares a number with a text as floating point numbers, which are equal for different large ids.
        """
        if isinstance(task_id, bool | list | dict | set) or task_id is None:
            return None
        kind, dialect = self.about.id_is, self.names.dialect.kind
        if dialect == "sqlite" and isinstance(task_id, float | bytes):
            return task_id  # any column may hold it
        if kind == "int":
            number = self._whole_number(task_id)
            any_text = dialect == "sqlite" and isinstance(task_id, str) and _is_unicode(task_id)
            return task_id if number is None and any_text else number
        if kind == "text":
            text = task_id if isinstance(task_id, str) else str(task_id)
            return None if not _is_unicode(text) or ("\0" in text and dialect == "postgresql") else text
        if dialect == "sqlite" and isinstance(task_id, Decimal | date | UUID):
            return str(task_id)  # as it is stored, or, a number, as the column's affinity reads it
        return task_id

    def _whole_number(self, task_id: Any) -> int | None:
        if not isinstance(task_id, int):
            text = str(task_id).strip()
            if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 20):
                return None
            task_id = int(text)
        largest = 2**64 if self.names.dialect.kind == "mysql" else 2**63  # MySQL alone has unsigned columns
        return task_id if -(2**63) <= task_id < largest else None

    # The table as a whole

    def count(self, *, without_done: bool = False) -> TaskCounts:
        """How many tasks are in which state: one scan of the index, without DONE rows if these don't matter."""
        names = self.names
        where = f" WHERE 1 = 1{self._known}"
        if without_done:
            where += f" AND ({names.state} IN ({TODO}, {DOING}, {FAILED}) OR {names.state} IS NULL)"
        query = f"SELECT {names.state}, COUNT(*) FROM {names.table}{where} GROUP BY {names.state}"  # noqa: S608 (quoted)
        rows = self.steps.run(lambda connection: connection.exec_driver_sql(query, ()).all())
        if self.about.keyless and not self._told_keyless:
            self._look_for_keyless()
        counted = {row[0]: int(row[1]) for row in rows}
        todo = counted.get(TODO, 0) + counted.get(None, 0)
        doing, done, failed = (counted.get(state, 0) for state in (DOING, DONE, FAILED))
        total = todo + doing + done + failed
        return TaskCounts(total, todo, doing, done, failed, sum(counted.values()) - total)

    def _look_for_keyless(self) -> None:
        """Say once that rows without an id, which came after the check of the table, are left out."""
        names = self.names
        query = f"SELECT 1 FROM {names.table} WHERE {names.id} IS NULL LIMIT 1"  # noqa: S608 (quoted)
        if self.steps.run(lambda connection: connection.exec_driver_sql(query, ()).first()) is not None:
            self._told_keyless = True
            table, id_field, _, _ = self.plain
            self.steps.tell(
                f"{self.steps.address.shown}: rows of {table} have no {id_field} (NULL); no mark can find them, so they are left "
                "out of the batches"
            )

    def ids_in_state(self, state: int, limit: int) -> list[Any]:
        """Up to `limit` ids."""
        names = self.names
        query = f"SELECT {names.id} FROM {names.table} WHERE {names.state} = {state:d}{self._known} LIMIT {limit:d}"  # noqa: S608 (quoted)
        return self.steps.run(lambda connection: [row[0] for row in connection.exec_driver_sql(query, ())])

    def reset_all(self, guard: Guard) -> int:
        """Every task back to TODO, in pieces along the primary key; rows that are TODO already aren't written."""
        names, mark = self.names, self.names.dialect.mark
        needs = f"({names.state} IN ({DOING}, {DONE}, {FAILED}) OR {names.state} IS NULL)"

        def step(connection: Connection, start: Any) -> tuple[int, Any]:
            guard(connection)
            above, values = ("", ()) if start is None else (f"{names.id} > {mark} AND ", (start,))
            end = connection.exec_driver_sql(
                f"SELECT {names.id} FROM {names.table} WHERE {above}1 = 1{self._known} "  # noqa: S608 (quoted)
                f"ORDER BY {names.id} LIMIT 1 OFFSET {self._chunk - 1}",
                values,
            ).first()
            below = ""
            if end is not None:
                below, values = f"{names.id} <= {mark} AND ", (*values, end[0])
            update = f"{names.set_state(TODO)} WHERE {above}{below}{needs}"
            return connection.exec_driver_sql(update, values).rowcount, None if end is None else end[0]

        changed, start = 0, None
        while True:
            more, start = self.steps.run(lambda connection, start=start: step(connection, start))  # type: ignore[misc]
            changed += more
            if start is None:
                return changed

    def reset_lost(self, stale: float, guard: Guard) -> int:
        """DOING rows without a sign of life for `stale` seconds back to TODO, and rows without a state.

        A time in the future, farther than `stale`, is somebody's local time and no sign of life. Rows that others hold
        locked are being marked or touched right now, so they are passed over.
        """
        names, began = self.names, time.monotonic()

        def lost(connection: Connection) -> int:
            # The time that this has waited for the database is nobody's staleness.
            waited_s = time.monotonic() - began
            ids = self._lost(connection, stale + waited_s, IN_LIST, guard(connection))
            return self._update(connection, ids, names.set_state(TODO))

        def stateless(connection: Connection) -> int:
            guard(connection)
            query = (
                f"SELECT {names.id} FROM {names.table} WHERE {names.state} IS NULL{self._known} "  # noqa: S608 (quoted)
                f"LIMIT {IN_LIST}{names.dialect.skip_locked}"
            )
            ids = [row[0] for row in connection.exec_driver_sql(query, ())]
            return self._update(connection, ids, names.set_state(TODO))

        changed = 0
        for step in (lost, stateless) if self.about.stateless else (lost,):
            more = IN_LIST
            while more >= IN_LIST:
                more = self.steps.run(step)
                changed += more
        return changed

    def claim_lost(self, limit: int, stale: float, guard: Guard) -> list[Any]:
        """Ids of up to `limit` DOING rows whose time is stale, with a new time: they are this caller's now."""

        def step(connection: Connection) -> list[Any]:
            ids = self._lost(connection, stale, min(limit, IN_LIST), guard(connection))
            self._update(connection, ids, self.names.set_state(DOING))
            return ids

        return self.steps.run(step)

    # Inside

    def _lost(self, connection: Connection, stale: float, limit: int, now: datetime) -> list[Any]:
        names, mark, span = self.names, self.names.dialect.mark, timedelta(seconds=stale)
        query = (
            f"SELECT {names.id} FROM {names.table} WHERE {names.state} = {DOING} "  # noqa: S608 (quoted)
            f"AND ({names.time} < {mark} OR {names.time} > {mark} OR {names.time} IS NULL){self._known} "
            f"LIMIT {limit:d}{names.dialect.skip_locked}"
        )
        limits = (self.stored(now - span), self.stored(now + span))
        return [row[0] for row in connection.exec_driver_sql(query, limits)]

    def _update(self, connection: Connection, ids: Sequence[Any], change: str, condition: str = "") -> int:
        if not ids:
            return 0
        update = f"{change} WHERE {self.names.id_in(len(ids))}{condition}"
        return int(connection.exec_driver_sql(update, tuple(ids)).rowcount)

    def _without_row(self, connection: Connection, ids: Sequence[Any]) -> set[Any]:
        names, missing = self.names, set(ids)
        for piece in chunks(ids):
            query = f"SELECT {names.id} FROM {names.table} WHERE {names.id_in(len(piece))}"  # noqa: S608 (quoted)
            missing.difference_update(row[0] for row in connection.exec_driver_sql(query, tuple(piece)))
        # A collation may hold other texts for equal ("A1" and "a1"): those are asked for by themselves.
        one = f"SELECT 1 FROM {names.table} WHERE {names.id} = {names.dialect.mark}"  # noqa: S608 (quoted)
        return {id_ for id_ in missing if connection.exec_driver_sql(one, (id_,)).first() is None}

    def _rows(self, ids: Sequence[Any]) -> list[dict[str, Any]]:
        names = self.names
        readers = sqlite_readers(self.about.declared) if names.dialect.kind == "sqlite" else {}
        query = f"SELECT * FROM {names.table} WHERE {names.id_in(len(ids))}"  # noqa: S608 (quoted)

        def step(connection: Connection) -> list[dict[str, Any]]:
            result = connection.exec_driver_sql(query, tuple(ids))
            columns = list(result.keys())
            return [read_row(columns, row, readers) for row in result]

        place = {id_: index for index, id_ in enumerate(ids)}
        rows = self.steps.run(step)
        rows.sort(key=lambda row: place.get(row[names.plain[1]], 0))
        return rows


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_order(ids: Iterable[Any]) -> list[Any]:
    """Each id once, None left out, in an order that all processes share: locks taken in one order can't cross."""
    unique = {id_ for id_ in ids if id_ is not None}
    try:
        return sorted(unique)
    except TypeError:
        return sorted(unique, key=repr)


def utc(value: Any) -> datetime:
    """What a driver gives for a time, as an aware datetime in UTC. Raises ConfigError for anything else."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise ConfigError(f"{value!r} in a time column is no date and time")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
