"""What a node holds is bounded in bytes, too."""

from __future__ import annotations

import pytest

from netspy.engine.page.output import CallbackOutput
from netspy.messages.entry import BYTES_PER_ENTRY, Lease, NewEntry, weight
from netspy.policy.claiming import MAX_CLAIM_BYTES, byte_budget


@pytest.mark.parametrize(
    ("held", "budget"),
    [(0, MAX_CLAIM_BYTES), (20 << 20, MAX_CLAIM_BYTES), (30 << 20, 2 << 20), (32 << 20, 0), (99 << 20, 0)],
)
def test_the_more_is_held_the_less_is_claimed(held, budget):
    """Case HO-03."""
    assert byte_budget(held) == budget


def test_a_large_request_counts_as_several():
    small, large = (
        NewEntry(b"x" * size, b"i" * 16, 300, "aaaaaaaa") for size in (300, 3 * BYTES_PER_ENTRY + 1)
    )
    assert (weight([small]), weight([large]), weight([small, large, small])) == (1, 4, 6)
    assert weight([NewEntry(object(), b"i" * 16, 300, "aaaaaaaa")]) == 1


def test_an_output_is_as_large_as_what_it_holds():
    out = CallbackOutput()
    assert out.size() == 0
    out.children.append(NewEntry(b"x" * 9 * BYTES_PER_ENTRY, b"i" * 16, 300, "aaaaaaaa"))
    out.heavy += 9
    assert out.size() == 10


def test_a_lease_of_this_process_has_no_size():
    assert Lease(seq=1, payload=object(), priority=1, site="aaaaaaaa").size == 0
    assert Lease(seq=1, payload=object(), priority=1, site="aaaaaaaa", member=b"x" * 40).size == 40
