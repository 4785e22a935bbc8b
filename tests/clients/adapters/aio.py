"""aiokafka; each call runs its own short event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code
from tests.clients.kit import (
    SECONDS_MAX,
    Acks,
    Admin,
    Client,
    Cluster,
    Codec,
    Received,
    Record,
    RefusedError,
)
from typing_extensions import override

BYTES_MAX = 20_000_000
Result = TypeVar("Result")


def check(code: int) -> None:
    if code:
        raise RefusedError(code, for_code(code).__name__)


class AioKafka(Client):
    """AIOKafkaProducer and AIOKafkaConsumer."""

    name = "aiokafka"
    null_key_and_value = False

    @override
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        return asyncio.run(self._produce(topic, records, codec, acks, idempotent))

    async def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, acks: Acks, idempotent: bool
    ) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=BYTES_MAX,
        )
        await producer.start()
        try:
            sent = [await send(producer, topic, record) for record in records]
            found = await asyncio.gather(*sent)
            return [-1 if each is None else each.offset for each in found]
        except KafkaError as error:
            raise RefusedError(error.errno, str(error)) from error
        finally:
            await producer.stop()

    async def _with_consumer(self, use: Callable[[Any], Awaitable[Result]]) -> Result:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        try:
            return await use(consumer)
        except KafkaError as error:
            raise RefusedError(error.errno or -1, str(error)) from error
        finally:
            await consumer.stop()

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
        limit = time.monotonic() + seconds

        async def use(consumer: Any) -> list[Received]:
            consumer.assign(where)
            for partition in where:
                consumer.seek(partition, start)
            got: list[Received] = []
            while len(got) < count and (left := limit - time.monotonic()) > 0:
                wait_ms = int(min(left, 0.2) * 1000)
                found = await consumer.getmany(timeout_ms=wait_ms, max_records=count - len(got))
                got += [received(each) for some in found.values() for each in some]
            return got

        return asyncio.run(self._with_consumer(use))

    @override
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        where = TopicPartition(topic, partition)

        async def use(consumer: Any) -> tuple[int, int]:
            first = await consumer.beginning_offsets([where])
            last = await consumer.end_offsets([where])
            return first[where], last[where]

        return asyncio.run(self._with_consumer(use))

    @override
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        where = TopicPartition(topic, partition)

        async def use(consumer: Any) -> int | None:
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return None if found is None else int(found.offset)

        return asyncio.run(self._with_consumer(use))


async def send(producer: Any, topic: str, record: Record) -> Any:
    return await producer.send(
        topic,
        value=record.value,
        key=record.key,
        partition=record.partition,
        headers=list(record.headers),
        timestamp_ms=record.timestamp_ms,
    )


def received(message: Any) -> Received:
    return Received(
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        tuple(message.headers),
    )


class AioKafkaAdmin(Admin):
    """AIOKafkaAdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def _ask(self, use: Callable[[Any], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await client.start()
            try:
                return await use(client)
            except KafkaError as error:
                raise RefusedError(error.errno or -1, str(error)) from error
            finally:
                await client.close()

        return asyncio.run(run())

    @override
    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        asked = NewTopic(name, partitions, 1, topic_configs=dict(configs or {}))
        found = self._ask(lambda client: client.create_topics([asked]))
        check(found.topic_errors[0][1])

    @override
    def delete_topic(self, name: str) -> None:
        found = self._ask(lambda client: client.delete_topics([name]))
        check(found.topic_error_codes[0][1])

    @override
    def topics(self) -> set[str]:
        return set(self._ask(lambda client: client.list_topics()))

    @override
    def partitions(self, topic: str) -> dict[int, int]:
        (found,) = self._ask(lambda client: client.describe_topics([topic]))
        return {each["partition"]: each["leader"] for each in found["partitions"]}

    @override
    def create_partitions(self, topic: str, total: int) -> None:
        found = self._ask(lambda client: client.create_partitions({topic: NewPartitions(total)}))
        check(found.topic_errors[0][1])

    @override
    def config(self, topic: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        (found,) = self._ask(lambda client: client.describe_configs([asked]))
        return {entry[0]: entry[1] for entry in found.resources[0][4]}

    @override
    def alter_config(self, topic: str, key: str, value: str) -> None:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        (found,) = self._ask(lambda client: client.alter_configs([asked]))
        check(found.resources[0][0])

    @override
    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        where = TopicPartition(topic, partition)
        asked = {where: RecordsToDelete(before)}
        found = self._ask(lambda client: client.delete_records(asked))
        return int(found[where])

    @override
    def cluster(self) -> Cluster:
        found = self._ask(lambda client: client.describe_cluster())
        brokers = {each["node_id"]: f"{each['host']}:{each['port']}" for each in found["brokers"]}
        return Cluster(found["cluster_id"], brokers, found["controller_id"])
