"""A master's calls on its task table: a table that is away is waited for, and a stop ends every waiting."""

import asyncio

import pytest

from netspy.engine.batch.store_calls import MasterExit, StoreCalls, asked
from netspy.engine.control import Control
from netspy.errors import ConfigError, StoreLostError, UserCodeError
from netspy.tasks.batch_store import FencedError
from netspy.tasks.master_lock import NotMasterError
from support.engine import Lines, env_of


def calls():
    env, control = env_of(), Control(Lines())
    return StoreCalls(env, control), env, control


class Away:
    """A call that is lost `times` times; `asked` is set when it was lost for the first time."""

    def __init__(self, times):
        self.times = times

    def __call__(self):
        self.times -= 1
        if self.times >= 0:
            raise StoreLostError("the database is away")
        return 7


async def test_an_outage_is_waited_for_with_one_alert_and_one_line_at_its_end():
    on_table, env, _ = calls()
    assert await asyncio.gather(on_table.call(Away(1)), on_table.call(Away(1))) == [7, 7]
    assert env.alert == [
        ("batch_store_away", "the database is away; the master tries again until it answers")
    ]
    assert env.log.lines == ["info: the task table answers again"]


async def test_a_stop_ends_the_waiting_for_a_table_that_is_away():
    on_table, env, control = calls()
    waiting = asyncio.create_task(on_table.call(Away(1_000_000)))
    while not env.alert:
        await asyncio.sleep(0)
    control.stop("SIGTERM", signal=15)
    with pytest.raises(MasterExit, match="SIGTERM") as left:
        await waiting
    assert left.value.outcome == "stopped"


async def test_at_the_start_the_stores_own_patience_is_all_there_is():
    on_table, env, _ = calls()
    with pytest.raises(StoreLostError):
        await on_table.call(Away(1), retry_forever=False)
    assert env.alert == []


async def test_a_wrong_set_up_is_no_outage():
    def wrong():
        raise ConfigError("no such table")

    on_table, env, _ = calls()
    with pytest.raises(ConfigError):
        await on_table.call(wrong)
    assert env.alert == []


async def test_a_pause_is_over_when_told_to_stop_and_the_first_reason_counts():
    on_table, _, control = calls()
    await on_table.pause(-1.0)
    on_table.check_stop()
    pausing = asyncio.create_task(on_table.pause(600.0))
    control.stop("SIGINT")
    control.stop("SIGTERM")
    with pytest.raises(MasterExit, match="SIGINT"):
        await pausing
    with pytest.raises(MasterExit, match="SIGINT"):
        on_table.check_stop()


@pytest.mark.parametrize(
    "raised", [ValueError("x"), KeyboardInterrupt("x"), SystemExit(3), GeneratorExit("x")], ids=repr
)
def test_what_a_store_of_the_users_own_raises_is_told_with_its_line(raised):
    def latest_batch():
        raise raised

    with pytest.raises(
        UserCodeError, match=rf"the batch store \(test_store_calls.py:\d+\) raised {type(raised).__name__}"
    ):
        asked(latest_batch)


@pytest.mark.parametrize(
    "raised", [StoreLostError("x"), ConfigError("x"), FencedError(1, 2), NotMasterError("x")], ids=repr
)
def test_what_stores_may_raise_stays_as_it_is(raised):
    def call():
        raise raised

    with pytest.raises(type(raised)) as found:
        asked(call)
    assert found.value is raised
