"""Dead letters in a SQLite file, for several processes of one machine."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from netspy.errors import NetspyError, PipelineError
from netspy.pipelines.dead_letters.records import line_of, parse_record
from netspy.pipelines.local.shared_file import locked
from netspy.private_files import narrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netspy.messages.row import DeadRow

_BUSY_S = 10.0


class SqliteLetters:
    """The table `failed_items` of a database file, which is made when it is missing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = f"failed_items in {self.path}"

    def _open(self) -> closing[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("CREATE TABLE IF NOT EXISTS failed_items (id INTEGER PRIMARY KEY, line BLOB NOT NULL)")
            if db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone() == (1,):
                narrow(self.path)  # one with other tables is the user's own
        except BaseException:
            db.close()
            raise
        return closing(db)

    def append(self, rows: Sequence[DeadRow]) -> None:
        """Add the rows, all or none. Raises sqlite3.Error, OSError."""
        self.settle((), [line_of(row) for row in rows])

    def count(self) -> int:
        """How many there are."""
        if not self.path.exists():
            return 0
        with self._open() as db:
            return int(db.execute("SELECT count(*) FROM failed_items").fetchone()[0])

    def read(self) -> Iterator[DeadRow]:
        """The rows, oldest first; lines that can't be read are left out."""
        if not self.path.exists():
            return
        with self._open() as db:
            for (line,) in db.execute("SELECT line FROM failed_items ORDER BY id"):
                with suppress(ValueError, NetspyError):
                    yield parse_record(line)

    @contextmanager
    def claim(self) -> Iterator[SqliteClaim | None]:
        """To write them again; None when there are none. Raises PipelineError while another replay runs."""
        if not self.count():
            yield None
            return
        lock = self.path.with_name(self.path.name + ".replaying")
        try:
            with locked(lock, wait_s=0.0) as held:
                total = self.count()
                yield SqliteClaim(self, total) if total else None
                held.remove()
        except TimeoutError as error:
            raise PipelineError(f"{self.name} is being replayed by another process; let it finish") from error

    def take(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """Lines with a number above `after`."""
        with self._open() as db:
            return db.execute(
                "SELECT id, line FROM failed_items WHERE id > ? ORDER BY id LIMIT ?", (after, most)
            ).fetchall()

    def settle(self, numbers: Sequence[int], keep: Sequence[bytes]) -> None:
        """In one step: these lines go, `keep` come."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany("DELETE FROM failed_items WHERE id = ?", [(number,) for number in numbers])
                db.executemany("INSERT INTO failed_items (line) VALUES (?)", [(line,) for line in keep])
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def close(self) -> None:
        """Nothing is open between calls."""


class SqliteClaim:
    """The letters that were there when the replay began."""

    def __init__(self, letters: SqliteLetters, total: int) -> None:
        self._letters = letters
        self._taken: list[tuple[int, bytes]] = []
        self._after = 0
        self.total = total

    def take(self, most: int) -> list[bytes]:
        """The next lines."""
        self._taken = self._letters.take(self._after, most)
        if self._taken:
            self._after = self._taken[-1][0]
        return [line for _, line in self._taken]

    def settle(self, keep: Sequence[bytes]) -> None:
        """The lines taken are over, but for `keep`."""
        self._letters.settle([number for number, _ in self._taken], keep)

    def end(self) -> None:
        """Nothing is left to do."""
