"""A fresh SQLite file that several processes open at once."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest

from netspy.sqlio.sqlite_file import connect


@pytest.fixture
def busy(tmp_path):
    """A file in the old journal mode, and a connection that is writing to it."""
    path = tmp_path / "fresh.db"
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.execute("CREATE TABLE t (a)")
    writer.execute("BEGIN IMMEDIATE")
    yield path, writer
    writer.close()


def test_the_change_to_wal_waits_for_another_process_that_is_writing(busy):
    path, writer = busy
    with (
        closing(sqlite3.connect(path, timeout=30)) as plain,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        plain.execute("PRAGMA journal_mode=WAL")  # SQLite alone doesn't wait here
    threading.Timer(0.2, writer.execute, ("COMMIT",)).start()
    opened = connect(path, 30)
    assert opened.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert opened.execute("PRAGMA synchronous").fetchone() == (2,)
    opened.close()


def test_the_wait_ends_with_the_patience(busy):
    path, _writer = busy
    begun = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connect(path, 0.2)
    assert 0.2 <= time.monotonic() - begun < 10
