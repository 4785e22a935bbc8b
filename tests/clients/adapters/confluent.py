"""confluent-kafka (librdkafka)."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.clients.kit import (
    SECONDS_MAX,
    Acks,
    Client,
    Cluster,
    Codec,
    DeepAdmin,
    Headers,
    Received,
    Record,
    RefusedError,
)
from typing_extensions import override

BYTES_MAX = 20_000_000
"""So that the server judges the size, not the library."""


def settings(bootstrap: str, **more: object) -> dict[str, Any]:
    base = {"bootstrap.servers": bootstrap, "log_level": 2, "socket.nagle.disable": True}
    return {**base, **{key.replace("_", "."): value for key, value in more.items()}}


def settled(future: "Future[Any]") -> Any:
    """The future's result, or the server's refusal."""
    try:
        return future.result(SECONDS_MAX)
    except KafkaException as error:
        raise RefusedError(error.args[0].code(), error.args[0].str()) from error


class Confluent(Client):
    """Producer and consumer."""

    name = "confluent"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._consumer = self.new_consumer()

    def new_consumer(self) -> Consumer:
        more: dict[str, object] = {"group_id": "unused", "enable_auto_commit": False}
        more |= {"fetch_wait_max_ms": 100, "auto_offset_reset": "error"}
        return Consumer(settings(self.bootstrap, **more, check_crcs=True))

    @override
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        more: dict[str, object] = {"acks": acks, "enable_idempotence": idempotent}
        more |= {"compression_type": codec, "linger_ms": 5, "message_max_bytes": BYTES_MAX}
        producer = Producer(settings(self.bootstrap, **more))
        reports: list[tuple[KafkaError | None, Message]] = []
        for record in records:
            send(producer, topic, record, reports)
        assert producer.flush(SECONDS_MAX) == 0
        for error, _ in reports:
            if error is not None:
                raise RefusedError(error.code(), error.str())
        return [cast("int", message.offset()) for _, message in reports]

    @override
    def consume(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        start: int = 0,
        seconds: float = SECONDS_MAX,
    ) -> list[Received]:
        self._consumer.assign([TopicPartition(topic, number, start) for number in partitions])
        got: list[Received] = []
        limit = time.monotonic() + seconds
        while len(got) < count and (left := limit - time.monotonic()) > 0:
            for message in self._consumer.consume(count - len(got), min(left, 0.1)):
                if problem := message.error():
                    raise RefusedError(problem.code(), problem.str())
                got.append(received(message))
        self._consumer.unassign()
        return got

    @override
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        found = self._consumer.get_watermark_offsets(where, SECONDS_MAX)
        assert found is not None
        low, high = found
        return low, high

    @override
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        asked = TopicPartition(topic, partition, timestamp_ms)
        (found,) = self._consumer.offsets_for_times([asked], SECONDS_MAX)
        return None if found.offset < 0 else int(found.offset)

    @override
    def close(self) -> None:
        self._consumer.close()


def send(producer: Producer, topic: str, record: Record, reports: list[Any]) -> None:
    index = len(reports)
    place: list[Any] = [None, None]
    reports.append(place)

    def report(error: KafkaError | None, message: Message) -> None:
        reports[index] = (error, message)

    producer.produce(
        topic,
        value=record.value,
        key=record.key,
        partition=record.partition,
        headers=cast("Any", list(record.headers)),
        timestamp=record.timestamp_ms or 0,
        on_delivery=report,
    )


def received(message: Message) -> Received:
    return Received(
        partition=cast("int", message.partition()),
        offset=cast("int", message.offset()),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=cast("Headers", tuple(message.headers() or ())),
    )


class ConfluentAdmin(DeepAdmin):
    """AdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self.client = AdminClient(settings(bootstrap))

    @override
    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        settled(
            self.client.create_topics([NewTopic(name, partitions, 1, config=dict(configs or {}))])[
                name
            ]
        )

    @override
    def delete_topic(self, name: str) -> None:
        settled(self.client.delete_topics([name])[name])

    @override
    def topics(self) -> set[str]:
        return set(self.client.list_topics(timeout=SECONDS_MAX).topics)

    @override
    def partitions(self, topic: str) -> dict[int, int]:
        found = settled(self.client.describe_topics(TopicCollection([topic]))[topic])
        return {each.id: each.leader.id for each in found.partitions}

    @override
    def create_partitions(self, topic: str, total: int) -> None:
        settled(self.client.create_partitions([NewPartitions(topic, total)])[topic])

    @override
    def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = settled(self.client.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in found.items()}

    @override
    def alter_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        settled(self.client.incremental_alter_configs([resource])[resource])

    @override
    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        where = TopicPartition(topic, partition, before)
        return int(settled(self.client.delete_records([where])[where]).low_watermark)

    @override
    def cluster(self) -> Cluster:
        found = settled(self.client.describe_cluster())
        brokers = {node.id: f"{node.host}:{node.port}" for node in found.nodes}
        return Cluster(found.cluster_id, brokers, found.controller.id)

    @override
    def list_offset(self, topic: str, spec: str, partition: int = 0) -> tuple[int, int]:
        asked = OffsetSpec.for_timestamp(int(spec)) if spec.isdigit() else OFFSET_SPECS[spec]
        where = TopicPartition(topic, partition)
        level = IsolationLevel.READ_UNCOMMITTED
        found = self.client.list_offsets({where: asked}, isolation_level=level)[where]
        info = settled(found)
        return info.offset, info.timestamp


_SPECS: Any = OffsetSpec  # its methods have no types
OFFSET_SPECS = {
    "earliest": _SPECS.earliest(),
    "latest": _SPECS.latest(),
    "max_timestamp": _SPECS.max_timestamp(),
}
