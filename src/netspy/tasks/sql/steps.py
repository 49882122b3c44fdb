"""Transactions on a task table's database: each a step that is done whole, and tried again while its trouble passes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from netspy.errors import ConfigError, ItemError, NetspyError, StoreUnavailableError
from netspy.policy.outage import OutageWatch
from netspy.sqlio.address import SqlAddress, read_url
from netspy.sqlio.dialects import Dialect, dialect_of
from netspy.sqlio.engine import make_engine
from netspy.sqlio.errors import driver_error, one_line, schema_error, setup_error, transient
from netspy.sqlio.sqlite_file import why_unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, Engine

T = TypeVar("T")

IN_LIST = 1000  # values in one IN (…): well under every server's limit, and texts stay short
_FIRST_WAIT_S = 0.05
_TOLD_AFTER_S = 1.0
# A process that froze may hold a lock. On a server the others' rows are free; a file is locked whole, and others say so.
_ROW_LOCK_S = 20.0
_FILE_LOCK_S = 5.0
# A client that froze within a transaction holds row locks that everybody else waits for; the server ends it.
_IDLE_IN_TRANSACTION_S = 60


class SqlSteps:
    """One database and its pool. Used by several threads at once; each step has a connection for itself."""

    def __init__(
        self,
        address: str | SqlAddress,
        *,
        pool_size: int,
        patience: float,
        read_timeout: float = 120.0,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`patience`: seconds for which a step that meets passing trouble is tried again; it may be changed later. `tell`
        hears, from any thread, of trouble that has lasted for more than a second, and of its end.
        """
        self.address = read_url(address) if isinstance(address, str) else address
        self.patience = patience
        self.engine: Engine = make_engine(
            self.address,
            pool_size=pool_size,
            checkout_timeout=30.0,
            read_timeout=read_timeout,
            lock_timeout=_FILE_LOCK_S if self.address.kind == "sqlite" else _ROW_LOCK_S,
        )
        self.tell = tell
        self._outage = OutageWatch(
            self._on_outage, first_s=_FIRST_WAIT_S, excused=0, told_after_s=_TOLD_AFTER_S
        )
        self._closing = threading.Event()
        self._dialect: Dialect | None = None
        self._prepare_sessions()

    @property
    def dialect(self) -> Dialect:
        """The server's, known from the first connection on; makes one when there was none."""
        return self._dialect or self.run(dialect_of)

    def run(self, step: Callable[[Connection], T]) -> T:
        """Do `step` in a transaction of its own, again after passing trouble, so it must be harmless to repeat.

        Raises StoreUnavailableError after `patience` seconds of trouble, ConfigError for what a person must mend, and
        whatever netspy error `step` raises.
        """
        from sqlalchemy.exc import SQLAlchemyError

        closing = self._closing
        tries = self._outage.begin(self.patience)
        while True:
            try:
                with self.engine.begin() as connection:
                    if (
                        self._dialect is None
                    ):  # before the step asks: a second connection could wait for this one
                        self._dialect = dialect_of(connection)
                    result = step(connection)
            except NetspyError:
                raise
            except (SQLAlchemyError, OSError, EOFError) as error:
                trouble = error
            else:
                self._outage.answered()
                return result
            sqlite = self.address.kind == "sqlite"
            if sqlite and (why := why_unusable(self.address.database, driver_error(trouble))):
                raise ConfigError(f"{self.address.shown}: {why}") from trouble
            if setup_error(trouble) or schema_error(trouble):
                raise ConfigError(f"{self.address.shown}: {one_line(trouble)}") from trouble
            if not transient(trouble):
                raise ConfigError(
                    f"{self.address.shown}: the database refuses what netspy asks: {one_line(trouble)}"
                ) from trouble
            told = self._outage.told
            wait_s = self._outage.failed(tries)
            if not isinstance(wait_s, float):
                raise StoreUnavailableError(
                    f"{self.address.shown} has not answered for {self.patience:g} s ({one_line(trouble)}); start it, or "
                    "correct the address"
                ) from trouble
            if self._outage.told and not told:
                self.tell(f"{self.address.shown} can't be used now, it is tried again: {one_line(trouble)}")
            if closing.wait(wait_s):
                raise StoreUnavailableError(
                    f"{self.address.shown} is away and not waited for any more: {one_line(trouble)}"
                ) from trouble

    def _on_outage(self, away: bool, _for_s: float) -> None:
        if not away:
            self.tell(f"{self.address.shown} can be used again")

    def give_up_waiting(self) -> None:
        """From now on a step that meets passing trouble is not tried again."""
        self._closing.set()

    def close(self) -> None:
        """End waits, close connections. Safe to call twice; a step after it connects anew."""
        self._closing.set()
        self._closing = threading.Event()
        self.engine.dispose()

    def _prepare_sessions(self) -> None:
        from sqlalchemy import event

        kind = self.address.kind
        if kind == "sqlite":
            return

        def prepare(connection: Any, _record: Any) -> None:
            cursor = connection.cursor()
            try:
                if kind == "mysql":
                    # READ COMMITTED: claims lock rows, not the gaps between them, which would hold up other
                    # people's INSERTs.
                    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                    mariadb = "mariadb" in connection.get_server_info().lower()
                    limit = "idle_transaction_timeout" if mariadb else "wait_timeout"
                    cursor.execute(f"SET SESSION {limit} = {_IDLE_IN_TRANSACTION_S}")
                else:
                    cursor.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_IN_TRANSACTION_S}s'")
                connection.commit()
            finally:
                cursor.close()

        event.listen(self.engine, "connect", prepare)


class Names:
    """The quoted names of a task table and its three columns in one dialect, and pieces of SQL made of them."""

    def __init__(
        self, dialect: Dialect, table: str, id_field: str, state_field: str, time_field: str
    ) -> None:
        self.dialect = dialect
        self.plain = (table, id_field, state_field, time_field)
        self.table = quote_name(dialect, table)
        self.id = quote_name(dialect, id_field)
        self.state = quote_name(dialect, state_field)
        self.time = quote_name(dialect, time_field)
        self.now = dialect.now

    def id_in(self, count: int) -> str:
        """`id IN (?, …)` with `count` marks."""
        return f"{self.id} IN ({', '.join([self.dialect.mark] * count)})"

    def set_state(self, state: int) -> str:
        """`UPDATE … SET state = …, time = now`, up to the WHERE."""
        # Names are quoted, the state is a number of ours.
        return f"UPDATE {self.table} SET {self.state} = {state:d}, {self.time} = {self.now}"  # noqa: S608 (quoted)


def quote_name(dialect: Dialect, name: str) -> str:
    """An identifier. Raises ConfigError for a name that no server can have."""
    try:
        return dialect.quote(name)
    except ItemError as error:
        raise ConfigError(f"the name of a table or column: {error}") from None


def chunks(values: Sequence[T], size: int = IN_LIST) -> Iterator[Sequence[T]]:
    """`values` in pieces of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
