"""The numbers of writes and claims, and what a registered node puts before a call: no server needed."""

from __future__ import annotations

from netspy.frontier.redis.membership import Clocks, Member, NodeCall, Numbers, Shared
from netspy.redisio.scripts import Call, Script

SCRIPT = Script("put", "return 1", "0" * 40)


def test_a_claim_whose_answer_was_never_seen_is_asked_for_again_under_its_number_and_first_time():
    claims, member = Numbers(claims=True), Member("00000001")
    assert claims.take(member, 10.0) == (1, "000001")
    assert claims.take(member, 20.0) == (1, "000001")
    assert claims.sent == 10.0, "the store counts the lease from the first time"
    assert member.claims_done == 0, "the keeper must not take its leases for orphans"
    claims.answered()
    assert member.claims_done == 1
    assert claims.take(member, 30.0) == (2, "000002")
    assert claims.sent == 30.0


def test_a_write_never_takes_the_number_of_one_whose_answer_was_not_seen():
    """It says something else: the store would answer it from memory and do nothing."""
    writes, member = Numbers(), Member("00000001")
    assert writes.take(member, 1.0) == (1,)
    assert writes.take(member, 2.0) == (2,)
    writes.answered()
    assert writes.take(member, 3.0) == (3,)
    assert member.claims_done == 0


def test_after_a_refusal_numbers_go_on_above_those_that_the_store_has_seen():
    for numbers in (Numbers(), Numbers(claims=True)):
        member = Member("00000001")
        assert numbers.take(member, 1.0)[0] == 1
        numbers.refused(41)
        assert numbers.take(member, 2.0)[0] == 42
        assert numbers.sent == 2.0
        assert member.claims_done == 0


def test_a_new_registration_begins_anew_also_with_a_claim_open_under_the_old_one():
    claims, old, new = Numbers(claims=True), Member("00000001"), Member("00000002")
    claims.take(old, 1.0)
    claims.answered()
    claims.take(old, 2.0)
    assert claims.take(new, 3.0) == (1, "000001")
    assert claims.sent == 3.0
    claims.answered()
    assert (old.claims_done, new.claims_done) == (1, 1)


def test_the_node_that_sends_a_call_comes_before_its_numbers_and_arguments():
    shared = Shared(5000, Clocks(lambda: 77))
    shared.epoch = "abc"
    call = NodeCall(SCRIPT, ["k"], ["a", "b"])
    shared.joined(shared.member, "00000009", kept=False)
    expected = Call(SCRIPT, ["k"], ["77", "abc", "00000009.00000009-0.0", "5000", 1, "a", "b"])
    assert shared.sent(call, shared.member, (1,)) == expected
    assert call.args == ["a", "b"], "the call may be sent again"
    whole = Call(SCRIPT, ["k"], ["", "x"])
    assert shared.sent(whole, Member("00000009")) is whole


def test_without_a_clock_of_the_tests_the_server_is_asked_for_the_time():
    assert Shared(0, Clocks()).now() == ""


def test_of_two_registrations_at_the_same_time_one_is_taken():
    shared = Shared(0, Clocks())
    old = shared.member
    assert shared.joined(old, "00000001", kept=False)
    assert not shared.joined(old, "00000002", kept=False)
    assert shared.member.node == "00000001"


def registered():
    shared = Shared(0, Clocks())
    shared.history = "server:3"
    shared.joined(shared.member, "aaaaaaaa", kept=False)
    return shared


def test_a_node_that_the_store_merely_forgot_keeps_its_memory_and_one_whose_writes_are_gone_does_not():
    shared = registered()
    assert shared.memory == "aaaaaaaa-0:3"
    shared.joined(shared.member, "bbbbbbbb", kept=True)
    assert shared.memory == "aaaaaaaa-0:3"
    shared.joined(shared.member, "cccccccc", kept=False)
    assert shared.memory == "aaaaaaaa-1:3"


def test_a_store_that_went_back_is_noticed_once_however_many_calls_were_under_way():
    shared = registered()
    member, member.writes_done = shared.member, 7
    first, second = (shared.sent(NodeCall(SCRIPT, [], []), member) for _ in range(2))
    shared.went_back(first, member, 4)
    shared.went_back(second, member, 4)
    assert shared.memory == "aaaaaaaa-1:3"
    assert member.writes_done == 4, "the store is not asked for the lost ones again and again"
    shared.went_back(shared.sent(NodeCall(SCRIPT, [], []), member), Member("dddddddd"), 0)
    assert shared.memory == "aaaaaaaa-1:3", "an earlier registration's"


def test_a_new_seeding_is_another_memory():
    shared = registered()
    shared.history = "server:4"
    assert shared.memory == "aaaaaaaa-0:4"
    assert Shared(0, Clocks()).memory == "", "nothing is known before the node has joined"
