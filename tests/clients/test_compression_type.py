"""compression.type on a topic: the leader stores what it says, whatever the producer chose."""

import gzip
import struct
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kio.schema.errors import ErrorCode
from tests.clients.asking import NONE, append, fetch, new_producer_id, produce
from tests.clients.batches import HEADER, Batch, record
from tests.clients.scenarios import NewTopic
from tests.clients.wire import Connection
from tests.servers import Server

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
STORED = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES = [b"value %d, and some more of the same" % number for number in range(100)]


def compressed_batch(values: list[bytes], codec: int, data: bytes | None = None) -> bytes:
    """A batch by hand with gzip inside, or with the data given."""
    records = b"".join(record(value, n) for n, value in enumerate(values))
    plain = Batch(values=values, attributes=codec).encode()[: HEADER.size]
    body = gzip.compress(records) if data is None else data
    fields = list(HEADER.unpack(plain))
    fields[1] = HEADER.size + len(body) - 12
    covered = HEADER.pack(*fields)[21:] + body
    from crc32c import crc32c

    fields[4] = crc32c(covered)
    return HEADER.pack(*fields)[:21] + covered


def codecs_of(records: bytes | None) -> set[int]:
    """The codecs of the batches in a fetched partition."""
    data, position, found = records or b"", 0, set()
    while position + HEADER.size <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        (attributes,) = struct.unpack_from(">h", data, position + 21)
        found.add(attributes & 7)
        position += size + 12
    return found


def send(server: Server, topic: str, codec: str, values: list[bytes]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "compression.type": codec,
            "linger.ms": 50,
            "enable.idempotence": True,
        }
    )
    failed: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, key=b"k", on_delivery=delivered)
    assert producer.flush(20) == 0
    assert failed == []


def read(server: Server, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=20)
        return [bytes(message.value() or b"") for message in messages]
    finally:
        consumer.close()


def configure(server: Server, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("kind", STORED)
def test_batches_are_stored_in_the_topics_codec(
    server: Server, connection: Connection, topic: NewTopic, kind: str, sent: str
) -> None:
    name = topic(**{"compression.type": kind})
    send(server, name, sent, VALUES)
    assert codecs_of(fetch(connection, name).records) == {STORED[kind]}
    assert read(server, name, len(VALUES)) == VALUES


@pytest.mark.parametrize(
    ("kind", "level"), [("gzip", "9"), ("lz4", "1"), ("lz4", "17"), ("zstd", "19")]
)
def test_levels_are_taken(
    server: Server, connection: Connection, topic: NewTopic, kind: str, level: str
) -> None:
    name = topic(**{"compression.type": kind, f"compression.{kind}.level": level})
    send(server, name, "none", VALUES)
    assert codecs_of(fetch(connection, name).records) == {STORED[kind]}
    assert read(server, name, len(VALUES)) == VALUES


def test_a_change_counts_from_the_next_batch_on(
    server: Server, connection: Connection, topic: NewTopic
) -> None:
    name = topic()
    append(connection, name, Batch(values=VALUES))
    configure(server, name, "compression.type", "zstd")
    append(connection, name, Batch(values=VALUES))
    configure(server, name, "compression.type", "producer")
    append(connection, name, Batch(values=VALUES))
    fetched = fetch(connection, name, partition_max_bytes=1 << 20).records
    assert codecs_of(fetched) == {0, 4}
    assert read(server, name, 3 * len(VALUES)) == VALUES * 3


def test_a_connections_requests_keep_their_order(connection: Connection, topic: NewTopic) -> None:
    """Also those for another topic, behind one that takes longer."""
    zipped, plain = topic(**{"compression.type": "gzip"}), topic()
    big = Batch(values=[b"%d" % n * 50 for n in range(2000)]).encode()

    def ask(number: int, *names: str) -> int:
        small = Batch(values=[b"%d" % number]).encode()
        data = [
            {
                "name": name,
                "partition_data": [{"index": 0, "records": big if name is zipped else small}],
            }
            for name in names
        ]
        return connection.send("produce", 9, acks=-1, timeout=10_000, topic_data=data)

    asked = [ask(0, zipped, plain), ask(1, plain), ask(2, zipped), ask(3, plain), ask(4, plain)]
    offsets = []
    for number in asked:
        answer = connection.read("produce", 9, number)
        for response in answer.responses:
            (one,) = response.partition_responses
            assert one.error_code == NONE
            if response.name == plain:
                offsets.append(one.base_offset)
    assert offsets == [0, 1, 2, 3]


def test_sequence_numbers_survive(connection: Connection, topic: NewTopic) -> None:
    name = topic(**{"compression.type": "lz4"})
    producer_id = new_producer_id(connection)

    def batch(sequence: int) -> bytes:
        return Batch(
            values=VALUES[:5], producer_id=producer_id, producer_epoch=0, sequence=sequence
        ).encode()

    first, again, second, gap = (
        produce(connection, name, {0: batch(sequence)})[0] for sequence in (0, 0, 5, 20)
    )
    assert (first.base_offset, again.base_offset, second.base_offset) == (0, 0, 5)
    assert gap.error_code == ErrorCode.out_of_order_sequence_number


def test_what_grows_too_large_is_refused(connection: Connection, topic: NewTopic) -> None:
    name = topic(**{"compression.type": "uncompressed", "max.message.bytes": "2000"})
    batch = compressed_batch([b"x" * 5000], 1)
    assert len(batch) < 2000
    assert produce(connection, name, {0: batch})[0].error_code == ErrorCode.message_too_large


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_garbage_inside_a_batch_is_refused_and_others_are_unharmed(
    connection: Connection, topic: NewTopic, codec: int
) -> None:
    name = topic(partitions=2, **{"compression.type": "uncompressed"})
    bad = compressed_batch([b"x"], codec, b"no codec made this, and none will read it")
    answer = produce(connection, name, {0: bad, 1: Batch(values=[b"good"]).encode()})
    assert answer[0].error_code in {ErrorCode.invalid_record, ErrorCode.unknown_server_error}
    assert answer[1].error_code == NONE
    assert fetch(connection, name).high_watermark == 0
