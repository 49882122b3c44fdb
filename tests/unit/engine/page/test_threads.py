"""Plain callbacks run in threads: results and errors come back, and blocking ones get company."""

import asyncio
import threading

import pytest

from netspy.engine.page.threads import CallbackPool, is_blocked


@pytest.fixture
async def pool():
    made = CallbackPool(maximum=16)
    yield made
    made.close()


async def test_results_and_exceptions_come_back(pool):
    assert await pool.call(lambda: 41 + 1) == 42

    def broken():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await pool.call(broken)


async def test_stop_iteration_of_user_code_doesnt_break_the_future(pool):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.call(lambda: next(iter(())))


async def test_quick_jobs_stay_on_one_thread(pool, monkeypatch):
    monkeypatch.setattr(
        "netspy.engine.page.threads._BLOCKED_AFTER_S", 30.0
    )  # a frozen machine is no blocking job
    idents = await asyncio.gather(*(pool.call(threading.get_ident) for _ in range(200)))
    assert set(idents) == {idents[0]}
    assert idents[0] != threading.get_ident()
    assert pool.size == 1


async def test_blocking_jobs_make_the_pool_grow(pool):
    together = threading.Barrier(16)
    await asyncio.gather(*(pool.call(lambda: together.wait(60)) for _ in range(16)))
    assert pool.size == 16


@pytest.mark.parametrize(
    ("ran_s", "cpu_s", "blocked"),
    [
        (0.01, 0.0, False),
        (0.1, 0.0, True),
        (0.1, 0.015, True),
        (0.1, 0.05, False),
        (0.1, None, True),
        (0.01, None, False),
    ],
)
def test_a_busy_job_is_no_reason_to_grow(ran_s, cpu_s, blocked):
    assert is_blocked(ran_s, cpu_s) is blocked


async def test_a_hanging_job_doesnt_keep_close_waiting():
    pool = CallbackPool(maximum=1)
    gate = threading.Event()
    future = pool.call(gate.wait)
    pool.close()
    gate.set()
    assert await future


async def test_a_job_that_hangs_for_good_gives_its_place_to_another_thread():
    pool = CallbackPool(maximum=1)
    gate = threading.Event()
    hanging = pool.call(lambda: gate.wait(30))
    while not pool.runs(hanging):
        await asyncio.sleep(0.001)
    waiting = pool.call(lambda: "done")
    assert not pool.runs(waiting)
    pool.abandon(hanging, ValueError("too long"))
    with pytest.raises(ValueError, match="too long"):
        await hanging
    assert await waiting == "done"
    gate.set()
    assert pool.size == 1
    pool.close()
