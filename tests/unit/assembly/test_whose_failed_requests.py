"""Two spiders in one folder: whose FAILED_REQUEST_PATH is, also when both write there in the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from netspy.assembly import resume
from netspy.messages.request import Request
from netspy.policy.failed_record import pack_failed


def fails(file: resume.FailedFile) -> None:
    """A first failed request."""
    request = Request("http://h/1")
    file.append(
        pack_failed(
            request.pack(), reason="connect", error="refused", attempts=1, time=1.0, priority=300, site="h"
        )
    )


def stops(file: resume.FailedFile) -> None:
    """A stop with nothing failed so far."""
    with file.settled() as path:
        resume.dump(path, [(Request("http://h/2"), 300.0)], [b"seen"], seeded=True, spider=file.spider)


def stops_while_seeding(file: resume.FailedFile) -> None:
    """A stop before there was any request."""
    with file.settled() as path:
        resume.dump(path, [], [b"seen"], seeded=False, spider=file.spider)


@pytest.mark.parametrize("second", [fails, stops, stops_while_seeding])
@pytest.mark.parametrize("first", [fails, stops, stops_while_seeding])
def test_two_spiders_that_look_for_their_file_in_the_same_moment_get_one_each(
    tmp_path, monkeypatch, first, second
):
    wanted = tmp_path / "folder" / "failed.jsonl"
    files = [resume.FailedFile(str(wanted), name, pytest.fail) for name in ("First", "Second")]
    both_have_looked = threading.Barrier(2)
    look = resume.path_for

    def look_together(path, spider):
        found = look(path, spider)
        with suppress(threading.BrokenBarrierError):
            both_have_looked.wait(0.3)
        return found

    monkeypatch.setattr(resume, "path_for", look_together)
    with closing(files[0]), closing(files[1]), ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(first, files[0]), threads.submit(second, files[1])]:
            done.result(30)
    assert files[0].path != files[1].path
    assert {resume.owner_of(file.path) for file in files} == {"First", "Second"}
    assert [resume.owner_of(file.path) for file in files] == [file.spider for file in files]


def test_a_frozen_spider_that_holds_the_folder_does_not_hold_the_others_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "_LOCK_WAIT_S", 0.05)
    wanted = str(tmp_path / "failed.jsonl")
    frozen = resume.FailedFile(wanted, "Frozen", pytest.fail)
    with frozen.settled(), closing(resume.FailedFile(wanted, "Other", pytest.fail)) as other:
        fails(other)
    assert resume.owner_of(other.path) == "Other"
