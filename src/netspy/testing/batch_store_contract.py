"""The promises that BatchSpider needs of a back end, as tests: run them against your own.

    from netspy.testing.batch_store_contract import BatchStoreContract

    class TestMyStore(BatchStoreContract):
        def make_store(self, rows):
            table = create_my_table()
            table.insert(rows)  # dicts with "id" (a number) and "url" (text of up to some megabytes)
            return MyStore(table)

pytest collects the methods (as does anything that calls every `test_…`). `reopen` gives a second handle on the same data,
as another process has one; back ends that live in one object leave it as it is. Set `fences` or `touches` to False for a
back end that keeps the default of `use_fence` or `touch_tasks`, `holds` for one of `hold_table`; the tests of these are
then skipped.
"""
# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

import threading
import time
import unittest
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from netspy.messages.codec import MAX_BYTES
from netspy.tasks.batch_store import DONE, FAILED, TODO, BatchStore, FencedError, TaskCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PATIENCE_S = 60.0
CLAIMERS = 8

# Europe/Berlin puts its clocks back on that day: both instants are 02:30 there (case BAT-01).
FIRST_HALF_PAST_TWO = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
SECOND_HALF_PAST_TWO = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
# That hour doesn't exist on the clocks there.
MISSING_HOUR = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)


class BatchStoreContract:
    """Subclass it and write `make_store`."""

    fences = True
    touches = True
    holds = True

    def make_store(self, rows: list[dict[str, Any]]) -> BatchStore:
        """An own, otherwise empty store with these task rows, all TODO; `ensure_schema` is called by the test."""
        raise NotImplementedError

    def reopen(self, store: BatchStore) -> BatchStore:
        """Another handle on the same data."""
        return store

    def grow_old(self, store: BatchStore) -> float:
        """Let the tasks in process grow old; how old, in seconds, they are at least. This one waits; if you can set your
        table's times, let them be minutes old: then no slow machine makes a fresh one look old.
        """
        began = store.now()
        _until(lambda: (store.now() - began).total_seconds() > 2.6)
        return 2.6

    # Claims

    def test_a_claim_brings_whole_rows_and_takes_them(self) -> None:
        """The rows arrive as they were put in, and are DOING."""
        store = self._with(3)
        rows = store.claim_tasks(2)
        assert [(row["id"], row["url"]) for row in rows] == [(1, "/page/1"), (2, "/page/2")]
        assert store.count_tasks() == TaskCounts(3, 1, 2, 0, 0)
        assert [row["id"] for row in self.reopen(store).claim_tasks(10)] == [3]
        assert store.claim_tasks(10) == []

    def test_no_task_goes_to_two_claimers_at_once(self) -> None:
        """Many claim from one table at the same time."""
        total = 400
        store = self._with(total)
        claimed: list[list[int]] = [[] for _ in range(CLAIMERS)]
        start = threading.Barrier(CLAIMERS)

        def claim(mine: list[int], handle: BatchStore) -> None:
            start.wait()
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                rows = handle.claim_tasks(7)
                mine.extend(row["id"] for row in rows)
                if not rows and not handle.count_tasks().todo:
                    return

        _together(lambda mine=mine: claim(mine, self.reopen(store)) for mine in claimed)  # type: ignore[misc]
        assert sorted(id_ for mine in claimed for id_ in mine) == list(range(1, total + 1))

    def test_a_row_that_cannot_travel_fails_instead_of_circling(self) -> None:
        """It is FAILED with a reason; the others are claimed."""
        rows = [{"id": 1, "url": "/a"}, {"id": 2, "url": "x" * (MAX_BYTES + 1)}, {"id": 3, "url": "/c"}]
        store = self._ready(rows)
        assert [row["id"] for row in store.claim_tasks(10)] == [1, 3]
        assert store.count_tasks() == TaskCounts(3, 0, 2, 0, 1)
        [(refused, reason)] = store.refused_tasks()
        assert refused == 2
        assert "over the limit" in reason
        assert store.refused_tasks() == []
        assert store.failed_tasks() == [2]

    # Marks

    def test_done_is_never_taken_back(self) -> None:
        """A slow worker's DONE counts after the task was given up; a late FAILED doesn't undo DONE (case BAT-05 a)."""
        store = self._with(3)
        store.claim_tasks(2)
        assert store.mark_tasks([(1, DONE), (2, FAILED), (3, DONE)]) == [True, True, True]
        assert store.count_tasks() == TaskCounts(3, 0, 0, 2, 1)
        store.mark_tasks([(1, FAILED), (2, DONE), (3, TODO)])
        assert store.count_tasks() == TaskCounts(3, 0, 0, 3, 0)

    def test_done_wins_over_failed_in_one_call(self) -> None:
        """Whatever the order."""
        store = self._with(2)
        store.mark_tasks([(1, DONE), (1, FAILED), (2, FAILED), (2, DONE)])
        assert store.count_tasks() == TaskCounts(2, 0, 0, 2, 0)

    def test_a_task_that_was_reset_and_claimed_again_is_done_by_the_first_worker(self) -> None:
        """And the batch can end (case BAT-05 a)."""
        store = self._with(1)
        store.claim_tasks(1)
        _until(lambda: store.reset_lost_tasks(0.05) == 1)
        assert [row["id"] for row in store.claim_tasks(1)] == [1]
        store.mark_tasks([(1, DONE)])
        store.mark_tasks([(1, FAILED)])
        counts = store.count_tasks()
        assert counts == TaskCounts(1, 0, 0, 1, 0)
        assert counts.finished

    def test_an_unknown_id_is_reported(self) -> None:
        """While the others are marked."""
        store = self._with(2)
        assert store.mark_tasks([(1, DONE), (99, DONE)]) == [True, False]
        assert store.mark_task(98, FAILED) is not True
        assert store.count_tasks().done == 1

    def test_a_task_is_given_back_only_while_it_is_in_process(self) -> None:
        """TODO applies from DOING alone."""
        store = self._with(3)
        store.claim_tasks(2)
        store.mark_tasks([(1, DONE)])
        store.mark_tasks([(1, TODO), (2, TODO), (3, TODO)])
        assert store.count_tasks() == TaskCounts(3, 2, 0, 1, 0)

    def test_a_state_that_cannot_be_marked_is_refused(self) -> None:
        """Before anything is changed."""
        store = self._with(1)
        try:
            store.mark_tasks([(1, 7)])
        except ValueError:
            assert store.count_tasks() == TaskCounts(1, 1, 0, 0, 0)
        else:
            raise AssertionError("the state 7 was accepted")

    def test_marks_of_a_closed_or_superseded_batch_change_nothing(self) -> None:
        """A worker that slept through the end of its batch."""
        store = self._with(2)
        first = self._open(store, 1)
        store.mark_tasks([(1, DONE)], batch_id=first)
        assert store.count_tasks().done == 1
        store.finish_batch(first)
        assert store.mark_tasks([(2, DONE)], batch_id=first) == [True]
        assert store.count_tasks().done == 1
        store.reset_all_tasks()
        second = self._open(store, 2)
        assert store.mark_tasks([(1, DONE)], batch_id=first) == [True]
        assert store.count_tasks().done == 0
        store.mark_tasks([(1, DONE), (2, FAILED)], batch_id=second)
        assert store.count_tasks() == TaskCounts(2, 0, 0, 1, 1)

    # The table as a whole

    def test_an_empty_table_is_finished(self) -> None:
        """Zero tasks, zero to do (case BAT-05 b)."""
        store = self._with(0)
        assert store.count_tasks() == TaskCounts(0, 0, 0, 0, 0)
        assert store.count_tasks().finished
        assert store.claim_tasks(5) == []
        assert store.reset_all_tasks() == 0

    def test_all_failed_is_finished_too(self) -> None:
        """Case BAT-05 c."""
        store = self._with(3)
        store.claim_tasks(3)
        assert not store.count_tasks().finished
        store.mark_tasks([(1, FAILED), (2, FAILED), (3, FAILED)])
        assert store.count_tasks().finished
        assert sorted(store.failed_tasks()) == [1, 2, 3]

    def test_a_new_batch_begins_with_every_task_to_do(self) -> None:
        """Failed, done and stuck ones; and again is no harm."""
        store = self._with(4)
        store.claim_tasks(3)
        store.mark_tasks([(1, DONE), (2, FAILED)])
        assert store.reset_all_tasks() == 3
        assert store.count_tasks() == TaskCounts(4, 4, 0, 0, 0)
        assert store.reset_all_tasks() == 0
        assert len(store.claim_tasks(10)) == 4

    def test_lost_tasks_come_back_and_fresh_ones_stay(self) -> None:
        """By the store's clock."""
        store = self._with(3)
        store.claim_tasks(2)
        store.mark_tasks([(2, DONE)])
        assert store.reset_lost_tasks(60) == 0
        _until(lambda: store.reset_lost_tasks(0.05) == 1)
        assert store.count_tasks() == TaskCounts(3, 2, 0, 1, 0)

    def test_a_touched_task_is_not_lost(self) -> None:
        """A healthy slow batch is left alone; what isn't in process isn't touched."""
        if not self.touches:
            raise unittest.SkipTest("touch_tasks does nothing here")
        store = self._with(3)
        store.claim_tasks(2)
        age = self.grow_old(store)
        assert store.touch_tasks([1, 3, 99]) == 1
        assert store.reset_lost_tasks(age - 1) == 1  # a time column may hold whole seconds, rounded
        assert store.count_tasks() == TaskCounts(3, 2, 1, 0, 0)
        store.mark_tasks([(1, DONE)])
        assert store.touch_tasks([1]) == 0
        assert store.count_tasks().done == 1

    # Records

    def test_a_record_reads_back_as_it_was_written(self) -> None:
        """Date in UTC, counts, interval."""
        store = self._with(1)
        assert store.latest_batch() is None
        batch_id = store.create_batch(FIRST_HALF_PAST_TWO, 10, 1.5, "hour")
        store.update_batch_counts(batch_id, done=7, failed=2, total=11)
        record = self.reopen(store).latest_batch()
        assert record is not None
        assert (record.id, record.batch_date) == (batch_id, FIRST_HALF_PAST_TWO)
        assert (record.done_count, record.fail_count, record.total_count) == (7, 2, 11)
        assert (record.interval, record.interval_unit, record.is_done) == (1.5, "hour", False)

    def test_batches_around_a_change_of_clocks_are_distinct_and_in_order(self) -> None:
        """The repeated hour and the one that doesn't exist (case BAT-01)."""
        store = self._with(0)
        ids = []
        for date in (MISSING_HOUR, FIRST_HALF_PAST_TWO, SECOND_HALF_PAST_TWO):
            ids.append(store.create_batch(date, 0, 1, "hour"))
            store.finish_batch(ids[-1])
            latest = store.latest_batch()
            assert latest is not None
            assert (latest.id, latest.batch_date, latest.is_done) == (ids[-1], date, True)
        assert ids == sorted(set(ids))

    def test_a_repeated_call_makes_no_second_batch(self) -> None:
        """The answer to the first may have been lost."""
        store = self._with(0)
        date = store.now().replace(microsecond=0)
        first = store.create_batch(date, 5, 1, "day")
        assert store.create_batch(date, 5, 1, "day") == first
        store.finish_batch(first)
        assert store.create_batch(date, 5, 1, "day") > first

    def test_closing_twice_and_counting_late_are_harmless(self) -> None:
        """A master dies between the last task and the end of the batch (case BAT-05 d)."""
        store = self._with(1)
        batch_id = self._open(store, 1)
        store.finish_batch(batch_id)
        other = self.reopen(store)
        other.finish_batch(batch_id)
        other.update_batch_counts(batch_id, done=1, failed=0, total=1)
        latest = store.latest_batch()
        assert latest is not None
        assert (latest.is_done, latest.done_count) == (True, 1)

    def test_the_age_of_a_batch_is_by_the_stores_clock(self) -> None:
        """Against the date it carries."""
        store = self._with(0)
        date = (store.now() - timedelta(hours=3)).replace(microsecond=0)
        batch_id = store.create_batch(date, 0, 1, "day")
        assert 3 * 3600 <= store.batch_age_seconds(batch_id) < 3 * 3600 + PATIENCE_S

    # The fence

    def test_a_table_is_in_the_hands_of_one_job_until_it_lets_go(self) -> None:
        """Another job's master hears whose it is; the same job's next master goes on; what was held runs out."""
        if not self.holds:
            raise unittest.SkipTest("hold_table keeps nobody out here")
        store = self._with(1)
        other = self.reopen(store)
        assert store.hold_table("netspy:A", 60.0) is None
        held = other.hold_table("netspy:B", 60.0)
        assert held is not None
        assert held.job == "netspy:A"
        assert 50 < held.left_s < 70
        assert other.hold_table("netspy:A", 60.0) is None
        assert store.hold_table("netspy:A", 0.0) is None
        assert other.hold_table("netspy:B", 0.3) is None
        _until(lambda: store.hold_table("netspy:A", 1.0) is None)

    def test_a_master_that_was_replaced_can_write_nothing(self) -> None:
        """It froze past its lock and woke; what its successor did stays."""
        if not self.fences:
            raise unittest.SkipTest("use_fence only remembers the token here")
        old = self._with(4)
        batch_id = self._open(old, 1)
        old.use_fence(5)
        old.claim_tasks(1)
        new = self.reopen(old)
        # Two masters with one token have two locks: on two Redis servers, or on one that forgot its count.
        _raises_fenced(lambda: new.use_fence(5))
        new.use_fence(6)
        new.claim_tasks(1)
        new.mark_tasks([(1, DONE)])
        before = new.count_tasks()
        if old is new:
            _raises_fenced(lambda: old.use_fence(5))
        for write in (
            old.reset_all_tasks,
            lambda: old.reset_lost_tasks(0),
            lambda: old.claim_tasks(1),
            lambda: old.touch_tasks([2]),
            lambda: old.finish_batch(batch_id),
            lambda: old.update_batch_counts(batch_id, done=0, failed=0, total=0),
            lambda: old.create_batch(SECOND_HALF_PAST_TWO, 1, 1, "day"),
            lambda: old.use_fence(5),
        ):
            _raises_fenced(write)
        assert new.count_tasks() == before
        latest = new.latest_batch()
        assert latest is not None
        assert (latest.id, latest.is_done, latest.total_count) == (batch_id, False, 4)
        if old is not new:
            assert new.reset_all_tasks() == 2  # the successor goes on

    def test_close_may_be_called_twice(self) -> None:
        """And after use."""
        store = self._with(1)
        store.claim_tasks(1)
        store.close()
        store.close()

    # Inside

    def _ready(self, rows: list[dict[str, Any]]) -> BatchStore:
        store = self.make_store(rows)
        store.ensure_schema()
        return store

    def _with(self, tasks: int) -> BatchStore:
        return self._ready([{"id": n, "url": f"/page/{n}"} for n in range(1, tasks + 1)])

    def _open(self, store: BatchStore, number: int) -> int:
        date = (store.now() + timedelta(days=number)).replace(microsecond=0)
        return store.create_batch(date, store.count_tasks().total, 1, "day")


def _until(condition: Callable[[], bool]) -> None:
    """Wait for the store's clock to move."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s"
        time.sleep(0.02)


def _raises_fenced(call: Callable[[], object]) -> None:
    try:
        call()
    except FencedError:
        return
    raise AssertionError("a master that was replaced could write")


def _together(calls: Iterable[Callable[[], None]]) -> None:
    """Run all in threads of their own; raises the first error of any."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
