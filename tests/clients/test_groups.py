"""Consumer groups: offsets are kept for a group, and its members share the partitions."""

import asyncio
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, TopicPartition
from tests.clients.adapters.confluent import settings
from tests.clients.kit import SECONDS_MAX, Client, Record, eventually, payload
from tests.clients.scenarios import NewTopic
from tests.servers import Server

pytestmark = pytest.mark.groups


def member(server: Server, group: str, **more: object) -> Consumer:
    defaults: dict[str, object] = {"auto_offset_reset": "earliest", "session_timeout_ms": 6000}
    defaults |= {"enable_auto_commit": False, "fetch_wait_max_ms": 100}
    return Consumer(settings(server.bootstrap, group_id=group, **{**defaults, **more}))


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    limit = time.monotonic() + SECONDS_MAX
    while len(values) < count and time.monotonic() < limit:
        values += [message.value() for message in consumer.consume(count - len(values), 0.1)]
    return values


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def test_fm64_the_first_member_of_an_unknown_group_reads_everything(
    server: Server, topic: NewTopic, confluent: Client
) -> None:
    name = topic()
    confluent.produce(name, [Record(payload(n)) for n in range(20)])
    consumer = member(server, new_group())
    consumer.subscribe([name])
    assert read(consumer, 20) == [payload(n) for n in range(20)]
    consumer.close()


def test_a_group_goes_on_where_it_committed(
    server: Server, topic: NewTopic, confluent: Client
) -> None:
    name, group = topic(), new_group()
    confluent.produce(name, [Record(payload(n)) for n in range(20)])
    first = member(server, group)
    first.subscribe([name])
    assert len(read(first, 8)) == 8
    first.commit(asynchronous=False)
    first.close()
    second = member(server, group)
    second.subscribe([name])
    assert read(second, 12) == [payload(n) for n in range(8, 20)]
    second.close()


def test_offsets_are_committed_without_membership(server: Server, topic: NewTopic) -> None:
    name, group = topic(partitions=2), new_group()
    consumer = member(server, group)
    asked = [TopicPartition(name, 0, 42), TopicPartition(name, 1, 7)]
    consumer.commit(offsets=asked, asynchronous=False)
    found = consumer.committed([TopicPartition(name, 0), TopicPartition(name, 1)], SECONDS_MAX)
    assert [each.offset for each in found] == [42, 7]
    consumer.close()


def test_fm65_two_members_share_the_partitions(server: Server, topic: NewTopic) -> None:
    name, group = topic(partitions=4), new_group()
    members = [member(server, group) for _ in range(2)]
    for each in members:
        each.subscribe([name])

    def shared() -> bool:
        for each in members:
            each.poll(0.05)
        owned = [{part.partition for part in each.assignment()} for each in members]
        return len(owned[0]) == len(owned[1]) == 2 and not owned[0] & owned[1]

    assert eventually(shared)
    for each in members:
        each.close()


def test_aiokafka_joins_and_commits(server: Server, topic: NewTopic, confluent: Client) -> None:
    name, group = topic(), new_group()
    confluent.produce(name, [Record(payload(n)) for n in range(10)])

    async def run() -> list[Any]:
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=server.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        got = [await consumer.getone() for _ in range(10)]
        await consumer.commit()
        await consumer.stop()
        return got

    assert [each.value for each in asyncio.run(run())] == [payload(n) for n in range(10)]
    consumer = member(server, group)
    (found,) = consumer.committed([TopicPartition(name, 0)], SECONDS_MAX)
    assert found.offset == 10
    consumer.close()
