"""A page's last step: once, after the last item is stored and what was asked for besides is done."""

from __future__ import annotations

import asyncio

from netspy.engine.page.actions import Action
from netspy.engine.page.output import YieldSite
from netspy.engine.page.page import Page
from netspy.messages.request import Request
from netspy.messages.response import Response
from support.engine import lease_of

URL = "http://a.example/"


class Later:
    """In the place of `Effects`: notes what it is to do, and does it when the test says so."""

    def __init__(self):
        self.asked = []

    def do(self, actions, final):
        self.asked.append(([action.value for action in actions], final))


def page_of(effects=None):
    page = Page(lease_of(URL), Request(URL), YieldSite("shop.parse", b"c1", URL, task="7"), 0.0)
    page.effects = effects
    return page


def test_a_page_without_items_takes_its_last_step_at_once():
    steps = []
    page_of().finish(lambda: steps.append("ack"))
    assert steps == ["ack"]


def test_the_last_step_waits_for_the_last_item_and_is_taken_once():
    page, steps = page_of(), []
    page.pending = 2
    page.finish(lambda: steps.append("ack"))
    page.stored()
    assert steps == []
    page.stored()
    assert steps == ["ack"]
    assert page.final is None


def test_items_that_are_stored_while_the_callback_still_runs_end_nothing():
    page, steps = page_of(), []
    page.pending = 1
    page.stored()
    page.pending = 1
    page.finish(lambda: steps.append("ack"))
    assert steps == []
    page.stored()
    assert steps == ["ack"]


def test_what_was_asked_for_besides_comes_after_the_items_and_before_the_last_step():
    later, steps = Later(), []
    page = page_of(later)
    page.actions = [Action("mark", "7")]
    page.pending = 1
    page.finish(lambda: steps.append("ack"))
    assert later.asked == [], "the item is not stored"
    page.stored()
    ((asked, final),) = later.asked
    assert (asked, steps, page.actions) == (["7"], [], [])
    final()
    assert steps == ["ack"]


def test_where_there_are_no_tasks_actions_hold_nothing_up():
    page, steps = page_of(effects=None), []
    page.actions = [Action("mark", "7")]
    page.finish(lambda: steps.append("ack"))
    assert steps == ["ack"]


async def test_a_page_that_waits_for_its_items_holds_neither_body_nor_generator():
    page = page_of()
    page.response = Response(url=URL, status_code=200, content=b"x" * 1000)
    page.iterator = page.origin.generator = iter(())
    page.function = print
    page.job = asyncio.get_running_loop().create_future()
    page.pending = 1
    steps = []
    page.finish(lambda: steps.append("ack"))
    page.let_go()
    assert [page.response, page.iterator, page.function, page.job, page.origin.generator] == [None] * 5
    page.stored()
    assert steps == ["ack"], "its last step is still known"


def test_a_page_knows_its_task():
    assert page_of().task == "7"
