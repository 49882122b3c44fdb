"""A process's files are shared out before they run out."""

from __future__ import annotations

import errno

import pytest

from netspy import process
from netspy.downloader.failures import is_shortage
from netspy.policy.descriptors import connections_kept, slots_for


@pytest.mark.parametrize(
    ("wanted", "limit", "in_use", "slots"),
    [
        (16, 1024, 20, 16),
        (300, 1 << 20, 20, 300),
        (300, 256, 16, 144),
        (64, 64, 15, 16),
        (16, 64, 15, 16),
        (16, 32, 20, 1),
    ],
)
def test_there_are_no_more_slots_than_files_for_their_connections(wanted, limit, in_use, slots):
    """Case HO-12."""
    assert slots_for(wanted, limit=limit, in_use=in_use) == slots


@pytest.mark.parametrize(
    ("in_flight", "limit", "in_use", "kept"),
    [(16, 1024, 20, 32), (300, 1024, 20, 316), (5000, 1 << 20, 20, 5016), (16, 64, 15, 25), (25, 64, 20, 26)],
)
def test_connections_are_kept_for_those_in_flight_and_a_few_more(in_flight, limit, in_use, kept):
    """Case HV-05."""
    assert connections_kept(in_flight, limit=limit, in_use=in_use) == kept


@pytest.mark.parametrize(
    ("code", "number", "short"),
    [
        (7, errno.EMFILE, True),
        (6, errno.ENFILE, True),
        (77, errno.EMFILE, True),
        (27, 0, True),
        (7, errno.ECONNREFUSED, False),
        (56, errno.EMFILE, False),
        (77, errno.ENOENT, False),
    ],
)
def test_a_shortage_is_told_from_a_refusal(code, number, short):
    assert is_shortage(code, number) is short


def test_the_files_of_this_process_are_counted():
    before = process.in_use()
    with open("/dev/null"), open("/dev/null"):
        assert process.in_use() >= before + 2 or before == 32
    assert process.limit() >= before


def test_the_limit_is_raised_as_far_as_it_may_be():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        process.raise_limit(soft - 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 10, hard))
        process.raise_limit(soft)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
