"""S1: what holds requests with their credentials, or rows, only its owner may read; whatever the umask, whatever was before."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netspy.assembly import resume
from netspy.cli.failed.records import FileRecords
from netspy.messages.request import Request
from netspy.messages.row import DeadRow, Row
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.dead_letters.sqlite import SqliteLetters
from netspy.pipelines.local.shared_file import end_of_last_line, locked
from netspy.policy.failed_record import of_spider, pack_failed
from netspy.private_files import narrow, narrow_folder, open_private

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")

LETTER = DeadRow(Row("t", {"a": 1}), "boom", 1.0)


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=["umask 000", "umask 022", "umask 777"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in sorted(folder.iterdir())}


def wide(path: Path, content: bytes = b"") -> Path:
    path.write_bytes(content)
    path.chmod(0o666)
    return path


def record() -> bytes:
    payload = Request("http://e.com/", headers={"Authorization": "x"}).pack()
    line = pack_failed(payload, reason="http", error="", attempts=1, time=1.0, priority=300, site="00000000")
    return of_spider(line, "s") + b"\n"


def test_a_new_file_is_its_owners_alone(umask, tmp_path) -> None:
    os.close(open_private(tmp_path / "new", os.O_WRONLY | os.O_CREAT))
    with open(tmp_path / "opened", "wb", opener=open_private) as file:
        file.write(b"x")
    assert modes(tmp_path) == {"new": 0o600, "opened": 0o600}


def test_what_is_no_file_is_left_as_it_is(tmp_path) -> None:
    before = Path("/dev/null").stat().st_mode
    os.close(open_private("/dev/null", os.O_WRONLY))
    narrow(Path("/dev/null"))
    assert Path("/dev/null").stat().st_mode == before
    target = wide(tmp_path / "target")
    (tmp_path / "link").symlink_to(target)
    narrow(tmp_path / "link")
    narrow(tmp_path / "missing")
    narrow_folder(target)
    assert target.stat().st_mode & 0o777 == 0o666


def test_failed_requests_and_what_was_seen_s1(tmp_path) -> None:
    before = os.umask(0)
    try:
        path = wide(tmp_path / "failed.jsonl", record())
        file = resume.FailedFile(str(path), "s", on_trouble=pytest.fail)
        file.append(record())
        file.close()
        assert modes(tmp_path) == {"failed.jsonl": 0o600}
        resume.dump(path, [(Request("http://e.com/"), 1.0)], [b"x"], seeded=True, spider="s")
        assert modes(tmp_path) == {"failed.jsonl": 0o600, "failed.jsonl.seen": 0o600}
        for made in tmp_path.iterdir():
            made.chmod(0o644)
        assert resume.claim_dump(path, lambda found: False)
        assert modes(tmp_path) == dict.fromkeys(
            ("failed.jsonl", "failed.jsonl.replaying", "failed.jsonl.seen"), 0o600
        )
        wide(path, record())
        assert resume.claim_dump(path)
        for made in tmp_path.iterdir():
            made.chmod(0o644)
        resume.set_aside(path)
        assert set(modes(tmp_path).values()) == {0o600}
    finally:
        os.umask(before)


def test_a_failed_file_that_is_written_anew_s1(tmp_path) -> None:
    path = wide(tmp_path / "failed.jsonl", record() * 2)
    records = FileRecords(path)
    records.drop([next(records.read())])
    assert records.count() == 1
    assert modes(tmp_path) == {"failed.jsonl": 0o600}


def test_dead_letters_their_torn_and_their_claimed_files_s1(tmp_path) -> None:
    path = wide(tmp_path / "items.jsonl", b'{"torn')
    letters = DeadLetterFile(path)
    letters.append([LETTER])
    assert modes(tmp_path) == {"items.jsonl": 0o600, "items.jsonl.torn": 0o600}
    path.chmod(0o644)
    with letters.claim() as claimed:
        assert claimed is not None
        assert modes(tmp_path) == {"items.jsonl.replaying": 0o600, "items.jsonl.torn": 0o600}
    (tmp_path / "items.jsonl.replaying").chmod(0o644)
    letters.append([LETTER])
    with letters.claim() as claimed:
        assert claimed is not None
        assert claimed.total == 2
        assert set(modes(tmp_path).values()) == {0o600}


def test_dead_letters_in_sqlite_but_not_a_users_own_database_s1(tmp_path) -> None:
    SqliteLetters(wide(tmp_path / "letters.db")).append([LETTER])
    with sqlite3.connect(tmp_path / "rows.db") as db:
        db.execute("CREATE TABLE rows (a)")
    db.close()
    (tmp_path / "rows.db").chmod(0o664)
    SqliteLetters(tmp_path / "rows.db").append([LETTER])
    assert modes(tmp_path) == {"letters.db": 0o600, "rows.db": 0o664}


def test_a_users_output_keeps_its_mode_and_its_torn_part_is_no_wider(tmp_path) -> None:
    for mode in (0o664, 0o600):
        path = wide(tmp_path / f"{mode:o}.jsonl", b'{}\n{"torn')
        path.chmod(mode)
        with locked(path) as file:
            file.cut(end_of_last_line(file))
        assert path.stat().st_mode & 0o777 == mode
        assert path.with_name(path.name + ".torn").stat().st_mode & 0o777 & ~mode == 0
