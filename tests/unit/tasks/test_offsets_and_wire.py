"""What may be committed to Kafka; how tasks are written and read; what was settled lately."""

from __future__ import annotations

import random

import pytest

from netspy.errors import SerializationError
from netspy.messages import codec
from netspy.tasks.kafka.offsets import Mark, Offsets
from netspy.tasks.wire import SettledLately, decode_value, encode_values, token_of


@pytest.mark.parametrize("seed", range(20))
def test_the_offset_to_commit_is_that_of_the_first_task_not_settled(seed):
    dice = random.Random(seed)
    numbers = sorted(dice.sample(range(100), 30))  # compaction and transactions leave gaps
    offsets, settled = Offsets(), set()
    for number in numbers:
        assert offsets.delivered(number) is None
    for number in dice.sample(numbers, len(numbers)):
        offsets.settled(number)
        settled.add(number)
        done = 0
        while done < len(numbers) and numbers[done] in settled:
            done += 1
        assert offsets.due == (numbers[done - 1] + 1 if done else None)
        assert len(offsets) == len(numbers) - done
    offsets.committed = offsets.due
    assert offsets.due is None


def test_a_log_that_lost_messages_is_committed_as_it_is_now_and_its_new_messages_are_not_taken_for_the_old_ones():
    offsets = Offsets()
    for n in range(10):
        assert offsets.delivered(n, Mark(stamp=1, epoch=0)) is None
    for n in (0, 1, 2, 4, 5, 6, 7):
        offsets.settled(n, 1)
    assert (offsets.due, offsets.epoch) == (3, 0)
    offsets.committed = 3
    # Offsets from 5 on are lost; 5 and 6 are new messages.
    assert offsets.delivered(5, Mark(stamp=2, epoch=1)) == 10
    assert offsets.delivered(6, Mark(stamp=2, epoch=1)) is None
    for n in (3, 5, 6, 9):
        offsets.settled(n, 1)
    assert (offsets.due, offsets.epoch, len(offsets)) == (5, 0, 2), "3 and 4 are done, the new 5 is not"
    offsets.settled(5, 2)
    offsets.settled(6, 2)
    assert (offsets.due, offsets.epoch, len(offsets)) == (7, 1, 0)


def test_what_was_committed_beyond_the_end_is_taken_back_without_a_message():
    offsets = Offsets()
    for n in range(10):
        offsets.delivered(n)
        offsets.settled(n)
    offsets.committed = 10
    assert offsets.at_end(4) == 10
    assert offsets.due == 4
    fresh = Offsets()  # of another node: the group's number lies beyond the end, which it can't see here
    assert fresh.at_end(4) is None
    assert fresh.due == 4
    again = Offsets(reached=10)  # of the same node, when the partition comes back to it
    assert again.delivered(4) == 10
    assert again.delivered(5) is None


def test_settling_what_is_not_open_changes_nothing():
    offsets = Offsets()
    offsets.settled(3)
    assert offsets.due is None
    offsets.delivered(4)
    offsets.settled(3)
    assert offsets.due is None


def test_markers_behind_the_last_message_are_committed_once_all_is_settled():
    offsets = Offsets()
    offsets.delivered(0)
    offsets.delivered(1)
    offsets.at_end(3)
    offsets.settled(1)
    assert offsets.due is None
    offsets.settled(0)
    assert offsets.due == 3


def test_a_value_comes_back_as_it_was_and_foreign_json_as_it_stands():
    value = {"a": (1, {2}), "!b": None}
    [body] = encode_values([value])
    assert decode_value(body, ours=True) == value
    assert decode_value(b'{"!who": 1}', ours=False) == {"!who": 1}
    with pytest.raises(SerializationError, match="update this node"):
        decode_value(b'{"!who": 1}', ours=True)


@pytest.mark.parametrize("body", [b"", b"<xml/>", b"\xff", b'{"a": 1', b"[" * 100_000, b"nan"])
def test_what_is_no_json_is_refused(body):
    with pytest.raises(SerializationError):
        decode_value(body, ours=False)


def test_a_huge_message_is_refused_unread():
    with pytest.raises(SerializationError, match="over the limit"):
        decode_value(b'"' + b"x" * codec.MAX_BYTES + b'"', ours=False)


def test_a_value_that_cant_travel_names_its_task():
    with pytest.raises(SerializationError, match="task 1"):
        encode_values([1, object()])


@pytest.mark.parametrize("text", ["", "a{b", "}", "x" * 201, "ä" * 101, "\ud800", "a\nb", "\0"])
def test_what_can_be_no_token_becomes_a_digest(text):
    token = token_of(text)
    assert len(token) == 32
    assert set(token) <= set("0123456789abcdef")
    assert token == token_of(text)


def test_usual_names_are_tokens_as_they_are():
    assert token_of("order-7") == "order-7"


def test_only_so_many_settled_tasks_are_remembered():
    lately = SettledLately(3)
    for token in "abcd":
        lately.add(token)
    assert [token in lately for token in "abcd"] == [False, True, True, True]
