"""Task sources on brokers when something goes wrong: outages, kills, foreign and broken messages, wrong set-ups."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid

import aio_pika
import pytest

from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.settings import Settings
from netspy.tasks.amqp import AmqpTaskSource
from netspy.tasks.kafka import KafkaTaskSource
from netspy.tasks.redis_stream import RedisStreamSource
from netspy.testing.kafka_mock import UNKNOWN_TOPIC, KafkaMock
from netspy.testing.rabbitmq_server import RabbitServer, find_rabbitmq_server
from netspy.testing.runner import start_script
from netspy.testing.servers import RedisServer
from support.missing import missing

SETTINGS = Settings(REDIS_START_TIMEOUT=2.0)
QUICK = "session.timeout.ms=1500&heartbeat.interval.ms=200&partition.assignment.strategy=range"


def rabbit(url, queue, **options):
    query = "".join(f"&{name}={value}" for name, value in options.items())
    return AmqpTaskSource(f"{url}?queue={queue}{query}", SETTINGS, queue="unused")


def kafka_source(servers, topic, query=QUICK, settings=SETTINGS):
    return KafkaTaskSource(
        f"kafka://{servers}/{topic}?group=g-{topic}&{query}", settings, topic="x", group="x"
    )


async def drain(source, wanted, done, seconds=30.0):
    """Take and settle until the values in `wanted` are done."""
    end = time.monotonic() + seconds
    while not wanted <= done.keys():
        assert time.monotonic() < end, f"{len(wanted - done.keys())} tasks did not come"
        tasks = await source.take(20)
        for task in tasks:
            done[task.value] = done.get(task.value, 0) + 1
        await source.settled(tasks)
        if not tasks:
            await asyncio.sleep(0.05)


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
        in_hand = await source.take(30)
        done |= {task.value: 1 for task in in_hand}
        settled = await source.take(10)
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
        session = source._link.session
        end = time.monotonic() + 20
        while not session.broken:
            assert time.monotonic() < end, "the broker did not close the channel"
            await asyncio.sleep(0.1)
        assert await source.take(50) == []
        await source.settled(in_hand[20:])
        end = time.monotonic() + 10
        while (left := await source.backlog()).waiting or left.taken:
            assert time.monotonic() < end, left
            assert await source.take(50) == []
        assert max(done.values()) == 1
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


TAKER = """
import asyncio, sys
from netspy.settings import Settings
from netspy.tasks.message_source import message_source

async def main():
    source = message_source(sys.argv[1], Settings())
    await source.open()
    while True:
        tasks = await source.take(10)
        for task in tasks[:5]:
            print("settles", task.value, flush=True)  # before it does: a kill may come in between
            await source.settled([task])
        if tasks:
            print("holds", len(tasks[5:]), flush=True)

asyncio.run(main())
"""


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


async def test_rabbitmq_never_hands_out_more_than_prefetch(rabbit_url, name):
    source = rabbit(rabbit_url, name, prefetch=7)
    await source.open()
    await source.add(list(range(20)))
    tasks = await source.take(100)
    assert len(tasks) == 7
    assert await source.take(100) == []
    await source.settled(tasks[:3])
    assert len(await source.take(100)) == 3
    await source.close()


async def test_rabbitmq_queue_that_exists_is_used_as_it_is(rabbit_url, name):
    async with await aio_pika.connect(rabbit_url) as link, link.channel() as channel:
        await channel.declare_queue(
            name, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 1000}
        )
    source = rabbit(rabbit_url, name)
    await source.open()
    await source.add([1])
    [task] = await source.take(5)
    await source.release([task])
    again = []
    while not again:
        again = await source.take(5)
    assert again[0].token == task.token
    assert again[0].deliveries == 2
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
    ("change", "text"),
    [
        (("guest:guest", "guest:geheim"), "put the right user and password"),
        (("/?", "/nowhere?"), "name a vhost that exists"),
        (("amqp://", "amqps://"), "refuses this program"),
    ],
)
async def test_rabbitmq_that_refuses_us_is_one_clear_error(rabbit_url, change, text):
    settings = Settings(REDIS_START_TIMEOUT=0.5)
    source = AmqpTaskSource(f"{rabbit_url}?queue=x".replace(*change), settings, queue="x")
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        await asyncio.wait_for(source.open(), 5)
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
    for one in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 3):
        assert isinstance(one, StoreLostError)
    await source.close()
    with pytest.raises(StoreLostError):
        await source.take(1)


# ---- Kafka


@pytest.fixture
def own_kafka():
    with KafkaMock(partitions=3) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "frozen"])
async def test_kafka_away_for_a_while_loses_no_task_and_repeats_none_in_hand(own_kafka, name, how):
    outages = []
    source = KafkaTaskSource(
        f"kafka://{own_kafka.servers}/{name}?group=g&socket.timeout.ms=1000&{QUICK}",
        SETTINGS, topic="x", group="x", on_outage=lambda *o: outages.append(o),
    )  # fmt: skip
    await source.open()
    await source.add(list(range(300)))
    in_hand = []
    while len(in_hand) < 30:
        in_hand += await source.take(30 - len(in_hand))
    done = {task.value: 1 for task in in_hand}
    (own_kafka.down if how == "cut" else own_kafka.pause)()
    adding = asyncio.create_task(source.add(list(range(300, 320))))
    looking = asyncio.create_task(source.backlog())
    end = time.monotonic() + 15
    while not outages:
        assert time.monotonic() < end, "nobody was told"
        await asyncio.sleep(0.02)
    assert not adding.done()
    (own_kafka.up if how == "cut" else own_kafka.resume)()
    await adding
    assert (await looking).waiting >= 270
    await source.settled(in_hand[:20])
    await drain(source, set(range(320)), done)
    # What was being added may have been written twice: the mock doesn't know the producer's sequence numbers.
    assert max(times for value, times in done.items() if value < 300) == 1
    await source.settled(in_hand[20:])
    end = time.monotonic() + 15
    while (await source.backlog()).waiting:
        assert time.monotonic() < end
        await source.settled(await source.take(50))  # what was written twice
    assert outages[0] == (True, 0.0)
    assert outages[-1][0] is False
    await source.close()


@pytest.mark.slow
async def test_kafka_gives_the_tasks_of_a_killed_process_to_another(kafka, name, tmp_path):
    kafka.topic(name, 2)
    first = kafka_source(kafka.servers, name)
    await first.open()
    await first.add(list(range(300)))
    await first.close()
    address = f"kafka://{kafka.servers}/{name}?group=g-{name}&{QUICK}"
    script = TAKER.replace("task.value, flush", "'4', task.value, flush")
    with start_script(script, cwd=tmp_path, args=[address]) as running:
        running.wait_line("settles 4")
        running.wait_line("holds")
        running.kill()
        output = running.finish().stdout
    done = {int(n) for n in re.findall(r"^settles 4 (\d+)$", output, re.M)}
    assert done
    after = kafka_source(kafka.servers, name)
    await after.open()
    rest = {}
    await drain(after, set(range(300)) - done, rest)
    assert set(rest) | done == set(range(300))
    await after.close()


async def test_kafka_commits_only_up_to_the_first_task_that_is_not_settled(kafka, name):
    kafka.topic(name, 1)
    source = kafka_source(kafka.servers, name)
    await source.open()
    await source.add(list(range(10)))
    tasks = []
    while len(tasks) < 10:
        tasks += await source.take(10)
    await source.settled([task for task in tasks if task.value not in {3, 7}])
    assert (await source.backlog()).waiting + (await source.backlog()).taken == 7
    await source.close()
    after = kafka_source(kafka.servers, name)
    await after.open()
    again = []
    while len(again) < 7:
        again += await after.take(10)
    assert [task.value for task in again] == [3, 4, 5, 6, 7, 8, 9]
    assert {task.token for task in again} == {task.token for task in tasks[3:]}
    await after.close()


async def test_kafka_partition_with_too_many_unsettled_tasks_waits(kafka, name):
    kafka.topic(name, 1)
    source = kafka_source(kafka.servers, name, f"open=20&{QUICK}")
    await source.open()
    await source.add(list(range(150)))
    held = []
    end = time.monotonic() + 1.0
    while time.monotonic() < end and len(held) < 150:
        held += await source.take(50)
    assert 20 <= len(held) <= 60
    done = {}
    await source.settled(held)
    done |= {task.value: 1 for task in held}
    await drain(source, set(range(150)), done)
    assert max(done.values()) == 1
    await source.close()


@pytest.mark.slow
async def test_kafka_moves_partitions_between_nodes_that_come_and_go(kafka, name):
    kafka.topic(name, 4)
    nodes = [kafka_source(kafka.servers, name)]
    await nodes[0].open()
    await nodes[0].add(list(range(200)))
    held = await nodes[0].take(20)
    done = {}
    nodes.append(kafka_source(kafka.servers, name))
    await nodes[1].open()
    working = [asyncio.create_task(drain(node, set(range(400)), done)) for node in nodes]
    await nodes[0].add(list(range(200, 400)))
    # What the first node holds may be delivered to the second one, whose partition it is now, and not to the first.
    await nodes[0].settled(held)
    done |= {task.value: 1 for task in held}
    await asyncio.gather(*working)
    await nodes[1].close()
    await nodes[0].close()


async def test_kafka_messages_of_others_are_tasks_and_broken_ones_go_to_the_failed_topic(kafka, name):
    from confluent_kafka import Consumer, Producer

    source = kafka_source(kafka.servers, name)
    await source.open()
    producer = Producer({"bootstrap.servers": kafka.servers})
    for body in (b'{"a": 1}', b'{"!x": 1}', b"<xml/>", None):
        producer.produce(name, body)
    producer.flush(5)
    tasks = []
    while len(tasks) < 2 or (await source.backlog()).failed < 2:
        tasks += await source.take(10)
    assert sorted(json.dumps(task.value) for task in tasks) == ['{"!x": 1}', '{"a": 1}']
    await source.settled(tasks)
    await source.close()
    reader = Consumer({"bootstrap.servers": kafka.servers, "group.id": "r", "auto.offset.reset": "earliest"})
    reader.subscribe([f"{name}.failed"])
    found = [reader.poll(10), reader.poll(10)]
    reader.close()
    assert {message.value() for message in found} == {b"<xml/>", b""}
    headers = dict(found[0].headers())
    assert b"no JSON" in headers["error"]
    assert headers["offset"].startswith(f"{name}/".encode())


async def test_kafka_without_the_topic_says_how_to_make_it(own_kafka, name):
    own_kafka.topic_error(name, UNKNOWN_TOPIC)
    source = kafka_source(own_kafka.servers, name, settings=Settings(REDIS_START_TIMEOUT=0.5))
    with pytest.raises(ConfigError, match=rf"has no topic '{name}'.*kafka-topics.sh --create --topic {name}"):
        await source.open()
    await source.close()


@pytest.mark.slow
async def test_kafka_absent_ends_the_start_in_time_and_a_stop_ends_the_waiting(own_kafka, name):
    source = KafkaTaskSource("kafka://127.0.0.1:1/x", Settings(REDIS_START_TIMEOUT=0.3), topic="x", group="g")
    with pytest.raises(StoreUnavailableError, match=r"did not answer within 0\.3 s"):
        await source.open()
    source = kafka_source(own_kafka.servers, name)
    await source.open()
    own_kafka.down()
    waiting = [asyncio.create_task(call) for call in (source.add([1]), source.backlog(), source.take(1))]
    await asyncio.sleep(0.3)
    source.give_up_waiting()
    for one in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 8):
        assert isinstance(one, StoreLostError)
    await asyncio.wait_for(source.close(), 15)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("kafka://host/topic?sesion.timeout.ms=6", "sesion.timeout.ms"),
        ("kafka://host/topic?grup=x", "did you mean group"),
        ("kafka://host/topic?open=0", "it is a whole number above 0"),
        ("kafka://u:geheim@host:port/topic", "names no host"),
        ("http://host/topic", "is no Kafka address"),
        ("kafka://host/to pic", "names the topic 'to pic'"),
    ],
)
async def test_kafka_address_that_is_wrong_says_what_is(url, text):
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        await KafkaTaskSource(url, SETTINGS, topic="x", group="x").open()
    assert "geheim" not in str(caught.value)


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
    return RedisStreamSource(Settings(REDIS_URL=redis_url), name, **{"lease_s": 0.3, **options})


async def test_stream_entries_of_a_consumer_that_keeps_them_are_not_given_to_another(redis_url, name):
    first, second = stream(redis_url, name), stream(redis_url, name)
    await first.open()
    await second.open()
    await first.add([1, 2])
    held = await first.take(5)
    end = time.monotonic() + 0.8
    while time.monotonic() < end:  # more than two leases
        await first.keep(held[:1])
        await asyncio.sleep(0.05)
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
