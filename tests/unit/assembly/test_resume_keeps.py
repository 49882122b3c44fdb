"""RETRY_FAILED_ON_START: whatever stands in the file is crawled or kept, however often a start is killed in between."""

from __future__ import annotations

import json
import struct

import pytest

from netspy.assembly import resume


def line(n, *, reason="HTTP 500", **request):
    record = {"reason": reason, "error": "e", "attempts": 1, "time": 1.0, "priority": 300, "site": "0a0b0c0d"}
    return json.dumps(record | {"request": {"v": 1, "u": f"http://a.example/{n}"} | request}).encode() + b"\n"


FOREIGN = {
    "CSV": b"http://a.example/1,500\n",
    "JSON of another program": b'{"url":"http://a.example/1","status":500}\n',
    "no UTF-8": b"\xff\xfe\x00\n",
    "null": b"null\n",
    "a newer version": line(9, v=2),
    "a field that nobody knows": line(9, zz=1),
    "an unfinished one without a URL": b'{"reason":"unfinished","request":{"v":1}}\n',
    "very deep": b'{"request":' + b"[" * 50_000 + b"\n",
    "reserved names": line(9, x={"unpack": 1}),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "failed_requests.jsonl"


@pytest.mark.parametrize("bad", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("wanted", [None, lambda record: True])
def test_hv_10_what_can_not_be_read_is_kept_and_the_rest_is_crawled(path, bad, wanted):
    """case HV-10"""
    path.write_bytes(bad + line(1) + bad + line(2, reason="unfinished"))
    claimed = resume.claim_dump(path, wanted)
    assert [request.url for request, _ in claimed.requests] == ["http://a.example/1", "http://a.example/2"]
    assert claimed.unreadable == 2
    assert claimed.seeded is None, "no run was stopped: the seeds are crawled as well"
    for file in claimed.files:
        file.unlink(missing_ok=True)
    assert resume.unreadable_path(path).read_bytes() == bad + bad
    assert resume.claim_dump(path, wanted) is None


def test_hv_10_a_start_that_is_killed_in_the_middle_keeps_each_line_once(path):
    """case HV-10"""
    path.write_bytes(b"junk\n" + line(1) + b"junk\n")
    for _ in range(3):
        claimed = resume.claim_dump(path)
        assert len(claimed.requests) == 1
    path.write_bytes(b"other junk\n" + line(2))
    assert len(resume.claim_dump(path).requests) == 2
    assert sorted(resume.unreadable_path(path).read_bytes().splitlines()) == [b"junk", b"junk", b"other junk"]


def test_hv_10_a_last_line_without_an_end_is_taken_when_it_is_whole_and_kept_when_it_is_torn(path):
    """case HV-10"""
    path.write_bytes(line(1) + line(2).rstrip())
    assert len(resume.claim_dump(path).requests) == 2
    path.write_bytes(line(3) + line(4)[:40])
    claimed = resume.claim_dump(path)
    assert ([request.url[-1] for request, _ in claimed.requests], claimed.unreadable) == (["1", "2", "3"], 1)
    assert resume.unreadable_path(path).read_bytes() == line(4)[:40] + b"\n"


def test_hv_10_appending_to_a_torn_file_deletes_nothing(path):
    """case HV-10"""
    path.write_bytes(line(1) + b"torn")
    file = resume.FailedFile(str(path), "shop", lambda error: pytest.fail(str(error)))
    file.append(line(2).rstrip())
    file.close()
    assert path.read_bytes().count(b"\n") == 2
    assert resume.unreadable_path(path).read_bytes() == b"torn\n"


def test_whose_a_file_is_is_told_by_its_first_record_that_can_be_read(path):
    mine = json.loads(line(1)) | {"spider": "shop"}
    path.write_bytes(b"junk\n" + json.dumps(mine).encode() + b"\n")
    assert resume.owner_of(path) == "shop"
    assert resume.path_for(path, "news") != path


@pytest.mark.parametrize(
    "data", [b"", b"junk", b"netspy-seen-2 1 shop\n\x00\x00\x00\x10short", b"netspy-seen-1 1\n"]
)
def test_a_damaged_file_of_what_was_seen_stops_no_start(path, data):
    path.write_bytes(line(1))
    resume.seen_path(path).write_bytes(data)
    claimed = resume.claim_dump(path)
    assert (len(claimed.requests), claimed.seen.chunks) == (1, [])


# -- what the run had seen


CHUNKS = [b"set 16", b"\x00" * 16, bytes(range(256)) * 5]


def kept_seen(folder, *, seeded=True):
    path = folder / "failed.jsonl"
    resume.dump(path, [], CHUNKS, seeded=seeded, spider="Shop")
    return path, resume.seen_path(path)


@pytest.mark.parametrize("seeded", [True, False])
def test_what_the_run_had_seen_comes_back(tmp_path, seeded):
    path, _ = kept_seen(tmp_path, seeded=seeded)
    assert resume.claim_dump(path).seen == resume.Seen(CHUNKS, seeded)
    assert resume.owner_of(path) == "Shop"


def test_what_an_older_version_had_seen_comes_back(tmp_path):
    path = tmp_path / "failed.jsonl"
    body = b"".join(struct.pack(">I", len(chunk)) + chunk for chunk in CHUNKS)
    resume.seen_path(path).write_bytes(b"netspy-seen-2 1 Shop\n" + body)
    assert resume.claim_dump(path).seen == resume.Seen(CHUNKS, seeded=True)
    assert resume.owner_of(path) == "Shop"


def ruined(data, how):
    head, _, body = data.partition(b"\n")
    flipped = bytearray(data)
    flipped[-300] ^= 1
    return {
        "cut": data[:-1], "cut in the head": data[:20], "half": data[: len(data) // 2], "empty": b"", "a bit": bytes(flipped),
        "longer": data + b"\0", "zeros": bytes(len(data)), "text": b"mine\n", "other": head + b"\n" + body[::-1],
        "newer": data.replace(b"seen-3", b"seen-4"), "older, cut": b"netspy-seen-2 1 Shop\n" + body[:-1],
        "older, longer": b"netspy-seen-2 1 Shop\n" + body + b"\0\0",
    }[how]  # fmt: skip


@pytest.mark.parametrize(
    "how",
    [
        "cut", "cut in the head", "half", "empty", "a bit", "longer", "zeros", "text", "other", "newer", "older, cut",
        "older, longer",
    ],
)  # fmt: skip
def test_of_a_damaged_file_nothing_is_believed_since_a_bit_too_many_is_a_page_that_nobody_crawls(
    tmp_path, how
):
    path, file = kept_seen(tmp_path)
    file.write_bytes(ruined(file.read_bytes(), how))
    found = resume.claim_dump(path).seen
    assert (found.chunks, found.damaged) == ([], True)
    assert found.seeded in (True, False), "a run was stopped"
