"""The node's book of leases: what is in it, what is due, and what is said of a lease that was lost."""

import threading

from netspy.engine.leases.held import HeldLeases
from support.engine import env_of, lease_of


def book():
    env = env_of()
    return env, HeldLeases(env.counters, env.log)


def test_a_lease_is_held_from_its_claim_to_its_last_step():
    _, held = book()
    lease = lease_of()
    held.took([lease])
    assert lease in held
    assert held.snapshot() == [lease]
    held.done(lease)
    assert lease not in held
    assert len(held) == 0


def test_a_lease_that_another_node_has_by_now_is_counted_and_said():
    env, held = book()
    lease = lease_of(seq=77)
    held.took([lease])
    held.done(lease, ours=False)
    assert len(held) == 0
    assert env.counters.get("lease_lost") == 1
    assert "lease seq 77" in env.log


def test_an_expired_lease_is_counted_without_a_line():
    env, held = book()
    lease = lease_of()
    held.took([lease])
    held.expired(lease)
    assert env.counters.get("lease_lost") == 1
    assert env.log.lines == []


def test_due_are_those_that_end_before_the_moment():
    _, held = book()
    soon, late = lease_of(valid_until=10.0), lease_of(valid_until=20.0)
    held.took([soon, late])
    assert held.due(15.0) == [soon]


def test_a_refused_renewal_ends_the_trust_only_while_the_lease_is_held():
    _, held = book()
    kept, finished = lease_of(valid_until=10.0), lease_of(valid_until=10.0)
    held.took([kept])
    held.not_ours(kept)
    held.not_ours(finished)
    assert (kept.valid_until, finished.valid_until) == (0.0, 10.0)


def test_a_new_id_voids_all():
    _, held = book()
    held.took([lease_of(), lease_of()])
    held.void()
    assert held.snapshot() == []


def test_the_keepers_thread_reads_while_the_loop_takes_and_finishes():
    _, held = book()
    stop, wrong = threading.Event(), []

    def keeper():
        while not stop.is_set():
            try:
                held.due(1.0)
                held.snapshot()
            except RuntimeError as error:  # dictionary changed size during iteration
                wrong.append(error)
                return

    thread = threading.Thread(target=keeper)
    thread.start()
    for _ in range(3000):
        leases = [lease_of() for _ in range(3)] if len(held) < 3 else held.snapshot()
        held.took(leases)
        for lease in leases:
            held.done(lease)
    stop.set()
    thread.join(10)
    assert wrong == []
