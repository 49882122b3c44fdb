"""Becoming the one master: the lock in Redis and the fence in the task table agree, whatever gets lost on the way."""

from __future__ import annotations

import pytest
from task_tables import fill

from netspy.core.batch_store import SqlBatchStore
from netspy.engine.batch.lock import MasterLock
from netspy.engine.batch.store_calls import StoreCalls
from netspy.engine.control import Control
from netspy.errors import StoreLostError
from netspy.policy.run_scope import run_scope
from netspy.settings import Settings
from netspy.tasks.batch_queue import BatchQueue
from netspy.tasks.batch_store import FencedError
from support.engine import Lines, env_of


class AnswersGetLost(SqlBatchStore):
    """The database takes the token, and the answer doesn't come back; `left` times."""

    left = 0

    def use_fence(self, token):
        super().use_fence(token)
        if self.left:
            self.left -= 1
            raise StoreLostError("the answer was lost")


@pytest.fixture
def store(tmp_path):
    url = f"sqlite:///{tmp_path}/tasks.db"
    fill(url, 1)
    made = AnswersGetLost("crawl_task", url)
    made.ensure_schema()
    yield made
    made.close()


@pytest.fixture
async def queue(redis_url):
    settings = Settings(REDIS_URL=redis_url)
    made = BatchQueue(settings, run_scope(settings, "Crawl"))
    await made.open()
    yield made
    await made.close()


def lock_of(store, queue):
    env = env_of(name="Crawl")
    return MasterLock(
        env, store, queue, StoreCalls(env, Control(Lines())), job="redis://test/Crawl", once=True
    )


async def test_lost_answers_of_the_task_table_make_a_master_all_the_same(store, queue):
    store.left = 3
    lock = lock_of(store, queue)
    await lock.acquire()
    assert store.left == 0
    with pytest.raises(FencedError) as refused:
        store.use_fence(store.fence_token)
    assert refused.value.seen == store.fence_token, (
        "what the store writes with is what the table has seen last"
    )
    await queue.renew()
    await lock.release()
