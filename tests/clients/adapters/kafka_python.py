"""kafka-python."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from tests.clients.kit import (
    SECONDS_MAX,
    Acks,
    Client,
    Cluster,
    Codec,
    DeepAdmin,
    Received,
    Record,
    RefusedError,
)
from typing_extensions import override

with warnings.catch_warnings():  # its import of its own schemas is deprecated in Python 3.11
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
    from kafka.admin import ConfigResource
    from kafka.errors import BrokerResponseError

BYTES_MAX = 20_000_000
Result = TypeVar("Result")


def settled(call: Callable[[], Result]) -> Result:
    """The call's result, or the server's refusal."""
    try:
        return call()
    except BrokerResponseError as error:
        raise RefusedError(error.errno, str(error)) from error


class KafkaPython(Client):
    """KafkaProducer and KafkaConsumer."""

    name = "kafka-python"
    null_key_and_value = False
    null_header_value = False

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
        )

    @override
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=BYTES_MAX,
        )
        try:
            sent = [send(producer, topic, record) for record in records]
            producer.flush(SECONDS_MAX)
            return [settled(partial(future.get, SECONDS_MAX)).offset for future in sent]
        finally:
            producer.close()

    @override
    def consume(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        start: int = 0,
        seconds: float = SECONDS_MAX,
    ) -> list[Received]:
        where = [TopicPartition(topic, number) for number in partitions]
        self._consumer.assign(where)
        for partition in where:
            self._consumer.seek(partition, start)
        got: list[Received] = []
        limit = time.monotonic() + seconds
        while len(got) < count and (left := limit - time.monotonic()) > 0:
            poll = partial(self._consumer.poll, int(min(left, 0.2) * 1000), count - len(got))
            found = settled(poll)
            got += [received(each) for some in found.values() for each in some]
        return got

    @override
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        first = self._consumer.beginning_offsets([where])[where]
        return first, self._consumer.end_offsets([where])[where]

    @override
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        where = TopicPartition(topic, partition)
        found = self._consumer.offsets_for_times({where: timestamp_ms})[where]
        return None if found is None else int(found.offset)

    @override
    def close(self) -> None:
        self._consumer.close()


def send(producer: Any, topic: str, record: Record) -> Any:
    return producer.send(
        topic,
        value=record.value,
        key=record.key,
        headers=list(record.headers),
        partition=record.partition,
        timestamp_ms=record.timestamp_ms,
    )


def received(message: Any) -> Received:
    headers = tuple((key, value) for key, value in message.headers)
    return Received(
        message.partition, message.offset, message.timestamp, message.key, message.value, headers
    )


class KafkaPythonAdmin(DeepAdmin):
    """KafkaAdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self.client = KafkaAdminClient(bootstrap_servers=bootstrap)

    @override
    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        asked = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        settled(lambda: self.client.create_topics({name: asked}))

    @override
    def delete_topic(self, name: str) -> None:
        settled(lambda: self.client.delete_topics([name]))

    @override
    def topics(self) -> set[str]:
        return set(self.client.list_topics())

    @override
    def partitions(self, topic: str) -> dict[int, int]:
        (found,) = self.client.describe_topics([topic])
        return {each["partition_index"]: each["leader_id"] for each in found["partitions"]}

    @override
    def create_partitions(self, topic: str, total: int) -> None:
        settled(lambda: self.client.create_partitions({topic: total}))

    @override
    def config(self, topic: str) -> dict[str, str | None]:
        found = self.client.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    @override
    def alter_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource("TOPIC", topic, {key: value})
        # Its own check of names does not know settings that still have their default.
        found = self.client.alter_configs([resource], raise_on_unknown=False)
        result = found["topic"][topic]
        if result != "OK":
            raise RefusedError(int(result.removeprefix("[Error ").partition("]")[0]), result)

    @override
    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        where = TopicPartition(topic, partition)
        found = settled(lambda: self.client.delete_records({where: before}))
        return int(found[where]["low_watermark"])

    @override
    def cluster(self) -> Cluster:
        found = self.client.describe_cluster()
        brokers = {each["broker_id"]: f"{each['host']}:{each['port']}" for each in found["brokers"]}
        return Cluster(found["cluster_id"], brokers, found["controller_id"])

    @override
    def list_offset(self, topic: str, spec: str, partition: int = 0) -> tuple[int, int]:
        asked: Any = int(spec) if spec.isdigit() else OffsetSpec[spec.upper()]
        where = TopicPartition(topic, partition)
        found = self.client.list_partition_offsets({where: asked})[where]
        return found.offset, found.timestamp
