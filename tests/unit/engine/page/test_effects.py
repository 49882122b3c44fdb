"""What callbacks ask for besides is carried out in order, before their page's last step, and again until it works."""

from __future__ import annotations

import asyncio
import threading

import pytest

from netspy.engine.control import Control
from netspy.engine.page.actions import Action
from netspy.engine.page.effects import Effects
from netspy.errors import SpiderError
from support.engine import env_of


@pytest.fixture
async def rig():

    class Rig:
        def __init__(self):
            env = env_of()
            self.done, self.fail, self.log, self.alerts = [], [], env.log, env.alert
            self.control = Control(env.log)
            self.made = Effects(env, self.control, {"mark": self.mark, "add": self.add}, first_pause_s=0.01)

        async def mark(self, values):
            if self.fail:
                raise self.fail.pop(0)
            self.done.append(("mark", list(values)))

        async def add(self, values):
            self.done.append(("add", list(values)))

    made = Rig()
    made.made.start()
    yield made
    await made.made.stop()


async def test_the_last_step_comes_after_what_was_asked_for(rig):
    rig.made.do([Action("mark", 1), Action("add", "t")], lambda: rig.done.append("ack"))
    await rig.made.drained()
    assert rig.done == [("mark", [1]), ("add", ["t"]), "ack"]
    assert rig.made.empty


async def test_many_pages_are_one_step(rig):
    for n in range(5):
        rig.made.do([Action("mark", n)], lambda n=n: rig.done.append(n))
    await rig.made.drained()
    assert rig.done == [("mark", [0, 1, 2, 3, 4]), 0, 1, 2, 3, 4]


async def test_trouble_that_passes_is_waited_out_with_one_alert_and_the_page_stays_unacked(rig):
    rig.fail = [OSError("away"), OSError("away")]
    acked = []
    rig.made.do([Action("mark", 1)], lambda: acked.append(list(rig.done)))
    await rig.made.drained()
    assert acked == [[("mark", [1])]], "acked only after it was written"
    assert [kind for kind, _ in rig.alerts] == ["after_store"]


async def test_a_fault_of_the_spider_is_said_once_and_holds_nothing_up(rig):
    rig.fail = [SpiderError("no such row")]
    rig.made.do([Action("mark", 1)], lambda: rig.done.append("ack"))
    await rig.made.drained()
    assert rig.done == ["ack"]
    assert rig.log.lines == ["error: no such row"]


async def test_another_thread_may_ask(rig):
    thread = threading.Thread(target=lambda: rig.made.do_soon(Action("mark", 7)))
    thread.start()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    await rig.made.drained()
    assert rig.done == [("mark", [7])]


async def test_waiting_for_the_rest_ends_with_the_task(rig):
    rig.fail = [OSError("away")] * 100
    rig.made.do([Action("mark", 1)], lambda: rig.done.append("ack"))
    waiting = asyncio.ensure_future(rig.made.drained())
    await asyncio.sleep(0.02)
    await rig.made.stop()
    await asyncio.wait_for(waiting, 30)
    assert rig.done == [], "a page whose state was not written is not acked"
