"""The entry format as Python writes and reads it, locks of any program, and what one call may carry: no server needed."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from netspy.errors import StoreLostError
from netspy.frontier.redis.calls import check_reply, read_lock, run_id_of
from netspy.frontier.redis.entry_format import WireEntry, base36, held_mark, priority_text, read_member
from netspy.frontier.redis.membership import NotRegisteredError, NotSeederError, StaleOperationError
from netspy.frontier.redis.writes import ENTRIES_PER_CALL, pieces
from netspy.messages.entry import BYTES_PER_ENTRY, NewEntry, weight


def entry(size: int = 2) -> NewEntry:
    return NewEntry(b"x" * size, b"f" * 16, 300.0, "0a0b0c0d", "")


def test_claim_numbers_compare_as_text():
    numbers = [0, 1, 9, 10, 35, 36, 36**5 - 1, 36**5, 36**6 - 1]
    texts = [base36(n) for n in numbers]
    assert texts == sorted(texts)
    assert [int(text, 36) for text in texts] == numbers
    assert {len(text) for text in texts} == {6}


@pytest.mark.parametrize(
    ("priority", "text"), [(300, "300"), (-2.0, "-2"), (0.5, "0.5"), (2.0**53, "9007199254740992.0")]
)
def test_a_priority_is_written_as_a_score_and_read_back_the_same(priority, text):
    assert priority_text(priority) == text
    assert float(text) == priority


@pytest.mark.parametrize("priority", [math.inf, -math.inf, math.nan])
def test_a_priority_that_cannot_be_ordered_is_refused(priority):
    with pytest.raises(ValueError, match="not a finite number"):
        priority_text(priority)


@pytest.mark.parametrize(("task", "mark"), [("", b""), ("t@1", b"@t@1")])
def test_a_leased_member_comes_apart_also_when_its_task_has_the_separator_in_its_name(task, mark):
    body = WireEntry(b"f" * 16, "0a0b0c0d", 2.5, b'{"url":"u@{"}', task).body
    assert body == mark + b'{"url":"u@{"}'
    member = b"%015d%02d%s%s%s%s%s%s" % (7, 3, b"a", b"0a0b0c0d", b" ", b"00000004", b"00001z", b"2.5") + body
    parts = read_member(member)
    assert (parts.seq, parts.deliveries, parts.suspicion, parts.site) == (7, 3, 10, "0a0b0c0d")
    assert (parts.priority, parts.payload, parts.task) == (2.5, b'{"url":"u@{"}', task)
    assert held_mark(member) == b"%015d" % 7 + b"00001z"


@pytest.mark.parametrize(
    ("text", "left_ms", "expected"),
    [
        ("", -2, ("none", "", 0.0)),
        ("seeding token 9000 host:1", -1, ("seeding", "host:1", 1.0)),
        ("seeded 4000 host:1", -1, ("seeded", "host:1", 6.0)),
        ("seeded 99000 host:1", -1, ("seeded", "host:1", 0.0)),  # a clock that went back
        ("failed 4000 host:1 ValueError: no", -1, ("failed", "host:1: ValueError: no", 6.0)),
        ("locked", 40_000, ("seeded", "lock value 'locked'", 20.0)),
        ("seeded soon host:1", -1, ("seeded", "lock value 'seeded soon host:1'", math.inf)),
    ],
)
def test_a_lock_of_any_program_has_a_state_and_an_age(text, left_ms, expected):
    assert read_lock(text, left_ms, 10_000.0, 60.0) == expected


@pytest.mark.parametrize(
    ("reply", "error"),
    [([b"LOST"], StoreLostError), ([b"NOTREG"], NotRegisteredError), ([b"NOTSEEDER"], NotSeederError)],
)
def test_a_refusal_is_never_taken_for_an_answer(reply, error):
    with pytest.raises(error):
        check_reply(reply, "netspy:news")


def test_a_refused_number_says_which_one_the_store_has_seen():
    with pytest.raises(StaleOperationError) as caught:
        check_reply([b"STALEOP", b"41"], "netspy:news")
    assert caught.value.last == 41


@pytest.mark.parametrize("reply", [[b"OK", b"1"], [b"AGAIN", b"1"], b"0120", 17])
def test_an_answer_is_handed_on_whatever_its_type(reply):
    assert check_reply(reply, "netspy:news") is reply


@pytest.mark.parametrize(
    ("info", "run_id"), [(b"# Server\r\nrun_id:abc\r\n", "abc"), ("x:1\nrun_id: d \n", "d"), (b"", "")]
)
def test_a_server_that_tells_no_run_id_has_none(info, run_id):
    assert run_id_of(info) == run_id


def test_no_call_carries_more_than_five_hundred_entries_or_four_megabytes():
    assert pieces([]) == []
    sizes = [2] * 700 + [3_000_000, 3_000_000] + [5 * BYTES_PER_ENTRY] * 200
    entries = [entry(size) for size in sizes]
    made = pieces(entries)
    assert [e for piece in made for e in piece] == entries
    assert all(weight(piece) <= ENTRIES_PER_CALL for piece in made)
    for piece, after in pairwise(made):
        assert weight(piece) + weight(after[:1]) > ENTRIES_PER_CALL, "no call is sent half empty"


def test_an_entry_too_large_for_a_call_goes_alone():
    made = pieces([entry(), entry(10_000_000), entry()])
    assert [len(piece) for piece in made] == [1, 1, 1]
