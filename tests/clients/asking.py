"""The protocol questions that several test files ask."""

import time
from typing import Any

from kio.schema.errors import ErrorCode
from tests.clients.batches import Batch
from tests.clients.wire import Connection

NONE = ErrorCode.none


def produce(
    connection: Connection,
    topic: str,
    parts: dict[int, bytes | None],
    version: int = 9,
    acks: int = -1,
) -> dict[int, Any]:
    """One Produce request; the answer of each partition."""
    data = [{"index": index, "records": records} for index, records in parts.items()]
    asked = [{"name": topic, "partition_data": data}]
    answer = connection.ask("produce", version, acks=acks, timeout=10_000, topic_data=asked)
    (answered,) = answer.responses
    return {each.index: each for each in answered.partition_responses}


def append(connection: Connection, topic: str, batch: Batch, partition: int = 0) -> int:
    """The base offset of a batch that must be accepted."""
    answer = produce(connection, topic, {partition: batch.encode()})[partition]
    assert answer.error_code == NONE
    return int(answer.base_offset)


def fetch_fields(
    topic: str,
    offsets: dict[int, int],
    max_wait: int = 0,
    min_bytes: int = 0,
    partition_max_bytes: int = 1 << 20,
    **more: Any,
) -> dict[str, Any]:
    """Fields of a Fetch request by topic name (up to version 12)."""
    partitions = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        for number, offset in offsets.items()
    ]
    topics = [{"topic": topic, "partitions": partitions}] if partitions else []
    fields = {"replica_id": -1, "max_wait": max_wait, "min_bytes": min_bytes, "topics": topics}
    return {**fields, "max_bytes": 1 << 26, **more}


def partitions_of(answer: Any) -> dict[int, Any]:
    """The partitions of a Fetch answer about one topic."""
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}


def fetch(
    connection: Connection, topic: str, offset: int = 0, version: int = 12, **more: Any
) -> Any:
    """Partition 0 of a Fetch answer."""
    answer = connection.ask("fetch", version, **fetch_fields(topic, {0: offset}, **more))
    return partitions_of(answer)[0]


def metadata(connection: Connection, *topics: str, version: int = 12, create: bool = False) -> Any:
    """A Metadata answer about these topics, about all without one."""
    asked = [{"name": name} for name in topics] or None
    return connection.ask("metadata", version, topics=asked, allow_auto_topic_creation=create)


def topic_id(connection: Connection, topic: str) -> Any:
    (found,) = metadata(connection, topic).topics
    return found.topic_id


def leader_epoch(connection: Connection, topic: str) -> int:
    (found,) = metadata(connection, topic).topics
    return int(found.partitions[0].leader_epoch)


def new_producer_id(connection: Connection) -> int:
    """A producer id; a broker that has just started may need a moment for its first."""
    limit = time.monotonic() + 20
    while True:
        answer = connection.ask("init_producer_id", 4, transaction_timeout=60_000)
        if answer.error_code == NONE:
            return int(answer.producer_id)
        assert answer.error_code == ErrorCode.coordinator_load_in_progress
        assert time.monotonic() < limit
        time.sleep(0.02)


def list_offset(
    connection: Connection, topic: str, timestamp: int, version: int = 8, partition: int = 0
) -> Any:
    """The answer about one partition."""
    asked = {"partition_index": partition, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [asked]}]
    answer = connection.ask("list_offsets", version, replica_id=-1, topics=topics)
    return answer.topics[0].partitions[0]


def advertised(connection: Connection) -> dict[int, tuple[int, int]]:
    """API key to the lowest and highest version that the server offers."""
    answer = connection.ask("api_versions", 0)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
