"""confluent-kafka (librdkafka) as an auditor's client: the fast one, and the one for topics."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chronik.audit.clients import (
    ClientError,
    ConsumerSettings,
    Moved,
    Outgoing,
    Place,
    ProducerSettings,
    outcome_of,
    transient,
)
from chronik.audit.ledger import SendLog
from chronik.audit.payload import sequences_of
from chronik.audit.record_log import Polled

QUEUE_MESSAGES_MAX = 100_000
REQUEST_TIMEOUT_S = 15.0


class Producer:
    """One callback for all records: a value names its own sequence, so none is bound to it."""

    def __init__(self, settings: ProducerSettings, log: SendLog) -> None:
        self._log, self._topic = log, settings.topic
        self._acked: list[Any] = []
        self._delivered = self._callback(acks=settings.acks != "0")
        self._client: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": settings.bootstrap,
                "acks": settings.acks,
                "enable.idempotence": settings.idempotent,
                "linger.ms": 5,
                "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
                "message.timeout.ms": int(settings.timeout_s * 1000),
                "log_level": 2,
            }
        )

    def send(self, records: Sequence[Outgoing]) -> None:
        produce, delivered = self._client.produce, self._delivered
        for sequence, partition, key, value in records:
            while True:
                try:
                    place = -1 if partition is None else partition
                    produce(self._topic, value, key, place, on_delivery=delivered)
                    break
                except BufferError:
                    self._client.poll(0.05)
                    self._report()
                except confluent_kafka.KafkaException as error:
                    name = error.args[0].name()
                    self._log.ended(sequence, outcome_of(name), name)
                    break

    def drain(self) -> None:
        self._client.poll(0)
        self._report()

    def close(self, timeout_s: float) -> int:
        deadline = time.perf_counter() + timeout_s
        while len(self._client) and time.perf_counter() < deadline:
            self._client.poll(0.01)
            self._report()
        return len(self._client)

    def _callback(self, *, acks: bool) -> Callable[[Any, Any], None]:
        """Called for every record: what it needs is bound once."""
        keep, failed = self._acked.append, self._failed

        def delivered(error: Any, message: Any) -> None:
            if acks and error is None:
                keep(message)
            else:
                failed(error, message)

        return delivered

    def _failed(self, error: Any, message: Any) -> None:
        """No offset is known: an error, or nobody was asked for an ack."""
        (sequence,) = sequences_of([message.value()])
        name = error.name() if error else "acks=0"
        self._log.ended(sequence, outcome_of(name), name, message.partition())

    def _report(self) -> None:
        messages = self._acked
        if messages:
            sequences = sequences_of([message.value() for message in messages])
            offsets = [_offset(message) for message in messages]
            self._log.acked(sequences, [message.partition() for message in messages], offsets)
            messages.clear()


class Consumer:
    """Assigned partitions from their beginning, or a group."""

    def __init__(self, settings: ConsumerSettings, moved: Moved) -> None:
        self._settings, self._moved = settings, moved
        self._start = -1 if settings.group else 0
        self._client: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": settings.bootstrap,
                "group.id": settings.group or "chronik-audit",
                "enable.auto.commit": bool(settings.group),
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": settings.fetch_wait_ms,
                "log_level": 2,
            }
        )
        if settings.group:
            self._client.subscribe(
                [settings.topic], on_assign=self._assigned, on_revoke=self._revoked
            )
        else:
            places = [self._at(partition, 0) for partition in range(settings.partitions)]
            self._client.assign(places)
            for place in places:
                moved("assign", place.partition, 0)

    def poll(self, timeout_s: float) -> list[Polled]:
        with transient(confluent_kafka.KafkaException):
            messages = self._client.consume(self._settings.poll_records_max, timeout_s)
        return [
            Polled(m.partition(), m.offset(), m.key(), m.value(), _epoch(m))
            for m in messages
            if m.error() is None
        ]

    def places(self) -> dict[int, Place]:
        found = {}
        with transient(confluent_kafka.KafkaException):
            assigned = self._client.position(self._client.assignment())
        for place in assigned:
            with transient(confluent_kafka.KafkaException):
                ends = self._client.get_watermark_offsets(place, cached=True)
            # Nothing read yet: an assigned partition is still where it began.
            position = place.offset if place.offset >= 0 else self._start
            found[place.partition] = Place(position, ends[1] if ends and ends[1] >= 0 else -1)
        return found

    def close(self) -> None:
        self._client.close()

    def _assigned(self, client: Any, places: list[Any]) -> None:
        for place in client.committed(places, timeout=REQUEST_TIMEOUT_S):
            self._moved("rebalance", place.partition, max(0, place.offset))

    def _revoked(self, client: Any, places: list[Any]) -> None:
        for place in places:
            self._moved("revoke", place.partition, -1)

    def _at(self, partition: int, offset: int) -> Any:
        return confluent_kafka.TopicPartition(self._settings.topic, partition, offset)


class Cluster:
    """What the workload asks of a cluster besides sending and reading."""

    def __init__(self, bootstrap: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = min(timeout_s, REQUEST_TIMEOUT_S)
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def brokers(self) -> list[str]:
        try:
            metadata = self._admin.list_topics(timeout=self._timeout_s)
        except confluent_kafka.KafkaException as error:
            raise ClientError(f"cannot reach {self._bootstrap}: {error.args[0].str()}") from error
        ordered = sorted(metadata.brokers.items())
        return [f"{broker.host}:{broker.port}" for _, broker in ordered]

    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        asked = NewTopic(topic, partitions, replication)
        try:
            self._admin.create_topics([asked], request_timeout=self._timeout_s)[topic].result()
        except confluent_kafka.KafkaException as error:
            raise ClientError(f"cannot create {topic}: {error.args[0].str()}") from error
        self._await_leaders(topic, partitions)

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """Creation is acknowledged before every broker knows the topic."""
        deadline = time.perf_counter() + self._timeout_s
        while time.perf_counter() < deadline:
            found = self._admin.list_topics(topic, timeout=self._timeout_s).topics[topic]
            led = [part for part in found.partitions.values() if part.leader >= 0]
            if found.error is None and len(led) == partitions:
                return
            time.sleep(0.05)
        raise ClientError(f"{topic} has partitions without a leader")

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic], request_timeout=self._timeout_s)[topic].result()

    def log_bounds(self, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
        """Log start and end offset of each partition, as its leader says now."""
        client: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "chronik-audit", "log_level": 2}
        )
        try:
            return {number: self._bounds(client, topic, number) for number in range(partitions)}
        finally:
            client.close()

    def _bounds(self, client: Any, topic: str, partition: int) -> tuple[int, int]:
        """Asks again while brokers are down, for as long as a request may take."""
        place = confluent_kafka.TopicPartition(topic, partition)
        deadline = time.perf_counter() + self._timeout_s
        while True:
            try:
                low, high = client.get_watermark_offsets(place, timeout=self._timeout_s)
            except confluent_kafka.KafkaException as error:
                if time.perf_counter() > deadline:
                    said = f"no end offset of {topic}-{partition}: {error.args[0].str()}"
                    raise ClientError(said) from error
                time.sleep(0.2)
            else:
                return int(low), int(high)


def _offset(message: Any) -> int:
    """None where the broker answered success without one."""
    offset = message.offset()
    return -1 if offset is None else int(offset)


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)
