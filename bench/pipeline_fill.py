"""Topics of millions of records in seconds: batches are built once and sent again and again.

    pipeline_fill.py --bootstrap HOST:PORT --topic T --records 10000000 [--codec lz4]

A record has a key of 1,000 and a JSON value of 60 to 140 bytes. Every batch that is sent gets the
time of its own; the rest of its bytes repeats after 64 batches.
"""

import argparse
import json
import random
import struct
import time
from collections import deque
from collections.abc import Iterator

import cramjam
from confluent_kafka.admin import AdminClient, NewTopic

from chronik.pipeline.client import Cluster, Connection, check
from chronik.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.wire.records import HEADER, LENGTH_OVERHEAD, MAGIC, batch_crc

BATCH_RECORDS = 500
BATCHES = 64
KEYS = 1_000
MS_PER_BATCH = 50
FIRST_TIME_MS = 1_700_000_000_000
PRODUCE_VERSION = 8
IN_FLIGHT_MAX = 4
CODECS = {"none": 0, "lz4": 3, "zstd": 4}
_TIMES = struct.Struct(">qq")
_CRC = struct.Struct(">I")


def fill(
    bootstrap: str, topic: str, records: int, partitions: int = 4, codec: str = "none"
) -> None:
    """Makes the topic and sends `records`, the same number to each partition."""
    create(bootstrap, topic, partitions)
    batches = [build(random.Random(seed), CODECS[codec]) for seed in range(BATCHES)]
    rounds = records // (BATCH_RECORDS * partitions)
    with Cluster(bootstrap) as cluster:
        assert len(cluster.partitions([topic])) == partitions
        # One node leads all: the bench starts one.
        send(cluster.leader((topic, 0)), requests(topic, partitions, batches, rounds))


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": "v4"})
    # The records' times are old; retention must not take them away between two measurements.
    topics = [NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})]
    for future in admin.create_topics(topics).values():
        future.result()


def requests(
    topic: str, partitions: int, batches: list[bytearray], rounds: int
) -> Iterator[ProduceRequest]:
    """One batch for each partition per request: the protocol takes no more."""
    for number in range(rounds):
        time_ms = FIRST_TIME_MS + number * MS_PER_BATCH
        data = [
            PartitionProduceData(index, stamped(batches[(number + index) % BATCHES], time_ms))
            for index in range(partitions)
        ]
        yield ProduceRequest(None, 1, 30_000, [TopicProduceData(topic, partition_data=data)])


def send(connection: Connection, wanted: Iterator[ProduceRequest]) -> None:
    waiting: deque[int] = deque()
    for request in wanted:
        waiting.append(connection.send(request, PRODUCE_VERSION))
        if len(waiting) >= IN_FLIGHT_MAX:
            confirm(connection, waiting.popleft())
    while waiting:
        confirm(connection, waiting.popleft())


def confirm(connection: Connection, number: int) -> None:
    for topic in connection.receive(ProduceResponse, PRODUCE_VERSION, number).responses:
        for one in topic.partition_responses:
            check(one.error_code, f"produce to {topic.name}-{one.index}")


# -- batches


def build(chance: random.Random, codec: int) -> bytearray:
    """A batch without a time."""
    body = b"".join(
        record(number, number % MS_PER_BATCH, *row(chance)) for number in range(BATCH_RECORDS)
    )
    if codec:
        packed = (cramjam.lz4 if codec == CODECS["lz4"] else cramjam.zstd).compress(body)
        body = bytes(packed)
    data = bytearray(HEADER.size) + body
    fields = [0, len(data) - LENGTH_OVERHEAD, -1, MAGIC, 0, codec, BATCH_RECORDS - 1]
    HEADER.pack_into(data, 0, *fields, 0, 0, -1, -1, -1, BATCH_RECORDS)
    return data


def row(chance: random.Random) -> tuple[bytes, bytes]:
    key = b"customer-%d" % chance.randrange(KEYS)
    note = f"{chance.getrandbits(4 * chance.randrange(1, 80)):x}"
    amount = chance.randrange(100_000) / 100
    value = {"id": chance.getrandbits(48), "amount": amount, "note": note}
    return key, json.dumps(value).encode()


def record(number: int, time_ms: int, key: bytes, value: bytes) -> bytes:
    parts = [b"\0", zigzag(time_ms), zigzag(number), zigzag(len(key)), key]
    body = b"".join([*parts, zigzag(len(value)), value, zigzag(0)])
    return zigzag(len(body)) + body


def zigzag(value: int) -> bytes:
    number, out = value << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def stamped(batch: bytearray, time_ms: int) -> bytes:
    _TIMES.pack_into(batch, 27, time_ms, time_ms + MS_PER_BATCH - 1)
    _CRC.pack_into(batch, 17, batch_crc(batch))
    return bytes(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", choices=tuple(CODECS), default="none")
    options = parser.parse_args()
    begun = time.perf_counter()
    fill(**vars(options))
    seconds = time.perf_counter() - begun
    print(f"{options.records} records in {seconds:.1f} s")  # noqa: T201


if __name__ == "__main__":
    main()
