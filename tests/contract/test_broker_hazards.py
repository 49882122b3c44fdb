"""Task sources on brokers when something goes wrong: outages, kills, foreign and broken messages, wrong set-ups."""

from __future__ import annotations

import asyncio
import re
import struct
import time
import uuid
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import aio_pika
import pytest
from broker_rig import SETTINGS, TAKER, drain, taken

from netspy.assembly.sources import make_source
from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.settings import Settings
from netspy.tasks.amqp import AmqpTaskSource
from netspy.tasks.redis.stream import RedisStreamSource
from netspy.testing.runner import start_script
from netspy.testing.servers import FaultProxy, RedisServer
from support.missing import missing
from support.rabbitmq_server import RabbitServer, find_rabbitmq_server


def rabbit(url, queue, **options):
    query = "".join(f"&{name}={value}" for name, value in options.items())
    return AmqpTaskSource(f"{url}?queue={queue}{query}", SETTINGS, queue="unused")


@pytest.fixture
def name():
    return f"hazard-{uuid.uuid4().hex[:12]}"


# ---- RabbitMQ


@pytest.mark.slow
async def test_rabbitmq_killed_and_restarted_loses_no_task_and_repeats_none_in_hand(name):
    """Also: the broker's own limit on the time that a task may take (consumer_timeout) costs nothing."""
    if find_rabbitmq_server() is None:
        missing("no rabbitmq-server on this machine")
    limits = {"consumer_timeout": 1500, "channel_tick_interval": 1000}
    with RabbitServer(advanced=limits) as server:
        outages = []
        source = AmqpTaskSource(
            f"{server.url}?queue={name}&prefetch=50",
            SETTINGS,
            queue="x",
            on_outage=lambda *o: outages.append(o),
        )
        await source.open()
        await source.add(list(range(300)))
        done = {}
        in_hand = await taken(source, 30)
        done |= {task.value: 1 for task in in_hand}
        settled = await taken(source, 10)
        done |= {task.value: 1 for task in settled}

        server.kill()
        await source.settled(settled)  # the word of it is lost
        adding = asyncio.create_task(source.add(list(range(300, 320))))
        looking = asyncio.create_task(source.backlog())
        await asyncio.to_thread(server.start)
        await adding
        backlog = await looking
        assert backlog.waiting >= 280
        await source.settled(in_hand[:20])  # settled after the outage, in a session that is gone
        await drain(source, set(range(320)) - {task.value for task in in_hand[20:]}, done)
        assert outages[0] == (True, 0.0)
        assert outages[-1][0] is False

        # The last ten stay in hand beyond the broker's limit, which closes the channel under them.
        session = source._link._session
        end = time.monotonic() + 30
        while not session.broken:
            assert time.monotonic() < end, "the broker did not close the channel"
            await asyncio.sleep(0.1)
        assert await source.take(50) == []
        await source.settled(in_hand[20:])
        end = time.monotonic() + 30
        while (left := await source.backlog()).waiting or left.taken:
            assert time.monotonic() < end, left
            assert await source.take(50) == []
        assert max(done.values()) == 1
        await source.close()


@pytest.mark.slow
async def test_rabbitmq_that_answers_nothing_for_some_heartbeats_ends_no_call_and_loses_no_task(
    rabbit_url, name
):
    """The client cancels what waits on a connection that its heartbeats give up."""
    where = urlsplit(rabbit_url)
    with FaultProxy(where.hostname, where.port) as proxy:
        source = rabbit(f"amqp://{proxy.host}:{proxy.port}/", name, heartbeat=1)
        await source.open()
        await source.add(list(range(20)))
        in_hand = await taken(source, 10)
        session = source._link._session
        proxy.stall()
        waiting = [asyncio.create_task(call) for call in (source.add([20, 21]), source.take(5))]
        waiting.append(asyncio.create_task(source.backlog()))
        end = time.monotonic() + 30
        while not session.broken:
            assert time.monotonic() < end, "nobody noticed"
            await asyncio.sleep(0.05)
        await source.settled(in_hand)
        proxy.resume()
        _, more, _ = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        done = {task.value: 1 for task in [*in_hand, *more]}
        await source.settled(more)
        await drain(source, set(range(22)), done)
        assert max(times for value, times in done.items() if value < 20) == 1
        await source.close()


async def test_rabbitmq_gives_the_tasks_of_a_killed_process_to_another(rabbit_url, name, tmp_path):
    first = rabbit(rabbit_url, name)
    await first.open()
    await first.add(list(range(300)))
    await first.close()
    done = await asyncio.to_thread(take_in_a_process_and_kill_it, f"{rabbit_url}?queue={name}", tmp_path)
    assert done
    after = rabbit(rabbit_url, name)
    await after.open()
    rest = {}
    await drain(after, set(range(300)) - done, rest)
    assert set(rest) | done == set(range(300))
    assert max(rest.values()) == 1
    assert {task.value for task in await after.take(10)} <= done
    await after.close()


def take_in_a_process_and_kill_it(address, folder):
    with start_script(TAKER, cwd=folder, args=[address]) as script:
        script.wait_line("settles 4")
        script.wait_line("holds")
        script.kill()
        output = script.finish().stdout
    return {int(n) for n in re.findall(r"^settles (\d+)$", output, re.M)}


async def test_rabbitmq_messages_of_others_are_tasks_and_broken_ones_go_to_the_failed_queue(rabbit_url, name):
    source = rabbit(rabbit_url, name)
    await source.open()
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        for body, identity in (
            (b'{"url": "https://example.com/"}', "order-7"),
            (b'{"url": "https://example.com/"}', None),
            (b'{"url": "https://example.com/"}', None),
            (b'{"!x": 1}', "{brace}"),
            (b"<xml/>", "broken"),
            (b"\xff\xfe", None),
        ):
            await channel.default_exchange.publish(
                aio_pika.Message(body, message_id=identity), routing_key=name
            )
        tasks = []
        while len(tasks) < 4:
            tasks += await source.take(10)
        assert [task.value for task in tasks] == [{"url": "https://example.com/"}] * 3 + [{"!x": 1}]
        assert tasks[0].token == "order-7"
        assert len({task.token for task in tasks}) == 4
        assert "{" not in tasks[3].token
        assert await source.take(10) == []
        assert (await source.backlog()).failed == 2
        failed = await (await channel.get_queue(f"{name}.failed")).get(no_ack=True)
        assert failed.body == b"<xml/>"
        assert failed.message_id == "broken"
        assert "no JSON" in failed.headers["x-error"]
        assert failed.headers["x-queue"] == name
        # In an own message a mark that nobody knows is an error: it would be a wrong value.
        message = aio_pika.Message(b'{"!x": 1}', message_id="ours", type="netspy.task")
        await channel.default_exchange.publish(message, routing_key=name)
        while (await source.backlog()).failed < 3 - 1:
            assert await source.take(10) == []
    await source.settled(tasks)
    await source.close()


async def test_rabbitmq_messages_on_their_way_to_a_node_are_waiting_ones(rabbit_url, name):
    """The broker no longer counts them, the node not yet: a crawl must not take the queue for empty."""
    async with late_deliveries(rabbit_url) as url:
        source = rabbit(url, name)
        await source.open()
        await source.add(list(range(10)))
        assert (await source.backlog()).waiting == 10
        await source.close()


@asynccontextmanager
async def late_deliveries(url):
    """A way to the broker on which deliveries wait until something else comes on their channel: late, but in order."""
    where = urlsplit(url)
    links = set()

    async def serve(reader, writer):
        links.add(asyncio.current_task())
        far_reader, far_writer = await asyncio.open_connection(where.hostname, where.port)
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await asyncio.gather(copied(reader, far_writer), frame_by_frame(far_reader, writer))
        far_writer.close()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"amqp://{host}:{port}/"
        for link in links:
            link.cancel()
        await asyncio.gather(*links)


async def copied(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)


async def frame_by_frame(reader, writer):
    held = {}
    while True:
        head = await reader.readexactly(7)  # AMQP 0-9-1, 2.3.5: type, channel, size
        kind, channel, size = struct.unpack(">BHL", head)
        frame = head + await reader.readexactly(size + 1)
        waiting = held.get(channel)
        if kind == 1 and frame[7:11] == b"\x00\x3c\x00\x3c":  # Basic.Deliver
            held.setdefault(channel, []).append(frame)
        elif kind in {2, 3} and waiting:  # its header and body
            waiting.append(frame)
        else:
            writer.write(b"".join(held.pop(channel, ())) + frame)


async def test_rabbitmq_never_hands_out_more_than_prefetch(rabbit_url, name):
    source = rabbit(rabbit_url, name, prefetch=7)
    await source.open()
    await source.add(list(range(20)))
    tasks = await taken(source, 7)
    assert await source.take(100) == []
    await source.settled(tasks[:3])
    await taken(source, 3)
    assert await source.take(100) == []
    await source.close()


async def test_rabbitmq_queue_that_exists_is_used_as_it_is(rabbit_url, name):
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        for queue in (name, f"{name}.failed"):
            await channel.declare_queue(
                queue, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 1000}
            )
    source = rabbit(rabbit_url, name)
    await source.open()
    await source.add([1])
    [task] = await taken(source, 1)
    await source.release([task])
    again = await taken(source, 1)
    assert again[0].token == task.token
    assert again[0].deliveries == 2
    await source.failed([(again[0], "no such shop")])
    end = time.monotonic() + 30
    while (await source.backlog()).failed != 1:  # a quorum queue counts a moment later
        assert time.monotonic() < end
    await source.close()


async def test_rabbitmq_queue_deleted_under_a_node_is_made_again(rabbit_url, name):
    source = rabbit(rabbit_url, name)
    await source.open()
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        await channel.queue_delete(name)
    await source.add(["after"])
    tasks = []
    while not tasks:
        tasks = await source.take(5)
    assert [task.value for task in tasks] == ["after"]
    await source.close()


@pytest.mark.parametrize(
    ("change", "text", "start_timeout"),
    [
        (("guest:guest", "guest:geheim"), "put the right user and password", 600.0),
        (("/?", "/nowhere?"), "name a vhost that exists", 0.5),  # a broker that is starting says the same
        (("amqp://", "amqps://"), "refuses this program", 600.0),
    ],
)
async def test_rabbitmq_that_refuses_us_is_one_clear_error(rabbit_url, change, text, start_timeout):
    settings = Settings(REDIS_START_TIMEOUT=start_timeout)
    source = AmqpTaskSource(f"{rabbit_url}?queue=x".replace(*change), settings, queue="x")
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        await asyncio.wait_for(source.open(), 60)
    assert "geheim" not in str(caught.value)
    assert "guest:guest" not in str(caught.value)
    await source.close()


async def test_rabbitmq_absent_ends_the_start_in_time_and_a_stop_ends_the_waiting(name):
    source = AmqpTaskSource("amqp://127.0.0.1:1/", Settings(REDIS_START_TIMEOUT=0.3), queue=name)
    with pytest.raises(StoreUnavailableError, match=r"did not answer within 0\.3 s"):
        await source.open()
    waiting = [asyncio.create_task(call) for call in (source.add([1]), source.backlog())]
    await asyncio.sleep(0.1)
    source.give_up_waiting()
    for one in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10):
        assert isinstance(one, StoreLostError)
    await source.close()
    with pytest.raises(StoreLostError):
        await source.take(1)


def test_addresses_keep_their_passwords_to_themselves():
    from netspy.brokers.kafka import read_kafka
    from netspy.brokers.rabbit import read_rabbit

    found = read_kafka("kafka+ssl://me:p%40ss@a:1,b/t?sasl.password=x&group=g", name="X", own={"group": str})
    assert found.servers == "a:1,b:9092"
    assert found.config["security.protocol"] == "SASL_SSL"
    assert found.config["sasl.username"] == "me"
    assert "p%40ss" not in found.shown
    assert "sasl.password=***" in found.shown
    rabbit_found = read_rabbit("amqps://me:p%40ss@host/my%2Fvhost?heartbeat=5", name="X")
    assert rabbit_found.url == "amqps://me:p%40ss@host:5671/my%2Fvhost?heartbeat=5"
    assert rabbit_found.shown == "amqps://me:***@host/my%2Fvhost?heartbeat=5"


# ---- Redis streams


def stream(redis_url, name, **options):
    return RedisStreamSource(Settings(REDIS_URL=redis_url), name, **{"lease_s": 60.0, **options})


async def test_stream_entries_of_a_consumer_that_keeps_them_are_not_given_to_another(
    redis_url, redis_server, name
):
    first, second = stream(redis_url, name), stream(redis_url, name)
    await first.open()
    await second.open()
    await first.add([1, 2])
    held = await first.take(5)
    # Both idle for more than two leases, as the server counts.
    ids = [task.receipt.entry_id for task in held]
    redis_server.client().xclaim(name, first.group, first._name, 0, ids, idle=150_000, justid=True)
    await first.keep(held[:1])
    [other] = await second.take(5)
    assert (other.value, other.token, other.deliveries) == (2, held[1].token, 2)
    await second.settled([other])
    await first.settled(held)  # one of them is gone already
    assert await second.take(5) == []
    assert (await second.backlog())[:2] == (0, 0)
    await first.close()
    await second.close()


async def test_stream_of_others_gives_its_fields_and_keeps_what_is_unreadable_apart(
    redis_url, redis_server, name
):
    client = redis_server.client(decode_responses=False)
    client.xadd(name, {"url": "https://example.com/", "n": "5"})
    client.xadd(name, {"row": '{"a": [1]}'})
    client.xadd(name, {"row": "<xml/>"})
    client.xadd(name, {"x": b"\xff"})
    source = stream(redis_url, name)
    await source.open()
    assert [t.value for t in await source.take(9)] == [{"url": "https://example.com/", "n": "5"}, {"a": [1]}]
    assert (await source.backlog())[:2] == (0, 2)
    [(_, broken), (_, other)] = client.xrange(f"{name}:failed")
    assert broken[b"row"] == b"<xml/>"
    assert b"no JSON" in broken[b"error"]
    assert b"no UTF-8" in other[b"error"]
    await source.close()
    client.close()


async def test_stream_deleted_under_a_consumer_is_made_again(redis_url, redis_server, name):
    source = stream(redis_url, name)
    await source.open()
    client = redis_server.client()
    client.delete(name)
    assert await source.take(5) == []
    await source.add(["after"])
    assert [task.value for task in await source.take(5)] == ["after"]
    client.close()
    await source.close()


async def test_stream_key_of_another_type_is_one_clear_error(redis_url, redis_server, name):
    client = redis_server.client()
    client.rpush(name, "mine")
    source = stream(redis_url, name)
    with pytest.raises(ConfigError, match=f"{name}' is no stream"):
        await source.open()
    assert client.lrange(name, 0, -1) == ["mine"]
    client.close()
    await source.close()


def job_stream(redis_url, name, job="Shop"):
    return make_source(Settings(REDIS_URL=redis_url, TASK_SOURCE=f"stream:{name}"), job)


async def test_tasks_of_a_stream_are_json_words_or_the_fields_as_other_programs_write_them(
    redis_url, redis_server, name
):
    client = redis_server.client(decode_responses=False)
    written: list[tuple[dict, object]] = [
        ({"task": '{"id": 1}', "sent_by": "shop"}, {"id": 1}),
        ({"data": "[1, 2]"}, [1, 2]),
        ({"task": "https://example.com/a?b=1"}, "https://example.com/a?b=1"),
        ({"data": "7", "id": "8"}, {"data": "7", "id": "8"}),
        ({"id": "9", "url": "https://example.com/é"}, {"id": "9", "url": "https://example.com/é"}),
        ({"row": '{"a": 1}'}, {"row": '{"a": 1}'}),
    ]
    for fields, _ in written:
        client.xadd(name, fields)
    client.xadd(name, {"task": "{broken"})
    source = job_stream(redis_url, name)
    await source.open()
    assert source.holds, (
        "settled before its requests are done, a task dies with another Redis than the stream's"
    )
    assert [task.value for task in await source.take(50)] == [value for _, value in written]
    assert source.unreadable == 1
    [(_, broken)] = client.xrange(f"{name}:failed")
    assert broken[b"task"] == b"{broken"
    client.close()
    await source.close()


async def test_two_jobs_on_one_stream_each_get_all_of_it(redis_url, redis_server, name):
    """The first one to settle must not delete what the other has yet to read."""
    first, second = job_stream(redis_url, name, "A"), job_stream(redis_url, name, "B")
    await first.open()
    await second.open()
    await first.add([1, 2, 3])
    await first.settled(await first.take(9))
    assert (await first.backlog())[:2] == (0, 0), "entries that only wait for another group are none of ours"
    assert (await second.backlog())[:2] == (3, 0)
    taken = await second.take(9)
    assert [task.value for task in taken] == [1, 2, 3]
    await second.failed([(task, "no") for task in taken])
    assert (await second.backlog())[:2] == (0, 0)
    await first.close()
    await second.close()


async def test_the_backlog_of_a_stream_ends_whoever_acknowledges_trims_or_deletes(
    redis_url, redis_server, name
):
    """A count that never comes to 0 is a crawl that never ends."""
    client = redis_server.client()
    source = job_stream(redis_url, name)
    await source.open()
    ids = [client.xadd(name, {"task": str(n)}) for n in range(6)]
    await source.take(2)
    client.xack(name, source.group, *ids[:2])  # by another program, which deletes nothing
    assert (await source.backlog())[:2] == (4, 0)
    client.xdel(name, ids[3])
    # With a gap behind the last one taken the server can't count: a look finds too many rather than none.
    assert (await source.backlog()).waiting >= 3
    client.xtrim(name, maxlen=1, approximate=False)
    assert [task.value for task in await source.take(9)] == [5]
    client.xtrim(name, maxlen=0, approximate=False)
    assert (await source.backlog())[:2] == (0, 1)
    client.xadd(name, {"task": "6"})
    client.xtrim(name, maxlen=0, approximate=False)
    assert (await source.backlog()).waiting == 0
    client.close()
    await source.close()


async def test_a_look_at_a_stream_makes_no_group(redis_url, redis_server, name):
    """A group of a mistyped name would read nothing, and nothing would be deleted for its sake from then on."""
    client = redis_server.client()
    for there in (False, True):
        source = job_stream(redis_url, name, "Mistyped")
        source.consumes = False
        await source.open()
        assert (await source.backlog())[:2] == (int(there), 0)
        await source.add([1])
        await source.close()
    assert client.xinfo_groups(name) == []
    client.delete(name)
    client.rpush(name, "mine")
    source = job_stream(redis_url, name)
    source.consumes = False
    with pytest.raises(ConfigError, match="is no stream"):
        await source.open()
    await source.close()
    client.close()


async def test_an_id_that_a_producer_uses_again_names_another_task(redis_url, redis_server, name):
    client = redis_server.client()
    source = job_stream(redis_url, name)
    await source.open()
    tokens = []
    for body in ("1", "2", "1"):
        client.delete(name)
        client.xadd(name, {"task": body}, id="1-0")
        [task] = await source.take(5)
        tokens.append(task.token)
    assert tokens[0] != tokens[1]
    assert tokens[0] == tokens[2], "the same at every delivery"
    client.close()
    await source.close()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("stream:", "names no key"),
        ("list:shop", "names a stream"),
        ("redis://:secret@127.0.0.1:1/0", "must name one key"),
        ("redis://:secret@127.0.0.1:1/0?list=a", "names a stream"),
        ("redis://:secret@127.0.0.1:1/0?list=a&stream=b", "must name one key"),
    ],
)
def test_an_address_that_names_no_stream_says_what_to_write(source, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make_source(Settings(TASK_SOURCE=source), "Shop")
    assert "secret" not in str(caught.value)


def test_the_group_of_a_stream_is_the_jobs_or_the_one_of_the_address():
    made = make_source(Settings(TASK_SOURCE="redis://127.0.0.1:1/0?stream=a:b&group=mine"), "Shop")
    assert (made.key, made.group) == ("a:b", "mine")
    made = make_source(Settings(TASK_SOURCE="stream:a:b"), "Shop")
    assert (made.key, made.group, made.failed_key) == ("a:b", "netspy.Shop", "a:b:failed")
    made = make_source(Settings(TASK_SOURCE="stream:a", REDIS_URL="redis+cluster://127.0.0.1:1"), "Shop")
    assert made.key == "{a}"


async def test_stream_survives_a_restart_of_its_server(name):
    with RedisServer(appendfsync="always") as server:
        source = stream(server.url, name)
        await source.open()
        await source.add([1, 2, 3])
        held = await source.take(2)
        server.kill()
        settling = asyncio.create_task(source.settled(held))
        await asyncio.to_thread(server.start)
        await settling
        assert [task.value for task in await source.take(5)] == [3]
        await source.close()
